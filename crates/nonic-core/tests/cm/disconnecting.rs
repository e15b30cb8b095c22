//! How connections are ended.

use crate::cm::bench::*;
use nonic_core::cm::{CmEvent, CmState, Disconnect};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(3600);

#[track_caller]
fn cause(event: &CmEvent) -> Disconnect {
    match event {
        CmEvent::Disconnected { cause, .. } => *cause,
        other => panic!("not disconnected: {other:?}"),
    }
}

#[test]
fn a_request_to_disconnect_is_answered_at_once_and_both_hear_of_it() {
    let (mut pair, ours, theirs) = Pair::established();
    pair.client.cm.disconnect(pair.client.now, ours, b"bye").unwrap();
    let dreq = pair.client.sent_one();
    pair.client.expect_state(ours, CmState::DreqSent);
    pair.server.receive(&dreq);
    let event = pair.server.event();
    assert_eq!(cause(&event), Disconnect::Remote);
    assert!(
        matches!(event, CmEvent::Disconnected { private_data, .. } if private_data.starts_with(b"bye\0"))
    );
    let drep = pair.server.sent_one();
    assert_eq!(drep.mad.transaction_id, dreq.mad.transaction_id);
    pair.client.receive(&drep);
    assert_eq!(cause(&pair.client.event()), Disconnect::Local);
    pair.client.expect_state(ours, CmState::TimeWait);
    pair.server.expect_state(theirs, CmState::TimeWait);
}

#[test]
fn timewait_ends_and_nothing_is_left() {
    let (mut pair, ours, theirs) = Pair::established();
    pair.client.disconnect(ours);
    let dreq = pair.client.sent_one();
    pair.server.receive(&dreq);
    let drep = pair.server.sent_one();
    pair.client.receive(&drep);
    for (side, id) in [(&mut pair.client, ours), (&mut pair.server, theirs)] {
        side.events();
        side.pass(Duration::from_millis(19));
        side.silent();
        side.pass(Duration::from_secs(1));
        assert_eq!(side.event(), CmEvent::TimewaitExit { connection: id });
        side.expect_empty();
    }
}

#[test]
fn both_may_disconnect_at_once() {
    let (mut pair, ours, theirs) = Pair::established();
    pair.client.disconnect(ours);
    pair.server.disconnect(theirs);
    let (from_client, from_server) = (pair.client.sent_one(), pair.server.sent_one());
    pair.client.receive(&from_server);
    pair.server.receive(&from_client);
    for (side, id) in [(&mut pair.client, ours), (&mut pair.server, theirs)] {
        assert_eq!(cause(&side.event()), Disconnect::Remote);
        side.expect_state(id, CmState::TimeWait);
    }
    let (from_client, from_server) = (pair.client.sent_one(), pair.server.sent_one());
    pair.client.receive(&from_server);
    pair.server.receive(&from_client);
    pair.client.silent();
    pair.server.silent();
}

#[test]
fn a_lost_answer_is_given_again() {
    let (mut pair, ours, _) = Pair::established();
    pair.client.disconnect(ours);
    let dreq = pair.client.sent_one();
    pair.server.receive(&dreq);
    let _lost = pair.server.sent_one();
    pair.server.events();
    pair.client.pass(PATIENCE);
    let again = pair.client.sent_one();
    assert_eq!(again, dreq);
    pair.server.receive(&again);
    let drep = pair.server.sent_one();
    assert_eq!(pair.server.events(), [], "told once");
    pair.client.receive(&drep);
    assert_eq!(cause(&pair.client.event()), Disconnect::Local);
}

#[test]
fn a_peer_that_does_not_answer_is_disconnected_from_all_the_same() {
    let (mut pair, ours, _) = Pair::established();
    pair.client.disconnect(ours);
    for _ in 0..=3 {
        pair.client.sent_one();
        assert_eq!(pair.client.events(), []);
        pair.client.pass(PATIENCE);
    }
    assert_eq!(pair.client.sent(), []);
    assert_eq!(cause(&pair.client.event()), Disconnect::TimedOut);
    pair.client.expect_state(ours, CmState::TimeWait);
}

#[test]
fn a_connection_nobody_knows_is_disconnected() {
    let (mut pair, ours, _) = Pair::established();
    pair.client.disconnect(ours);
    let dreq = pair.client.sent_one();
    let mut restarted = Side::new(SERVER, 99);
    restarted.receive(&dreq);
    let drep = restarted.sent_one();
    restarted.expect_empty();
    pair.client.receive(&drep);
    assert_eq!(cause(&pair.client.event()), Disconnect::Local);
}

