//! Channels, on which a thread sleeps until a completion or an asynchronous event comes.
//!
//! A channel is a queue and a descriptor that is readable while the queue is not empty. Any event loop can wait on the
//! descriptor; nothing is lost if none does.

use crate::eventfd::EventFd;
use nonic_core::CqId;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A listener that is notified when an armed completion queue gets a completion.
///
/// The thread that drives the NIC calls it with the NIC locked: it must be brief and must not call back into the device.
pub trait Notify: Send + Sync {
    /// The queue got a completion it was armed for.
    fn notify(&self, cq: CqId);

    /// How many descriptors were made when they were first needed, and are kept.
    fn descriptors(&self) -> usize {
        0
    }
}

impl Notify for Channel<CqId> {
    fn notify(&self, cq: CqId) {
        self.push(cq);
    }
}

/// A queue of `T` with a descriptor to wait on.
#[derive(Debug)]
pub struct Channel<T> {
    queue: Mutex<Queue<T>>,
    fd: EventFd,
}

#[derive(Debug)]
struct Queue<T> {
    items: VecDeque<T>,
    /// Tasks that found nothing.
    wakers: Vec<Waker>,
}

impl<T> Channel<T> {
    /// An empty channel.
    pub fn new() -> io::Result<Self> {
        Ok(Channel {
            queue: Mutex::new(Queue {
                items: VecDeque::new(),
                wakers: Vec::new(),
            }),
            fd: EventFd::new()?,
        })
    }

    /// Adds an item and makes the descriptor readable.
    pub fn push(&self, item: T) {
        let wakers = {
            let mut queue = self.lock();
            queue.items.push_back(item);
            // Signalling under the lock: a reader that drains the descriptor does so under the lock too, so
            // the descriptor is readable exactly while the queue is not empty. The counter cannot overflow.
            let _ = self.fd.signal();
            std::mem::take(&mut queue.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The oldest item, if there is one.
    pub fn pop(&self) -> Option<T> {
        self.take(&mut self.lock())
    }

    /// The oldest item; if there is none, the task is woken when there may be.
    pub fn poll(&self, context: &mut Context<'_>) -> Poll<T> {
        let mut queue = self.lock();
        if let Some(item) = self.take(&mut queue) {
            return Poll::Ready(item);
        }
        let waker = context.waker();
        if !queue.wakers.iter().any(|known| known.will_wake(waker)) {
            queue.wakers.push(waker.clone());
        }
        Poll::Pending
    }

    fn take(&self, queue: &mut Queue<T>) -> Option<T> {
        let item = queue.items.pop_front();
        if queue.items.is_empty() && item.is_some() {
            let _ = self.fd.drain();
        }
        item
    }

    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for an item, at most `timeout` (for ever without one).
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<Option<T>> {
        let deadline = timeout.map(|timeout| std::time::Instant::now() + timeout);
        loop {
            if let Some(item) = self.pop() {
                return Ok(Some(item));
            }
            let left = deadline.map(|at| at.saturating_duration_since(std::time::Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            self.sleep(left)?;
        }
    }

    fn sleep(&self, timeout: Option<Duration>) -> io::Result<()> {
        use rustix::event::{PollFd, PollFlags, poll};
        let timeout = timeout.map(|timeout| {
            rustix::event::Timespec::try_from(timeout).unwrap_or(rustix::event::Timespec {
                tv_sec: i64::MAX,
                tv_nsec: 0,
            })
        });
        match poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl<T> AsFd for Channel<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_descriptor_is_readable_exactly_while_something_waits() {
        let channel = Channel::new().expect("an eventfd");
        assert_eq!(channel.wait(Some(Duration::ZERO)).expect("poll"), None);
        channel.push(1);
        channel.push(2);
        assert_eq!(channel.pop(), Some(1));
        assert_eq!(channel.wait(None).expect("poll"), Some(2));
        assert_eq!(channel.wait(Some(Duration::from_millis(1))).expect("poll"), None);
    }
}
