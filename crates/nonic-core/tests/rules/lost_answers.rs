//! READ responses and atomic results that get lost: the requester notices and asks again.

use crate::support::{Fate, Pair, Setup, Side, Solo, ms, pattern};
use crate::{completed, post, sent};
use nonic_core::{QpState, SendOp, Status};
use nonic_wire::{Opcode, Syndrome};

#[test]
fn an_acknowledgement_behind_an_unanswered_read_means_the_answer_was_lost() {
    let mut pair = Pair::rc();
    pair.b.fill(0, &pattern(1, 8));
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Read(remote), 0, 8);
    post!(pair.a, 2, SendOp::Write(pair.b.remote(64)), 64, 8);
    let mut lost = false;
    pair.exchange_with(|_, wire| {
        if wire.opcode() == Opcode::RC_RDMA_READ_RESPONSE_ONLY && !lost {
            lost = true;
            return Fate::Drop;
        }
        Fate::Deliver
    });
    assert!(lost);
    completed!(pair.a, []);
    // It may be only late. After a while it is not.
    pair.advance(ms(1));
    pair.exchange();
    completed!(pair.a, [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(pair.a.bytes(0, 8), pattern(1, 8));
    assert_eq!(pair.a.nic.counters().timeouts, 0, "without waiting for a timeout");
}

#[test]
fn a_response_behind_an_unanswered_atomic_means_the_answer_was_lost() {
    let mut pair = Pair::rc();
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::FetchAdd { remote, add: 1 }, 8, 8);
    post!(pair.a, 2, SendOp::Read(remote), 16, 8);
    let mut lost = false;
    pair.exchange_with(|_, wire| {
        if wire.opcode() == Opcode::RC_ATOMIC_ACKNOWLEDGE && !lost {
            lost = true;
            return Fate::Drop;
        }
        Fate::Deliver
    });
    completed!(pair.a, []);
    pair.advance(ms(1));
    pair.exchange();
    completed!(pair.a, [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(pair.b.word(0), 1, "executed once");
    assert_eq!((pair.a.word(8), pair.a.word(16)), (0, 1));
}

#[test]
fn only_the_rest_of_a_read_is_asked_for_again() {
    let mut pair = Pair::rc();
    let bytes = pattern(1, 8 * 1024);
    pair.b.fill(0, &bytes);
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Read(remote), 0, 8 * 1024);
    let request = sent!(pair.a, [RC_RDMA_READ_REQUEST]);
    pair.b.receive_all(&request);
    let answers = pair.b.transmit();
    // The fourth is lost; what follows it is of no use.
    pair.a.receive_all(&answers[..3]);
    pair.a.receive_all(&answers[4..]);
    completed!(pair.a, []);
    let again = if pair.a.nic.counters().timeouts == 0 {
        let now = pair.a.transmit();
        if now.is_empty() {
            pair.advance(ms(70));
            pair.a.transmit()
        } else {
            now
        }
    } else {
        Vec::new()
    };
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].psn(), request[0].psn().add(3));
    assert_eq!(again[0].headers().reth.va, remote.va + 3 * 1024);
    assert_eq!(again[0].headers().reth.dma_len, 5 * 1024);
    pair.b.receive_all(&again);
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
    assert_eq!(pair.a.bytes(0, 8 * 1024), bytes);
}

#[test]
fn a_lost_last_answer_is_found_by_the_timeout() {
    let mut pair = Pair::rc();
    let bytes = pattern(1, 3000);
    pair.b.fill(0, &bytes);
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Read(remote), 0, 3000);
    pair.exchange_with(|_, wire| {
        if wire.opcode() == Opcode::RC_RDMA_READ_RESPONSE_LAST {
            Fate::Drop
        } else {
            Fate::Deliver
        }
    });
    completed!(pair.a, []);
    pair.advance(ms(70));
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
    assert_eq!(pair.a.bytes(0, 3000), bytes);
}

#[test]
fn an_answer_of_the_wrong_length_is_a_bad_response() {
    for length in [0, 7, 9, 1024] {
        let mut solo = Solo::rc();
        let remote = solo.remote(0);
        post!(solo, 1, SendOp::Read(remote), 0, 8);
        post!(solo, 2, SendOp::Write(remote), 0, 8);
        solo.transmit();
        solo.respond(
            Opcode::RC_RDMA_READ_RESPONSE_ONLY,
            0,
            Syndrome::ack(),
            &vec![1; length],
        );
        completed!(solo, [(1, Status::BadResponse), (2, Status::Flushed)]);
        assert_eq!(solo.state(), QpState::Error);
        assert_eq!(solo.bytes(0, 16), [0; 16]);
    }
}

