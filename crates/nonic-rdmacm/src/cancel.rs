//! Waiting where a thread may be cancelled.
//!
//! `pthread_cancel` ends a thread only in certain functions of the C library; the linker sees to it that none of those
//! is called with cancellation on (`xtask/src/link.rs`). A thread that sleeps in `rdma_get_cm_event` or
//! `rdma_get_request` must end nevertheless, as it does with rdma-core, where these sleep in `read`. The C library then
//! unwinds the thread's stack, which Rust allows through frames that have nothing to drop, in functions that are
//! `extern "C-unwind"`. So such a function is a loop of two parts ([`until_done`]): a step that takes what is there, under
//! whatever locks it needs, and never waits; and the wait, with nothing held and nothing taken.
//!
//! Calls that have more to do than to wait are not cancelled: those of rsockets (a thread in `rrecv` ends after it has
//! received), and those of identifiers without a channel, which wait for the event that completes them.
//!
//! The thread waits on an [`EventCount`], not on a descriptor: like `read`, and unlike `poll`, the wait goes on after a
//! signal whose handler says so (`SA_RESTART`).

use crate::refusal::ANSWER;
use libc::{c_int, c_long, nfds_t, pollfd};
use nonic_abi::errno::{self, Errno, expected};
use std::sync::atomic::{AtomicU32, Ordering};

/// An event count: how often something has happened, and a way to wait for the next time.
#[derive(Default)]
pub(crate) struct EventCount(AtomicU32);

/// How far the count was when the waiting thread looked. It sleeps only if it is still there.
#[derive(Copy, Clone)]
pub(crate) struct EventKey<'a> {
    count: &'a EventCount,
    seen: u32,
}

/// The same, for a wait that holds no reference.
#[derive(Copy, Clone)]
pub(crate) struct RawEventKey {
    word: *const AtomicU32,
    seen: u32,
}

impl EventCount {
    /// Take this first, then look at what the count is about, then wait with it: whatever happens in between is not missed.
    pub(crate) fn key(&self) -> EventKey<'_> {
        EventKey {
            count: self,
            seen: self.0.load(Ordering::SeqCst),
        }
    }

    /// Wakes all: one that is being cancelled may take no notice.
    pub(crate) fn notify_all(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        let everybody = c_int::MAX;
        // SAFETY: the word is alive; waking touches no memory.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.0.as_ptr(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                everybody,
            )
        };
    }
}

impl EventKey<'_> {
    /// Waits until the count moves on. The thread cannot be cancelled.
    pub(crate) fn wait(self) -> Result<(), Errno> {
        // SAFETY: the word is alive; it is only compared.
        // A signal is all that can end it.
        check(unsafe { futex_wait(self.count.0.as_ptr(), self.seen) }).map_err(expected)
    }

    /// For callers that know that the count lives as long as a thread waits.
    pub(crate) fn outlived(self) -> RawEventKey {
        RawEventKey {
            word: &raw const self.count.0,
            seen: self.seen,
        }
    }
}

/// The number alone, since what owns nothing can be used where a thread may be cancelled.
fn check(answer: c_long) -> Result<(), c_int> {
    match answer {
        0 => Ok(()),
        _ => match errno::last() {
            // It has moved on meanwhile.
            libc::EAGAIN => Ok(()),
            number => Err(number),
        },
    }
}

/// # Safety
///
/// The word is alive.
#[inline(always)]
unsafe fn futex_wait(word: *const u32, seen: u32) -> c_long {
    // SAFETY: the caller's promise; the word is only compared, and there is no timeout.
    unsafe {
        syscall(
            libc::SYS_futex,
            word,
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            seen,
            std::ptr::null::<libc::timespec>(),
        )
    }
}

const PTHREAD_CANCEL_ASYNCHRONOUS: c_int = 1;

unsafe extern "C-unwind" {
    fn syscall(number: c_long, ...) -> c_long;
    fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int;
    /// `poll`, by a name that the linker leaves alone.
    #[cfg_attr(target_env = "gnu", link_name = "__poll")]
    fn poll(fds: *mut pollfd, count: nfds_t, timeout_ms: c_int) -> c_int;
}

/// How far a function that may wait has come.
#[derive(Copy, Clone)]
pub(crate) enum Step {
    /// The answer to the program.
    Done(c_int),
    /// There is nothing yet; the next step is due when the count moves on.
    Wait(RawEventKey),
}

impl Step {
    /// An error is an answer of `call`.
    pub(crate) fn of(call: &str, result: Result<Step, Errno>) -> Step {
        result.unwrap_or_else(|errno| Step::Done(ANSWER.minus_one(call, Err(errno))))
    }
}

/// Takes steps until the last. Between them the thread may be cancelled.
///
/// A step that is `Copy` owns nothing, so there is nothing to drop if that happens.
#[inline(always)]
pub(crate) fn until_done(step: impl Fn() -> Step + Copy) -> c_int {
    loop {
        let key = match shielded(&step) {
            Step::Done(answer) => return answer,
            Step::Wait(key) => key,
        };
        let mut before = 0;
        // SAFETY: the word is alive, and the kind of cancellation goes to our variable. This is what the C library does
        // round the system calls that end threads; this one does nothing that could be lost.
        let answer = unsafe {
            pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &raw mut before);
            let answer = futex_wait(key.word.cast(), key.seen);
            pthread_setcanceltype(before, std::ptr::null_mut());
            // A thread that cancels another sends it a signal if it sees it waiting. glibc before 2.41 obeys one that
            // comes late even inside a system call with cancellation off, where we hold a lock; but each of its own
            // functions that end threads waits for a signal that is under way. So one of them, which does nothing else,
            // is called here.
            poll(std::ptr::null_mut(), 0, 0);
            answer
        };
        if let Err(errno) = check(answer) {
            // A signal, nearly always.
            return errno::fail(errno);
        }
    }
}

/// A panic is a bug, and ends the process here as in every other function: it must not unwind the program's frames.
#[allow(improper_ctypes_definitions, reason = "only Rust calls it")]
extern "C" fn shielded<F: Fn() -> Step>(step: &F) -> Step {
    step()
}
