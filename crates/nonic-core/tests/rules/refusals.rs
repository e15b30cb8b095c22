//! NAKs: each reason for one, what the peer hears, and what becomes of both sides.

use crate::support::{Pair, Setup, Solo, pattern, us};
use crate::{completed, post, received, recv, sent};
use nonic_core::{Access, Event, QpState, RemoteAddress, SendOp, Status};
use nonic_wire::{AtomicEth, NakCode, Opcode, Reth, Syndrome};

const INVALID: Syndrome = Syndrome::nak(NakCode::InvalidRequest);
const ACCESS: Syndrome = Syndrome::nak(NakCode::RemoteAccessError);
const OPERATIONAL: Syndrome = Syndrome::nak(NakCode::RemoteOperationalError);
const SEQUENCE: Syndrome = Syndrome::nak(NakCode::PsnSequenceError);

/// The node must answer with exactly this refusal and be in error.
#[track_caller]
fn refused(solo: &mut Solo, syndrome: Syndrome) {
    let answers = sent!(solo, [RC_ACKNOWLEDGE]);
    assert_eq!(answers[0].syndrome(), syndrome);
    assert_eq!(solo.state(), QpState::Error);
}

fn reth(remote: RemoteAddress, dma_len: u32) -> Reth {
    Reth {
        va: remote.va,
        rkey: remote.rkey,
        dma_len,
    }
}

#[test]
fn a_gap_is_reported_once_with_the_missing_psn() {
    let mut pair = Pair::rc();
    let remote = pair.b.remote(0);
    for wr_id in 1..=4 {
        post!(pair.a, wr_id, SendOp::Write(remote), 0, 8);
    }
    let mut requests = pair.a.transmit();
    // As from a peer that does not understand selective acknowledgements.
    for request in &mut requests {
        request.alter(|headers| headers.bth.resv7 = 0);
    }
    pair.b.receive(&requests[0]);
    sent!(pair.b, [RC_ACKNOWLEDGE]);
    pair.b.receive(&requests[2]);
    pair.b.receive(&requests[3]);
    sent!(pair.b, []);
    pair.b.advance(us(100));
    let answers = sent!(pair.b, [RC_ACKNOWLEDGE]);
    assert_eq!(answers[0].syndrome(), SEQUENCE);
    assert_eq!(answers[0].psn(), requests[1].psn());
    assert_eq!(pair.b.state(), QpState::Rts);
    assert_eq!(pair.b.nic.counters().rx_out_of_sequence, 2);

    // It also acknowledges what is before the gap, and makes the requester go back.
    pair.a.receive_all(&answers);
    completed!(pair.a, [(1, Status::Success)]);
    let again = pair.a.transmit();
    assert_eq!(again.len(), 3);
    assert_eq!(again[0].psn(), requests[1].psn());
    pair.b.receive_all(&again);
    pair.exchange();
    completed!(
        pair.a,
        [(2, Status::Success), (3, Status::Success), (4, Status::Success)]
    );
}

#[test]
fn the_next_gap_is_reported_again() {
    let mut solo = Solo::rc();
    for wr_id in 0..4 {
        recv!(solo, wr_id, 0, 8);
    }
    let reported = |solo: &mut Solo| {
        solo.advance(us(100));
        let answers = solo.transmit();
        let last = answers.last().expect("an answer");
        assert_eq!(last.syndrome(), SEQUENCE);
        last.psn()
    };
    solo.request(Opcode::RC_SEND_ONLY, 1, b"gap!");
    assert_eq!(reported(&mut solo), solo.peer.psn);
    solo.request(Opcode::RC_SEND_ONLY, 0, b"data");
    solo.request(Opcode::RC_SEND_ONLY, 3, b"gap!");
    assert_eq!(reported(&mut solo), solo.peer.psn.add(2));
    solo.request(Opcode::RC_SEND_ONLY, 4, b"gap!");
    solo.advance(us(100));
    sent!(solo, []);
    received!(solo, [(0, Status::Success), (1, Status::Success)]);
}

