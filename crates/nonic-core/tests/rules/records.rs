//! A reliable connection between two processes of one host: records in a lane follow the rules that packets follow.

use crate::support::{Pair, Remote, Setup, ms, pattern, us};
use crate::{completed, post, received, recv, sent};
use nonic_core::record::QpEvent;
use nonic_core::{Data, Event, Psn, QpState, RecordAnswer, RecordTag, SendFlags, SendOp, Status, Time};
use nonic_wire::{NakCode, Packet, Qpn};
use proptest::prelude::*;

/// Delivers the next record of the first node.
fn deliver(pair: &mut Pair) -> Option<RecordAnswer> {
    let host = pair.host();
    host.deliver(&pair.a, &mut pair.b)
}

/// Gives the first node its answers.
fn answer(pair: &mut Pair) -> usize {
    let host = pair.host();
    host.answer(&mut pair.a)
}

#[test]
fn a_request_is_written_while_it_is_posted_and_no_packet_leaves() {
    let mut pair = Pair::local();
    recv!(pair.b, 2, 0, 64);
    post!(pair.a, 1, SendOp::Send, 0, 64);
    assert_eq!(pair.host().waiting(&pair.a), 1);
    assert_eq!(pair.a.nic.ready_queue_pairs(), 0, "nothing is left to do");
    sent!(pair.a, []);
    completed!(pair.a, []);
    assert_eq!(deliver(&mut pair), Some(RecordAnswer::Executed));
    received!(pair.b, [(2, Status::Success)]);
    completed!(pair.a, []);
    assert_eq!(answer(&mut pair), 1);
    completed!(pair.a, [(1, Status::Success)]);
    sent!(pair.a, []);
    sent!(pair.b, []);
}

#[test]
fn work_completes_in_order_and_a_read_sees_what_was_written_before() {
    let mut pair = Pair::local();
    pair.a.fill(0, &pattern(1, 5000));
    let remote = pair.b.remote(8192);
    post!(pair.a, 1, SendOp::Write(remote), 0, 5000);
    post!(pair.a, 2, SendOp::Read(remote), 16384, 5000);
    post!(pair.a, 3, SendOp::FetchAdd { remote, add: 1 }, 32768, 8);
    pair.exchange();
    completed!(
        pair.a,
        [(1, Status::Success), (2, Status::Success), (3, Status::Success)]
    );
    assert_eq!(pair.a.bytes(16384, 5000), pattern(1, 5000));
    assert_eq!(pair.b.word(8192), pair.a.word(32768).wrapping_add(1));
}

#[test]
fn a_fenced_request_waits_for_the_read_before_it() {
    let mut pair = Pair::local();
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Read(remote), 0, 8);
    let sges = [pair.a.sge(0, 8)];
    let fenced = SendFlags::FENCE | SendFlags::SIGNALED;
    pair.a
        .post(2, SendOp::Write(remote), Data::Sges(&sges), fenced)
        .expect("it is posted");
    post!(pair.a, 3, SendOp::Write(remote), 0, 8);
    sent!(pair.a, []);
    assert_eq!(pair.host().waiting(&pair.a), 1, "the READ alone");
    deliver(&mut pair);
    answer(&mut pair);
    sent!(pair.a, []);
    assert_eq!(pair.host().waiting(&pair.a), 2);
    pair.exchange();
    completed!(
        pair.a,
        [(1, Status::Success), (2, Status::Success), (3, Status::Success)]
    );
}

#[test]
fn no_more_reads_are_under_way_than_the_peer_takes() {
    let mut pair = Pair::new(&Setup {
        max_rd_atomic: 2,
        ..Setup::local()
    });
    let remote = pair.b.remote(0);
    for wr_id in 1..=5 {
        post!(pair.a, wr_id, SendOp::Read(remote), 0, 8);
    }
    sent!(pair.a, []);
    assert_eq!(pair.host().waiting(&pair.a), 2);
    pair.exchange();
    let all = [1, 2, 3, 4, 5].map(|wr_id| (wr_id, Status::Success));
    assert_eq!(crate::support::outcomes(&pair.a.completions()), all);
}

