//! Requests that come twice are answered twice and executed once.

use crate::support::{Fate, Pair, Setup, Side, Solo, Wire, pattern};
use crate::{completed, post, received, recv, sent};
use nonic_core::{QpState, SendOp, Status};
use nonic_wire::{Opcode, Reth, Syndrome};

#[test]
fn a_repeated_send_is_acknowledged_again_and_not_delivered_again() {
    let mut pair = Pair::rc();
    recv!(pair.b, 10, 0, 8);
    recv!(pair.b, 11, 0, 8);
    post!(pair.a, 1, SendOp::Send, 0, 8);
    let request = sent!(pair.a, [RC_SEND_ONLY]);
    pair.b.receive_all(&request);
    let first = sent!(pair.b, [RC_ACKNOWLEDGE]);
    pair.b.receive_all(&request);
    let second = sent!(pair.b, [RC_ACKNOWLEDGE]);
    assert_eq!(first[0].bytes, second[0].bytes);
    received!(pair.b, [(10, Status::Success)]);
}

#[test]
fn a_repeated_write_is_not_written_again() {
    let mut pair = Pair::rc();
    pair.a.fill(0, b"old");
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 3);
    let request = sent!(pair.a, [RC_RDMA_WRITE_ONLY]);
    pair.b.receive_all(&request);
    pair.b.fill(0, b"new");
    pair.b.receive_all(&request);
    assert_eq!(pair.b.bytes(0, 3), b"new");
}

#[test]
fn the_repeated_acknowledgement_tells_how_far_the_responder_is() {
    let mut pair = Pair::rc();
    let remote = pair.b.remote(0);
    for wr_id in 1..=3 {
        post!(pair.a, wr_id, SendOp::Write(remote), 0, 8);
    }
    let requests = pair.a.transmit();
    pair.b.receive_all(&requests);
    pair.b.transmit();
    pair.b.receive(&requests[0]);
    let again = sent!(pair.b, [RC_ACKNOWLEDGE]);
    assert_eq!(again[0].psn(), requests[2].psn());
}

#[test]
fn a_repeated_read_is_read_again() {
    let mut pair = Pair::rc();
    pair.b.fill(0, &pattern(1, 2000));
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Read(remote), 0, 2000);
    let request = sent!(pair.a, [RC_RDMA_READ_REQUEST]);
    pair.b.receive_all(&request);
    let first = sent!(pair.b, [RC_RDMA_READ_RESPONSE_FIRST, RC_RDMA_READ_RESPONSE_LAST]);
    pair.b.fill(0, &pattern(2, 2000));
    pair.b.receive_all(&request);
    let second = sent!(pair.b, [RC_RDMA_READ_RESPONSE_FIRST, RC_RDMA_READ_RESPONSE_LAST]);
    assert_eq!(first[0].psn(), second[0].psn());
    assert_eq!(second[0].payload(), &pattern(2, 2000)[..1024]);
    pair.a.receive_all(&second);
    completed!(pair.a, [(1, Status::Success)]);
}

#[test]
fn a_read_can_be_asked_for_again_from_the_middle() {
    let mut solo = Solo::rc();
    solo.fill(0, &pattern(1, 5000));
    let remote = solo.remote(0);
    let reth = Reth {
        va: remote.va,
        rkey: remote.rkey,
        dma_len: 5000,
    };
    solo.request_with(Opcode::RC_RDMA_READ_REQUEST, 0, &[], |headers| {
        headers.reth = reth
    });
    assert_eq!(solo.transmit().len(), 5);
    solo.request_with(Opcode::RC_RDMA_READ_REQUEST, 3, &[], |headers| {
        headers.reth = Reth {
            va: reth.va + 3 * 1024,
            dma_len: 5000 - 3 * 1024,
            ..reth
        };
    });
    let rest = sent!(solo, [RC_RDMA_READ_RESPONSE_FIRST, RC_RDMA_READ_RESPONSE_LAST]);
    assert_eq!(rest[0].psn(), solo.peer.psn.add(3));
    let bytes: Vec<u8> = rest.iter().flat_map(|wire| wire.payload().to_vec()).collect();
    assert_eq!(bytes, pattern(1, 5000)[3 * 1024..]);
}