#[test]
fn answers_nobody_asked_for_are_ignored() {
    let mut solo = Solo::rc();
    let remote = solo.remote(0);
    post!(solo, 1, SendOp::Write(remote), 0, 8);
    post!(solo, 2, SendOp::FetchAdd { remote, add: 1 }, 0, 8);
    solo.transmit();
    solo.respond(Opcode::RC_RDMA_READ_RESPONSE_ONLY, 0, Syndrome::ack(), &[1; 8]);
    solo.respond(Opcode::RC_ATOMIC_ACKNOWLEDGE, 0, Syndrome::ack(), &[]);
    solo.respond(Opcode::RC_RDMA_READ_RESPONSE_ONLY, 7, Syndrome::ack(), &[1; 8]);
    assert_eq!(solo.bytes(0, 8), [0; 8]);
    completed!(solo, []);
    // To an atomic, a READ response is no answer either, but it proves the WRITE before it.
    solo.respond(Opcode::RC_RDMA_READ_RESPONSE_ONLY, 1, Syndrome::ack(), &[1; 8]);
    assert_eq!(solo.bytes(0, 8), [0; 8]);
    completed!(solo, [(1, Status::Success)]);
    assert_eq!(solo.state(), QpState::Rts);
}

#[test]
fn memory_withdrawn_while_a_read_is_under_way_is_a_protection_error() {
    let mut solo = Solo::rc();
    let remote = solo.remote(0);
    let key = solo.register(|_| {});
    let element = nonic_core::Sge {
        lkey: key.value(),
        ..solo.sge(0, 2048)
    };
    solo.post(
        1,
        SendOp::Read(remote),
        nonic_core::Data::Sges(&[element]),
        nonic_core::SendFlags::SIGNALED,
    )
    .expect("posted");
    solo.transmit();
    solo.respond(
        Opcode::RC_RDMA_READ_RESPONSE_FIRST,
        0,
        Syndrome::ack(),
        &[1; 1024],
    );
    solo.keys().revoke(key.value());
    solo.respond(Opcode::RC_RDMA_READ_RESPONSE_LAST, 1, Syndrome::ack(), &[1; 1024]);
    completed!(solo, [(1, Status::LocalProtection)]);
    assert_eq!(solo.bytes(1024, 8), [0; 8]);
}

#[test]
fn every_single_loss_in_a_mixed_exchange_is_repaired() {
    // Lose the n-th packet of the exchange, for every n.
    for n in 0..60 {
        let mut pair = Pair::new(&Setup {
            max_rd_atomic: 2,
            max_dest_rd_atomic: 2,
            ..Setup::rc()
        });
        let bytes = pattern(n as u8, 4000);
        pair.a.fill(0, &bytes);
        pair.b.fill(0, &bytes);
        for wr_id in 0..4 {
            let at = 16 * 1024 * (wr_id as usize + 1);
            recv_all(&mut pair, wr_id);
            post!(pair.a, 10 * wr_id, SendOp::Read(pair.b.remote(0)), at, 4000);
            post!(pair.a, 10 * wr_id + 1, SendOp::Write(pair.b.remote(at)), 0, 4000);
            post!(
                pair.a,
                10 * wr_id + 2,
                SendOp::FetchAdd {
                    remote: pair.b.remote(8 << 10),
                    add: 1
                },
                8 << 10,
                8
            );
            post!(pair.a, 10 * wr_id + 3, SendOp::Send, 0, 1500);
        }
        let mut count = 0;
        let mut lose = |_: Side, _: &crate::support::Wire| {
            count += 1;
            if count == n + 1 { Fate::Drop } else { Fate::Deliver }
        };
        let mut done = Vec::new();
        for _ in 0..4 {
            pair.exchange_with(&mut lose);
            done.extend(pair.a.completions());
            pair.advance(ms(70));
        }
        assert_eq!(done.len(), 16, "loss of packet {n}");
        assert!(done.iter().all(|completion| completion.status == Status::Success));
        assert_eq!(pair.b.receptions().len(), 4);
        assert_eq!(pair.b.word(8 << 10), 4);
        for wr_id in 0..4 {
            let at = 16 * 1024 * (wr_id + 1);
            assert_eq!(pair.a.bytes(at, 4000), bytes, "loss of packet {n}");
            assert_eq!(pair.b.bytes(at, 4000), bytes, "loss of packet {n}");
        }
        assert_eq!(pair.a.nic.usage().in_flight_bytes, 0);
    }
}

fn recv_all(pair: &mut Pair, wr_id: u64) {
    pair.b.try_recv(wr_id, 128 << 10, 2000).expect("posted");
}