#[test]
fn without_a_receive_the_record_and_all_behind_it_are_written_again_later() {
    let mut pair = Pair::local();
    let remote = pair.b.remote(64);
    pair.b.set_word(64, 5);
    post!(pair.a, 1, SendOp::Send, 0, 8);
    post!(pair.a, 2, SendOp::FetchAdd { remote, add: 1 }, 128, 8);
    assert!(matches!(deliver(&mut pair), Some(RecordAnswer::NotReady(_))));
    assert_eq!(
        deliver(&mut pair),
        Some(RecordAnswer::Unexpected),
        "it is not its turn"
    );
    assert_eq!(pair.b.word(64), 5);
    answer(&mut pair);
    sent!(pair.a, []);
    assert_eq!(pair.host().waiting(&pair.a), 0, "the peer asked for quiet");
    recv!(pair.b, 3, 0, 64);
    pair.advance(us(650));
    pair.exchange();
    completed!(pair.a, [(1, Status::Success), (2, Status::Success)]);
    received!(pair.b, [(3, Status::Success)]);
    assert_eq!((pair.b.word(64), pair.a.word(128)), (6, 5), "it was added once");
}

#[test]
fn a_peer_that_was_not_ready_is_tried_with_one_record() {
    let mut pair = Pair::local();
    for wr_id in 1..=5 {
        post!(pair.a, wr_id, SendOp::Send, 0, 3000);
    }
    sent!(pair.a, []);
    assert_eq!(pair.host().waiting(&pair.a), 15);
    while deliver(&mut pair).is_some() {}
    answer(&mut pair);
    pair.advance(us(650));
    sent!(pair.a, []);
    assert_eq!(pair.host().waiting(&pair.a), 1);
    for wr_id in 11..=15 {
        recv!(pair.b, wr_id, 0, 4096);
    }
    deliver(&mut pair);
    answer(&mut pair);
    sent!(pair.a, []);
    assert_eq!(pair.host().waiting(&pair.a), 14, "it is ready");
    pair.exchange();
    assert_eq!(pair.a.completions().len(), 5);
}

#[test]
fn a_peer_that_never_has_a_receive_is_given_up() {
    let mut pair = Pair::local();
    post!(pair.a, 1, SendOp::Send, 0, 8);
    post!(pair.a, 2, SendOp::Send, 0, 8);
    let mut asked = 0;
    for _ in 0..50 {
        pair.exchange();
        asked += 1;
        if pair.a.state() == QpState::Error {
            break;
        }
        pair.advance(ms(50));
    }
    assert_eq!(asked, 1 + 3, "once, and as often again as rnr_retry says");
    completed!(pair.a, [(1, Status::RnrRetryExceeded), (2, Status::Flushed)]);
    assert_eq!(pair.b.state(), QpState::Rts, "the peer lives on");
}

#[test]
fn a_write_with_immediate_waits_at_its_last_record() {
    let mut pair = Pair::local();
    pair.a.fill(0, &pattern(3, 3000));
    let remote = pair.b.remote(4096);
    post!(pair.a, 1, SendOp::WriteWithImmediate(remote, 7), 0, 3000);
    sent!(pair.a, []);
    let answers: Vec<_> = (0..3).map_while(|_| deliver(&mut pair)).collect();
    assert_eq!(answers[..2], [RecordAnswer::Executed; 2]);
    assert!(matches!(answers[2], RecordAnswer::NotReady(_)));
    answer(&mut pair);
    recv!(pair.b, 2, 0, 64);
    pair.advance(us(650));
    sent!(pair.a, []);
    assert_eq!(
        pair.host().waiting(&pair.a),
        1,
        "what was executed is not written again"
    );
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
    let got = received!(pair.b, [(2, Status::Success)]);
    assert_eq!((got[0].immediate, got[0].byte_len), (Some(7), 3000));
    assert_eq!(pair.b.bytes(4096, 3000), pattern(3, 3000));
}

