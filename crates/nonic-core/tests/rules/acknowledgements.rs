//! When a responder acknowledges, and when a requester asks for it.

use crate::support::{Pair, Setup, Solo};
use crate::{completed, post, recv, sent};
use nonic_core::{PathMtu, SendOp, Status, WindowConfig};
use nonic_wire::{Opcode, Syndrome};

#[test]
fn the_last_packet_of_a_message_asks_for_an_acknowledgement() {
    let mut pair = Pair::rc();
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 3 * 1024);
    let packets = sent!(
        pair.a,
        [RC_RDMA_WRITE_FIRST, RC_RDMA_WRITE_MIDDLE, RC_RDMA_WRITE_LAST]
    );
    let asks: Vec<bool> = packets.iter().map(|wire| wire.asks_for_ack()).collect();
    assert_eq!(asks, [false, false, true]);
}

#[test]
fn a_long_message_asks_along_the_way() {
    let mut pair = Pair::rc();
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 64 * 1024);
    let asks = pair
        .a
        .transmit()
        .iter()
        .filter(|wire| wire.asks_for_ack())
        .count();
    assert!((3..=16).contains(&asks), "{asks} of 64 packets");
}

#[test]
fn acknowledgements_that_follow_each_other_are_merged() {
    let mut pair = Pair::rc();
    let remote = pair.b.remote(0);
    for wr_id in 1..=10 {
        post!(pair.a, wr_id, SendOp::Write(remote), 0, 8);
    }
    let requests = pair.a.transmit();
    pair.b.receive_all(&requests);
    let answers = sent!(pair.b, [RC_ACKNOWLEDGE]);
    assert_eq!(answers[0].psn(), requests[9].psn());
    assert_eq!(answers[0].syndrome(), Syndrome::ack());
    assert_eq!(answers[0].headers().aeth.msn, 10);
    pair.a.receive_all(&answers);
    assert_eq!(pair.a.completions().len(), 10);
}

#[test]
fn an_acknowledgement_does_not_overtake_a_read_response() {
    let mut pair = Pair::rc();
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 8);
    post!(pair.a, 2, SendOp::Read(remote), 0, 8);
    post!(pair.a, 3, SendOp::Write(remote), 0, 8);
    let requests = pair.a.transmit();
    pair.b.receive_all(&requests);
    sent!(
        pair.b,
        [RC_ACKNOWLEDGE, RC_RDMA_READ_RESPONSE_ONLY, RC_ACKNOWLEDGE]
    );
}

#[test]
fn a_request_that_does_not_ask_is_not_acknowledged() {
    let mut solo = Solo::rc();
    recv!(solo, 1, 0, 64);
    solo.request_with(Opcode::RC_SEND_ONLY, 0, b"abcd", |headers| {
        headers.bth.ack_request = false;
    });
    sent!(solo, []);
    assert_eq!(solo.receptions().len(), 1);
}

#[test]
fn the_message_number_counts_messages_not_packets() {
    let mut solo = Solo::rc();
    let whole = [7; 1024];
    recv!(solo, 1, 0, 4096);
    solo.request(Opcode::RC_SEND_FIRST, 0, &whole);
    assert_eq!(sent!(solo, [RC_ACKNOWLEDGE])[0].headers().aeth.msn, 0);
    solo.request(Opcode::RC_SEND_LAST, 1, &[1]);
    assert_eq!(sent!(solo, [RC_ACKNOWLEDGE])[0].headers().aeth.msn, 1);
}

#[test]
fn one_acknowledgement_completes_everything_before_it() {
    let mut solo = Solo::rc();
    let remote = solo.remote(0);
    for wr_id in 1..=3 {
        post!(solo, wr_id, SendOp::Write(remote), 0, 2000);
    }
    assert_eq!(solo.transmit().len(), 6);
    solo.answer(3, Syndrome::ack());
    completed!(solo, [(1, Status::Success), (2, Status::Success)]);
    solo.answer(5, Syndrome::ack());
    completed!(solo, [(3, Status::Success)]);
}

#[test]
fn an_old_or_impossible_acknowledgement_is_ignored() {
    let mut solo = Solo::rc();
    let remote = solo.remote(0);
    post!(solo, 1, SendOp::Write(remote), 0, 8);
    solo.transmit();
    solo.answer(1, Syndrome::ack());
    solo.answer(0x7f_0000, Syndrome::ack());
    completed!(solo, []);
    solo.answer(0, Syndrome::ack());
    completed!(solo, [(1, Status::Success)]);
    solo.answer(0, Syndrome::ack());
    completed!(solo, []);
}

#[test]
fn a_reserved_syndrome_means_nothing() {
    let mut solo = Solo::rc();
    let remote = solo.remote(0);
    post!(solo, 1, SendOp::Write(remote), 0, 8);
    solo.transmit();
    for reserved in [0x40, 0x5f, 0x80, 0xff] {
        solo.answer(0, Syndrome(reserved));
    }
    completed!(solo, []);
    sent!(solo, []);
}

#[test]
fn a_packet_that_fills_the_window_asks() {
    let mut pair = Pair::new(&Setup {
        mtu: PathMtu::Mtu256,
        window: WindowConfig {
            initial: 10 * 256,
            max: 10 * 256,
        },
        ..Setup::rc()
    });
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 64 * 256);
    let packets = pair.a.transmit();
    assert_eq!(packets.len(), 10);
    assert!(packets[9].asks_for_ack());
    pair.b.receive_all(&packets);
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
}

#[test]
fn an_acknowledgement_travels_behind_the_answer_in_one_batch() {
    let mut pair = Pair::rc();
    recv!(pair.b, 1, 0, 64);
    recv!(pair.a, 2, 0, 64);
    post!(pair.a, 3, SendOp::Send, 0, 64);
    let question = sent!(pair.a, [RC_SEND_ONLY]);
    assert!(!pair.b.nic.only_acknowledges(), "there is nothing to send");
    pair.b.receive_all(&question);
    assert!(pair.b.nic.only_acknowledges());
    post!(pair.b, 4, SendOp::Send, 0, 64);
    assert!(!pair.b.nic.only_acknowledges());
    let answer = sent!(pair.b, [RC_SEND_ONLY, RC_ACKNOWLEDGE]);
    // The place in the batch.
    assert_eq!((answer[0].identification, answer[1].identification), (0, 1));
    pair.a.receive_all(&answer);
    completed!(pair.a, [(3, Status::Success)]);
}

#[test]
fn requests_without_end_do_not_keep_answers_waiting() {
    let mut pair = Pair::new(&Setup {
        max_segments: 4,
        ..Setup::rc()
    });
    let remote = pair.b.remote(0);
    let back = pair.a.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 64);
    let request = sent!(pair.a, [RC_RDMA_WRITE_ONLY]);
    pair.b.receive_all(&request);
    post!(pair.b, 2, SendOp::Write(back), 0, 64 * 1024);
    let packets = pair.b.transmit();
    let acknowledged = packets
        .iter()
        .position(|wire| wire.headers().bth.opcode == Opcode::RC_ACKNOWLEDGE);
    // One batch found no room for it; the next begins with it.
    assert!(acknowledged.is_some_and(|at| at <= 5), "{acknowledged:?}");
}
