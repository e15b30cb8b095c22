//! Waiting for many sockets at once, and for ordinary descriptors among them.

use super::patience::Wait;
use super::settings::Defaults;
use super::socket::Socket;
use super::table;
use super::wait::earlier;
use super::waker::Waker;
use libc::{c_int, fd_set, nfds_t, pollfd, timeval};
use nonic_abi::errno::{Errno, of_system, refused};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What one call waits for.
struct Set<'a> {
    asked: &'a mut [pollfd],
    /// The rsocket of each entry that is one.
    sockets: Vec<Option<Arc<dyn Socket>>>,
}

impl Set<'_> {
    /// Looks at all; tells how many have something.
    fn check(&mut self) -> Result<usize, Errno> {
        let mut ready = 0;
        let mut others = Vec::new();
        for (entry, socket) in self.asked.iter_mut().zip(&self.sockets) {
            match socket {
                Some(socket) => {
                    entry.revents = socket.check(entry.events);
                    ready += usize::from(entry.revents != 0);
                }
                None => {
                    entry.revents = 0;
                    others.push(*entry);
                }
            }
        }
        if others.is_empty() {
            return Ok(ready);
        }
        // SAFETY: our own structures.
        if unsafe { libc::poll(others.as_mut_ptr(), others.len() as nfds_t, 0) } < 0 {
            return Err(of_system("poll"));
        }
        let ordinary = self
            .asked
            .iter_mut()
            .zip(&self.sockets)
            .filter(|(_, socket)| socket.is_none());
        for ((entry, _), answer) in ordinary.zip(&others) {
            entry.revents = answer.revents;
            ready += usize::from(entry.revents != 0);
        }
        Ok(ready)
    }

    /// Sleeps until something may have happened.
    fn sleep(&mut self, waker: &Waker, deadline: Option<Instant>) -> Result<(), Errno> {
        let mut polled = Vec::with_capacity(self.asked.len() + 1);
        let mut places: Vec<Range<usize>> = Vec::with_capacity(self.asked.len());
        let mut has_something = false;
        for (entry, socket) in self.asked.iter().zip(&self.sockets) {
            let start = polled.len();
            match socket {
                Some(socket) => {
                    has_something |= socket.prepare_to_wait(entry.events, waker, &mut polled) != 0
                }
                None => polled.push(*entry),
            }
            places.push(start..polled.len());
        }
        let silence = self
            .sockets
            .iter()
            .flatten()
            .filter_map(|socket| socket.silence())
            .min();
        let probe_at = silence.map(|silence| Instant::now() + silence);
        let waited = match has_something {
            true => Ok(true),
            false => waker.wait(&mut polled, earlier(deadline, probe_at)),
        };
        for (socket, place) in self.sockets.iter().zip(places) {
            if let Some(socket) = socket {
                socket.waited(waker, &polled[place]);
            }
        }
        if waited == Ok(false) && probe_at.is_some_and(|probe_at| Instant::now() >= probe_at) {
            self.sockets.iter().flatten().for_each(|socket| socket.probe());
        }
        waited.map(drop)
    }
}

/// As `poll`.
pub(crate) fn poll(asked: &mut [pollfd], timeout_ms: c_int) -> Result<usize, Errno> {
    let started = Instant::now();
    let deadline = u64::try_from(timeout_ms)
        .ok()
        .map(|timeout_ms| started + Duration::from_millis(timeout_ms));
    let sockets = asked.iter().map(|entry| table::find(entry.fd)).collect();
    let mut set = Set { asked, sockets };
    let mut wait = None;
    loop {
        let ready = set.check()?;
        if ready > 0 || timeout_ms == 0 {
            return Ok(ready);
        }
        let now = Instant::now();
        if deadline.is_some_and(|deadline| now >= deadline) {
            return Ok(0);
        }
        if wait
            .get_or_insert_with(|| Wait::begin(now, Defaults::read().polling_time))
            .looks(now)
        {
            std::hint::spin_loop();
            continue;
        }
        let waker = Waker::own()?;
        set.sleep(&waker, deadline)?;
    }
}

/// As `select`: the sets hold what is asked for and get what there is.
///
/// # Safety
///
/// Each set is NULL or the program's.
pub(crate) unsafe fn select(
    count: c_int,
    sets: [*mut fd_set; 3],
    timeout: *const timeval,
) -> Result<c_int, Errno> {
    const WANTED: [i16; 3] = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];
    // What makes a set have a descriptor: an end can be read, and a fault both read and written.
    const FOUND: [i16; 3] = [
        libc::POLLIN | libc::POLLHUP | libc::POLLERR,
        libc::POLLOUT | libc::POLLERR,
        libc::POLLPRI,
    ];
    if !(0..=libc::FD_SETSIZE as c_int).contains(&count) {
        return Err(refused(
            libc::EINVAL,
            format!("nfds is {count}"),
            "pass the highest descriptor plus 1, at most FD_SETSIZE",
        ));
    }
    let mut asked: Vec<pollfd> = Vec::new();
    for fd in 0..count {
        let mut events = 0;
        for (set, wanted) in sets.iter().zip(WANTED) {
            // SAFETY: the caller's promise; the number is within a set.
            if !set.is_null() && unsafe { libc::FD_ISSET(fd, *set) } {
                events |= wanted;
            }
        }
        if events != 0 {
            asked.push(pollfd {
                fd,
                events,
                revents: 0,
            });
        }
    }
    // SAFETY: the caller's promise.
    let timeout_ms = unsafe { timeout.as_ref() }.map_or(-1, |timeout| {
        let ms = timeout.tv_sec.saturating_mul(1000) + (timeout.tv_usec + 999) / 1000;
        ms.clamp(0, c_int::MAX.into()) as c_int
    });
    poll(&mut asked, timeout_ms)?;
    if asked.iter().any(|entry| entry.revents & libc::POLLNVAL != 0) {
        return Err(refused(
            libc::EBADF,
            "a descriptor in the sets is not open",
            "take it out of the sets when it is closed",
        ));
    }
    let mut found = 0;
    for ((set, wanted), counts) in sets.into_iter().zip(WANTED).zip(FOUND) {
        if set.is_null() {
            continue;
        }
        // SAFETY: as above.
        unsafe { libc::FD_ZERO(set) };
        for entry in &asked {
            if entry.events & wanted != 0 && entry.revents & counts != 0 {
                // SAFETY: as above.
                unsafe { libc::FD_SET(entry.fd, set) };
                found += 1;
            }
        }
    }
    Ok(found)
}