#[test]
fn a_request_with_another_queue_pair_or_from_another_address_is_not_believed() {
    let (mut pair, ours, theirs) = Pair::established();
    pair.client.disconnect(ours);
    let dreq = pair.client.sent_one();
    let message = expect_message!(dreq, Dreq);
    let wrong = nonic_wire::cm::Dreq {
        remote_qpn: nonic_core::Qpn::new(0x333),
        ..message
    };
    let tid = dreq.mad.transaction_id;
    pair.server
        .receive_from(CLIENT, tid, nonic_wire::cm::Message::Dreq(wrong));
    pair.server.silent();
    let stranger = std::net::IpAddr::from([10, 0, 0, 66]);
    pair.server
        .receive_from(stranger, tid, nonic_wire::cm::Message::Dreq(message));
    assert_eq!(pair.server.events(), []);
    pair.server.expect_state(theirs, CmState::Established);
}

#[test]
fn disconnecting_what_is_disconnected_is_no_error() {
    let (mut pair, ours, theirs) = Pair::established();
    pair.client.disconnect(ours);
    let dreq = pair.client.sent_one();
    pair.server.receive(&dreq);
    pair.server.events();
    pair.server.sent();
    pair.server.disconnect(theirs);
    pair.client.disconnect(ours);
    pair.server.silent();
    pair.client.silent();
}

#[test]
fn an_abandoned_connection_is_disconnected_without_a_word_to_the_program() {
    let (mut pair, ours, _) = Pair::established();
    pair.client.cm.abandon(pair.client.now, ours).unwrap();
    let dreq = pair.client.sent_one();
    pair.server.receive(&dreq);
    assert_eq!(cause(&pair.server.event()), Disconnect::Remote);
    let drep = pair.server.sent_one();
    pair.client.receive(&drep);
    pair.client.pass(LONG);
    pair.client.silent();
    pair.client.expect_empty();
}

#[test]
fn a_reply_whose_program_has_gone_is_disconnected() {
    let (mut pair, ours, theirs, rep) = Pair::accepted();
    pair.client.receive(&rep);
    pair.client.events();
    pair.client.establish(ours);
    let _rtu_is_late = pair.client.sent_one();
    pair.server.cm.abandon(pair.server.now, theirs).unwrap();
    let dreq = pair.server.sent_one();
    pair.client.receive(&dreq);
    assert_eq!(cause(&pair.client.event()), Disconnect::Remote);
}

#[test]
fn a_request_to_disconnect_may_overtake_ready_to_use() {
    let (mut pair, ours, _, rep) = Pair::accepted();
    pair.client.receive(&rep);
    pair.client.events();
    pair.client.establish(ours);
    let rtu = pair.client.sent_one();
    pair.client.disconnect(ours);
    let dreq = pair.client.sent_one();
    pair.server.receive(&dreq);
    assert_eq!(cause(&pair.server.event()), Disconnect::Remote);
    pair.server.sent();
    pair.server.receive(&rtu);
    pair.server.silent();
}

#[test]
fn a_peer_that_died_is_disconnected_from_and_not_written_to() {
    let (mut pair, ours, _) = Pair::established();
    let now = pair.client.now;
    pair.client.cm.peer_gone(now, SERVER, |_| false);
    pair.client.cm.peer_gone(now, CLIENT, |_| true);
    pair.client.expect_state(ours, CmState::Established);
    pair.client.cm.peer_gone(now, SERVER, |_| true);
    assert_eq!(cause(&pair.client.event()), Disconnect::Unknown);
    assert_eq!(pair.client.sent(), []);
    pair.client.expect_state(ours, CmState::TimeWait);
    pair.client.pass(LONG);
    assert_eq!(pair.client.event(), CmEvent::TimewaitExit { connection: ours });
    pair.client.expect_empty();
}

#[test]
fn a_program_that_ends_says_goodbye_to_everybody() {
    let (mut pair, _, _) = Pair::established();
    pair.client.cm.abandon_all(pair.client.now);
    let dreq = pair.client.sent_one();
    pair.server.receive(&dreq);
    assert_eq!(cause(&pair.server.event()), Disconnect::Remote);
}

#[test]
fn a_goodbye_that_was_lost_can_be_said_again_before_its_time() {
    let (mut pair, ours, _) = Pair::established();
    pair.client.disconnect(ours);
    let lost = pair.client.sent_one();
    pair.client.cm.abandon_all(pair.client.now);
    assert_eq!(pair.client.sent(), [], "it was said already");
    assert_eq!(pair.client.cm.unanswered_goodbyes(), 1);
    pair.client.cm.repeat_goodbyes(pair.client.now);
    let again = pair.client.sent_one();
    assert_eq!(again, lost);
    pair.server.receive(&again);
    assert_eq!(cause(&pair.server.event()), Disconnect::Remote);
    let drep = pair.server.sent_one();
    pair.client.receive(&drep);
    assert_eq!(pair.client.cm.unanswered_goodbyes(), 0);
    pair.client.cm.repeat_goodbyes(pair.client.now);
    assert_eq!(pair.client.sent(), []);
}
