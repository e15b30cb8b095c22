//! Two devices in one process talk over loopback sockets.

use crate::side::{ALL, Side, at, connected};
use nonic_core::{RecvRequest, Region, SendOp, Sge, Status};
use std::time::{Duration, Instant};

const MEMORY: usize = 1 << 20;
/// What anything may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Two connected devices, and the key by which the first one reaches the memory of the second.
fn pair() -> (Side, Side, u32) {
    let side = || Side::from_environment(MEMORY, 64);
    let (a, b) = connected(side(), side());
    let rkey = b.register(&b.local, 0..MEMORY, ALL);
    (a, b, rkey)
}

fn post(side: &Side, op: SendOp, sge: Sge) {
    side.post(side.qpn, 1, op, sge);
}

/// Polls until `count` requests have completed, which also teaches the background thread to keep away.
fn complete(side: &Side, count: usize) {
    for _ in 0..count {
        assert_eq!(side.wait_within(PATIENCE).status, Status::Success);
    }
}

#[test]
fn send_write_and_read_between_two_devices() {
    let (a, b, rkey) = pair();
    let data: Vec<u8> = (0..300_000u32).map(|i| ((i * 31) >> 3) as u8).collect();
    a.local.write(0, &data).expect("in bounds");

    let receive = RecvRequest {
        wr_id: 9,
        sges: &[b.sge(500_000, 400_000)],
    };
    b.device.post_recv(b.qpn, &receive).expect("posted");
    post(&a, SendOp::Send, a.sge(0, 300_000));
    complete(&a, 1);
    let received = b.wait_within(PATIENCE);
    assert_eq!((received.status, received.byte_len), (Status::Success, 300_000));
    let mut back = vec![0; data.len()];
    b.local.read(500_000, &mut back).expect("in bounds");
    assert_eq!(back, data);

    let remote = at(rkey, 1000);
    post(&a, SendOp::Write(remote), a.sge(0, 200_000));
    complete(&a, 1);
    // The target's code does nothing here: its background thread answers.
    post(&a, SendOp::Read(remote), a.sge(600_000, 200_000));
    complete(&a, 1);
    let mut back = vec![0; 200_000];
    a.local.read(600_000, &mut back).expect("in bounds");
    assert_eq!(back, data[..200_000]);
}

#[test]
fn short_requests_posted_in_a_row_travel_together() {
    const POSTS: usize = 32;
    let (a, _b, rkey) = pair();
    let remote = at(rkey, 0);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let before = a.device.counters().1.sends;
        for _ in 0..POSTS {
            post(&a, SendOp::Write(remote), a.sge(0, 64));
        }
        complete(&a, POSTS);
        let sends = a.device.counters().1.sends - before;
        // Not from the first: the background thread must have seen the program poll.
        if sends <= POSTS as u64 / 4 {
            break;
        }
        assert!(Instant::now() < deadline, "{POSTS} posts took {sends} sends");
    }
}

#[test]
fn what_is_held_back_leaves_without_another_call() {
    let (a, b, rkey) = pair();
    let remote = at(rkey, 0);
    for round in 1..=100u8 {
        for _ in 0..10 {
            post(&a, SendOp::Write(remote), a.sge(1000, 8));
            complete(&a, 1);
        }
        a.local.write(0, &[round; 8]).expect("in bounds");
        // The first is under way when the second is posted. Then the program makes no call.
        post(&a, SendOp::Write(remote), a.sge(1000, 8));
        post(&a, SendOp::Write(remote), a.sge(0, 8));
        let deadline = Instant::now() + PATIENCE;
        let mut seen = [0; 8];
        while seen != [round; 8] {
            assert!(Instant::now() < deadline, "round {round}: it never left");
            std::thread::yield_now();
            b.local.read(0, &mut seen).expect("in bounds");
        }
        complete(&a, 2);
    }
}
