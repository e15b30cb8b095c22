//! Completion queues as sockets use them.

use libc::{c_int, c_void};
use nonic_abi::errno::{self, Errno};
use nonic_abi::libibverbs::*;
use nonic_abi::verbs::*;
use std::os::fd::RawFd;

/// A completion queue with a channel of its own that does not block.
pub(crate) struct CompletionQueue {
    cq: *mut ibv_cq,
    channel: *mut ibv_comp_channel,
    armed: bool,
}

// SAFETY: objects of libibverbs may be used from any thread.
unsafe impl Send for CompletionQueue {}

impl CompletionQueue {
    pub(crate) fn new(context: *mut ibv_context, entries: u32) -> Result<Self, Errno> {
        // SAFETY: the context is open. Making a descriptor non-blocking does no harm.
        unsafe {
            let channel = errno::check_pointer(nonic_create_internal_channel(context))?;
            let fd = (*channel).fd;
            libc::fcntl(
                fd,
                libc::F_SETFL,
                libc::fcntl(fd, libc::F_GETFL) | libc::O_NONBLOCK,
            );
            let cq = ibv_create_cq(context, entries as c_int, std::ptr::null_mut(), channel, 0);
            let cq = errno::check_pointer(cq).inspect_err(|_| {
                ibv_destroy_comp_channel(channel);
            })?;
            Ok(CompletionQueue {
                cq,
                channel,
                armed: false,
            })
        }
    }

    pub(crate) fn cq(&self) -> *mut ibv_cq {
        self.cq
    }

    /// Takes completions; tells how many.
    pub(crate) fn poll(&self, completions: &mut [ibv_wc]) -> usize {
        // SAFETY: the queue is alive, and there is that much room.
        let taken = unsafe {
            match (*(*self.cq).context).ops.poll_cq {
                Some(poll) => poll(self.cq, completions.len() as c_int, completions.as_mut_ptr()),
                None => 0,
            }
        };
        taken.max(0) as usize
    }

    pub(crate) fn fd(&self) -> RawFd {
        // SAFETY: the channel is alive.
        unsafe { (*self.channel).fd }
    }

    /// The next completion makes the descriptor readable. The caller polls once more before it waits.
    pub(crate) fn arm(&mut self) {
        if self.armed {
            return;
        }
        // SAFETY: the queue is alive.
        let code = unsafe {
            match (*(*self.cq).context).ops.req_notify_cq {
                Some(request) => request(self.cq, 0),
                None => libc::EOPNOTSUPP,
            }
        };
        self.armed = code == 0;
    }

    /// Takes the event that an armed queue may have left.
    pub(crate) fn take_event(&mut self) {
        if !self.armed {
            return;
        }
        let mut cq = std::ptr::null_mut();
        let mut context: *mut c_void = std::ptr::null_mut();
        // SAFETY: the channel is alive and does not block; the answers go to our variables.
        unsafe {
            if ibv_get_cq_event(self.channel, &raw mut cq, &raw mut context) == 0 {
                ibv_ack_cq_events(cq, 1);
                self.armed = false;
            }
        }
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: both are ours; all events were acknowledged.
        unsafe {
            ibv_destroy_cq(self.cq);
            ibv_destroy_comp_channel(self.channel);
        }
    }
}