#[test]
fn a_second_report_of_the_same_gap_is_not_acted_on() {
    let mut solo = Solo::rc();
    let remote = solo.remote(0);
    post!(solo, 1, SendOp::Write(remote), 0, 8);
    post!(solo, 2, SendOp::Write(remote), 0, 8);
    assert_eq!(solo.transmit().len(), 2);
    solo.answer(0, SEQUENCE);
    assert_eq!(solo.transmit().len(), 2);
    solo.answer(0, SEQUENCE);
    assert_eq!(solo.transmit().len(), 0);
}

#[test]
fn middle_and_last_packets_need_a_message_in_progress() {
    for opcode in [
        Opcode::RC_SEND_MIDDLE,
        Opcode::RC_SEND_LAST,
        Opcode::RC_SEND_LAST_WITH_IMMEDIATE,
        Opcode::RC_SEND_LAST_WITH_INVALIDATE,
        Opcode::RC_RDMA_WRITE_MIDDLE,
        Opcode::RC_RDMA_WRITE_LAST,
        Opcode::RC_RDMA_WRITE_LAST_WITH_IMMEDIATE,
    ] {
        let mut solo = Solo::rc();
        recv!(solo, 1, 0, 4096);
        solo.request(opcode, 0, &[1; 1024]);
        refused(&mut solo, INVALID);
        assert_eq!(solo.events(), [Event::QpRequestError(solo.qpn)], "{opcode}");
    }
}

#[test]
fn a_message_in_progress_allows_nothing_but_its_continuation() {
    for opcode in [
        Opcode::RC_SEND_FIRST,
        Opcode::RC_SEND_ONLY,
        Opcode::RC_RDMA_WRITE_ONLY,
        Opcode::RC_RDMA_WRITE_MIDDLE,
        Opcode::RC_RDMA_READ_REQUEST,
        Opcode::RC_FETCH_ADD,
    ] {
        let mut solo = Solo::rc();
        recv!(solo, 1, 0, 8192);
        recv!(solo, 2, 0, 8192);
        solo.request_with(Opcode::RC_SEND_FIRST, 0, &[1; 1024], |headers| {
            headers.bth.ack_request = false;
        });
        let length = if opcode.operation().carries_payload() {
            1024
        } else {
            0
        };
        solo.request(opcode, 1, &vec![1; length]);
        refused(&mut solo, INVALID);
        received!(solo, [(1, Status::LocalQpOperation), (2, Status::Flushed)]);
    }
}

#[test]
fn a_write_cannot_be_continued_by_a_send() {
    let mut solo = Solo::rc();
    recv!(solo, 1, 0, 8192);
    let remote = solo.remote(0);
    solo.request_with(Opcode::RC_RDMA_WRITE_FIRST, 0, &[1; 1024], |headers| {
        headers.reth = reth(remote, 2048);
        headers.bth.ack_request = false;
    });
    solo.request(Opcode::RC_SEND_LAST, 1, &[1; 1024]);
    refused(&mut solo, INVALID);
}

#[test]
fn first_and_middle_packets_are_full_and_last_ones_are_not_empty() {
    for (opcode, length) in [
        (Opcode::RC_SEND_FIRST, 1023),
        (Opcode::RC_SEND_FIRST, 1028),
        (Opcode::RC_SEND_FIRST, 0),
        (Opcode::RC_SEND_ONLY, 1025),
        (Opcode::RC_RDMA_WRITE_FIRST, 1000),
        (Opcode::RC_RDMA_WRITE_ONLY, 1025),
    ] {
        let mut solo = Solo::rc();
        recv!(solo, 1, 0, 8192);
        let remote = solo.remote(0);
        solo.request_with(opcode, 0, &vec![1; length], |headers| {
            headers.reth = reth(remote, 2048);
        });
        refused(&mut solo, INVALID);
    }
    for length in [0, 1025] {
        let mut solo = Solo::rc();
        recv!(solo, 1, 0, 8192);
        solo.request_with(Opcode::RC_SEND_FIRST, 0, &[1; 1024], |headers| {
            headers.bth.ack_request = false;
        });
        solo.request(Opcode::RC_SEND_LAST, 1, &vec![1; length]);
        refused(&mut solo, INVALID);
    }
}

