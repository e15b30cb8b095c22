//! Waiting where a thread may be cancelled.
//!
//! `pthread_cancel` ends a thread only in certain functions of the C library; the linker sees to it that none of those
//! is called with cancellation on (`xtask/src/link.rs`). A thread that sleeps in `ibv_get_cq_event` or
//! `ibv_get_async_event` must end nevertheless, as it does with rdma-core, where these sleep in `read`. The C library then
//! unwinds the thread's stack, which Rust allows through frames that have nothing to drop, in functions that are
//! `extern "C-unwind"`. So such a verb is a loop of two parts ([`until_done`]): a step that takes what is there, under
//! whatever locks it needs, and never waits; and the wait, with nothing held and nothing taken.

use libc::{c_int, nfds_t, pollfd};
use nonic_abi::errno::{self, Errno};
use nonic_abi::eventfd;
use std::os::fd::RawFd;

unsafe extern "C-unwind" {
    /// `poll`, by a name that the linker leaves alone.
    #[cfg_attr(target_env = "gnu", link_name = "__poll")]
    fn poll(fds: *mut pollfd, count: nfds_t, timeout_ms: c_int) -> c_int;
}

/// How far a verb that may wait has come.
#[derive(Copy, Clone)]
pub(crate) enum Step {
    /// The answer to the program.
    Done(c_int),
    /// There is nothing yet; the next step is due when this can be read.
    Wait(RawFd),
}

/// Takes steps until the last. Between them the thread may be cancelled.
///
/// A step that is `Copy` owns nothing, so there is nothing to drop if that happens.
#[inline(always)]
pub(crate) fn until_done(step: impl Fn() -> Step + Copy) -> c_int {
    loop {
        let fd = match shielded(&step) {
            Step::Done(answer) => return answer,
            Step::Wait(fd) => fd,
        };
        let mut readable = pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one structure of ours.
        if unsafe { poll(&raw mut readable, 1, -1) } < 0 {
            return -1;
        }
    }
}

/// A panic is a bug, and ends the process here as in every other verb: it must not unwind the program's frames.
#[allow(improper_ctypes_definitions, reason = "only Rust calls it")]
extern "C" fn shielded<F: Fn() -> Step>(step: &F) -> Step {
    step()
}

/// A step that takes something, or finds that the program must wait for the descriptor, unless that is non-blocking.
pub(crate) fn take<T>(fd: RawFd, take: impl FnOnce() -> Option<T>) -> Result<Result<T, RawFd>, Errno> {
    if let Some(item) = take() {
        return Ok(Ok(item));
    }
    match eventfd::is_nonblocking(fd)? {
        true => Err(libc::EAGAIN),
        false => Ok(Err(fd)),
    }
}

/// What a step comes to: nothing else to say, wait, or an error.
pub(crate) fn step(result: Result<Result<(), RawFd>, Errno>) -> Step {
    match result {
        Ok(Err(fd)) => Step::Wait(fd),
        Ok(Ok(())) => Step::Done(0),
        Err(errno) => Step::Done(errno::minus_one(Err(errno))),
    }
}