#[test]
fn a_repeated_read_cannot_reach_beyond_the_original() {
    let mut solo = Solo::rc();
    let remote = solo.remote(0);
    let reth = Reth {
        va: remote.va,
        rkey: remote.rkey,
        dma_len: 2048,
    };
    solo.request_with(Opcode::RC_RDMA_READ_REQUEST, 0, &[], |headers| {
        headers.reth = reth
    });
    assert_eq!(solo.transmit().len(), 2);
    for (index, va, dma_len) in [
        (0, reth.va, 2049),
        (0, reth.va + 1, 2047),
        (1, reth.va + 1024, 1025),
        (1, reth.va, 1024),
    ] {
        solo.request_with(Opcode::RC_RDMA_READ_REQUEST, index, &[], |headers| {
            headers.reth = Reth { va, dma_len, ..reth };
        });
        sent!(solo, []);
    }
    assert_eq!(solo.state(), QpState::Rts);
}

#[test]
fn a_repeated_atomic_is_answered_from_memory_not_executed_again() {
    let mut pair = Pair::rc();
    pair.b.set_word(0, 100);
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::FetchAdd { remote, add: 5 }, 8, 8);
    let request = sent!(pair.a, [RC_FETCH_ADD]);
    pair.b.receive_all(&request);
    pair.b.receive_all(&request);
    sent!(pair.b, [RC_ATOMIC_ACKNOWLEDGE]);
    pair.b.receive_all(&request);
    let again = sent!(pair.b, [RC_ATOMIC_ACKNOWLEDGE]);
    assert_eq!(pair.b.word(0), 105);
    assert_eq!(again[0].headers().atomic_original, 100);
    pair.a.receive_all(&again);
    completed!(pair.a, [(1, Status::Success)]);
    assert_eq!(pair.a.word(8), 100);
}

#[test]
fn an_atomic_too_old_to_be_remembered_is_not_executed_again() {
    let mut pair = Pair::new(&Setup {
        max_dest_rd_atomic: 2,
        max_rd_atomic: 2,
        ..Setup::rc()
    });
    let remote = pair.b.remote(0);
    let mut requests: Vec<Wire> = Vec::new();
    for wr_id in 1..=4 {
        post!(pair.a, wr_id, SendOp::FetchAdd { remote, add: 1 }, 8, 8);
        let request = sent!(pair.a, [RC_FETCH_ADD]);
        pair.b.receive_all(&request);
        requests.extend(request);
        pair.exchange();
    }
    assert_eq!(pair.b.word(0), 4);
    pair.b.receive(&requests[0]);
    sent!(pair.b, []);
    pair.b.receive(&requests[3]);
    sent!(pair.b, [RC_ATOMIC_ACKNOWLEDGE]);
    assert_eq!(pair.b.word(0), 4);
}

#[test]
fn answers_that_come_twice_complete_once() {
    let mut pair = Pair::rc();
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Read(remote), 0, 3000);
    post!(pair.a, 2, SendOp::FetchAdd { remote, add: 1 }, 0, 8);
    post!(pair.a, 3, SendOp::Write(remote), 0, 8);
    pair.exchange_with(|from, _| {
        if from == Side::B {
            Fate::Duplicate
        } else {
            Fate::Deliver
        }
    });
    completed!(
        pair.a,
        [(1, Status::Success), (2, Status::Success), (3, Status::Success)]
    );
}