#[test]
fn a_writes_packets_must_add_up_to_its_announced_length() {
    for (announced, last) in [(2048, 1000), (2000, 1024), (1024, 1), (4096, 1024)] {
        let mut solo = Solo::rc();
        let remote = solo.remote(0);
        solo.request_with(Opcode::RC_RDMA_WRITE_FIRST, 0, &[1; 1024], |headers| {
            headers.reth = reth(remote, announced);
            headers.bth.ack_request = false;
        });
        solo.request(Opcode::RC_RDMA_WRITE_LAST, 1, &vec![1; last]);
        refused(&mut solo, INVALID);
    }
    let mut solo = Solo::rc();
    let remote = solo.remote(0);
    solo.request_with(Opcode::RC_RDMA_WRITE_ONLY, 0, &[1; 100], |headers| {
        headers.reth = reth(remote, 99);
    });
    refused(&mut solo, INVALID);
    assert_eq!(solo.bytes(0, 100), [0; 100], "nothing was placed");
}

#[test]
fn requests_without_payload_must_not_bring_any() {
    for opcode in [Opcode::RC_RDMA_READ_REQUEST, Opcode::RC_COMPARE_SWAP] {
        let mut solo = Solo::rc();
        solo.request(opcode, 0, &[1; 4]);
        refused(&mut solo, INVALID);
    }
}

#[test]
fn operations_that_are_not_offered_are_refused() {
    for (opcode, length) in [(Opcode::RC_FLUSH, 0), (Opcode::RC_ATOMIC_WRITE, 8)] {
        let mut solo = Solo::rc();
        solo.request(opcode, 0, &vec![0; length]);
        refused(&mut solo, INVALID);
    }
}

#[test]
fn one_read_more_than_agreed_is_refused() {
    let mut solo = Solo::new(&Setup {
        max_dest_rd_atomic: 2,
        ..Setup::rc()
    });
    let remote = solo.remote(0);
    for index in 0..3 {
        solo.request_with(Opcode::RC_RDMA_READ_REQUEST, index, &[], |headers| {
            headers.reth = reth(remote, 8);
        });
    }
    let answers = sent!(
        solo,
        [
            RC_RDMA_READ_RESPONSE_ONLY,
            RC_RDMA_READ_RESPONSE_ONLY,
            RC_ACKNOWLEDGE
        ]
    );
    assert_eq!(answers[2].syndrome(), INVALID);
    assert_eq!(solo.state(), QpState::Error);
}

#[test]
fn reads_and_atomics_need_an_agreement_at_all() {
    for opcode in [Opcode::RC_RDMA_READ_REQUEST, Opcode::RC_FETCH_ADD] {
        let mut solo = Solo::new(&Setup {
            max_dest_rd_atomic: 0,
            ..Setup::rc()
        });
        solo.request(opcode, 0, &[]);
        refused(&mut solo, INVALID);
    }
}

#[test]
fn an_atomic_must_be_aligned() {
    let mut solo = Solo::rc();
    let remote = solo.remote(4);
    solo.request_with(Opcode::RC_FETCH_ADD, 0, &[], |headers| {
        headers.atomic = AtomicEth {
            va: remote.va,
            rkey: remote.rkey,
            swap_add: 1,
            compare: 0,
        };
    });
    refused(&mut solo, INVALID);
}

