//! Time limits of blocking calls (`SO_RCVTIMEO`, `SO_SNDTIMEO`), which rsockets do not have.
//!
//! A receive waits until there is something, then receives. A send cannot be sure of room for all its bytes, so it
//! sends what fits, waits, and goes on, until the time is up.

use crate::table::Carried;
use crate::{next, rsockets};
use libc::{c_int, c_short, iovec, ssize_t};
use nonic_abi::errno;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a call may block.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Patience {
    end: Instant,
}

impl Patience {
    /// Of a send, if it has a limit at all.
    pub(crate) fn of_send(fd: c_int, socket: &Carried, flags: c_int) -> Option<Self> {
        Self::of(fd, socket.send_timeout_ms.load(Ordering::Relaxed), flags)
    }

    fn of(fd: c_int, timeout_ms: c_int, flags: c_int) -> Option<Self> {
        let limited = timeout_ms > 0 && flags & libc::MSG_DONTWAIT == 0 && !is_nonblocking(fd);
        let timeout = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
        limited.then(|| Patience {
            end: Instant::now() + timeout,
        })
    }

    /// Waits until the rsocket is ready, or the time is up (`EAGAIN`).
    fn wait(self, socket: &Carried, events: c_short) -> bool {
        let mut wanted = libc::pollfd {
            fd: socket.inner(),
            events,
            revents: 0,
        };
        let left = self.end.saturating_duration_since(Instant::now());
        // Rounded up: not before the time is up.
        let left_ms = c_int::try_from(left.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX);
        // SAFETY: one entry.
        match unsafe { rsockets::poll(&raw mut wanted, 1, left_ms) } {
            0 => {
                errno::set(libc::EAGAIN);
                false
            }
            answer => answer > 0,
        }
    }
}

/// Whether a receive can go on; if not, errno says why.
pub(crate) fn readable_in_time(fd: c_int, socket: &Carried, flags: c_int) -> bool {
    let timeout_ms = socket.receive_timeout_ms.load(Ordering::Relaxed);
    if timeout_ms == 0 {
        return true;
    }
    Patience::of(fd, timeout_ms, flags).is_none_or(|patience| patience.wait(socket, libc::POLLIN))
}

/// Sends as much as the time allows.
pub(crate) fn send_in_time(socket: &Carried, pieces: &[iovec], flags: c_int, patience: Patience) -> ssize_t {
    let mut sent = 0;
    for piece in pieces {
        let mut done = 0;
        while done < piece.iov_len {
            let answer = if patience.wait(socket, libc::POLLOUT) {
                let flags = flags & !(libc::MSG_NOSIGNAL | libc::MSG_MORE) | libc::MSG_DONTWAIT;
                // SAFETY: the rest of what the program asked to send.
                unsafe {
                    rsockets::send(
                        socket.inner(),
                        piece.iov_base.cast::<u8>().add(done).cast(),
                        piece.iov_len - done,
                        flags,
                    )
                }
            } else {
                -1
            };
            match usize::try_from(answer) {
                Ok(count) => {
                    done += count;
                    sent += answer;
                }
                // The room was gone again; if the time is up too, the next wait says so.
                Err(_) if errno::last() == libc::EAGAIN && patience.end > Instant::now() => {}
                Err(_) if sent > 0 => return sent,
                Err(_) => return -1,
            }
        }
    }
    sent
}

fn is_nonblocking(fd: c_int) -> bool {
    // SAFETY: this command takes no argument.
    let flags = unsafe { next::fcntl(fd, libc::F_GETFL, 0) };
    flags & libc::O_NONBLOCK != 0
}
