//! What can be posted, and what creating and modifying refuse. A refusal changes nothing.

use crate::support::{Node, Pair, Setup};
use crate::{expect_nothing, post};
use nonic_core::{
    Access, AttributeMask, CreateError, Data, ModifyError, Named, Path, PathMtu, PostError, QpAttributes,
    QpCapacity, QpState, Qpn, RecvRefused, SendFlags, SendOp, Service,
};
use std::net::IpAddr;

#[test]
fn sends_need_rts_and_receives_need_init() {
    let setup = Setup::rc();
    let mut node = Node::new(1, &setup);
    assert_eq!(
        node.try_send(1, SendOp::Send, 0, 8),
        Err(PostError::State(QpState::Init))
    );
    assert_eq!(node.try_recv(1, 0, 8), Ok(()));
    node.go_to(QpState::Reset);
    assert_eq!(
        node.try_send(1, SendOp::Send, 0, 8),
        Err(PostError::State(QpState::Reset))
    );
    assert_eq!(node.try_recv(1, 0, 8), Err(PostError::State(QpState::Reset)));
    node.qpn = Qpn::new(77);
    assert_eq!(node.try_send(1, SendOp::Send, 0, 8), Err(PostError::NoSuchQp));
    assert_eq!(node.try_recv(1, 0, 8), Err(PostError::NoSuchQp));
}

#[test]
fn too_many_elements_and_too_much_inline_data_are_refused() {
    let mut pair = Pair::rc();
    let element = pair.a.sge(0, 1);
    let send = |pair: &mut Pair, data: Data<'_>| pair.a.post(1, SendOp::Send, data, SendFlags::empty());
    assert_eq!(
        send(&mut pair, Data::Sges(&[element; 33])),
        Err(PostError::TooManySges)
    );
    assert_eq!(send(&mut pair, Data::Inline(&[0; 513])), Err(PostError::Inline));
    assert_eq!(
        pair.a.post_recv(1, &[element; 33]),
        Err(PostError::Receive(RecvRefused::TooManySges))
    );
    expect_nothing!(pair.a);
}

#[test]
fn an_answer_cannot_land_in_inline_data() {
    let mut pair = Pair::rc();
    let remote = pair.b.remote(0);
    for op in [SendOp::Read(remote), SendOp::FetchAdd { remote, add: 1 }] {
        let posted = pair.a.post(1, op, Data::Inline(&[0; 8]), SendFlags::empty());
        assert_eq!(posted, Err(PostError::Inline));
    }
}

#[test]
fn atomics_take_eight_bytes_and_local_invalidation_none() {
    let mut pair = Pair::rc();
    let remote = pair.b.remote(0);
    for length in [0, 7, 9] {
        let op = SendOp::FetchAdd { remote, add: 1 };
        assert_eq!(pair.a.try_send(1, op, 0, length), Err(PostError::Length));
    }
    let op = SendOp::LocalInvalidate(1);
    assert_eq!(pair.a.try_send(1, op, 0, 8), Err(PostError::Length));
}

#[test]
fn fetches_need_max_rd_atomic() {
    let mut pair = Pair::new(&Setup {
        max_rd_atomic: 0,
        ..Setup::rc()
    });
    let remote = pair.b.remote(0);
    assert_eq!(
        pair.a.try_send(1, SendOp::Read(remote), 0, 8),
        Err(PostError::NoFetches)
    );
    post!(pair.a, 1, SendOp::Write(remote), 0, 8);
}

#[test]
fn a_read_needs_memory_it_may_write() {
    let mut pair = Pair::rc();
    let remote = pair.b.remote(0);
    let key = pair.a.register(|spec| spec.access = Access::REMOTE_READ);
    let element = nonic_core::Sge {
        lkey: key.value(),
        ..pair.a.sge(0, 8)
    };
    pair.a
        .post(
            1,
            SendOp::Read(remote),
            Data::Sges(&[element]),
            SendFlags::SIGNALED,
        )
        .expect("wrong keys show on use");
    pair.exchange();
    let done = pair.a.completions();
    assert_eq!(
        crate::support::outcomes(&done),
        [(1, nonic_core::Status::LocalProtection)]
    );
}

#[test]
fn sizes_above_the_nics_limits_are_refused_by_name() {
    let mut node = Node::new(1, &Setup::rc());
    let capacity = node.setup.capacity;
    let above = |change: fn(&mut QpCapacity)| {
        let mut changed = capacity;
        change(&mut changed);
        changed
    };
    for (capacity, name) in [
        (above(|c| c.max_send_wr = 32_769), "max_send_wr"),
        (above(|c| c.max_recv_wr = 32_769), "max_recv_wr"),
        (above(|c| c.max_send_sge = 33), "max_send_sge"),
        (above(|c| c.max_recv_sge = 33), "max_recv_sge"),
        (above(|c| c.max_inline_data = 1025), "max_inline_data"),
    ] {
        let mut init = node.qp_init();
        init.capacity = capacity;
        assert_eq!(node.nic.create_qp(init), Err(CreateError::Limit(name)));
    }
    let mut other = node.qp_init();
    other.service = Service::Cnp;
    assert_eq!(node.nic.create_qp(other), Err(CreateError::Unsupported));
}