/// Two nodes on one host of which only the first is connected.
fn half_connected() -> (Pair, Remote) {
    let setup = Setup::local();
    let mut pair = Pair::unconnected(&setup);
    let at_b = Remote {
        ip: pair.b.ip,
        qpn: pair.b.qpn,
        psn: Psn::new(setup.second_psn),
    };
    let (qpn, psn) = (pair.a.qpn, Psn::new(setup.first_psn));
    pair.a.connect(qpn, &at_b, psn);
    let at_a = Remote {
        ip: pair.a.ip,
        qpn,
        psn,
    };
    (pair, at_a)
}

#[test]
fn a_peer_that_does_not_receive_yet_is_tried_again_soon_and_uses_up_no_retry() {
    let (mut pair, at_a) = half_connected();
    post!(pair.a, 1, SendOp::Send, 0, 8);
    post!(pair.a, 2, SendOp::Send, 0, 8);
    for _ in 0..5 {
        pair.exchange();
        completed!(pair.a, []);
        pair.advance(ms(11));
    }
    assert_eq!(pair.a.nic.counters().timeouts, 0);
    let qpn = pair.b.qpn;
    pair.b.connect(qpn, &at_a, Psn::new(pair.b.setup.second_psn));
    recv!(pair.b, 3, 0, 64);
    recv!(pair.b, 4, 0, 64);
    pair.advance(ms(11));
    pair.exchange();
    completed!(pair.a, [(1, Status::Success), (2, Status::Success)]);
    received!(pair.b, [(3, Status::Success), (4, Status::Success)]);
}

#[test]
fn a_peer_that_never_receives_is_given_up_when_its_retries_are_used_up() {
    let (mut pair, _) = half_connected();
    post!(pair.a, 1, SendOp::Send, 0, 8);
    let begin = pair.a.now;
    while pair.a.state() != QpState::Error {
        pair.exchange();
        pair.advance(ms(5));
        assert!(pair.a.now.since(begin) < ms(5000), "it tries for ever");
    }
    completed!(pair.a, [(1, Status::RetryExceeded)]);
    // 67 ms, and three times more, each longer than the one before.
    // Four timeouts, of which the later ones are longer: 1 + 2 + 4 + 4 times the usual one. From the old time on, the first would have
    // passed already.
    let waited = pair.a.now.since(begin);
    assert!(waited >= 11 * ms(67), "{waited:?}");
}

#[test]
fn a_peer_that_does_not_look_is_given_up_when_its_retries_are_used_up() {
    let mut pair = Pair::local();
    // A post may carry an old time: it must not shorten the wait.
    let old = pair.a.now;
    pair.a.advance(ms(10_000));
    let late = std::mem::replace(&mut pair.a.now, old);
    post!(pair.a, 1, SendOp::Send, 0, 8);
    pair.a.now = late;
    let begin = pair.a.now;
    while pair.a.state() != QpState::Error {
        sent!(pair.a, []);
        pair.a.advance(ms(5));
        assert!(pair.a.now.since(begin) < ms(5000), "it waits for ever");
    }
    completed!(pair.a, [(1, Status::RetryExceeded)]);
    // Four timeouts, of which the later ones are longer: 1 + 2 + 4 + 4 times the usual one. From the old time on, the first would have
    // passed already.
    let waited = pair.a.now.since(begin);
    assert!(waited >= 11 * ms(67), "{waited:?}");
    assert_eq!(pair.host().waiting(&pair.a), 1, "it was written once");
}

#[test]
fn who_looks_late_is_not_given_up() {
    let mut pair = Pair::local();
    for wr_id in 0..20 {
        recv!(pair.b, 100 + wr_id, 0, 64);
        post!(pair.a, wr_id, SendOp::Send, 0, 8);
        pair.advance(ms(150));
        pair.exchange();
        completed!(pair.a, [(wr_id, Status::Success)]);
    }
}

