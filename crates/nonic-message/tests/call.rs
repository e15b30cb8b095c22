//! Requests and responses: many at once, answered in any order, with deadlines.

use crate::common::{PATIENCE, WIRES, block_on, options, pair, pattern, poll_once};
use nonic_message::{Caller, Error, Responder};
use std::time::{Duration, Instant};

#[test]
fn many_calls_are_under_way_and_answered_in_any_order() {
    const CALLS: usize = 20;
    for wire in WIRES {
        let (left, right) = pair(wire, options(4096));
        let caller = Caller::new(left);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut responder = Responder::new(right);
                let mut open = Vec::new();
                for _ in 0..CALLS {
                    let request = responder.next_request().wait_within(PATIENCE).expect("in time");
                    open.push(request.expect("it lives").expect("a request"));
                }
                // The last one first.
                while let Some(request) = open.pop() {
                    let reply = responder.reply(&request, &request).expect("memory");
                    reply.wait_within(PATIENCE).expect("in time").expect("sent");
                }
                responder.into_channel().flush().wait().expect("all were taken");
            });
            for number in 0..CALLS {
                let caller = caller.clone();
                scope.spawn(move || {
                    let request = pattern(number, number * 1000);
                    let call = caller.call(&request).expect("memory").within(PATIENCE);
                    assert!(call.wait().expect("answered")[..] == request);
                });
            }
        });
    }
}

#[test]
fn a_call_that_is_not_answered_in_time_is_given_up_and_its_late_answer_dropped() {
    let (left, right) = pair("roce_lo", options(4096));
    let caller = Caller::new(left);
    let mut responder = Responder::new(right);
    let short = Duration::from_millis(20);
    let start = Instant::now();
    let late = caller.call(b"first").expect("memory").within(short).wait();
    assert!(matches!(late, Err(Error::Deadline)), "{late:?}");
    let late = block_on(caller.call(b"second").expect("memory").within(short));
    assert!(matches!(late, Err(Error::Deadline)), "{late:?}");
    assert!(start.elapsed() < PATIENCE);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..3 {
                let request = responder.next_request().wait_within(PATIENCE).expect("in time");
                let request = request.expect("it lives").expect("a request");
                let reply = responder.reply(&request, &request).expect("memory");
                reply.wait().expect("sent");
            }
        });
        let third = caller.call(b"third").expect("memory").within(PATIENCE).wait();
        assert_eq!(&third.expect("answered")[..], b"third");
    });
}

#[test]
fn a_call_that_is_dropped_takes_nobody_elses_answer() {
    let (left, right) = pair("roce_lo", options(4096));
    let caller = Caller::new(left);
    let mut responder = Responder::new(right);
    let mut dropped = caller.call(b"dropped").expect("memory");
    assert!(poll_once(&mut dropped).is_pending());
    let mut kept = caller.call(b"kept").expect("memory");
    assert!(poll_once(&mut kept).is_pending());
    for _ in 0..2 {
        let request = responder.next_request().wait_within(PATIENCE).expect("in time");
        let request = request.expect("it lives").expect("a request");
        responder
            .reply(&request, &request)
            .expect("memory")
            .wait()
            .expect("sent");
    }
    drop(dropped);
    assert_eq!(&block_on(kept).expect("answered")[..], b"kept");
}

#[test]
fn a_message_that_is_no_request_is_an_error() {
    let (mut left, right) = pair("roce_lo", options(4096));
    left.send(b"short").wait().expect("sent");
    let mut responder = Responder::new(right);
    let request = responder.next_request().wait_within(PATIENCE).expect("in time");
    assert!(matches!(request, Err(Error::NotACall)), "{request:?}");
}
