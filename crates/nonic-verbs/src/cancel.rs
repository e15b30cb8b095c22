//! Waiting where a thread may be cancelled.
//!
//! `pthread_cancel` ends a thread only in certain functions of the C library; the linker sees to it that none of those
//! is called with cancellation on (`xtask/src/link.rs`). A thread that sleeps in `ibv_get_cq_event` or
//! `ibv_get_async_event` must end nevertheless, as it does with rdma-core, where these sleep in `read`. The C library then
//! unwinds the thread's stack, which Rust allows through frames that have nothing to drop, in functions that are
//! `extern "C-unwind"`. So such a verb is a loop of two parts ([`until_done`]): a step that takes what is there, under
//! whatever locks it needs, and never waits; and the wait, with nothing held and nothing taken.

use crate::refusal::ANSWER;
use libc::{c_int, nfds_t, pollfd};
use nonic_abi::errno::{self, Errno, expected};
use nonic_abi::eventfd;
use nonic_engine::MAX_WATCHED;
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
    /// There is nothing yet; the next step is due when one of these can be read.
    Wait(Descriptors),
}

/// What a thread sleeps on.
#[derive(Copy, Clone)]
pub(crate) struct Descriptors {
    fds: [pollfd; 1 + MAX_WATCHED],
    count: usize,
}

impl Descriptors {
    /// One that is the program's, and those through which something may come for it.
    pub(crate) fn new(own: RawFd, others: &[RawFd]) -> Self {
        let mut fds = [readable(-1); 1 + MAX_WATCHED];
        let all = std::iter::once(&own).chain(others);
        for (place, fd) in fds.iter_mut().zip(all) {
            *place = readable(*fd);
        }
        Descriptors {
            fds,
            count: fds.len().min(1 + others.len()),
        }
    }
}

fn readable(fd: RawFd) -> pollfd {
    pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }
}

/// Takes steps until the last. Between them the thread may be cancelled. `state` is what a step leaves for the next;
/// `interrupted` is called in place of one if a signal ends the wait.
///
/// What is `Copy` owns nothing, so there is nothing to drop if the thread is cancelled.
#[inline(always)]
pub(crate) fn until_done<S: Copy>(
    mut state: S,
    step: impl Fn(&mut S) -> Step + Copy,
    interrupted: impl Fn(&mut S) + Copy,
) -> c_int {
    loop {
        let mut descriptors = match shielded(&step, &mut state) {
            Step::Done(answer) => return answer,
            Step::Wait(descriptors) => descriptors,
        };
        // SAFETY: so many structures of ours.
        if unsafe { poll(descriptors.fds.as_mut_ptr(), descriptors.count as nfds_t, -1) } < 0 {
            let errno = errno::last();
            shielded(&interrupted, &mut state);
            // A signal, nearly always. A number alone, as this frame must own nothing that is to be dropped.
            return errno::fail(errno);
        }
    }
}

/// A panic is a bug, and ends the process here as in every other verb: it must not unwind the program's frames.
#[allow(improper_ctypes_definitions, reason = "only Rust calls it")]
extern "C" fn shielded<S, T, F: Fn(&mut S) -> T>(step: &F, state: &mut S) -> T {
    step(state)
}

/// A step that takes something, or finds that the program must wait for the descriptor, unless that is non-blocking.
pub(crate) fn take<T>(fd: RawFd, take: impl FnOnce() -> Option<T>) -> Result<Result<T, RawFd>, Errno> {
    if let Some(item) = take() {
        return Ok(Ok(item));
    }
    match eventfd::is_nonblocking(fd)? {
        true => Err(expected(libc::EAGAIN)),
        false => Ok(Err(fd)),
    }
}

/// What a step of `call` comes to: nothing else to say, wait, or an error.
pub(crate) fn step(call: &str, result: Result<Result<(), RawFd>, Errno>) -> Step {
    match result {
        Ok(Err(fd)) => Step::Wait(Descriptors::new(fd, &[])),
        Ok(Ok(())) => Step::Done(0),
        Err(errno) => Step::Done(ANSWER.minus_one(call, Err(errno))),
    }
}