#[test]
fn a_link_that_doubles_everything_changes_nothing() {
    let mut pair = Pair::rc();
    let bytes = pattern(4, 50_000);
    pair.a.fill(0, &bytes);
    let remote = pair.b.remote(0);
    for wr_id in 0..10 {
        recv!(pair.b, wr_id, 128 << 10, 8);
        post!(pair.a, 3 * wr_id, SendOp::Write(remote), 0, 5000);
        post!(
            pair.a,
            3 * wr_id + 1,
            SendOp::FetchAdd {
                remote: pair.b.remote(64 << 10),
                add: 1
            },
            200 << 10,
            8
        );
        post!(pair.a, 3 * wr_id + 2, SendOp::Send, 0, 8);
    }
    pair.exchange_with(|_, _| Fate::Duplicate);
    let done = pair.a.completions();
    assert!(done.iter().all(|completion| completion.status == Status::Success));
    assert_eq!(done.len(), 30);
    assert_eq!(pair.b.receptions().len(), 10);
    assert_eq!(pair.b.word(64 << 10), 10);
    assert_eq!(pair.b.bytes(0, 5000), bytes[..5000]);
}

#[test]
fn a_repeated_read_does_not_make_the_next_one_too_many() {
    // The answers to the first READ were only late: the peer repeats it, then they arrive, it is done and
    // asks for the next. Both requests reach us together.
    let mut solo = Solo::new(&Setup {
        max_dest_rd_atomic: 1,
        ..Setup::rc()
    });
    let remote = solo.remote(0);
    let reth = Reth {
        va: remote.va,
        rkey: remote.rkey,
        dma_len: 8,
    };
    solo.request_with(Opcode::RC_RDMA_READ_REQUEST, 0, &[], |headers| {
        headers.reth = reth
    });
    sent!(solo, [RC_RDMA_READ_RESPONSE_ONLY]);
    solo.request_with(Opcode::RC_RDMA_READ_REQUEST, 0, &[], |headers| {
        headers.reth = reth
    });
    solo.request_with(Opcode::RC_RDMA_READ_REQUEST, 1, &[], |headers| {
        headers.reth = reth
    });
    sent!(solo, [RC_RDMA_READ_RESPONSE_ONLY, RC_RDMA_READ_RESPONSE_ONLY]);
    assert_eq!(solo.state(), QpState::Rts);
}

#[test]
fn a_repeated_read_of_revoked_memory_is_not_answered() {
    let mut solo = Solo::rc();
    let key = solo.register(|_| {});
    let remote = solo.remote(0);
    let reth = Reth {
        va: remote.va,
        rkey: key.value(),
        dma_len: 8,
    };
    solo.request_with(Opcode::RC_RDMA_READ_REQUEST, 0, &[], |headers| {
        headers.reth = reth
    });
    sent!(solo, [RC_RDMA_READ_RESPONSE_ONLY]);
    solo.keys().revoke(key.value());
    solo.request_with(Opcode::RC_RDMA_READ_REQUEST, 0, &[], |headers| {
        headers.reth = reth
    });
    sent!(solo, []);
    assert_eq!(solo.state(), QpState::Rts);
}

#[test]
fn a_repeated_read_whose_memory_is_revoked_before_the_answer_leaves_is_dropped() {
    let mut solo = Solo::rc();
    let key = solo.register(|_| {});
    recv!(solo, 1, 0, 8);
    let reth = Reth {
        va: solo.remote(0).va,
        rkey: key.value(),
        dma_len: 8,
    };
    solo.request_with(Opcode::RC_RDMA_READ_REQUEST, 0, &[], |headers| {
        headers.reth = reth
    });
    sent!(solo, [RC_RDMA_READ_RESPONSE_ONLY]);
    solo.request_with(Opcode::RC_RDMA_READ_REQUEST, 0, &[], |headers| {
        headers.reth = reth
    });
    solo.keys().revoke(key.value());
    // What was asked behind it is still answered.
    solo.request_with(Opcode::RC_SEND_ONLY, 1, &[0; 8], |_| {});
    sent!(solo, [RC_ACKNOWLEDGE]);
    assert_eq!(solo.state(), QpState::Rts);
}

