//! Direct access, the target's side: what it publishes, and withdraws before anything ends that relied on it.

use crate::support::{Pair, Setup, SharedHost, pattern};
use crate::{completed, expect_nothing, post, sent};
use nonic_core::{
    Access, Event, KeyError, Psn, QpAttributes, QpState, RemoteAddress, SendOp, Status, Target,
};

#[test]
fn a_connected_queue_pair_is_published_with_what_it_permits() {
    let (pair, host) = SharedHost::pair(&Setup::rc());
    let expected = Target {
        local: pair.b.ip,
        remote: pair.a.ip,
        peer: pair.a.qpn,
        pd: pair.b.pd,
        access: Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
        first: Psn::new(0x10_0000),
    };
    assert_eq!(host.published(&pair.b, pair.b.qpn), Some(expected));
}

#[test]
fn rights_that_change_are_published_anew() {
    let (mut pair, host) = SharedHost::pair(&Setup::rc());
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 3000);
    sent!(pair.a, []);
    let rights = |access| QpAttributes {
        state: Some(QpState::Rts),
        access: Some(access),
        ..QpAttributes::default()
    };
    let qpn = pair.b.qpn;
    pair.b
        .modify(qpn, &rights(Access::REMOTE_READ))
        .expect("RTS to RTS");
    let published = host.published(&pair.b, qpn).expect("READs are permitted");
    assert_eq!(published.access, Access::REMOTE_READ);
    pair.b.modify(qpn, &rights(Access::empty())).expect("RTS to RTS");
    let published = host.published(&pair.b, qpn).expect("its SENDs may be fetched");
    assert_eq!(published.access, Access::empty());
    post!(pair.a, 2, SendOp::Write(remote), 0, 8);
    pair.exchange();
    completed!(pair.a, [(1, Status::Success), (2, Status::RemoteInvalidRequest)]);
}

#[test]
fn without_room_for_reads_and_atomics_they_are_refused_by_the_responder() {
    let (mut pair, host) = SharedHost::pair(&Setup {
        max_dest_rd_atomic: 0,
        ..Setup::rc()
    });
    let published = host.published(&pair.b, pair.b.qpn).expect("WRITEs are permitted");
    assert_eq!(published.access, Access::REMOTE_WRITE);
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 64);
    sent!(pair.a, []);
    post!(pair.a, 2, SendOp::Read(remote), 0, 64);
    pair.exchange();
    completed!(pair.a, [(1, Status::Success), (2, Status::RemoteInvalidRequest)]);
}

#[test]
fn a_queue_pair_that_waits_to_be_heard_from_is_published_after_that() {
    let setup = Setup::local();
    let mut pair = Pair::unconnected(&setup);
    let host = SharedHost::default();
    host.join(&mut pair.a);
    host.join(&mut pair.b);
    let (a, b) = (pair.a.qpn, pair.b.qpn);
    let remote_of = |ip, qpn, psn| crate::support::Remote {
        ip,
        qpn,
        psn: Psn::new(psn),
    };
    let to_b = remote_of(pair.b.ip, b, setup.second_psn);
    pair.a.connect(a, &to_b, Psn::new(setup.first_psn));
    let to_rtr = setup.to_rtr(&remote_of(pair.a.ip, a, setup.first_psn));
    pair.b.modify(b, &to_rtr).expect("INIT to RTR");
    assert_eq!(host.published(&pair.b, b), None);
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 2000);
    sent!(pair.a, []);
    assert_eq!(pair.host().waiting(&pair.a), 2);
    pair.host().deliver(&pair.a, &mut pair.b);
    assert_eq!(pair.b.events(), [Event::CommunicationEstablished(b)]);
    assert!(host.published(&pair.b, b).is_some());
    pair.exchange();
    post!(pair.a, 2, SendOp::Write(remote), 0, 2000);
    sent!(pair.a, []);
    completed!(pair.a, [(1, Status::Success), (2, Status::Success)]);
    expect_nothing!(pair.b);
}

#[test]
fn the_end_of_a_queue_pair_withdraws_it() {
    type End = fn(&mut Pair);
    let ends: [(&str, End); 5] = [
        ("error", |pair| pair.b.go_to(QpState::Error)),
        ("reset", |pair| pair.b.go_to(QpState::Reset)),
        ("destroy", |pair| assert!(pair.b.destroy_qp(pair.b.qpn))),
        ("failure of the device", |pair| pair.b.nic.fail(pair.b.now)),
        ("refusal", |pair| {
            let wrong = RemoteAddress { va: 0, rkey: 1 };
            post!(pair.a, 1, SendOp::Write(wrong), 0, 8);
            pair.exchange();
        }),
    ];
    for (name, end) in ends {
        let (mut pair, host) = SharedHost::pair(&Setup::rc());
        let qpn = pair.b.qpn;
        assert!(host.published(&pair.b, qpn).is_some(), "{name}");
        end(&mut pair);
        assert_eq!(host.published(&pair.b, qpn), None, "{name}");
    }
}

