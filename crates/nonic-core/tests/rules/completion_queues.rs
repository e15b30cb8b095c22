//! When completions become visible, which waiters they wake, and what happens when there is no room.

use crate::support::{Pair, Setup, outcomes};
use crate::{completed, post, received, recv, sent};
use nonic_core::{Arm, CompletionQueue, CqId, CqOverflow, Data, Event, QpState, SendFlags, SendOp, Status};

#[test]
fn nothing_is_visible_before_it_is_published() {
    let mut pair = Pair::rc();
    recv!(pair.b, 2, 0, 8);
    post!(pair.a, 1, SendOp::Send, 0, 8);
    let request = pair.a.transmit();
    pair.b.receive_all(&request);
    assert!(pair.b.nic.has_unpublished());
    assert_eq!(pair.b.recv_cq.len(), 0, "not before the acknowledgement has left");
    let answer = sent!(pair.b, [RC_ACKNOWLEDGE]);
    assert_eq!(pair.b.recv_cq.len(), 0);
    pair.b.nic.publish();
    assert_eq!(pair.b.recv_cq.len(), 1);
    assert!(!pair.b.nic.has_unpublished());

    pair.a.receive_all(&answer);
    assert_eq!(pair.a.send_cq.len(), 0);
    pair.a.nic.publish();
    assert_eq!(pair.a.send_cq.len(), 1);
}

#[test]
fn an_unarmed_queue_notifies_nobody() {
    let mut pair = Pair::rc();
    recv!(pair.b, 2, 0, 8);
    post!(pair.a, 1, SendOp::Send, 0, 8);
    pair.exchange();
    received!(pair.b, [(2, Status::Success)]);
    assert_eq!(pair.b.events(), []);
}

#[test]
fn an_armed_queue_notifies_once() {
    let mut pair = Pair::rc();
    pair.b.recv_cq.arm(Arm::Next);
    for wr_id in 1..=2 {
        recv!(pair.b, wr_id, 0, 8);
        post!(pair.a, wr_id, SendOp::Send, 0, 8);
    }
    pair.exchange();
    pair.b.nic.publish();
    assert_eq!(pair.b.events(), [Event::Completion(CqId(2))]);
}

#[test]
fn completions_that_wait_already_do_not_count() {
    let mut pair = Pair::rc();
    recv!(pair.b, 1, 0, 8);
    post!(pair.a, 1, SendOp::Send, 0, 8);
    pair.exchange();
    pair.b.nic.publish();
    pair.b.recv_cq.arm(Arm::Next);
    assert_eq!(pair.b.events(), []);
    assert_eq!(outcomes(&pair.b.receptions()), [(1, Status::Success)]);
}

#[test]
fn solicited_waits_for_a_solicited_message() {
    for immediate in [false, true] {
        let mut pair = Pair::rc();
        pair.b.recv_cq.arm(Arm::Solicited);
        for wr_id in 1..=2 {
            recv!(pair.b, wr_id, 0, 4096);
        }
        post!(pair.a, 1, SendOp::Send, 0, 8);
        pair.exchange();
        pair.b.nic.publish();
        assert_eq!(pair.b.events(), []);
        let op = if immediate {
            SendOp::WriteWithImmediate(pair.b.remote(0), 1)
        } else {
            SendOp::Send
        };
        let element = pair.a.sge(0, 3000);
        let flags = SendFlags::SIGNALED | SendFlags::SOLICITED;
        pair.a.post(2, op, Data::Sges(&[element]), flags).expect("posted");
        let packets = pair.a.transmit();
        let solicited: Vec<bool> = packets.iter().map(|wire| wire.headers().bth.solicited).collect();
        assert_eq!(solicited, [false, false, true], "only the last packet says so");
        pair.b.receive_all(&packets);
        pair.b.nic.publish();
        assert_eq!(pair.b.events(), [Event::Completion(CqId(2))]);
    }
}

#[test]
fn solicited_is_woken_by_failures() {
    let mut pair = Pair::rc();
    pair.a.send_cq.arm(Arm::Solicited);
    pair.a.recv_cq.arm(Arm::Solicited);
    post!(pair.a, 1, SendOp::Send, 0, 8);
    recv!(pair.a, 2, 0, 8);
    pair.a.go_to(QpState::Error);
    pair.a.nic.publish();
    assert_eq!(
        pair.a.events(),
        [Event::Completion(CqId(1)), Event::Completion(CqId(2))]
    );
}

