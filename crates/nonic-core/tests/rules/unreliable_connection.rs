//! UC: whole messages in order or not at all, nothing is acknowledged, a dropped message gives its receive
//! back.

use crate::support::{Pair, Setup, Solo, pattern};
use crate::{completed, expect_nothing, post, received, recv, sent};
use nonic_core::{Access, Data, PathMtu, PostError, QpState, SendFlags, SendOp, Status};
use nonic_wire::{Opcode, Reth};

#[test]
fn sends_and_writes_of_every_border_size() {
    use PathMtu::{Mtu256, Mtu1024, Mtu4096};
    for (mtu, lanes) in [
        (Mtu256, false),
        (Mtu1024, false),
        (Mtu4096, false),
        (Mtu256, true),
    ] {
        let mut pair = Pair::new(&Setup {
            mtu,
            lanes,
            ..Setup::uc()
        });
        let mtu = mtu.bytes();
        for size in [0, 1, 3, mtu - 1, mtu, mtu + 1, 2 * mtu, 5 * mtu + 7] {
            let bytes = pattern(size as u8, size as usize);
            pair.a.fill(0, &bytes);
            recv!(pair.b, 8, 64 << 10, 64 << 10);
            recv!(pair.b, 9, 0, 0);
            let remote = pair.b.remote(0);
            post!(pair.a, 1, SendOp::SendWithImmediate(7), 0, size);
            post!(pair.a, 2, SendOp::Write(remote), 0, size);
            post!(pair.a, 3, SendOp::WriteWithImmediate(remote, 6), 0, size);
            if lanes {
                sent!(pair.a, []);
            }
            pair.exchange();
            completed!(
                pair.a,
                [(1, Status::Success), (2, Status::Success), (3, Status::Success)]
            );
            let got = received!(pair.b, [(8, Status::Success), (9, Status::Success)]);
            assert_eq!((got[0].byte_len, got[0].immediate), (size, Some(7)));
            assert_eq!((got[1].byte_len, got[1].immediate), (size, Some(6)));
            assert_eq!(pair.b.bytes(64 << 10, size as usize), bytes);
            assert_eq!(pair.b.bytes(0, size as usize), bytes);
        }
        assert_eq!(pair.a.nic.usage().timers, 0);
    }
}

#[test]
fn a_request_is_complete_when_it_is_sent() {
    let mut pair = Pair::uc();
    post!(pair.a, 1, SendOp::Send, 0, 3000);
    assert_eq!(pair.a.transmit().len(), 3);
    completed!(pair.a, [(1, Status::Success)]);
}

#[test]
fn nothing_is_answered() {
    let mut solo = Solo::uc();
    recv!(solo, 1, 0, 8);
    solo.request(Opcode::UC_SEND_ONLY, 0, b"data");
    solo.request(Opcode::UC_SEND_ONLY, 1, b"data");
    solo.request(Opcode::UC_SEND_LAST, 9, b"data");
    sent!(solo, []);
    received!(solo, [(1, Status::Success)]);
    assert_eq!(solo.nic.counters().rx_dropped, 2);
}

#[test]
fn a_gap_drops_the_message_and_reuses_its_receive() {
    let mut pair = Pair::uc();
    recv!(pair.b, 1, 0, 4096);
    recv!(pair.b, 2, 8192, 4096);
    pair.a.fill(0, &pattern(1, 4096));
    post!(pair.a, 10, SendOp::Send, 0, 4096);
    post!(pair.a, 11, SendOp::Send, 0, 3000);
    let packets = pair.a.transmit();
    for (index, packet) in packets.iter().enumerate() {
        if index != 1 {
            pair.b.receive(packet);
        }
    }
    let got = received!(pair.b, [(1, Status::Success)]);
    assert_eq!(got[0].byte_len, 3000);
    assert_eq!(pair.b.bytes(0, 3000), pattern(1, 4096)[..3000]);
}

#[test]
fn a_message_whose_start_is_lost_is_dropped() {
    let mut pair = Pair::uc();
    recv!(pair.b, 1, 0, 4096);
    post!(pair.a, 10, SendOp::Send, 0, 3000);
    post!(pair.a, 11, SendOp::Send, 0, 1);
    let packets = pair.a.transmit();
    pair.b.receive_all(&packets[1..]);
    let got = received!(pair.b, [(1, Status::Success)]);
    assert_eq!(got[0].byte_len, 1);
}

#[test]
fn a_new_message_ends_one_that_lost_its_end() {
    let mut pair = Pair::uc();
    recv!(pair.b, 1, 0, 4096);
    post!(pair.a, 10, SendOp::Send, 0, 2048);
    post!(pair.a, 11, SendOp::Send, 0, 2048);
    let packets = pair.a.transmit();
    pair.b.receive(&packets[0]);
    pair.b.receive_all(&packets[2..]);
    received!(pair.b, [(1, Status::Success)]);
}

#[test]
fn copies_and_latecomers_are_dropped() {
    let mut pair = Pair::uc();
    recv!(pair.b, 1, 0, 4096);
    recv!(pair.b, 2, 0, 4096);
    post!(pair.a, 10, SendOp::Send, 0, 1);
    post!(pair.a, 11, SendOp::Send, 0, 2);
    let packets = pair.a.transmit();
    pair.b.receive(&packets[1]);
    pair.b.receive(&packets[0]);
    pair.b.receive(&packets[1]);
    let got = received!(pair.b, [(1, Status::Success)]);
    assert_eq!(got[0].byte_len, 2);
    assert_eq!(pair.b.nic.counters().rx_duplicates, 2);
}

