//! Memory windows: which queue pairs may bind them to what, which peers may use them, and how bindings end.

use crate::support::{Node, Pair, Setup, pattern};
use crate::{completed, post, received, recv};
use nonic_core::{
    Access, CompletionOpcode, Data, Key, KeyError, KeySpec, PostError, QpState, RemoteAddress, SendFlags,
    SendOp, Status, WindowBind, WindowKind,
};
use std::sync::Arc;

const ALL: Access = Access::REMOTE_WRITE
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC);

/// The node's memory, registered so that windows can be bound to it.
fn bindable(node: &mut Node) -> Arc<Key> {
    node.register(|spec| spec.access |= Access::MW_BIND)
}

fn window(node: &mut Node, kind: WindowKind) -> u32 {
    let pd = node.pd;
    node.nic.alloc_window(pd, kind).expect("a window")
}

/// The next key of the same window.
fn next(rkey: u32) -> u32 {
    rkey & !0xff | rkey.wrapping_add(1) & 0xff
}

/// A window over 1000 bytes that begin 500 bytes into the region.
fn bind(window: u32, region: &Key) -> WindowBind {
    WindowBind {
        window,
        rkey: next(window),
        lkey: region.value(),
        va: region.iova() + 500,
        length: 1000,
        access: ALL,
    }
}

fn post_bind(node: &mut Node, wr_id: u64, bind: WindowBind) {
    node.post(
        wr_id,
        SendOp::BindWindow(bind),
        Data::Sges(&[]),
        SendFlags::SIGNALED,
    )
    .expect("the request is posted");
}

/// Posts it and has it carried out.
#[track_caller]
fn bound(node: &mut Node, bind: WindowBind) {
    post_bind(node, 77, bind);
    node.transmit();
    completed!(node, [(77, Status::Success)]);
}

/// It must be refused: the completion says so, the queue pair fails, no key is left.
#[track_caller]
fn refused(node: &mut Node, bind: WindowBind) {
    let keys = node.keys().len();
    post_bind(node, 77, bind);
    node.transmit();
    completed!(node, [(77, Status::WindowBind)]);
    assert_eq!(node.state(), QpState::Error);
    assert_eq!(node.keys().len(), keys);
}

/// What becomes of a WRITE to `va` of the second node with `rkey`.
fn write(pair: &mut Pair, va: u64, rkey: u32, length: u32) -> Status {
    post!(pair.a, 1, SendOp::Write(RemoteAddress { va, rkey }), 0, length);
    pair.exchange();
    pair.a.completions()[0].status
}

/// A pair whose second node has a window of the kind, bound as [`bind`] says.
fn with_window(kind: WindowKind) -> (Pair, Arc<Key>, WindowBind) {
    let mut pair = Pair::rc();
    let region = bindable(&mut pair.b);
    let bind = bind(window(&mut pair.b, kind), &region);
    bound(&mut pair.b, bind);
    (pair, region, bind)
}

#[test]
fn a_binding_completes_as_one() {
    let mut pair = Pair::rc();
    let region = bindable(&mut pair.b);
    let bind = bind(window(&mut pair.b, WindowKind::Type2), &region);
    post_bind(&mut pair.b, 5, bind);
    pair.exchange();
    let done = completed!(pair.b, [(5, Status::Success)]);
    assert_eq!(done[0].opcode, CompletionOpcode::BindWindow);
}

#[test]
fn a_bound_window_gives_peers_its_part_of_the_region() {
    for kind in [WindowKind::Type1, WindowKind::Type2] {
        let (mut pair, _region, bind) = with_window(kind);
        pair.a.fill(0, &pattern(3, 1000));
        assert_eq!(write(&mut pair, bind.va, bind.rkey, 1000), Status::Success);
        assert_eq!(pair.b.bytes(500, 1000), pattern(3, 1000));
    }
}

#[test]
fn a_window_ends_where_its_binding_says() {
    for (before, length) in [(1, 1), (0, 1001)] {
        let (mut pair, _region, bind) = with_window(WindowKind::Type1);
        assert_eq!(
            write(&mut pair, bind.va - before, bind.rkey, length),
            Status::RemoteAccess
        );
    }
}