#[test]
fn a_refusal_ends_both_sides() {
    let mut pair = Pair::local();
    let mut remote = pair.b.remote(0);
    remote.rkey ^= 0x5500;
    post!(pair.a, 1, SendOp::Write(remote), 0, 8);
    post!(pair.a, 2, SendOp::Send, 0, 8);
    recv!(pair.b, 3, 0, 64);
    assert_eq!(
        deliver(&mut pair),
        Some(RecordAnswer::Refused(NakCode::RemoteAccessError))
    );
    assert_eq!(deliver(&mut pair), Some(RecordAnswer::Ignored));
    answer(&mut pair);
    completed!(pair.a, [(1, Status::RemoteAccess), (2, Status::Flushed)]);
    received!(pair.b, [(3, Status::Flushed)]);
    assert_eq!(pair.b.events(), [Event::QpAccessError(pair.b.qpn)]);
    assert_eq!((pair.a.state(), pair.b.state()), (QpState::Error, QpState::Error));
}

#[test]
fn a_message_that_is_longer_than_its_receive_ends_both_sides() {
    let mut pair = Pair::local();
    recv!(pair.b, 2, 0, 1500);
    post!(pair.a, 1, SendOp::Send, 0, 3000);
    pair.exchange();
    completed!(pair.a, [(1, Status::RemoteInvalidRequest)]);
    received!(pair.b, [(2, Status::LocalLength)]);
}

#[test]
fn a_local_key_that_permits_nothing_ends_what_is_before_it_first() {
    let mut pair = Pair::local();
    recv!(pair.b, 9, 0, 64);
    post!(pair.a, 1, SendOp::Send, 0, 8);
    let mut sge = pair.a.sge(0, 8);
    sge.lkey ^= 0x5500;
    pair.a
        .post(2, SendOp::Send, Data::Sges(&[sge]), SendFlags::SIGNALED)
        .expect("it is posted");
    sent!(pair.a, []);
    assert_eq!(pair.a.state(), QpState::Rts);
    pair.exchange();
    completed!(pair.a, [(1, Status::Success), (2, Status::LocalProtection)]);
    assert_eq!(pair.a.state(), QpState::Error);
}

#[test]
fn a_destroyed_peer_is_gone_and_what_it_did_not_execute_fails_soon() {
    let mut pair = Pair::local();
    recv!(pair.b, 9, 0, 64);
    post!(pair.a, 1, SendOp::Send, 0, 8);
    post!(pair.a, 2, SendOp::Send, 0, 8);
    deliver(&mut pair);
    let qpn = pair.b.qpn;
    assert!(pair.b.destroy_qp(qpn));
    assert_eq!(deliver(&mut pair), Some(RecordAnswer::Gone));
    answer(&mut pair);
    completed!(pair.a, [(1, Status::Success)]);
    pair.a.advance(ms(600));
    completed!(pair.a, [(2, Status::RetryExceeded)]);
}

#[test]
fn a_process_that_ends_fails_what_it_did_not_execute() {
    let mut pair = Pair::local();
    let host = pair.host();
    host.end_lanes(&mut pair.a);
    pair.a.advance(ms(600));
    assert_eq!(pair.a.state(), QpState::Rts, "nothing was under way");
    post!(pair.a, 1, SendOp::Send, 0, 8);
    sent!(pair.a, []);
    assert_eq!(pair.host().waiting(&pair.a), 0, "nothing more is written");
    pair.a.advance(ms(600));
    completed!(pair.a, [(1, Status::RetryExceeded)]);
}

#[test]
fn a_full_lane_is_written_to_when_there_is_room_again() {
    let mut pair = Pair::local();
    pair.host().state().room = Some(2);
    for wr_id in 0..10 {
        recv!(pair.b, 100 + wr_id, 0, 4096);
        post!(pair.a, wr_id, SendOp::Send, 0, 1500);
    }
    sent!(pair.a, []);
    assert_eq!(pair.host().waiting(&pair.a), 2);
    assert_eq!(pair.a.nic.ready_queue_pairs(), 0, "it waits for answers");
    pair.exchange();
    let all: Vec<_> = (0..10).map(|wr_id| (wr_id, Status::Success)).collect();
    assert_eq!(crate::support::outcomes(&pair.a.completions()), all);
    assert_eq!(pair.b.receptions().len(), 10);
}

