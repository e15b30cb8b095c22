//! A wait for an event count: the thread sleeps in a futex.

use super::{CancellableWait, poll};
use crate::errno::{self, Errno, expected};
use libc::{c_int, c_long};
use std::sync::atomic::{AtomicU32, Ordering};

/// An event count: how often something has happened, and a way to wait for the next time.
#[derive(Default)]
pub struct EventCount(AtomicU32);

/// How far the count was when the waiting thread looked. It sleeps only if it is still there.
#[derive(Copy, Clone)]
pub struct EventKey<'a> {
    count: &'a EventCount,
    seen: u32,
}

/// The same, for a wait that holds no reference.
#[derive(Copy, Clone)]
pub struct RawEventKey {
    word: *const AtomicU32,
    seen: u32,
}

impl EventCount {
    /// Take this first, then look at what the count is about, then wait with it: whatever happens in between is not missed.
    pub fn key(&self) -> EventKey<'_> {
        EventKey {
            count: self,
            seen: self.0.load(Ordering::SeqCst),
        }
    }

    /// Wakes all: one that is being cancelled may take no notice.
    pub fn notify_all(&self) {
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
    pub fn wait(self) -> Result<(), Errno> {
        // SAFETY: the word is alive; it is only compared.
        // A signal is all that can end it.
        check(unsafe { futex_wait(self.count.0.as_ptr(), self.seen) }).map_err(expected)
    }

    /// For a wait that holds no reference to the count.
    ///
    /// # Safety
    ///
    /// The count lives as long as a thread waits with this.
    pub unsafe fn outlived(self) -> RawEventKey {
        RawEventKey {
            word: &raw const self.count.0,
            seen: self.seen,
        }
    }
}

impl CancellableWait for RawEventKey {
    #[inline(always)]
    fn wait(self) -> Result<(), c_int> {
        let mut before = 0;
        // SAFETY: the word is alive, and the kind of cancellation goes to our variable. This is what the C library does
        // round the system calls that end threads; this one does nothing that could be lost.
        let answer = unsafe {
            pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &raw mut before);
            let answer = futex_wait(self.word.cast(), self.seen);
            pthread_setcanceltype(before, std::ptr::null_mut());
            // A thread that cancels another sends it a signal if it sees it waiting. glibc before 2.41 obeys one that
            // comes late even inside a system call with cancellation off, where we hold a lock; but each of its own
            // functions that end threads waits for a signal that is under way. So one of them, which does nothing else,
            // is called here.
            poll(std::ptr::null_mut(), 0, 0);
            answer
        };
        check(answer)
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happened_since_the_key_was_taken_is_not_waited_for() {
        let count = EventCount::default();
        let key = count.key();
        count.notify_all();
        assert_eq!(key.wait(), Ok(()));
        // SAFETY: the count lives to the end of this function.
        assert_eq!(unsafe { key.outlived() }.wait(), Ok(()));
    }
}