#[test]
fn a_window_has_its_own_rights() {
    let mut pair = Pair::rc();
    let region = bindable(&mut pair.b);
    let mut bind = bind(window(&mut pair.b, WindowKind::Type1), &region);
    bind.access = Access::REMOTE_READ | Access::LOCAL_WRITE;
    bound(&mut pair.b, bind);
    let remote = RemoteAddress {
        va: bind.va,
        rkey: bind.rkey,
    };
    post!(pair.a, 1, SendOp::Read(remote), 0, 8);
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
    assert_eq!(write(&mut pair, bind.va, bind.rkey, 8), Status::RemoteAccess);
}

#[test]
fn a_zero_based_window_counts_from_its_first_byte() {
    let mut pair = Pair::rc();
    let region = bindable(&mut pair.b);
    let mut bind = bind(window(&mut pair.b, WindowKind::Type2), &region);
    bind.access |= Access::ZERO_BASED;
    bound(&mut pair.b, bind);
    pair.a.fill(0, b"here");
    assert_eq!(write(&mut pair, 6, bind.rkey, 4), Status::Success);
    assert_eq!(pair.b.bytes(506, 4), b"here");
    assert_eq!(write(&mut pair, bind.va, bind.rkey, 4), Status::RemoteAccess);
}

#[test]
fn a_window_is_worth_nothing_before_it_is_bound() {
    let mut pair = Pair::rc();
    let rkey = window(&mut pair.b, WindowKind::Type1);
    let va = pair.b.remote(0).va;
    assert_eq!(write(&mut pair, va, rkey, 8), Status::RemoteAccess);
}

#[test]
fn binding_anew_ends_the_old_key() {
    let (mut pair, _region, first) = with_window(WindowKind::Type1);
    let second = WindowBind {
        rkey: next(first.rkey),
        ..first
    };
    bound(&mut pair.b, second);
    assert_eq!(write(&mut pair, second.va, second.rkey, 8), Status::Success);
    assert_eq!(write(&mut pair, first.va, first.rkey, 8), Status::RemoteAccess);
}

#[test]
fn binding_nothing_unbinds() {
    for kind in [WindowKind::Type1, WindowKind::Type2] {
        let (mut pair, region, bind) = with_window(kind);
        let nothing = WindowBind {
            rkey: next(bind.rkey),
            lkey: 0,
            length: 0,
            ..bind
        };
        bound(&mut pair.b, nothing);
        assert_eq!(region.bound_windows(), 0);
        assert_eq!(write(&mut pair, bind.va, bind.rkey, 8), Status::RemoteAccess);
    }
}

#[test]
fn a_window_of_type_two_must_be_unbound_before_it_is_bound_again() {
    let (mut pair, region, bind) = with_window(WindowKind::Type2);
    let again = WindowBind {
        rkey: next(bind.rkey),
        ..bind
    };
    refused(&mut pair.b, again);
    assert_eq!(region.bound_windows(), 1);
}

#[test]
fn a_window_of_type_two_serves_only_the_queue_pair_that_bound_it() {
    for (kind, expected) in [
        (WindowKind::Type1, Status::Success),
        (WindowKind::Type2, Status::RemoteAccess),
    ] {
        let (mut pair, _region, bind) = with_window(kind);
        (pair.a.qpn, pair.b.qpn) = pair.connect_more();
        assert_eq!(write(&mut pair, bind.va, bind.rkey, 8), expected);
    }
}

#[test]
fn local_invalidation_ends_a_binding_of_type_two_and_frees_it_for_the_next() {
    let (mut pair, region, bind) = with_window(WindowKind::Type2);
    let flags = SendFlags::SIGNALED;
    let end = SendOp::LocalInvalidate(bind.rkey);
    pair.b.post(2, end, Data::Sges(&[]), flags).expect("posted");
    pair.exchange();
    completed!(pair.b, [(2, Status::Success)]);
    assert_eq!(region.bound_windows(), 0);
    let again = WindowBind {
        rkey: next(bind.rkey),
        ..bind
    };
    bound(&mut pair.b, again);
    assert_eq!(write(&mut pair, again.va, again.rkey, 8), Status::Success);
    assert_eq!(write(&mut pair, bind.va, bind.rkey, 8), Status::RemoteAccess);
}

