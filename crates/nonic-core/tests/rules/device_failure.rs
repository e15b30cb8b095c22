//! A device whose packets go nowhere any more says so, to every program that waits.

use crate::support::{Pair, Setup, outcomes};
use crate::{post, recv, sent};
use nonic_core::{Event, PostError, QpState, SendOp, Status};

#[test]
fn every_request_ends_as_flushed_and_the_program_is_told_once() {
    for setup in [Setup::rc(), Setup::uc()] {
        let mut pair = Pair::new(&setup);
        let remote = pair.b.remote(0);
        post!(pair.a, 1, SendOp::Write(remote), 0, 8);
        pair.a.transmit();
        post!(pair.a, 2, SendOp::Write(remote), 0, 8);
        recv!(pair.a, 3, 0, 8);
        let now = pair.a.now;
        pair.a.nic.fail(now);
        pair.a.nic.fail(now);
        assert_eq!(pair.a.events(), [Event::DeviceFatal]);
        assert_eq!(pair.a.state(), QpState::Error);
        let flushed = |id| (id, Status::Flushed);
        let sends = outcomes(&pair.a.completions());
        assert!(sends.ends_with(&[flushed(2)]), "{sends:?}");
        assert_eq!(outcomes(&pair.a.receptions()), [flushed(3)]);
        sent!(pair.a, []);
    }
}

#[test]
fn nothing_is_posted_to_a_device_that_failed() {
    let mut pair = Pair::rc();
    let now = pair.a.now;
    pair.a.nic.fail(now);
    assert_eq!(
        pair.a.try_send(1, SendOp::Send, 0, 8),
        Err(PostError::DeviceFailed)
    );
    assert_eq!(pair.a.try_recv(2, 0, 8), Err(PostError::DeviceFailed));
}
