//! Messages that come twice, and programs that take their time.

use crate::cm::bench::*;
use nonic_core::cm::{CmEvent, CmState};
use nonic_wire::cm::Subject;
use std::time::Duration;

#[test]
fn a_repeated_request_does_not_reach_the_program_again_but_asks_for_time() {
    let mut pair = Pair::new();
    pair.client.connect(SERVER);
    let req = pair.client.sent_one();
    pair.server.receive(&req);
    let theirs = pair.server.request().connection;
    for _ in 0..3 {
        pair.server.pass(PATIENCE);
        pair.server.receive(&req);
        assert_eq!(pair.server.events(), []);
        let mra = expect_message!(pair.server.sent_one(), Mra);
        assert_eq!((mra.subject, mra.service_timeout), (Subject::Req, 14));
        pair.server.expect_state(theirs, CmState::MraReqSent);
    }
    pair.server.accept(theirs);
    expect_message!(pair.server.sent_one(), Rep);
}

#[test]
fn a_repeated_request_gets_the_same_reply() {
    let (mut pair, _, theirs, rep) = Pair::accepted();
    pair.client.pass(PATIENCE);
    let req = pair.client.sent_one();
    pair.server.receive(&req);
    assert_eq!(pair.server.sent_one(), rep);
    assert_eq!(pair.server.events(), []);
    pair.server.expect_state(theirs, CmState::RepSent);
}

#[test]
fn a_repeated_reply_asks_for_time_while_the_program_thinks() {
    let (mut pair, ours, _, rep) = Pair::accepted();
    pair.client.receive(&rep);
    pair.client.events();
    pair.client.receive(&rep);
    let mra = expect_message!(pair.client.sent_one(), Mra);
    assert_eq!(mra.subject, Subject::Rep);
    assert_eq!(pair.client.events(), []);
    pair.client.establish(ours);
    expect_message!(pair.client.sent_one(), Rtu);
}

#[test]
fn a_repeated_reply_gets_ready_to_use_again() {
    let (mut pair, ours, theirs, rep) = Pair::accepted();
    pair.client.receive(&rep);
    pair.client.events();
    pair.client.establish(ours);
    let lost = pair.client.sent_one();
    pair.server.pass(PATIENCE);
    let again = pair.server.sent_one();
    assert_eq!(again, rep);
    pair.client.receive(&again);
    let rtu = pair.client.sent_one();
    assert_eq!(rtu, lost);
    pair.server.receive(&rtu);
    assert!(matches!(pair.server.event(), CmEvent::Established { connection, .. } if connection == theirs));
    pair.server.receive(&rtu);
    pair.server.silent();
}

#[test]
fn a_request_that_comes_late_is_rejected_while_its_connection_is_remembered() {
    let mut pair = Pair::new();
    let ours = pair.client.connect(SERVER);
    let req = pair.client.sent_one();
    pair.server.receive(&req);
    let theirs = pair.server.request().connection;
    pair.server.accept(theirs);
    let rep = pair.server.sent_one();
    pair.client.receive(&rep);
    pair.client.establish(ours);
    let rtu = pair.client.sent_one();
    pair.server.receive(&rtu);
    pair.server.disconnect(theirs);
    let dreq = pair.server.sent_one();
    pair.client.receive(&dreq);
    let drep = pair.client.sent_one();
    pair.server.receive(&drep);
    pair.server.events();
    pair.server.receive(&req);
    assert_eq!(pair.server.events(), []);
    let rej = pair.server.sent_one();
    assert_eq!(
        expect_message!(rej, Rej).reason,
        nonic_wire::cm::RejectReason::STALE_CONN
    );
    pair.client.events();
    pair.client.receive(&rej);
    pair.client.silent();
}

#[test]
fn waiting_for_a_slow_program_takes_as_long_as_it_said() {
    let (mut pair, ours, _) = Pair::requested();
    pair.client.pass(PATIENCE);
    pair.server.pass(PATIENCE);
    let req = pair.client.sent_one();
    pair.server.receive(&req);
    let mra = pair.server.sent_one();
    pair.client.receive(&mra);
    pair.client.expect_state(ours, CmState::MraReqReceived);
    let asked = Duration::from_nanos(4096 << 14);
    pair.client.pass(asked);
    pair.client.silent();
    pair.client.pass(PATIENCE);
    assert_eq!(pair.client.sent_one(), req);
    pair.client.expect_state(ours, CmState::ReqSent);
}

#[test]
fn a_peer_cannot_ask_for_time_for_ever() {
    let (mut pair, ours, theirs) = Pair::requested();
    let mra = nonic_wire::cm::Mra {
        local_comm_id: theirs.0,
        remote_comm_id: ours.0,
        subject: Subject::Req,
        service_timeout: 31,
        private_data: Default::default(),
    };
    pair.client.pass(PATIENCE);
    let tid = pair.client.sent_one().mad.transaction_id;
    for _ in 0..1000 {
        pair.client
            .receive_from(SERVER, tid, nonic_wire::cm::Message::Mra(mra));
        pair.client.pass(Duration::from_secs(1));
    }
    // 2^24 × 4.096 µs is the longest that is believed at a time.
    pair.client.pass(Duration::from_secs(500));
    for _ in 0..8 {
        pair.client.pass(PATIENCE);
    }
    assert!(matches!(pair.client.event(), CmEvent::Unreachable { connection, .. } if connection == ours));
}