#[test]
fn a_gap_in_a_write_leaves_the_rest_unwritten_and_delivers_no_immediate() {
    let mut pair = Pair::uc();
    recv!(pair.b, 1, 0, 0);
    pair.a.fill(0, &[7; 4096]);
    let remote = pair.b.remote(0);
    post!(pair.a, 10, SendOp::WriteWithImmediate(remote, 5), 0, 4096);
    let packets = pair.a.transmit();
    pair.b.receive(&packets[0]);
    pair.b.receive_all(&packets[2..]);
    received!(pair.b, []);
    assert_eq!(pair.b.bytes(0, 1024), [7; 1024]);
    assert_eq!(pair.b.bytes(1024, 3072), [0; 3072]);
}

#[test]
fn without_a_receive_the_message_is_dropped_and_the_next_is_taken() {
    let mut pair = Pair::uc();
    post!(pair.a, 10, SendOp::Send, 0, 3000);
    pair.exchange();
    expect_nothing!(pair.b);
    recv!(pair.b, 1, 0, 4096);
    post!(pair.a, 11, SendOp::Send, 0, 8);
    pair.exchange();
    let got = received!(pair.b, [(1, Status::Success)]);
    assert_eq!(got[0].byte_len, 8);
}

#[test]
fn writes_are_checked_and_dropped_silently() {
    let mut solo = Solo::new(&Setup {
        access: Access::REMOTE_WRITE,
        ..Setup::uc()
    });
    let good = solo.remote(0);
    let reth = Reth {
        va: good.va,
        rkey: good.rkey,
        dma_len: 4,
    };
    let wrong_key = Reth {
        rkey: good.rkey ^ 1,
        ..reth
    };
    let outside = Reth {
        va: good.va + (256 << 10),
        ..reth
    };
    let wrong_length = Reth { dma_len: 5, ..reth };
    for (index, bad) in [wrong_key, outside, wrong_length].into_iter().enumerate() {
        solo.request_with(Opcode::UC_RDMA_WRITE_ONLY, index as u32, b"evil", |headers| {
            headers.reth = bad;
        });
    }
    expect_nothing!(solo);
    assert_eq!(solo.nic.counters().rx_dropped, 3);
    assert_eq!(solo.bytes(0, 4), [0; 4]);
    solo.request_with(Opcode::UC_RDMA_WRITE_ONLY, 3, b"good", |headers| {
        headers.reth = reth
    });
    assert_eq!(solo.bytes(0, 4), b"good");
    assert_eq!(solo.state(), QpState::Rts);
}

#[test]
fn a_queue_pair_without_the_right_drops_writes() {
    let mut solo = Solo::new(&Setup {
        access: Access::empty(),
        ..Setup::uc()
    });
    let good = solo.remote(0);
    solo.request_with(Opcode::UC_RDMA_WRITE_ONLY, 0, b"evil", |headers| {
        headers.reth = Reth {
            va: good.va,
            rkey: good.rkey,
            dma_len: 4,
        };
    });
    assert_eq!(solo.bytes(0, 4), [0; 4]);
}

#[test]
fn a_message_longer_than_its_receive_fails_the_queue_pair() {
    let mut pair = Pair::uc();
    recv!(pair.b, 1, 0, 4);
    recv!(pair.b, 2, 0, 4);
    post!(pair.a, 10, SendOp::Send, 0, 5);
    pair.exchange();
    received!(pair.b, [(1, Status::LocalLength), (2, Status::Flushed)]);
    assert_eq!(pair.b.state(), QpState::Error);
}

#[test]
fn a_failed_send_stops_sending_but_not_receiving() {
    let mut pair = Pair::uc();
    let mut wrong = pair.a.sge(0, 8);
    wrong.lkey ^= 1;
    pair.a
        .post(1, SendOp::Send, Data::Sges(&[wrong]), SendFlags::SIGNALED)
        .expect("wrong keys show on use");
    post!(pair.a, 2, SendOp::Send, 0, 8);
    sent!(pair.a, []);
    completed!(pair.a, [(1, Status::LocalProtection), (2, Status::Flushed)]);
    assert_eq!(pair.a.state(), QpState::Sqe);
    post!(pair.a, 3, SendOp::Send, 0, 8);
    completed!(pair.a, [(3, Status::Flushed)]);

    recv!(pair.a, 4, 0, 8);
    post!(pair.b, 5, SendOp::Send, 0, 8);
    pair.exchange();
    received!(pair.a, [(4, Status::Success)]);

    pair.a.go_to(QpState::Rts);
    recv!(pair.b, 6, 0, 8);
    post!(pair.a, 7, SendOp::Send, 0, 8);
    pair.exchange();
    completed!(pair.a, [(7, Status::Success)]);
    received!(pair.b, [(6, Status::Success)]);
}

#[test]
fn reads_atomics_and_remote_invalidation_are_not_offered() {
    let mut pair = Pair::uc();
    let remote = pair.b.remote(0);
    for op in [
        SendOp::Read(remote),
        SendOp::FetchAdd { remote, add: 1 },
        SendOp::CompareSwap {
            remote,
            compare: 0,
            swap: 1,
        },
        SendOp::SendWithInvalidate(1),
    ] {
        assert_eq!(
            pair.a.try_send(1, op, 0, 8),
            Err(PostError::Unsupported),
            "{op:?}"
        );
    }
}