#[test]
fn a_pause_that_the_peer_asked_for_uses_up_no_retry_though_the_lane_was_full() {
    // The pause takes 655 ms, all retries together 11.
    let mut pair = Pair::new(&Setup {
        timeout_exponent: 8,
        rnr_timer_code: 0,
        ..Setup::local()
    });
    pair.host().state().room = Some(2);
    for wr_id in 1..=3 {
        post!(pair.a, wr_id, SendOp::Send, 0, 8);
    }
    assert_eq!(pair.host().waiting(&pair.a), 2, "there is room for two");
    assert_eq!(deliver(&mut pair), Some(RecordAnswer::NotReady(0)));
    answer(&mut pair);
    for _ in 0..100 {
        pair.a.advance(ms(5));
    }
    completed!(pair.a, []);
    for wr_id in 1..=3 {
        recv!(pair.b, wr_id, 0, 64);
    }
    pair.advance(ms(300));
    pair.exchange();
    let done = |wr_id| (wr_id, Status::Success);
    completed!(pair.a, [done(1), done(2), done(3)]);
}

#[test]
fn who_finds_a_lane_full_that_nobody_looks_at_gives_up_as_well() {
    let mut pair = Pair::local();
    let (other, _) = pair.connect_more();
    pair.host().state().room = Some(1);
    post!(pair.a, 1, SendOp::Send, 0, 8);
    let first = std::mem::replace(&mut pair.a.qpn, other);
    for wr_id in 2..5 {
        post!(pair.a, wr_id, SendOp::Send, 0, 8);
        sent!(pair.a, []);
    }
    pair.a.qpn = first;
    let begin = pair.a.now;
    while pair.a.nic.qp_state(first) != Some(QpState::Error)
        || pair.a.nic.qp_state(other) != Some(QpState::Error)
    {
        sent!(pair.a, []);
        pair.a.advance(ms(5));
        assert!(pair.a.now.since(begin) < ms(5000), "one of them waits for ever");
    }
    let failed = pair.a.completions();
    let exceeded = failed
        .iter()
        .filter(|failed| failed.status == Status::RetryExceeded);
    assert_eq!((exceeded.count(), failed.len()), (2, 4));
}

#[test]
fn a_draining_queue_ends_what_it_began_and_begins_nothing() {
    let mut pair = Pair::local();
    pair.host().state().room = Some(1);
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 3000);
    post!(pair.a, 2, SendOp::Write(remote), 0, 8);
    pair.a.go_to(QpState::Sqd);
    assert_eq!(pair.a.events(), []);
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
    assert_eq!(pair.a.events(), [Event::SqDrained(pair.a.qpn)]);
    pair.a.go_to(QpState::Rts);
    pair.exchange();
    completed!(pair.a, [(2, Status::Success)]);
}

#[test]
fn a_drained_queue_does_not_fail_what_it_has_not_begun() {
    let mut pair = Pair::local();
    let (other, _) = pair.connect_more();
    pair.host().state().room = Some(1);
    let first = std::mem::replace(&mut pair.a.qpn, other);
    post!(pair.a, 1, SendOp::Send, 0, 8);
    pair.a.qpn = first;
    post!(pair.a, 2, SendOp::Send, 0, 8);
    sent!(pair.a, []);
    assert_eq!(pair.host().waiting(&pair.a), 1, "the lane is full");
    pair.a.go_to(QpState::Sqd);
    assert_eq!(pair.a.events(), [Event::SqDrained(first)]);
    let begin = pair.a.now;
    while pair.a.nic.qp_state(other) != Some(QpState::Error) {
        pair.a.advance(ms(5));
        assert!(pair.a.now.since(begin) < ms(5000), "the other does not give up");
    }
    let host = pair.host();
    host.end_lanes(&mut pair.a);
    pair.a.advance(ms(600));
    pair.a.advance(ms(600));
    assert_eq!(pair.a.state(), QpState::Sqd);
    pair.a.go_to(QpState::Rts);
    sent!(pair.a, []);
    pair.a.advance(ms(600));
    let ended: Vec<_> = pair
        .a
        .completions()
        .iter()
        .map(|ended| (ended.wr_id, ended.status))
        .collect();
    assert_eq!(ended, [(1, Status::RetryExceeded), (2, Status::RetryExceeded)]);
}

