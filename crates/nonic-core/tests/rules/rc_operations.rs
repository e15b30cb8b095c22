//! Every operation of the reliable service moves the right bytes and completes once on each side that the
//! verbs say.

use crate::support::{Bytes, Pair, Setup, pattern};
use crate::{completed, expect_nothing, post, received, recv};
use nonic_core::{CompletionOpcode, Data, PathMtu, QpCapacity, SendFlags, SendOp, Status};

/// Sizes at and around packet borders for a path MTU.
fn border_sizes(mtu: u32) -> Vec<u32> {
    vec![
        0,
        1,
        2,
        3,
        4,
        5,
        mtu - 1,
        mtu,
        mtu + 1,
        2 * mtu - 1,
        2 * mtu,
        2 * mtu + 1,
        7 * mtu + 13,
    ]
}

const ALL_MTUS: [PathMtu; 5] = [
    PathMtu::Mtu256,
    PathMtu::Mtu512,
    PathMtu::Mtu1024,
    PathMtu::Mtu2048,
    PathMtu::Mtu4096,
];

/// Runs `check` on a fresh pair for each path MTU and each border size, in packets and in records of the same length.
fn for_all_sizes(check: impl Fn(&mut Pair, u32)) {
    for (mtu, lanes) in ALL_MTUS.into_iter().flat_map(|mtu| [(mtu, false), (mtu, true)]) {
        let mut pair = Pair::new(&Setup {
            mtu,
            lanes,
            record_piece: mtu.bytes(),
            ..Setup::rc()
        });
        for size in border_sizes(mtu.bytes()) {
            check(&mut pair, size);
            assert_eq!(pair.a.nic.usage().in_flight_bytes, 0, "{mtu:?} {size}");
            assert_eq!(pair.a.nic.usage().send_requests, 0, "{mtu:?} {size}");
        }
    }
}

#[test]
fn send_of_every_border_size() {
    for_all_sizes(|pair, size| {
        let bytes = pattern(size as u8, size as usize);
        pair.a.fill(0, &bytes);
        pair.b.fill(64 << 10, &vec![0xee; 64 << 10]);
        recv!(pair.b, 2, 64 << 10, 64 << 10);
        post!(pair.a, 1, SendOp::Send, 0, size);
        pair.exchange();
        let sent = completed!(pair.a, [(1, Status::Success)]);
        assert_eq!(sent[0].opcode, CompletionOpcode::Send);
        let got = received!(pair.b, [(2, Status::Success)]);
        assert_eq!(got[0].opcode, CompletionOpcode::Recv);
        assert_eq!(got[0].byte_len, size);
        assert_eq!(got[0].immediate, None);
        assert_eq!(pair.b.bytes(64 << 10, size as usize), bytes);
        assert_eq!(
            pair.b.bytes((64 << 10) + size as usize, 8),
            [0xee; 8],
            "nothing behind it"
        );
    });
}

#[test]
fn send_with_immediate_of_every_border_size() {
    for_all_sizes(|pair, size| {
        let bytes = pattern(size as u8, size as usize);
        pair.a.fill(0, &bytes);
        recv!(pair.b, 2, 64 << 10, 64 << 10);
        post!(pair.a, 1, SendOp::SendWithImmediate(0xdead_be00 + size), 0, size);
        pair.exchange();
        completed!(pair.a, [(1, Status::Success)]);
        let got = received!(pair.b, [(2, Status::Success)]);
        assert_eq!(got[0].immediate, Some(0xdead_be00 + size));
        assert_eq!(got[0].byte_len, size);
        assert_eq!(pair.b.bytes(64 << 10, size as usize), bytes);
    });
}

#[test]
fn write_of_every_border_size_touches_nothing_else() {
    for_all_sizes(|pair, size| {
        let bytes = pattern(size as u8, size as usize);
        pair.a.fill(0, &bytes);
        pair.b.fill(0, &vec![0xee; 128 << 10]);
        let remote = pair.b.remote(4096);
        post!(pair.a, 1, SendOp::Write(remote), 0, size);
        pair.exchange();
        let done = completed!(pair.a, [(1, Status::Success)]);
        assert_eq!(done[0].opcode, CompletionOpcode::Write);
        expect_nothing!(pair.b);
        assert_eq!(pair.b.bytes(4096, size as usize), bytes);
        assert_eq!(pair.b.bytes(4088, 8), [0xee; 8]);
        assert_eq!(pair.b.bytes(4096 + size as usize, 8), [0xee; 8]);
    });
}

