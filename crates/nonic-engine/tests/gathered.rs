//! WRITEs that a polling program posts one by one are executed together: all of them, in order, and soon, though the program never calls
//! again.

use crate::side::{LEN, SOON, Side, at, pair};
use nonic_core::{Data, Region, SendFlags, SendOp, SendRequest, Status};
use nonic_engine::memory::Pages;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// More than are executed at once, fewer than a batch.
const BURST: usize = 24;
/// How long a program polls until it is one that polls.
const POLLING: Duration = Duration::from_millis(5);

/// Posts a WRITE of one byte, which is its number, to that place.
fn post_write(side: &Side, number: usize, rkey: u32) {
    let bytes = [number as u8];
    let request = SendRequest {
        wr_id: number as u64,
        op: SendOp::Write(at(rkey, number as u64)),
        data: Data::Inline(&bytes),
        flags: SendFlags::SIGNALED,
        destination: None,
    };
    side.device.post_send(side.qpn, &request).expect("posted");
}

/// Polls for a while, as a program does that waits for something else.
fn keep_polling(side: &Side) {
    let begun = Instant::now();
    while begun.elapsed() < POLLING {
        let taken = side.device.poll(&side.cq, 1, |_| {});
        assert_eq!(taken.expect("no overflow"), 0);
    }
}

/// Takes what has completed, without driving the device.
fn completed(side: &Side) -> Vec<u64> {
    let mut numbers = Vec::new();
    let taken = side.cq.poll(64, |completion| {
        assert_eq!(completion.status, Status::Success);
        numbers.push(completion.wr_id);
    });
    taken.expect("no overflow");
    numbers
}

/// The same, as a program takes it.
fn take(side: &Side, count: usize) -> Vec<u64> {
    let (mut numbers, begun) = (Vec::new(), Instant::now());
    while numbers.len() < count {
        assert!(begun.elapsed() < SOON, "{numbers:?}");
        let taken = side.device.poll(&side.cq, 64, |completion| {
            assert_eq!(completion.status, Status::Success);
            numbers.push(completion.wr_id);
        });
        taken.expect("no overflow");
    }
    numbers
}

fn bytes(pages: &Pages, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    pages.read(0, &mut bytes).expect("inside");
    bytes
}

fn numbers(count: usize) -> Vec<u8> {
    (0..count).map(|number| number as u8).collect()
}

/// Two devices, and memory of the second that the first one reaches by a key.
fn exposed() -> (Side, Side, u32) {
    let (a, b) = pair();
    let rkey = b.register(&Arc::clone(&b.local), 0..LEN, crate::side::ALL);
    let begun = Instant::now();
    while a.device.counters().0.direct_writes == 0 {
        assert!(begun.elapsed() < SOON, "no direct access");
        assert_eq!(a.execute(SendOp::Write(at(rkey, 0)), 1), Status::Success);
    }
    (a, b, rkey)
}

/// Posts a burst so that requests wait. A program that was held up for long in the middle of one is not made to wait for a while.
fn post_waiting(a: &Side, rkey: u32) -> Vec<u64> {
    let begun = Instant::now();
    loop {
        keep_polling(a);
        (0..BURST).for_each(|number| post_write(a, number, rkey));
        let done = completed(a);
        if done.len() < BURST {
            return done;
        }
        assert!(begun.elapsed() < SOON, "nothing ever waits");
    }
}

#[test]
fn writes_of_a_program_that_polls_are_executed_when_it_polls() {
    let (a, b, rkey) = exposed();
    let mut done = post_waiting(&a, rkey);
    assert!(done.len() >= 4, "the first of them do not wait: {done:?}");
    done.extend(take(&a, BURST - done.len()));
    assert!(done.iter().copied().eq(0..BURST as u64), "{done:?}");
    assert_eq!(bytes(&b.local, BURST), numbers(BURST));
}

#[test]
fn what_a_program_leaves_waiting_is_executed_without_it_and_none_waits_after_that() {
    let (a, b, rkey) = exposed();
    b.local.write(0, &[0; BURST]).expect("inside");
    let mut done = post_waiting(&a, rkey);
    let begun = Instant::now();
    while bytes(&b.local, BURST) != numbers(BURST) {
        assert!(begun.elapsed() < SOON, "nobody executes them");
        std::hint::spin_loop();
    }
    println!("executed after {:?}", begun.elapsed());
    done.extend(take(&a, BURST - done.len()));
    assert!(done.iter().copied().eq(0..BURST as u64), "{done:?}");
    for _ in 0..8 {
        keep_polling(&a);
        (0..BURST).for_each(|number| post_write(&a, number, rkey));
        assert_eq!(completed(&a).len(), BURST);
    }
}

#[test]
fn what_is_no_write_waits_for_nothing_and_comes_behind_them() {
    let (a, b, rkey) = exposed();
    let receive = nonic_core::RecvRequest {
        wr_id: 1,
        sges: &[b.sge(0, 8)],
    };
    b.device.post_recv(b.qpn, &receive).expect("posted");
    let mut done = post_waiting(&a, rkey);
    let send = SendRequest {
        wr_id: 99,
        op: SendOp::Send,
        data: Data::Inline(&[0xaa; 8]),
        flags: SendFlags::SIGNALED,
        destination: None,
    };
    a.device.post_send(a.qpn, &send).expect("posted");
    assert_eq!(
        bytes(&b.local, BURST)[8..],
        numbers(BURST)[8..],
        "they were executed"
    );
    done.extend(completed(&a));
    assert!(done.iter().copied().eq(0..BURST as u64), "{done:?}");
    assert_eq!(take(&b, 1), [1]);
    assert_eq!(take(&a, 1), [99]);
}