#[test]
fn a_queue_pair_that_begins_anew_is_published_anew() {
    let (mut pair, host) = SharedHost::pair(&Setup::rc());
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 3000);
    sent!(pair.a, []);
    for node in [&mut pair.a, &mut pair.b] {
        node.go_to(QpState::Reset);
        let (qpn, to_init) = (node.qpn, node.setup.to_init());
        node.modify(qpn, &to_init).expect("RESET to INIT");
    }
    let (a, b) = (pair.a.qpn, pair.b.qpn);
    pair.connect(a, b);
    let published = host.published(&pair.b, b).expect("connected");
    assert_eq!(published.first, Psn::new(0x10_0000));
    post!(pair.a, 2, SendOp::Write(remote), 0, 3000);
    sent!(pair.a, []);
    completed!(pair.a, [(1, Status::Success), (2, Status::Success)]);
}

#[test]
fn keys_are_published_and_withdrawn_before_revocation_returns() {
    let (mut pair, host) = SharedHost::pair(&Setup::rc());
    // One that was registered before, and one after.
    let (old, key) = (pair.b.key.clone(), pair.b.register(|_| {}));
    assert!(host.has_key(&pair.b, old.value()) && host.has_key(&pair.b, key.value()));
    let keys = pair.b.keys();
    let remote = RemoteAddress {
        rkey: key.value(),
        ..pair.b.remote(0)
    };
    post!(pair.a, 1, SendOp::Write(remote), 0, 8);
    sent!(pair.a, []);
    assert_eq!(keys.try_revoke(key.value()), Ok(()));
    assert!(!host.has_key(&pair.b, key.value()));
    assert_eq!(keys.try_revoke(key.value()), Err(KeyError::Unknown));
    pair.a.fill(0, &pattern(1, 8));
    post!(pair.a, 2, SendOp::Write(remote), 0, 8);
    pair.exchange();
    completed!(pair.a, [(1, Status::Success), (2, Status::RemoteAccess)]);
    assert_eq!(pair.b.bytes(0, 8), [0; 8]);
    // The polite way, and that of work requests.
    let (polite, invalidated) = (pair.b.register(|_| {}), pair.b.register(|_| {}));
    assert_eq!(keys.revoke_unbound(polite.value()), Ok(()));
    assert_eq!(
        keys.invalidate(invalidated.value(), pair.b.pd, pair.b.qpn),
        Ok(())
    );
    assert!(!host.has_key(&pair.b, polite.value()) && !host.has_key(&pair.b, invalidated.value()));
}

#[test]
fn a_key_that_a_stopped_peer_still_uses_is_dead_and_busy() {
    let (mut pair, host) = SharedHost::pair(&Setup::rc());
    host.state().stopped = true;
    let keys = pair.b.keys();
    let made: Vec<u32> = (0..4).map(|_| pair.b.register(|_| {}).value()).collect();
    assert_eq!(keys.try_revoke(made[0]), Err(KeyError::Busy));
    assert_eq!(keys.revoke_unbound(made[1]), Err(KeyError::Busy));
    assert_eq!(
        keys.invalidate(made[2], pair.b.pd, pair.b.qpn),
        Err(KeyError::Busy)
    );
    assert!(keys.revoke(made[3]), "it was there");
    for key in made {
        assert!(!host.has_key(&pair.b, key));
        assert!(keys.find(key, pair.b.pd, pair.b.qpn).is_err());
    }
}

#[test]
fn keys_for_one_queue_pair_are_not_published() {
    let (mut pair, host) = SharedHost::pair(&Setup::rc());
    let qpn = pair.b.qpn;
    let key = pair.b.register(|spec| spec.bound_qp = Some(qpn));
    assert!(!host.has_key(&pair.b, key.value()));
    let remote = RemoteAddress {
        rkey: key.value(),
        ..pair.b.remote(0)
    };
    post!(pair.a, 1, SendOp::Write(remote), 0, 8);
    assert_eq!(pair.host().waiting(&pair.a), 1, "it goes as a record");
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
    assert_eq!(pair.b.keys().try_revoke(key.value()), Ok(()));
}

#[test]
fn a_key_of_another_domain_is_refused() {
    let (mut pair, _host) = SharedHost::pair(&Setup::rc());
    let other = pair.b.keys().alloc_pd();
    let key = pair.b.register(|spec| spec.pd = other);
    let remote = RemoteAddress {
        rkey: key.value(),
        ..pair.b.remote(0)
    };
    post!(pair.a, 1, SendOp::Write(remote), 0, 8);
    pair.exchange();
    completed!(pair.a, [(1, Status::RemoteAccess)]);
}