#[test]
fn write_with_immediate_consumes_a_receive_and_leaves_its_buffer() {
    for_all_sizes(|pair, size| {
        let bytes = pattern(size as u8, size as usize);
        pair.a.fill(0, &bytes);
        pair.b.fill(128 << 10, &[0xee; 64]);
        recv!(pair.b, 2, 128 << 10, 64);
        let remote = pair.b.remote(0);
        post!(pair.a, 1, SendOp::WriteWithImmediate(remote, 0xcafe), 0, size);
        pair.exchange();
        completed!(pair.a, [(1, Status::Success)]);
        let got = received!(pair.b, [(2, Status::Success)]);
        assert_eq!(got[0].opcode, CompletionOpcode::RecvWriteWithImmediate);
        assert_eq!((got[0].byte_len, got[0].immediate), (size, Some(0xcafe)));
        assert_eq!(pair.b.bytes(0, size as usize), bytes);
        assert_eq!(pair.b.bytes(128 << 10, 64), [0xee; 64]);
    });
}

#[test]
fn read_of_every_border_size() {
    for_all_sizes(|pair, size| {
        let bytes = pattern(size as u8, size as usize);
        pair.b.fill(512, &bytes);
        pair.a.fill(0, &vec![0xee; 128 << 10]);
        let remote = pair.b.remote(512);
        post!(pair.a, 1, SendOp::Read(remote), 4096, size);
        pair.exchange();
        let done = completed!(pair.a, [(1, Status::Success)]);
        assert_eq!((done[0].opcode, done[0].byte_len), (CompletionOpcode::Read, size));
        expect_nothing!(pair.b);
        assert_eq!(pair.a.bytes(4096, size as usize), bytes);
        assert_eq!(pair.a.bytes(4088, 8), [0xee; 8]);
        assert_eq!(pair.a.bytes(4096 + size as usize, 8), [0xee; 8]);
    });
}

#[test]
fn fetch_add_returns_the_old_value_and_wraps() {
    let mut pair = Pair::rc();
    pair.b.set_word(8, u64::MAX);
    let remote = pair.b.remote(8);
    post!(pair.a, 1, SendOp::FetchAdd { remote, add: 3 }, 0, 8);
    pair.exchange();
    let done = completed!(pair.a, [(1, Status::Success)]);
    assert_eq!(
        (done[0].opcode, done[0].byte_len),
        (CompletionOpcode::FetchAdd, 8)
    );
    assert_eq!(pair.a.word(0), u64::MAX);
    assert_eq!(pair.b.word(8), 2);
}