#[test]
fn solicited_is_not_woken_by_successful_sends() {
    let mut pair = Pair::rc();
    pair.a.send_cq.arm(Arm::Solicited);
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 8);
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
    assert_eq!(pair.a.events(), []);
}

#[test]
fn asking_for_less_does_not_weaken_asking_for_more() {
    let mut pair = Pair::rc();
    pair.a.send_cq.arm(Arm::Next);
    pair.a.send_cq.arm(Arm::Solicited);
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 8);
    pair.exchange();
    pair.a.nic.publish();
    assert_eq!(pair.a.events(), [Event::Completion(CqId(1))]);
}

#[test]
fn asking_for_more_strengthens() {
    let mut pair = Pair::rc();
    pair.a.send_cq.arm(Arm::Solicited);
    pair.a.send_cq.arm(Arm::Next);
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 8);
    pair.exchange();
    pair.a.nic.publish();
    assert_eq!(pair.a.events(), [Event::Completion(CqId(1))]);
}

#[test]
fn overflow_puts_the_queue_and_its_users_in_error() {
    let mut pair = Pair::new(&Setup {
        cq_capacity: 2,
        ..Setup::rc()
    });
    let remote = pair.b.remote(0);
    for wr_id in 1..=3 {
        post!(pair.a, wr_id, SendOp::Write(remote), 0, 8);
    }
    pair.exchange();
    pair.a.nic.publish();
    assert_eq!(
        pair.a.events(),
        [Event::CqError(CqId(1)), Event::QpFatal(pair.a.qpn)]
    );
    assert_eq!(pair.a.state(), QpState::Error);
    assert_eq!(pair.a.send_cq.poll(10, |_| {}), Err(CqOverflow));
    assert!(!pair.a.nic.has_unpublished());
}

#[test]
fn exactly_full_is_not_overflow() {
    let mut pair = Pair::new(&Setup {
        cq_capacity: 3,
        ..Setup::rc()
    });
    let remote = pair.b.remote(0);
    for wr_id in 1..=3 {
        post!(pair.a, wr_id, SendOp::Write(remote), 0, 8);
    }
    pair.exchange();
    assert_eq!(pair.a.completions().len(), 3);
    assert_eq!(pair.a.state(), QpState::Rts);
}

#[test]
fn polling_takes_as_many_as_asked_oldest_first() {
    let mut pair = Pair::rc();
    let remote = pair.b.remote(0);
    for wr_id in 1..=5 {
        post!(pair.a, wr_id, SendOp::Write(remote), 0, 8);
    }
    pair.exchange();
    pair.a.nic.publish();
    let mut ids = Vec::new();
    let take = |ids: &mut Vec<u64>, max| pair.a.send_cq.poll(max, |completion| ids.push(completion.wr_id));
    assert_eq!(take(&mut ids, 2), Ok(2));
    assert_eq!(take(&mut ids, 0), Ok(0));
    assert_eq!(take(&mut ids, 10), Ok(3));
    assert_eq!(take(&mut ids, 10), Ok(0));
    assert_eq!(ids, [1, 2, 3, 4, 5]);
}

#[test]
fn a_queue_can_grow_but_not_below_what_waits() {
    let mut pair = Pair::new(&Setup {
        cq_capacity: 2,
        ..Setup::rc()
    });
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 8);
    post!(pair.a, 2, SendOp::Write(remote), 0, 8);
    pair.exchange();
    pair.a.nic.publish();
    assert!(!pair.a.send_cq.resize(1));
    assert!(pair.a.send_cq.resize(3));
    post!(pair.a, 3, SendOp::Write(remote), 0, 8);
    pair.exchange();
    assert_eq!(pair.a.completions().len(), 3);
}

#[test]
fn a_queue_holds_at_least_one() {
    let cq = CompletionQueue::new(CqId(9), 0);
    assert_eq!((cq.capacity(), cq.len(), cq.id()), (1, 0, CqId(9)));
}