#[test]
fn what_an_error_flushed_is_not_completed_by_a_late_answer() {
    let mut pair = Pair::local();
    recv!(pair.b, 9, 0, 64);
    post!(pair.a, 1, SendOp::Send, 0, 8);
    deliver(&mut pair);
    pair.a.go_to(QpState::Error);
    completed!(pair.a, [(1, Status::Flushed)]);
    assert_eq!(answer(&mut pair), 1);
    completed!(pair.a, []);
}

#[test]
fn a_record_of_an_earlier_connection_is_ignored() {
    let mut pair = Pair::local();
    recv!(pair.b, 8, 0, 64);
    post!(pair.a, 1, SendOp::Send, 0, 8);
    assert_eq!(pair.host().waiting(&pair.a), 1);
    // Both begin anew, with the same numbers of queue pairs and others for packets.
    let (a, b) = (pair.a.qpn, pair.b.qpn);
    for node in [&mut pair.a, &mut pair.b] {
        node.go_to(QpState::Reset);
        let to_init = node.setup.to_init();
        let qpn = node.qpn;
        node.modify(qpn, &to_init).expect("RESET to INIT");
        node.setup.first_psn = 0x33_0000;
        node.setup.second_psn = 0x44_0000;
    }
    pair.connect(a, b);
    recv!(pair.b, 9, 0, 64);
    post!(pair.a, 2, SendOp::Send, 0, 8);
    assert_eq!(deliver(&mut pair), Some(RecordAnswer::Unexpected));
    assert_eq!(deliver(&mut pair), Some(RecordAnswer::Executed));
    answer(&mut pair);
    completed!(pair.a, [(2, Status::Success)]);
    received!(pair.b, [(9, Status::Success)]);
}

#[test]
fn a_peer_that_expects_another_first_number_says_so_but_not_which() {
    let (mut pair, mut at_a) = half_connected();
    at_a.psn = Psn::new(at_a.psn.value() ^ 0x40_0000);
    let qpn = pair.b.qpn;
    pair.b.connect(qpn, &at_a, Psn::new(pair.b.setup.second_psn));
    post!(pair.a, 1, SendOp::Send, 0, 8);
    assert_eq!(deliver(&mut pair), Some(RecordAnswer::Unexpected));
    answer(&mut pair);
    let first = Psn::new(pair.a.setup.first_psn);
    let mut recorded = pair.a.nic.recorded(pair.a.qpn);
    let expected = None;
    assert!(recorded.any(|recorded| recorded.event == QpEvent::PeerExpectsOther { expected, first }));
}

#[test]
fn each_direction_has_its_own_way() {
    let mut pair = Pair::unconnected(&Setup::local());
    let host = pair.host();
    host.state().apart.push((pair.b.ip, pair.a.ip));
    let (a, b) = (pair.a.qpn, pair.b.qpn);
    pair.connect(a, b);
    for wr_id in 0..3 {
        recv!(pair.a, 10 + wr_id, 0, 4096);
        recv!(pair.b, 20 + wr_id, 0, 4096);
        post!(pair.a, wr_id, SendOp::Send, 0, 3000);
        post!(pair.b, wr_id, SendOp::Send, 0, 3000);
        pair.exchange();
        completed!(pair.a, [(wr_id, Status::Success)]);
        completed!(pair.b, [(wr_id, Status::Success)]);
        received!(pair.a, [(10 + wr_id, Status::Success)]);
        received!(pair.b, [(20 + wr_id, Status::Success)]);
    }
    assert!(pair.b.nic.counters().tx_packets >= 9, "one way in packets");
    assert_eq!(host.state().lanes.len(), 1, "the other in records");
}