#[test]
fn a_number_can_be_chosen_once() {
    let mut node = Node::new(1, &Setup::rc());
    let init = node.qp_init();
    let chosen = Qpn::new(0x1234);
    assert_eq!(node.nic.create_qp_with(chosen, init.clone()), Ok(chosen));
    // Queue pair 1 is the NIC's own.
    for taken in [chosen, node.qpn, Qpn::GSI, Qpn::MULTICAST] {
        assert_eq!(
            node.nic.create_qp_with(taken, init.clone()),
            Err(CreateError::QpnInUse)
        );
    }
    assert!(node.destroy_qp(chosen));
    assert_eq!(node.nic.create_qp_with(chosen, init), Ok(chosen));
    assert!(!node.destroy_qp(Qpn::GSI));
}

#[test]
fn numbers_come_from_the_nics_blocks_and_run_out() {
    let mut node = Node::new(1, &Setup::rc());
    node.nic.add_qpn_block(0x123);
    let mut created = 0;
    loop {
        match node.nic.create_qp(node.qp_init()) {
            Ok(qpn) => assert_eq!(qpn.value() >> 12, 0x123),
            Err(error) => {
                assert_eq!(error, CreateError::NoQpn);
                break;
            }
        }
        created += 1;
    }
    assert!((3000..4096).contains(&created), "{created}");
}

/// A peer to connect to in name only.
fn some_peer() -> crate::support::Remote {
    crate::support::Remote {
        ip: IpAddr::from([10, 0, 0, 2]),
        qpn: Qpn::new(5),
        psn: nonic_core::Psn::new(0),
    }
}

/// `set` with one value out of range must be refused by that value's name.
#[track_caller]
fn refused_by_name(
    node: &mut Node,
    set: &QpAttributes,
    at_fault: AttributeMask,
    spoil: impl FnOnce(&mut QpAttributes),
) {
    let (qpn, state) = (node.qpn, node.state());
    let mut set = set.clone();
    spoil(&mut set);
    assert_eq!(node.modify(qpn, &set), Err(ModifyError::Invalid(Named(at_fault))));
    assert_eq!(node.state(), state, "a refusal changes nothing");
}

#[test]
fn values_out_of_range_on_the_way_to_rtr_are_refused_by_name() {
    let setup = Setup::rc();
    let mut node = Node::new(1, &setup);
    let rtr = setup.to_rtr(&some_peer());
    let no_endpoint = Path {
        gid_index: 3,
        remote: some_peer().ip,
    };
    let other_family = Path {
        gid_index: 0,
        remote: IpAddr::from([0u16; 8]),
    };
    for path in [no_endpoint, other_family] {
        refused_by_name(&mut node, &rtr, AttributeMask::PATH, |set| set.path = Some(path));
    }
    refused_by_name(&mut node, &rtr, AttributeMask::MAX_DEST_RD_ATOMIC, |set| {
        set.max_dest_rd_atomic = Some(129);
    });
    refused_by_name(&mut node, &rtr, AttributeMask::PKEY_INDEX, |set| {
        set.pkey_index = Some(1);
    });
}

#[test]
fn values_out_of_range_on_the_way_to_rts_are_refused_by_name() {
    let setup = Setup::rc();
    let mut node = Node::new(1, &setup);
    let qpn = node.qpn;
    node.modify(qpn, &setup.to_rtr(&some_peer()))
        .expect("INIT to RTR");
    let rts = setup.to_rts(nonic_core::Psn::new(0));
    refused_by_name(&mut node, &rts, AttributeMask::RETRY_CNT, |set| {
        set.retry_count = Some(8);
    });
    refused_by_name(&mut node, &rts, AttributeMask::RNR_RETRY, |set| {
        set.rnr_retry = Some(8);
    });
    refused_by_name(&mut node, &rts, AttributeMask::MAX_RD_ATOMIC, |set| {
        set.max_rd_atomic = Some(129);
    });
}

#[test]
fn a_path_mtu_above_the_ports_is_refused() {
    let setup = Setup::rc();
    let config = nonic_core::NicConfig {
        port_mtu: PathMtu::Mtu1024,
        ..setup.nic_config()
    };
    let mut node = Node::configured(1, &setup, config);
    let set = QpAttributes {
        path_mtu: Some(PathMtu::Mtu2048),
        ..setup.to_rtr(&some_peer())
    };
    let qpn = node.qpn;
    assert_eq!(
        node.modify(qpn, &set),
        Err(ModifyError::Invalid(Named(AttributeMask::PATH_MTU)))
    );
}

#[test]
fn attributes_can_be_read_back() {
    let pair = Pair::rc();
    let attributes = pair.a.nic.query_qp(pair.a.qpn).expect("it exists");
    assert_eq!(attributes.state, Some(QpState::Rts));
    assert_eq!(attributes.dest_qpn, Some(pair.b.qpn));
    assert_eq!(attributes.path_mtu, Some(PathMtu::Mtu1024));
    assert_eq!(
        attributes.sq_psn,
        Some(nonic_core::Psn::new(pair.a.setup.first_psn))
    );
    assert_eq!(pair.a.nic.query_qp(Qpn::new(9)), None);
}