#[test]
fn messages_above_two_gib_are_refused() {
    for opcode in [Opcode::RC_RDMA_READ_REQUEST, Opcode::RC_RDMA_WRITE_FIRST] {
        let mut solo = Solo::rc();
        let remote = solo.remote(0);
        let length = if opcode.operation().carries_payload() {
            1024
        } else {
            0
        };
        solo.request_with(opcode, 0, &vec![0; length], |headers| {
            headers.reth = reth(remote, (1 << 31) + 1);
        });
        refused(&mut solo, INVALID);
    }
}

#[test]
fn a_queue_pair_without_the_right_refuses_as_invalid() {
    let all = Setup::rc().access;
    for (right, opcode) in [
        (Access::REMOTE_WRITE, Opcode::RC_RDMA_WRITE_ONLY),
        (Access::REMOTE_READ, Opcode::RC_RDMA_READ_REQUEST),
        (Access::REMOTE_ATOMIC, Opcode::RC_COMPARE_SWAP),
        (Access::REMOTE_ATOMIC, Opcode::RC_FETCH_ADD),
    ] {
        let mut solo = Solo::new(&Setup {
            access: all - right,
            ..Setup::rc()
        });
        let remote = solo.remote(0);
        solo.request_with(opcode, 0, &[], |headers| {
            headers.reth = reth(remote, 0);
            headers.atomic.va = remote.va;
            headers.atomic.rkey = remote.rkey;
        });
        refused(&mut solo, INVALID);
    }
}

/// Requests for 64 bytes, one per operation that names remote memory.
const REMOTE: [Opcode; 4] = [
    Opcode::RC_RDMA_WRITE_ONLY,
    Opcode::RC_RDMA_READ_REQUEST,
    Opcode::RC_COMPARE_SWAP,
    Opcode::RC_FETCH_ADD,
];

/// Feeds one such request and expects an access error that leaves memory alone.
#[track_caller]
fn access_refused(solo: &mut Solo, opcode: Opcode, remote: RemoteAddress) {
    let before = solo.memory.snapshot();
    let length = if opcode.operation().carries_payload() {
        64
    } else {
        0
    };
    solo.request_with(opcode, 0, &pattern(1, length), |headers| {
        headers.reth = reth(remote, 64);
        headers.atomic = AtomicEth {
            va: remote.va,
            rkey: remote.rkey,
            swap_add: 1,
            compare: 0,
        };
    });
    refused(solo, ACCESS);
    assert_eq!(solo.events(), [Event::QpAccessError(solo.qpn)]);
    assert!(solo.memory.snapshot() == before, "memory changed");
}

#[test]
fn an_unknown_key_is_an_access_error() {
    for opcode in REMOTE {
        let mut solo = Solo::rc();
        let remote = RemoteAddress {
            rkey: solo.key.value() ^ 1,
            ..solo.remote(0)
        };
        access_refused(&mut solo, opcode, remote);
    }
}

/// How UCX asks whether its earlier requests are done: where no memory is.
const FENCE: Reth = Reth {
    va: 0,
    rkey: 0xff,
    dma_len: 8,
};

#[test]
fn the_fence_of_ucx_is_answered_with_zeros() {
    let mut solo = Solo::rc();
    solo.fill(0, &[7; 64]);
    for (offset, dma_len) in [(0, 8), (1, 1), (2, 0)] {
        solo.request_with(Opcode::RC_RDMA_READ_REQUEST, offset, &[], |headers| {
            headers.reth = Reth { dma_len, ..FENCE };
        });
        let answers = sent!(solo, [RC_RDMA_READ_RESPONSE_ONLY]);
        assert_eq!(answers[0].payload(), &[0; 8][..dma_len as usize]);
    }
    assert_eq!(solo.state(), QpState::Rts);
}