#[test]
fn a_lane_that_is_there_before_anything_was_sent_is_used() {
    let mut pair = Pair::unconnected(&Setup::local());
    let host = pair.host();
    let apart = [(pair.a.ip, pair.b.ip), (pair.b.ip, pair.a.ip)];
    host.state().apart.extend(apart);
    let (a, b) = (pair.a.qpn, pair.b.qpn);
    pair.connect(a, b);
    // One of them sends before there is a lane, the other one after.
    for (wr_id, from_a) in [(1, true), (2, true), (3, false), (4, false), (5, true)] {
        if wr_id == 2 {
            host.state().apart.clear();
        }
        let (from, to) = match from_a {
            true => (&mut pair.a, &mut pair.b),
            false => (&mut pair.b, &mut pair.a),
        };
        recv!(to, 10 + wr_id, 0, 64);
        post!(from, wr_id, SendOp::Send, 0, 8);
        let written = host.state().lanes.iter().any(|lane| !lane.records.is_empty());
        assert_eq!(written, !from_a, "request {wr_id}");
        pair.exchange();
        assert_eq!(
            pair.a.completions().len() + pair.b.completions().len(),
            1,
            "request {wr_id}"
        );
        assert_eq!(pair.a.receptions().len() + pair.b.receptions().len(), 1);
    }
}

/// A SEND of one packet as the record that would carry it.
fn as_record(packet: &[u8]) -> Vec<u8> {
    let packet = Packet::parse(packet).expect("it is one");
    let bth = packet.headers.bth;
    let words = [
        bth.dest_qp.value() | u32::from(bth.opcode.byte()) << 24,
        bth.psn.value(),
        0,
        0,
    ];
    let header = words.into_iter().flat_map(u32::to_ne_bytes);
    header.chain(packet.payload.iter().copied()).collect()
}

#[test]
fn who_took_packets_takes_no_records() {
    let mut pair = Pair::rc();
    recv!(pair.b, 8, 0, 64);
    post!(pair.a, 1, SendOp::Send, 0, 8);
    pair.exchange();
    received!(pair.b, [(8, Status::Success)]);
    recv!(pair.b, 9, 0, 64);
    post!(pair.a, 2, SendOp::Send, 0, 8);
    let packets = pair.a.transmit();
    let (src, dst) = (pair.a.ip, pair.b.ip);
    let record = as_record(&packets[0].bytes);
    let answer = pair.b.nic.handle_record(Time::ZERO, (src, dst), &record, &mut []);
    assert_eq!(answer, RecordAnswer::Ignored);
    received!(pair.b, []);
    pair.b.receive_all(&packets);
    received!(pair.b, [(9, Status::Success)]);
}

#[test]
fn a_record_of_a_stranger_is_ignored() {
    let mut pair = Pair::local();
    recv!(pair.b, 9, 0, 64);
    post!(pair.a, 1, SendOp::Send, 0, 8);
    let bytes = pair.host().state().lanes[0].records[0].bytes.clone();
    let stranger = "10.0.0.9".parse().expect("an address");
    let dst = pair.b.ip;
    let now = pair.b.now;
    let answer = pair.b.nic.handle_record(now, (stranger, dst), &bytes, &mut []);
    assert_eq!(answer, RecordAnswer::Ignored);
    received!(pair.b, []);
}

#[test]
fn a_read_whose_record_has_no_room_for_the_answer_is_refused() {
    let mut pair = Pair::local();
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Read(remote), 0, 64);
    let record = pair.host().state().lanes[0].records[0].clone();
    let (src, dst, now) = (pair.a.ip, pair.b.ip, pair.b.now);
    let request = &record.bytes[..record.request];
    let answer = pair.b.nic.handle_record(now, (src, dst), request, &mut [0; 63]);
    assert_eq!(answer, RecordAnswer::Refused(NakCode::InvalidRequest));
}

