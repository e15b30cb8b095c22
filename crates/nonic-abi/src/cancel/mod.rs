//! Waiting where a thread may be cancelled.
//!
//! `pthread_cancel` ends a thread only in certain functions of the C library; the linker sees to it that none of those
//! is called with cancellation on (`xtask/src/link.rs`). A thread that sleeps in `ibv_get_cq_event`,
//! `ibv_get_async_event`, `rdma_get_cm_event` or `rdma_get_request` must end nevertheless, as it does with rdma-core,
//! where these sleep in `read`. The C library then unwinds the thread's stack, which Rust allows through frames that have
//! nothing to drop, in functions that are `extern "C-unwind"`. So such a function is a loop of two parts
//! ([`until_done_with`]): a step that takes what is there, under whatever locks it needs, and never waits; and the wait,
//! with nothing held and nothing taken.
//!
//! There are two ways to wait. [`Descriptors`] sleep in `poll`, which any signal ends. A [`RawEventKey`] sleeps in a futex:
//! like `read`, and unlike `poll`, that goes on after a signal whose handler says so (`SA_RESTART`).
//!
//! Calls that have more to do than to wait do not belong here and are not cancelled: those of rsockets (a thread in
//! `rrecv` ends after it has received), and those of identifiers without a channel, which wait for the event that
//! completes them.

mod descriptors;
mod event_count;

pub use descriptors::{Descriptors, take};
pub use event_count::{EventCount, EventKey, RawEventKey};

use crate::errno::{self, Answers, Errno};
use libc::{c_int, nfds_t, pollfd};

unsafe extern "C-unwind" {
    /// `poll`, by a name that the linker leaves alone.
    #[cfg_attr(target_env = "gnu", link_name = "__poll")]
    fn poll(fds: *mut pollfd, count: nfds_t, timeout_ms: c_int) -> c_int;
}

/// How far a function that may wait has come.
#[derive(Copy, Clone)]
pub enum Step<W> {
    /// The answer to the program.
    Done(c_int),
    /// There is nothing yet; the next step is due after this wait.
    Wait(W),
}

impl<W> Step<W> {
    /// An error is an answer of `call`.
    pub fn of(answer: &Answers, call: &str, result: Result<Self, Errno>) -> Self {
        result.unwrap_or_else(|errno| Step::Done(answer.minus_one(call, Err(errno))))
    }
}

/// What a thread sleeps on. What is `Copy` owns nothing, so there is nothing to drop if the thread is cancelled.
///
/// An implementation is inlined and has nothing to drop either: the stack is unwound from inside of it.
pub trait CancellableWait: Copy {
    /// Sleeps until the next step is due. The thread may be cancelled. An error is a number alone, for the same reason; it
    /// is that of a signal, nearly always.
    fn wait(self) -> Result<(), c_int>;
}

/// Takes steps until the last. Between them the thread may be cancelled.
///
/// What is `Copy` owns nothing, so there is nothing to drop if that happens.
#[inline(always)]
pub fn until_done<W: CancellableWait>(step: impl Fn() -> Step<W> + Copy) -> c_int {
    until_done_with((), move |(): &mut ()| step(), |(): &mut ()| ())
}

/// The same with something that a step leaves for the next (`state`). `interrupted` is called in place of a step if a
/// signal ends the wait.
#[inline(always)]
pub fn until_done_with<S: Copy, W: CancellableWait>(
    mut state: S,
    step: impl Fn(&mut S) -> Step<W> + Copy,
    interrupted: impl Fn(&mut S) + Copy,
) -> c_int {
    loop {
        let waiting = match shielded(&step, &mut state) {
            Step::Done(answer) => return answer,
            Step::Wait(waiting) => waiting,
        };
        if let Err(errno) = waiting.wait() {
            shielded(&interrupted, &mut state);
            return errno::fail(errno);
        }
    }
}

/// A panic is a bug, and ends the process here as in every other function: it must not unwind the program's frames.
#[allow(improper_ctypes_definitions, reason = "only Rust calls it")]
extern "C" fn shielded<S, T, F: Fn(&mut S) -> T>(step: &F, state: &mut S) -> T {
    step(state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[derive(Copy, Clone)]
    struct Answered(Result<(), c_int>);

    impl CancellableWait for Answered {
        fn wait(self) -> Result<(), c_int> {
            self.0
        }
    }

    #[test]
    fn steps_go_on_after_each_wait_and_keep_their_state() {
        let step = |taken: &mut c_int| {
            *taken += 1;
            match *taken {
                3 => Step::Done(*taken),
                _ => Step::Wait(Answered(Ok(()))),
            }
        };
        assert_eq!(
            until_done_with(0, step, |_: &mut c_int| unreachable!("no signal")),
            3
        );
    }

    #[test]
    fn a_signal_ends_the_call_after_the_state_was_put_in_order() {
        let interrupted = Cell::new(None);
        let step = |state: &mut u8| {
            *state = 7;
            Step::Wait(Answered(Err(libc::EINTR)))
        };
        assert_eq!(
            until_done_with(0, step, |state: &mut u8| interrupted.set(Some(*state))),
            -1
        );
        assert_eq!((errno::last(), interrupted.get()), (libc::EINTR, Some(7)));
    }
}
