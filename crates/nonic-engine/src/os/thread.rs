//! What another thread of this process is at: whether it wants a processor, and how long it has run.
//!
//! The kernel tells of a thread by its number. That of a thread which has ended, or of another process, has no answer; if it was given to
//! another thread of ours meanwhile, the answer is about that one.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::time::Duration;

/// A thread of this process.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct ThreadNumber(pub(crate) i32);

/// Which clock of a thread is meant: how long it has run, as the scheduler counts it.
const RUN_TIME: libc::clockid_t = 6;

impl ThreadNumber {
    /// The calling thread's.
    pub(crate) fn current() -> Self {
        thread_local! {
            static CURRENT: Cell<i32> = const { Cell::new(0) };
        }
        CURRENT.with(|current| {
            if current.get() == 0 {
                // SAFETY: it takes nothing and always succeeds. (glibc has a function for it since 2.30.)
                current.set(unsafe { libc::syscall(libc::SYS_gettid) } as i32);
            }
            ThreadNumber(current.get())
        })
    }

    /// For how long it has run.
    pub(crate) fn run_time(self) -> Option<Duration> {
        let mut time = MaybeUninit::<libc::timespec>::zeroed();
        let clock = (!self.0 << 3) | RUN_TIME;
        // SAFETY: the kernel writes one structure there, of integers, which was zeroed before.
        let (got, time) = unsafe { (libc::clock_gettime(clock, time.as_mut_ptr()), time.assume_init()) };
        let seconds = u64::try_from(time.tv_sec).ok()?;
        (got == 0).then(|| Duration::new(seconds, time.tv_nsec as u32))
    }

    /// Whether it runs, or would if it had a processor. A thread that sleeps does not.
    pub(crate) fn is_runnable(self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{}/stat", self.0));
        // The name before is in brackets and may have any character.
        let state = stat
            .ok()
            .and_then(|stat| Some(stat.rsplit_once(") ")?.1.starts_with('R')));
        state.unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_thread_that_runs_is_told_from_one_that_sleeps() {
        let own = ThreadNumber::current();
        assert!(own.is_runnable());
        let before = own.run_time().expect("it is there");
        while own.run_time().expect("it is there") < before + Duration::from_millis(2) {}
        let (tell, told) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            tell.send(ThreadNumber::current()).expect("the test waits for it");
            ended.recv().ok();
        });
        let number = told.recv().expect("it says so");
        while number.is_runnable() {
            std::thread::yield_now();
        }
        let asleep = number.run_time().expect("it is there");
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(number.run_time(), Some(asleep));
        drop(end);
        other.join().expect("no panic");
        assert!(!number.is_runnable());
    }
}