#[test]
fn late_acknowledgements_after_a_rewind_pull_the_requester_forward() {
    let mut solo = Solo::rc();
    let remote = solo.remote(0);
    for wr_id in 1..=3 {
        post!(solo, wr_id, SendOp::Write(remote), 0, 2048);
    }
    assert_eq!(solo.transmit().len(), 6);
    solo.answer(0, Syndrome::nak(nonic_wire::NakCode::PsnSequenceError));
    // Before anything is repeated, news arrives that most of it made it after all.
    solo.answer(4, Syndrome::ack());
    completed!(solo, [(1, Status::Success), (2, Status::Success)]);
    let rest = sent!(solo, [RC_RDMA_WRITE_LAST]);
    assert_eq!(rest[0].psn().value(), solo.setup.first_psn + 5);
}

#[test]
fn a_repeated_packet_from_the_middle_is_acknowledged_only_if_it_asks() {
    let mut solo = Solo::rc();
    recv!(solo, 1, 0, 4096);
    let quiet = |headers: &mut nonic_wire::Headers| headers.bth.ack_request = false;
    solo.request_with(Opcode::RC_SEND_FIRST, 0, &[0; 1024], quiet);
    solo.request_with(Opcode::RC_SEND_MIDDLE, 1, &[0; 1024], quiet);
    solo.request_with(Opcode::RC_SEND_MIDDLE, 1, &[0; 1024], quiet);
    sent!(solo, []);
    solo.request(Opcode::RC_SEND_MIDDLE, 1, &[0; 1024]);
    sent!(solo, [RC_ACKNOWLEDGE]);
}

/// A READ of 64 KiB, and what repeats it.
fn long_read(solo: &mut Solo) -> Reth {
    let remote = solo.remote(0);
    let reth = Reth {
        va: remote.va,
        rkey: remote.rkey,
        dma_len: 64 * 1024,
    };
    solo.request_with(Opcode::RC_RDMA_READ_REQUEST, 0, &[], |headers| {
        headers.reth = reth
    });
    assert_eq!(solo.transmit().len(), 64);
    reth
}

#[test]
fn a_flood_of_repeated_reads_is_answered_in_bounds() {
    let mut solo = Solo::rc();
    let reth = long_read(&mut solo);
    let (mut answers, mut honest) = (0, 0);
    // A tenth of a second of 100,000 in each, by a forger that knows the sequence numbers; and the peer's own requests
    // in between.
    for number in 0..10_000_u32 {
        let into = number % 64;
        solo.request_with(Opcode::RC_RDMA_READ_REQUEST, into, &[], |headers| {
            headers.reth = Reth {
                va: reth.va + u64::from(into) * 1024,
                dma_len: reth.dma_len - into * 1024,
                ..reth
            };
        });
        if number % 100 == 0 {
            let target = Reth { dma_len: 8, ..reth };
            solo.request_with(
                Opcode::RC_RDMA_WRITE_ONLY,
                64 + number / 100,
                &[1; 8],
                |headers| headers.reth = target,
            );
        }
        for wire in solo.transmit() {
            match wire.opcode() {
                Opcode::RC_ACKNOWLEDGE => honest += 1,
                _ => answers += 1,
            }
        }
        solo.advance(std::time::Duration::from_micros(10));
    }
    assert_eq!(honest, 100, "every request of the peer's own is answered at once");
    // Of 10,000 that would have been 32 packets each.
    assert!(answers <= (64 + 1000 + 1) * 64, "{answers}");
    assert!(answers >= 1000, "some may be in earnest: {answers}");
}

#[test]
fn a_peer_in_earnest_may_repeat_a_read_as_often_as_it_has_attempts() {
    let mut solo = Solo::rc();
    let reth = long_read(&mut solo);
    for _ in 0..16 {
        solo.request_with(Opcode::RC_RDMA_READ_REQUEST, 0, &[], |headers| {
            headers.reth = reth
        });
        assert_eq!(solo.transmit().len(), 64);
    }
}