#[test]
fn nothing_but_that_fence_is_answered_without_a_key() {
    let others = [
        Reth { dma_len: 9, ..FENCE },
        Reth { va: 1, ..FENCE },
        Reth { rkey: 0x1ff, ..FENCE },
        Reth { rkey: 0, ..FENCE },
    ];
    for reth in others {
        let mut solo = Solo::rc();
        solo.request_with(Opcode::RC_RDMA_READ_REQUEST, 0, &[], |headers| {
            headers.reth = reth
        });
        refused(&mut solo, ACCESS);
    }
    let mut solo = Solo::rc();
    solo.request_with(Opcode::RC_RDMA_WRITE_ONLY, 0, &[1; 8], |headers| {
        headers.reth = FENCE
    });
    refused(&mut solo, ACCESS);
    let mut solo = Solo::new(&Setup {
        access: Access::REMOTE_WRITE,
        ..Setup::rc()
    });
    solo.request_with(Opcode::RC_RDMA_READ_REQUEST, 0, &[], |headers| {
        headers.reth = FENCE
    });
    refused(&mut solo, INVALID);
}

#[test]
fn the_key_of_that_fence_is_never_given_to_memory() {
    let mut solo = Solo::rc();
    let mut spec = None;
    solo.register(|registered| spec = Some(registered.clone()));
    let given = solo.keys().register_as(0xff, spec.expect("registered"));
    assert!(given.expect("a valid range").is_none());
}

#[test]
fn a_revoked_key_is_an_access_error() {
    for opcode in REMOTE {
        let mut solo = Solo::rc();
        let remote = solo.remote(0);
        assert!(solo.keys().revoke(remote.rkey));
        access_refused(&mut solo, opcode, remote);
    }
}

#[test]
fn a_key_of_another_domain_is_an_access_error() {
    for opcode in REMOTE {
        let mut solo = Solo::rc();
        let other = solo.keys().alloc_pd();
        let key = solo.register(|spec| spec.pd = other);
        let remote = RemoteAddress {
            rkey: key.value(),
            ..solo.remote(0)
        };
        access_refused(&mut solo, opcode, remote);
    }
}

#[test]
fn a_window_bound_to_another_queue_pair_is_an_access_error() {
    for opcode in REMOTE {
        let mut solo = Solo::rc();
        let other = solo.add_qp();
        let key = solo.register(|spec| spec.bound_qp = Some(other));
        let remote = RemoteAddress {
            rkey: key.value(),
            ..solo.remote(0)
        };
        access_refused(&mut solo, opcode, remote);
    }
}

#[test]
fn a_key_without_the_right_is_an_access_error() {
    let rights = [
        Access::REMOTE_WRITE,
        Access::REMOTE_READ,
        Access::REMOTE_ATOMIC,
        Access::REMOTE_ATOMIC,
    ];
    for (opcode, right) in REMOTE.into_iter().zip(rights) {
        let mut solo = Solo::rc();
        let key = solo.register(|spec| spec.access -= right);
        let remote = RemoteAddress {
            rkey: key.value(),
            ..solo.remote(0)
        };
        access_refused(&mut solo, opcode, remote);
    }
}

#[test]
fn one_byte_outside_the_keys_range_is_an_access_error() {
    for opcode in REMOTE {
        // Eight bytes short of the end serve an atomic; 64 would not fit.
        let size = Setup::rc().memory;
        for offset in [size - 56, size, size + 4096] {
            let mut solo = Solo::rc();
            let outside = if opcode.operation().is_atomic() {
                size
            } else {
                offset
            };
            let remote = solo.remote(outside);
            access_refused(&mut solo, opcode, remote);
        }
        let mut solo = Solo::rc();
        let before_start = RemoteAddress {
            va: solo.remote(0).va - 8,
            ..solo.remote(0)
        };
        access_refused(&mut solo, opcode, before_start);
        let mut solo = Solo::rc();
        let end_of_space = RemoteAddress {
            va: u64::MAX - 7,
            ..solo.remote(0)
        };
        access_refused(&mut solo, opcode, end_of_space);
    }
}