#[test]
fn compare_swap_swaps_only_a_match() {
    let mut pair = Pair::rc();
    pair.b.set_word(8, 70);
    let remote = pair.b.remote(8);
    let swap_if = |compare| SendOp::CompareSwap {
        remote,
        compare,
        swap: 99,
    };
    post!(pair.a, 1, swap_if(71), 0, 8);
    pair.exchange();
    assert_eq!((pair.a.word(0), pair.b.word(8)), (70, 70));
    post!(pair.a, 2, swap_if(70), 0, 8);
    pair.exchange();
    assert_eq!((pair.a.word(0), pair.b.word(8)), (70, 99));
    let done = completed!(pair.a, [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(done[0].opcode, CompletionOpcode::CompareSwap);
}

#[test]
fn a_message_of_32_pieces_arrives_in_32_other_pieces() {
    let mut pair = Pair::rc();
    let bytes = pattern(5, 32 * 100);
    // Pieces in reverse order with gaps, so that a mix-up shows.
    let pieces: Vec<_> = (0..32).map(|i| pair.a.sge((31 - i) * 200, 100)).collect();
    for (i, chunk) in bytes.chunks(100).enumerate() {
        pair.a.fill((31 - i) * 200, chunk);
    }
    let targets: Vec<_> = (0..32).map(|i| pair.b.sge(i * 1000, 90 + 2 * i as u32)).collect();
    pair.b.post_recv(2, &targets).expect("32 elements fit");
    pair.a
        .post(1, SendOp::Send, Data::Sges(&pieces), SendFlags::SIGNALED)
        .expect("32 elements fit");
    pair.exchange();
    let got = received!(pair.b, [(2, Status::Success)]);
    assert_eq!(got[0].byte_len, 3200);
    let mut arrived = Vec::new();
    for i in 0..32 {
        arrived.extend(pair.b.bytes(i * 1000, 90 + 2 * i));
    }
    assert_eq!(arrived[..3200], bytes[..]);
}

#[test]
fn a_read_scatters_over_32_pieces() {
    let mut pair = Pair::rc();
    let bytes = pattern(9, 32 * 77);
    pair.b.fill(3, &bytes);
    let targets: Vec<_> = (0..32).map(|i| pair.a.sge(i * 500 + 1, 77)).collect();
    let remote = pair.b.remote(3);
    pair.a
        .post(1, SendOp::Read(remote), Data::Sges(&targets), SendFlags::SIGNALED)
        .expect("32 elements fit");
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
    let arrived: Bytes = (0..32).flat_map(|i| pair.a.bytes(i * 500 + 1, 77)).collect();
    assert_eq!(arrived, bytes);
}

#[test]
fn inline_data_is_taken_when_posted() {
    let mut pair = Pair::rc();
    let mut bytes = pattern(1, 512);
    recv!(pair.b, 2, 0, 512);
    pair.a
        .post(1, SendOp::Send, Data::Inline(&bytes), SendFlags::SIGNALED)
        .expect("512 bytes are allowed inline");
    let original = bytes.clone();
    bytes.fill(0);
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
    assert_eq!(pair.b.bytes(0, 512), original);
}

#[test]
fn inline_write_crosses_packets() {
    let mut pair = Pair::new(&Setup {
        mtu: PathMtu::Mtu256,
        ..Setup::rc()
    });
    let bytes = pattern(1, 511);
    let remote = pair.b.remote(7);
    pair.a
        .post(
            1,
            SendOp::Write(remote),
            Data::Inline(&bytes),
            SendFlags::SIGNALED,
        )
        .expect("511 bytes are allowed inline");
    pair.exchange();
    assert_eq!(pair.b.bytes(7, 511), bytes);
}

#[test]
fn a_message_without_gather_elements_is_empty() {
    let mut pair = Pair::rc();
    pair.b
        .post_recv(2, &[])
        .expect("a receive without elements is allowed");
    pair.a
        .post(
            1,
            SendOp::SendWithImmediate(5),
            Data::Sges(&[]),
            SendFlags::SIGNALED,
        )
        .expect("posted");
    pair.exchange();
    let got = received!(pair.b, [(2, Status::Success)]);
    assert_eq!((got[0].byte_len, got[0].immediate), (0, Some(5)));
}

#[test]
fn unsignaled_success_completes_silently_and_in_order_with_the_others() {
    let mut pair = Pair::new(&Setup {
        signal_all: false,
        ..Setup::rc()
    });
    let remote = pair.b.remote(0);
    for wr_id in 1..=4 {
        let flags = if wr_id % 2 == 0 {
            SendFlags::SIGNALED
        } else {
            SendFlags::empty()
        };
        let element = pair.a.sge(0, 16);
        pair.a
            .post(wr_id, SendOp::Write(remote), Data::Sges(&[element]), flags)
            .expect("posted");
    }
    pair.exchange();
    completed!(pair.a, [(2, Status::Success), (4, Status::Success)]);
    assert_eq!(pair.a.nic.usage().send_requests, 0);
}

#[test]
fn requests_complete_in_the_order_they_were_posted() {
    let mut pair = Pair::rc();
    let remote = pair.b.remote(1 << 12);
    recv!(pair.b, 100, 128 << 10, 4096);
    post!(pair.a, 1, SendOp::Read(remote), 0, 5000);
    post!(pair.a, 2, SendOp::Write(remote), 0, 10);
    post!(pair.a, 3, SendOp::FetchAdd { remote, add: 1 }, 0, 8);
    post!(pair.a, 4, SendOp::Send, 0, 3000);
    post!(pair.a, 5, SendOp::Read(remote), 0, 1);
    pair.exchange();
    let ids: Vec<u64> = pair.a.completions().iter().map(|c| c.wr_id).collect();
    assert_eq!(ids, [1, 2, 3, 4, 5]);
}

#[test]
fn both_directions_at_once() {
    let mut pair = Pair::rc();
    let (to_b, to_a) = (pair.b.remote(64 << 10), pair.a.remote(64 << 10));
    let (ours, theirs) = (pattern(1, 40_000), pattern(2, 40_000));
    pair.a.fill(0, &ours);
    pair.b.fill(0, &theirs);
    post!(pair.a, 1, SendOp::Write(to_b), 0, 40_000);
    post!(pair.b, 2, SendOp::Write(to_a), 0, 40_000);
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
    completed!(pair.b, [(2, Status::Success)]);
    assert_eq!(pair.b.bytes(64 << 10, 40_000), ours);
    assert_eq!(pair.a.bytes(64 << 10, 40_000), theirs);
}

#[test]
fn a_queue_holds_as_many_requests_as_it_was_created_for() {
    let mut pair = Pair::new(&Setup {
        capacity: QpCapacity {
            max_send_wr: 2,
            max_recv_wr: 1,
            ..Setup::rc().capacity
        },
        ..Setup::rc()
    });
    use nonic_core::{PostError, RecvRefused};
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 1);
    post!(pair.a, 2, SendOp::Write(remote), 0, 1);
    let third = pair.a.try_send(3, SendOp::Write(remote), 0, 1);
    assert_eq!(third, Err(PostError::SendQueueFull));
    recv!(pair.a, 1, 0, 1);
    assert_eq!(
        pair.a.try_recv(2, 0, 1),
        Err(PostError::Receive(RecvRefused::Full))
    );
    pair.exchange();
    completed!(pair.a, [(1, Status::Success), (2, Status::Success)]);
    post!(pair.a, 3, SendOp::Write(remote), 0, 1);
}