#[test]
fn a_window_of_type_one_cannot_be_invalidated() {
    let (mut pair, _region, bind) = with_window(WindowKind::Type1);
    let end = SendOp::LocalInvalidate(bind.rkey);
    pair.b
        .post(2, end, Data::Sges(&[]), SendFlags::SIGNALED)
        .expect("posted");
    pair.exchange();
    completed!(pair.b, [(2, Status::LocalQpOperation)]);
}

#[test]
fn a_peer_may_invalidate_a_window_of_type_two() {
    let (mut pair, region, bind) = with_window(WindowKind::Type2);
    recv!(pair.b, 9, 0, 8);
    post!(pair.a, 1, SendOp::SendWithInvalidate(bind.rkey), 0, 8);
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
    let got = received!(pair.b, [(9, Status::Success)]);
    assert_eq!(got[0].invalidated_rkey, Some(bind.rkey));
    assert_eq!(region.bound_windows(), 0);
    assert_eq!(write(&mut pair, bind.va, bind.rkey, 8), Status::RemoteAccess);
}

#[test]
fn a_freed_window_leaves_nothing_behind() {
    for kind in [WindowKind::Type1, WindowKind::Type2] {
        let (mut pair, region, bind) = with_window(kind);
        let keys = pair.b.keys();
        let before = keys.len();
        assert!(keys.free_window(bind.window));
        assert!(!keys.free_window(bind.window));
        assert_eq!((keys.len(), keys.windows()), (before - 1, 0));
        assert_eq!(region.bound_windows(), 0);
        assert_eq!(Arc::strong_count(&region), 2, "the table's and ours");
        assert_eq!(write(&mut pair, bind.va, bind.rkey, 8), Status::RemoteAccess);
    }
}

#[test]
fn a_region_with_windows_is_not_revoked_politely() {
    let (pair, region, bind) = with_window(WindowKind::Type1);
    let keys = pair.b.keys();
    assert_eq!(region.bound_windows(), 1);
    assert_eq!(keys.revoke_unbound(region.value()), Err(KeyError::Bound));
    keys.free_window(bind.window);
    assert_eq!(keys.revoke_unbound(region.value()), Ok(()));
    assert_eq!(keys.revoke_unbound(region.value()), Err(KeyError::Unknown));
}

#[test]
fn windows_die_with_their_region() {
    let (mut pair, region, bind) = with_window(WindowKind::Type1);
    assert!(pair.b.keys().revoke(region.value()));
    assert_eq!(write(&mut pair, bind.va, bind.rkey, 8), Status::RemoteAccess);
}