#[test]
fn zero_bytes_need_no_key() {
    let mut pair = Pair::rc();
    let nowhere = RemoteAddress { va: 1, rkey: 0 };
    post!(pair.a, 1, SendOp::Write(nowhere), 0, 0);
    post!(pair.a, 2, SendOp::Read(nowhere), 0, 0);
    pair.exchange();
    completed!(pair.a, [(1, Status::Success), (2, Status::Success)]);
}

#[test]
fn a_message_longer_than_its_receive_is_an_invalid_request() {
    for (posted, length) in [(16, 17), (1500, 1501), (1024, 4096)] {
        let mut pair = Pair::rc();
        recv!(pair.b, 5, 0, posted);
        recv!(pair.b, 6, 0, 64);
        pair.b.fill(posted as usize, &[0xee; 64]);
        post!(pair.a, 1, SendOp::Send, 0, length);
        post!(pair.a, 2, SendOp::Send, 0, 1);
        pair.exchange();
        completed!(pair.a, [(1, Status::RemoteInvalidRequest), (2, Status::Flushed)]);
        received!(pair.b, [(5, Status::LocalLength), (6, Status::Flushed)]);
        assert_eq!(pair.b.bytes(posted as usize, 64), [0xee; 64]);
    }
}

#[test]
fn a_receive_whose_key_is_wrong_is_an_operational_error() {
    let mut pair = Pair::rc();
    let mut element = pair.b.sge(0, 64);
    element.lkey ^= 1;
    pair.b.post_recv(5, &[element]).expect("wrong keys show on use");
    post!(pair.a, 1, SendOp::Send, 0, 8);
    pair.exchange();
    completed!(pair.a, [(1, Status::RemoteOperation)]);
    received!(pair.b, [(5, Status::LocalProtection)]);
}

#[test]
fn a_receive_needs_memory_it_may_write() {
    let mut pair = Pair::rc();
    let key = pair.b.register(|spec| spec.access = Access::REMOTE_READ);
    let element = nonic_core::Sge {
        lkey: key.value(),
        ..pair.b.sge(0, 64)
    };
    pair.b.post_recv(5, &[element]).expect("wrong keys show on use");
    post!(pair.a, 1, SendOp::Send, 0, 8);
    let requests = pair.a.transmit();
    pair.b.receive_all(&requests);
    assert_eq!(sent!(pair.b, [RC_ACKNOWLEDGE])[0].syndrome(), OPERATIONAL);
    received!(pair.b, [(5, Status::LocalProtection)]);
}

#[test]
fn each_refusal_fails_the_request_it_names_and_flushes_the_rest() {
    for (syndrome, status) in [
        (INVALID, Status::RemoteInvalidRequest),
        (ACCESS, Status::RemoteAccess),
        (OPERATIONAL, Status::RemoteOperation),
        (Syndrome(0x64), Status::RemoteInvalidRequest),
        (Syndrome(0x7f), Status::RemoteInvalidRequest),
    ] {
        let mut solo = Solo::rc();
        let remote = solo.remote(0);
        for wr_id in 1..=3 {
            post!(solo, wr_id, SendOp::Write(remote), 0, 8);
        }
        recv!(solo, 9, 0, 8);
        solo.transmit();
        solo.answer(1, syndrome);
        completed!(solo, [(1, Status::Success), (2, status), (3, Status::Flushed)]);
        received!(solo, [(9, Status::Flushed)]);
        assert_eq!(solo.state(), QpState::Error);
        sent!(solo, []);
    }
}

#[test]
fn after_a_refusal_the_responder_is_silent() {
    let mut solo = Solo::rc();
    solo.request(Opcode::RC_SEND_LAST, 0, &[1]);
    refused(&mut solo, INVALID);
    solo.request(Opcode::RC_SEND_LAST, 0, &[1]);
    solo.request(Opcode::RC_SEND_ONLY, 1, &[1]);
    sent!(solo, []);
}
