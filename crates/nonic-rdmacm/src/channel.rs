//! Event channels: a queue whose descriptor is readable while something is in it.
//!
//! Programs poll the descriptor, make it non-blocking, and wait in `rdma_get_cm_event`: beside it, not by reading from it,
//! which `pthread_cancel` could interrupt after the event was taken.

use crate::descriptor::{Audience, Descriptor};
use nonic_abi::cancel::{EventCount, EventKey};
use nonic_abi::errno::{Errno, expected, refused};
use nonic_abi::event_queue::EventQueue;
use nonic_abi::rdma_cma::rdma_event_channel;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// An event channel. It does not know what is in its queue: its users push and take.
#[repr(C)]
pub(crate) struct Channel<T> {
    c: rdma_event_channel,
    queue: EventQueue<T, Descriptor>,
    /// How often something was added to the queue.
    added: EventCount,
}

impl<T> Channel<T> {
    pub(crate) fn new(audience: Audience) -> Result<Arc<Self>, Errno> {
        let fd = Descriptor::eventfd(0, audience)?;
        Ok(Arc::new(Channel {
            c: rdma_event_channel { fd: fd.as_raw_fd() },
            queue: EventQueue::new(fd),
            added: EventCount::default(),
        }))
    }

    /// The program's pointer.
    pub(crate) fn as_c(&self) -> *mut rdma_event_channel {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    pub(crate) fn push(&self, item: T) {
        self.queue.push(item);
        self.added.notify_all();
    }

    /// Whether the program has closed the descriptor.
    pub(crate) fn is_lost(&self) -> bool {
        self.queue.is_lost()
    }

    /// The next, if there is one, whatever the descriptor is.
    pub(crate) fn take(&self) -> Option<T> {
        self.queue.pop(|_| ())
    }

    /// Closes the descriptor: the program has destroyed the channel.
    pub(crate) fn close(&self) {
        self.queue.close();
    }

    /// Takes out what fits, of which there are no more than `most`.
    pub(crate) fn purge(&self, most: usize, fits: impl Fn(&T) -> bool) -> Vec<T> {
        self.queue.take_out(most, fits)
    }

    /// The next, if there is one; the key to wait with if not, unless the program made the descriptor non-blocking.
    pub(crate) fn try_next(&self) -> Result<Result<T, EventKey<'_>>, Errno> {
        let key = self.added.key();
        if let Some(item) = self.queue.pop(|_| ()) {
            return Ok(Ok(item));
        }
        // A thread that is late, and asks for an event of a channel that another has just destroyed, waits for ever, as one
        // does that came a moment earlier: programs do this on their way to exit.
        match self.queue.is_nonblocking().transpose()?.unwrap_or(false) {
            false => Ok(Err(key)),
            true => Err(expected(libc::EAGAIN)),
        }
    }
}

/// Another reference to the program's channel; `EINVAL` for NULL.
///
/// # Safety
///
/// The pointer is NULL or to a channel of these items that was not destroyed.
pub(crate) unsafe fn channel<T>(pointer: *mut rdma_event_channel) -> Result<Arc<Channel<T>>, Errno> {
    if pointer.is_null() {
        return Err(refused(
            libc::EINVAL,
            "channel is NULL",
            "pass what rdma_create_event_channel returned",
        ));
    }
    let pointer = pointer.cast::<Channel<T>>().cast_const();
    // SAFETY: the program holds one reference; this is another.
    unsafe {
        Arc::increment_strong_count(pointer);
        Ok(Arc::from_raw(pointer))
    }
}