#[test]
fn a_binding_waits_for_what_was_posted_before_it() {
    let mut pair = Pair::rc();
    let region = bindable(&mut pair.b);
    let bind = bind(window(&mut pair.b, WindowKind::Type1), &region);
    let remote = pair.a.remote(0);
    post!(pair.b, 1, SendOp::Write(remote), 0, 8);
    post_bind(&mut pair.b, 2, bind);
    let request = pair.b.transmit();
    assert_eq!(region.bound_windows(), 0);
    pair.a.receive_all(&request);
    pair.exchange();
    completed!(pair.b, [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(region.bound_windows(), 1);
}

#[test]
fn an_unreliable_connection_binds_windows_too() {
    let mut pair = Pair::uc();
    let region = bindable(&mut pair.b);
    let bind = bind(window(&mut pair.b, WindowKind::Type2), &region);
    bound(&mut pair.b, bind);
    assert_eq!(region.bound_windows(), 1);
}

#[test]
fn datagram_queue_pairs_bind_no_windows() {
    let mut node = Node::new(1, &Setup::ud());
    let to_rtr = nonic_core::QpAttributes {
        state: Some(QpState::Rtr),
        ..Default::default()
    };
    node.modify(node.qpn, &to_rtr).expect("INIT to RTR");
    let to_rts = node.setup.to_rts(nonic_core::Psn::new(0));
    node.modify(node.qpn, &to_rts).expect("RTR to RTS");
    let region = bindable(&mut node);
    let bind = bind(window(&mut node, WindowKind::Type1), &region);
    let flags = SendFlags::SIGNALED;
    let posted = node.post(1, SendOp::BindWindow(bind), Data::Sges(&[]), flags);
    assert_eq!(posted, Err(PostError::Unsupported));
}

#[test]
fn a_binding_must_name_a_window_and_a_key_of_it() {
    let change: [fn(&mut WindowBind); 2] = [|bind| bind.window ^= 0x100, |bind| bind.rkey ^= 0x8000_0000];
    for change in change {
        let mut pair = Pair::rc();
        let region = bindable(&mut pair.b);
        let mut bind = bind(window(&mut pair.b, WindowKind::Type2), &region);
        change(&mut bind);
        refused(&mut pair.b, bind);
    }
}

#[test]
fn a_region_must_permit_the_binding() {
    let unfit: [fn(&mut KeySpec); 3] = [
        |spec| spec.access -= Access::MW_BIND,
        |spec| spec.access = Access::MW_BIND | Access::REMOTE_READ,
        |spec| spec.length = 1499,
    ];
    for unfit in unfit {
        let mut pair = Pair::rc();
        let region = pair.b.register(|spec| {
            spec.access |= Access::MW_BIND;
            unfit(spec);
        });
        let bind = bind(window(&mut pair.b, WindowKind::Type2), &region);
        refused(&mut pair.b, bind);
    }
}

#[test]
fn window_region_and_queue_pair_must_be_of_one_domain() {
    let mut pair = Pair::rc();
    let other = pair.b.keys().alloc_pd();
    let region = bindable(&mut pair.b);
    let foreign = pair
        .b
        .nic
        .alloc_window(other, WindowKind::Type1)
        .expect("a window");
    refused(&mut pair.b, bind(foreign, &region));

    let mut pair = Pair::rc();
    let other = pair.b.keys().alloc_pd();
    let region = pair.b.register(|spec| {
        spec.access |= Access::MW_BIND;
        spec.pd = other;
    });
    let own = window(&mut pair.b, WindowKind::Type1);
    refused(&mut pair.b, bind(own, &region));
}

#[test]
fn a_window_cannot_be_bound_to_a_window() {
    let (mut pair, _region, first) = with_window(WindowKind::Type1);
    let mut second = bind(window(&mut pair.b, WindowKind::Type1), &bindable(&mut pair.b));
    second.lkey = first.rkey;
    second.va = first.va;
    second.length = 8;
    refused(&mut pair.b, second);
}

#[test]
fn a_window_is_no_local_key() {
    let (mut pair, _region, bind) = with_window(WindowKind::Type1);
    let sge = nonic_core::Sge {
        addr: bind.va,
        length: 8,
        lkey: bind.rkey,
    };
    pair.b
        .post(1, SendOp::Send, Data::Sges(&[sge]), SendFlags::SIGNALED)
        .expect("posted");
    pair.exchange();
    completed!(pair.b, [(1, Status::LocalProtection)]);
}

#[test]
fn registering_never_takes_a_windows_keys() {
    let mut pair = Pair::rc();
    let rkey = window(&mut pair.b, WindowKind::Type1);
    let keys = pair.b.keys();
    let spec = KeySpec {
        pd: pair.b.pd,
        region: pair.b.memory.clone(),
        offset: 0,
        length: 8,
        iova: 0,
        access: Access::empty(),
        bound_qp: None,
        invalidatable: false,
    };
    for low in 0..=255 {
        let taken = keys.register_as(rkey & !0xff | low, spec.clone());
        assert!(matches!(taken, Ok(None)));
    }
    assert!(matches!(keys.register_as(rkey ^ 0x100, spec), Ok(Some(_))));
}