#[test]
fn a_repeated_request_stays_within_the_original() {
    // With a window of eight packets, READs are asked for in requests of four.
    let mut pair = Pair::new(&Setup {
        window: nonic_core::WindowConfig {
            initial: 8 * 1024,
            max: 8 * 1024,
        },
        ..Setup::rc()
    });
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Read(remote), 0, 16 * 1024);
    let requests = pair.a.transmit();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0].headers().reth.dma_len, 4 * 1024);
    pair.b.receive_all(&requests);
    let answers = pair.b.transmit();
    pair.a.receive(&answers[0]);
    pair.advance(ms(70));
    let again = sent!(pair.a, [RC_RDMA_READ_REQUEST]);
    assert_eq!(again[0].psn(), requests[0].psn().next());
    assert_eq!(again[0].headers().reth.dma_len, 3 * 1024);
    pair.b.receive_all(&again);
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
}

/// A READ of four packets that was asked for.
fn reading() -> Solo {
    let mut solo = Solo::rc();
    let remote = solo.remote(0);
    post!(solo, 1, SendOp::Read(remote), 0, 4096);
    sent!(solo, [RC_RDMA_READ_REQUEST]);
    solo
}

fn respond(solo: &mut Solo, opcode: Opcode, index: u32) {
    solo.respond(opcode, index, Syndrome::ack(), &[index as u8 + 1; 1024]);
}

#[test]
fn answers_come_in_the_order_first_middle_last() {
    let (first, middle, last, only) = (
        Opcode::RC_RDMA_READ_RESPONSE_FIRST,
        Opcode::RC_RDMA_READ_RESPONSE_MIDDLE,
        Opcode::RC_RDMA_READ_RESPONSE_LAST,
        Opcode::RC_RDMA_READ_RESPONSE_ONLY,
    );
    let right = [first, middle, middle, last];
    for wrong_at in 0..4 {
        for wrong in [first, middle, last, only] {
            if wrong == right[wrong_at] {
                continue;
            }
            let mut solo = reading();
            for (index, opcode) in right[..wrong_at].iter().enumerate() {
                respond(&mut solo, *opcode, index as u32);
            }
            respond(&mut solo, wrong, wrong_at as u32);
            completed!(solo, []);
            assert_eq!(
                solo.bytes(wrong_at * 1024, 1024),
                [0; 1024],
                "{wrong:?} at {wrong_at}"
            );
            // Nothing happened: the right ones are still welcome.
            for (index, opcode) in right.iter().enumerate().skip(wrong_at) {
                respond(&mut solo, *opcode, index as u32);
            }
            completed!(solo, [(1, Status::Success)]);
            assert_eq!(solo.bytes(3 * 1024, 1024), [4; 1024]);
        }
    }
}

#[test]
fn the_rest_of_a_read_may_begin_anew_or_go_on() {
    for opcode in [
        Opcode::RC_RDMA_READ_RESPONSE_FIRST,
        Opcode::RC_RDMA_READ_RESPONSE_MIDDLE,
    ] {
        let mut solo = reading();
        respond(&mut solo, Opcode::RC_RDMA_READ_RESPONSE_FIRST, 0);
        solo.advance(ms(70));
        let again = sent!(solo, [RC_RDMA_READ_REQUEST]);
        assert_eq!(again[0].headers().reth.dma_len, 3 * 1024);
        respond(&mut solo, opcode, 1);
        // Only where it was asked for.
        respond(&mut solo, Opcode::RC_RDMA_READ_RESPONSE_FIRST, 2);
        assert_eq!(solo.bytes(2 * 1024, 1024), [0; 1024]);
        respond(&mut solo, Opcode::RC_RDMA_READ_RESPONSE_MIDDLE, 2);
        respond(&mut solo, Opcode::RC_RDMA_READ_RESPONSE_LAST, 3);
        completed!(solo, [(1, Status::Success)]);
    }
}

#[test]
fn the_last_packet_of_a_read_asked_for_again_may_be_an_only_one() {
    for opcode in [
        Opcode::RC_RDMA_READ_RESPONSE_ONLY,
        Opcode::RC_RDMA_READ_RESPONSE_LAST,
    ] {
        let mut solo = reading();
        respond(&mut solo, Opcode::RC_RDMA_READ_RESPONSE_FIRST, 0);
        respond(&mut solo, Opcode::RC_RDMA_READ_RESPONSE_MIDDLE, 1);
        respond(&mut solo, Opcode::RC_RDMA_READ_RESPONSE_MIDDLE, 2);
        solo.advance(ms(70));
        sent!(solo, [RC_RDMA_READ_REQUEST]);
        respond(&mut solo, opcode, 3);
        completed!(solo, [(1, Status::Success)]);
    }
}