#[test]
fn an_answer_that_does_not_suit_its_request_is_a_bad_response() {
    for (op, lie) in [
        (SendOp::Send, RecordAnswer::Fetched(3)),
        (
            SendOp::FetchAdd {
                remote: nonic_core::RemoteAddress::default(),
                add: 1,
            },
            RecordAnswer::Executed,
        ),
    ] {
        let mut pair = Pair::local();
        post!(pair.a, 1, op, 0, 8);
        pair.host().state().lanes[0].records[0].answer = Some(lie);
        answer(&mut pair);
        completed!(pair.a, [(1, Status::BadResponse)]);
    }
}

#[test]
fn an_answer_to_nothing_changes_nothing() {
    let mut pair = Pair::local();
    recv!(pair.b, 9, 0, 64);
    post!(pair.a, 1, SendOp::Send, 0, 8);
    let again = pair.host().state().lanes[0].records[0].clone();
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
    for tag in [
        again.tag,
        RecordTag {
            attempt: 3,
            ..again.tag
        },
        RecordTag {
            qpn: Qpn::new(0x77_7777),
            ..again.tag
        },
    ] {
        let mut forged = again.clone();
        (forged.tag, forged.answer) = (tag, Some(RecordAnswer::Executed));
        pair.host().state().lanes[0].records.push_back(forged);
    }
    assert_eq!(answer(&mut pair), 3);
    completed!(pair.a, []);
    assert_eq!(pair.a.state(), QpState::Rts);
}

#[test]
fn without_lanes_there_are_no_answers() {
    let mut pair = Pair::rc();
    let now = pair.a.now;
    assert_eq!(pair.a.nic.handle_answers(now, &|| now), 0);
}

proptest! {
    /// An answer is what it was after it has been two words in shared memory.
    #[test]
    fn answers_are_told_in_two_words(word: u64, timer in 0u8..32, code in 0u8..32) {
        for answer in [
            RecordAnswer::Executed,
            RecordAnswer::Fetched(word),
            RecordAnswer::NotReady(timer),
            RecordAnswer::Refused(NakCode::from_value(code)),
            RecordAnswer::Ignored,
            RecordAnswer::Gone,
            RecordAnswer::Unexpected,
        ] {
            prop_assert_eq!(RecordAnswer::from_words(answer.to_words()), answer);
        }
    }

    /// Whatever a process writes as an answer, or as a request, is survived.
    #[test]
    fn any_words_are_an_answer(kind: u32, word: u64, bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let mut pair = Pair::local();
        post!(pair.a, 1, SendOp::Send, 0, 8);
        pair.host().state().lanes[0].records[0].answer = Some(RecordAnswer::from_words((kind, word)));
        answer(&mut pair);
        let (src, dst, now) = (pair.a.ip, pair.b.ip, pair.b.now);
        pair.b.nic.handle_record(now, (src, dst), &bytes, &mut [0; 16]);
    }
}

/// One that is alone is divided, so that one processor copies out of one record while the other copies into the next. Of several, one is
/// copied in while the one before it is copied out.
#[test]
fn long_sends_in_a_row_take_fewer_records_than_one_that_is_alone() {
    const LENGTH: u32 = 8 * 1024;
    let mut pair = Pair::new(&Setup {
        record_piece: 1024,
        pull_worth: 2000,
        ..Setup::local()
    });
    let length = LENGTH as usize;
    let sent = pattern(3, 2 * length);
    pair.a.fill(0, &sent);
    recv!(pair.b, 5, 0, LENGTH);
    recv!(pair.b, 6, length, LENGTH);
    post!(pair.a, 1, SendOp::Send, 0, LENGTH);
    sent!(pair.a, []);
    assert_eq!(pair.host().waiting(&pair.a), 8, "it is alone");
    post!(pair.a, 2, SendOp::Send, length, LENGTH);
    sent!(pair.a, []);
    assert_eq!(pair.host().waiting(&pair.a), 8 + 2);
    pair.exchange();
    completed!(pair.a, [(1, Status::Success), (2, Status::Success)]);
    received!(pair.b, [(5, Status::Success), (6, Status::Success)]);
    assert_eq!(pair.b.bytes(0, 2 * length), sent);
}
