//! `select` and `pselect`, told as polls.

use crate::next;
use crate::rsockets;
use crate::table::carried;
use crate::wait::{Until, poll_mixed, with_mask};
use libc::{c_int, c_short, fd_set, pollfd, sigset_t, timespec, timeval};
use nonic_abi::errno;
use smallvec::SmallVec;
use std::time::Duration;

/// What makes a descriptor readable, writable and exceptional, as the kernel has it.
const MEANINGS: [c_short; 3] = [
    libc::POLLIN | libc::POLLRDNORM | libc::POLLRDBAND | libc::POLLHUP | libc::POLLERR,
    libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND | libc::POLLERR,
    libc::POLLPRI,
];

/// What to ask for each.
const QUESTIONS: [c_short; 3] = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let sets = [read, write, except];
    // SAFETY: the caller's.
    let Some(asked) = (unsafe { with_carried(count, sets) }) else {
        // SAFETY: the caller's.
        return unsafe { next::select(count, read, write, except, timeout) };
    };
    // SAFETY: the caller's: null, or a time.
    let given = unsafe { timeout.as_mut() };
    let limit = given.as_ref().map(|limit| timespec {
        tv_sec: limit.tv_sec,
        tv_nsec: limit.tv_usec * 1000,
    });
    // SAFETY: null, or a time.
    let until = unsafe { Until::timespec(limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref)) };
    // SAFETY: the caller's.
    let answer = unsafe { select_mixed(asked, sets, until) };
    if let Some(given) = given {
        // Linux says how much time was left.
        let left = until.left().unwrap_or(Duration::ZERO);
        given.tv_sec = left.as_secs() as libc::time_t;
        given.tv_usec = libc::suseconds_t::from(left.subsec_micros());
    }
    answer
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let sets = [read, write, except];
    // SAFETY: the caller's.
    match unsafe { with_carried(count, sets) } {
        // SAFETY: the caller's.
        Some(asked) => with_mask(mask, || unsafe {
            select_mixed(asked, sets, Until::timespec(timeout))
        }),
        // SAFETY: the caller's.
        None => unsafe { next::pselect(count, read, write, except, timeout, mask) },
    }
}

type Asked = SmallVec<[pollfd; 32]>;

/// What is asked for, if a carried socket is among it.
///
/// # Safety
/// The sets are null or have so many bits.
unsafe fn with_carried(count: c_int, sets: [*mut fd_set; 3]) -> Option<Asked> {
    if rsockets::inside() {
        return None;
    }
    let mut asked = Asked::new();
    let mut any = false;
    for fd in 0..count {
        let mut events = 0;
        for (set, question) in sets.iter().zip(QUESTIONS) {
            // SAFETY: the caller's.
            if !set.is_null() && unsafe { libc::FD_ISSET(fd, *set) } {
                events |= question;
            }
        }
        if events != 0 {
            any = any || carried(fd).is_some();
            asked.push(pollfd {
                fd,
                events,
                revents: 0,
            });
        }
    }
    any.then_some(asked)
}

/// # Safety
/// The sets are null or have room for what is asked.
unsafe fn select_mixed(mut asked: Asked, sets: [*mut fd_set; 3], until: Until) -> c_int {
    let answer = poll_mixed(&mut asked, until);
    if answer < 0 {
        return answer;
    }
    if asked.iter().any(|entry| entry.revents & libc::POLLNVAL != 0) {
        return errno::fail(libc::EBADF);
    }
    let mut total = 0;
    for entry in &asked {
        for ((set, question), meaning) in sets.iter().zip(QUESTIONS).zip(MEANINGS) {
            if entry.events & question == 0 {
                continue;
            }
            if entry.revents & meaning != 0 {
                total += 1;
            } else {
                // SAFETY: the caller's: it was asked for, so the set is there.
                unsafe { libc::FD_CLR(entry.fd, *set) };
            }
        }
    }
    total
}
