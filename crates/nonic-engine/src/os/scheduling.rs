//! Scheduling: how soon the kernel lets a thread run that has just been woken.
//!
//! A background thread serves peers, which wait for it; it runs for microseconds at a time. Programs that spin on every
//! processor would keep it waiting for a tick of the scheduler (4 ms at 250 Hz), a thousand times what it has to do.
//! Kernels from 6.12 on let a thread run at once that asks for a short slice, at the price that it must soon make room
//! again. That takes no privilege: its share of the processor stays the same.
//!
//! This module refuses anything that takes time from other threads, such as real-time policies and negative niceness.

use std::mem::MaybeUninit;

/// The shortest slice that kernels grant.
const SHORT_SLICE_NS: u64 = 100_000;

/// Asks for short slices for the calling thread. Whether the kernel took the request: older ones take it and do nothing.
///
/// A thread keeps a policy that the user or the program has chosen for the process.
pub(crate) fn ask_for_short_slices() -> bool {
    let Some(mut attributes) = attributes() else {
        return false;
    };
    if attributes.sched_policy != libc::SCHED_OTHER as u32 {
        return false;
    }
    attributes.sched_runtime = SHORT_SLICE_NS;
    // SAFETY: the structure is initialised, says its own size, and is only read; 0 is the calling thread.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) == 0 }
}

/// How the calling thread is scheduled.
fn attributes() -> Option<libc::sched_attr> {
    let mut attributes = MaybeUninit::<libc::sched_attr>::zeroed();
    let size = size_of::<libc::sched_attr>();
    // SAFETY: the kernel writes at most so many bytes; 0 is the calling thread.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, attributes.as_mut_ptr(), size, 0) };
    // SAFETY: integers only, zeroed before.
    (got == 0).then(|| unsafe { attributes.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_asked_is_scheduled_as_before_but_for_the_slice() {
        let (before, after, asked) = std::thread::spawn(|| {
            let before = attributes().expect("kernels since 3.14 tell");
            let asked = ask_for_short_slices();
            (before, attributes().expect("as before"), asked)
        })
        .join()
        .expect("no panic");
        assert_eq!(before.sched_policy, after.sched_policy);
        assert_eq!(before.sched_nice, after.sched_nice);
        if before.sched_policy == libc::SCHED_OTHER as u32 {
            assert!(asked);
            // Kernels that do not know of slices answer zero.
            assert!(after.sched_runtime <= SHORT_SLICE_NS);
        }
    }
}
