//! Completion channels.
//!
//! A channel is a queue of completion queues that have something, with a descriptor that is readable while
//! the queue is not empty. The descriptor is in blocking mode until the program says otherwise: whether
//! `ibv_get_cq_event` waits depends on it.

use crate::abi::{ibv_comp_channel, ibv_context, ibv_cq};
use crate::cancel;
use crate::context::context;
use crate::cq::Cq;
use crate::errno::{self, Errno};
use crate::fork::Birth;
use crate::object::{Object, Users, object, reclaim};
use libc::{c_int, c_void};
use nonic_core::CqId;
use nonic_engine::Notify;
use nonic_engine::os::descriptors::InternalFd;
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A completion channel.
#[repr(C)]
pub(crate) struct CompChannel {
    c: UnsafeCell<ibv_comp_channel>,
    pub(crate) queue: Arc<EventQueue>,
    pub(crate) users: Users,
    birth: Birth,
}

// SAFETY: `repr(C)`, and the C structure is first.
unsafe impl Object for CompChannel {
    type C = ibv_comp_channel;
}

/// The queue behind a channel.
pub(crate) struct EventQueue {
    waiting: Mutex<VecDeque<AtomicPtr<ibv_cq>>>,
    /// Neither written nor read once the program has closed it: its number may be a file of the program's.
    fd: InternalFd,
}

/// Whether a program waits for a channel, or rsockets do.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Audience {
    Program,
    Library,
}

impl EventQueue {
    fn new(audience: Audience) -> Result<Self, Errno> {
        // SAFETY: no memory is involved.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(errno::last());
        }
        // SAFETY: just opened, and nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(EventQueue {
            waiting: Mutex::default(),
            fd: match audience {
                Audience::Program => InternalFd::seen_by_the_program(fd),
                Audience::Library => fd.into(),
            },
        })
    }

    fn push(&self, cq: *mut ibv_cq) {
        let mut waiting = self.lock();
        waiting.push_back(AtomicPtr::new(cq));
        if waiting.len() == 1 && !self.fd.is_lost() {
            let one = 1_u64.to_ne_bytes();
            // SAFETY: eight bytes of ours. It cannot fail or block: the counter is zero.
            unsafe { libc::write(self.fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        }
    }

    /// The oldest entry. It is reported under the lock, so that a queue being destroyed is either removed
    /// first or waits for the acknowledgement.
    fn pop(&self) -> Option<*mut ibv_cq> {
        let mut waiting = self.lock();
        let cq = waiting.pop_front()?.into_inner();
        // SAFETY: a completion queue leaves the channel before it is destroyed.
        if let Ok(cq) = unsafe { object::<Cq>(cq) } {
            cq.completion_acks.report();
        }
        self.settle(&waiting);
        Some(cq)
    }

    /// Takes out what concerns a completion queue that is being destroyed.
    pub(crate) fn forget(&self, cq: *mut ibv_cq) {
        let mut waiting = self.lock();
        let before = waiting.len();
        waiting.retain(|other| other.load(Ordering::Relaxed) != cq);
        if before > 0 {
            self.settle(&waiting);
        }
    }

    /// Makes the descriptor unreadable if nothing is left of what made it readable.
    fn settle(&self, waiting: &VecDeque<AtomicPtr<ibv_cq>>) {
        if waiting.is_empty() && !self.fd.is_lost() {
            let mut count = [0_u8; 8];
            // SAFETY: eight bytes of ours. It cannot block: the counter is not zero.
            unsafe { libc::read(self.fd.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<AtomicPtr<ibv_cq>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells a channel of one completion queue.
pub(crate) struct Listener {
    pub(crate) queue: Arc<EventQueue>,
    /// NULL until the object exists; nothing can complete before that.
    pub(crate) cq: AtomicPtr<ibv_cq>,
}

impl Notify for Listener {
    fn notify(&self, _cq: CqId) {
        let cq = self.cq.load(Ordering::Acquire);
        if !cq.is_null() {
            self.queue.push(cq);
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_comp_channel(c_context: *mut ibv_context) -> *mut ibv_comp_channel {
    // SAFETY: the program passes an open context.
    unsafe { create(c_context, Audience::Program) }
}

/// For `librdmacm.so.1`: a channel whose descriptor no program sees.
#[unsafe(no_mangle)]
unsafe extern "C" fn nonic_create_internal_channel(c_context: *mut ibv_context) -> *mut ibv_comp_channel {
    // SAFETY: the library passes an open context.
    unsafe { create(c_context, Audience::Library) }
}

/// # Safety
///
/// The context is NULL or open.
unsafe fn create(c_context: *mut ibv_context, audience: Audience) -> *mut ibv_comp_channel {
    // SAFETY: the caller's promise.
    let context = unsafe { context(c_context) };
    errno::pointer(context.and_then(|_| {
        let queue = Arc::new(EventQueue::new(audience)?);
        let c = ibv_comp_channel {
            context: c_context,
            fd: queue.fd.as_raw_fd(),
            refcnt: 0,
        };
        let channel = CompChannel {
            c: UnsafeCell::new(c),
            queue,
            users: Users::default(),
            birth: Birth::now(),
        };
        Ok(channel.leak())
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: the program passes a live channel.
    let object = unsafe { object::<CompChannel>(channel) };
    errno::code(object.and_then(|object| {
        if object.birth.is_elsewhere() {
            return Ok(());
        }
        object.users.none()?;
        // SAFETY: the program does not use it again.
        drop(unsafe { reclaim::<CompChannel>(channel) });
        Ok(())
    }))
}

/// One step of [`ibv_get_cq_event`].
///
/// # Safety
///
/// The pointers are what the program passed.
unsafe fn next_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> Result<Result<(), RawFd>, Errno> {
    // SAFETY: the caller's promise.
    let queue = unsafe { &object::<CompChannel>(channel)?.queue };
    let taken = cancel::take(queue.fd.as_raw_fd(), || queue.pop())?;
    Ok(taken.map(|ready| {
        // SAFETY: the program passes where to put the answers; the queue waits for the acknowledgement before it
        // goes away.
        unsafe {
            if !cq.is_null() {
                *cq = ready;
            }
            if !cq_context.is_null() {
                *cq_context = (*ready).cq_context;
            }
        }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the program passes a live channel and where to put the answers.
    cancel::until_done(move || cancel::step(unsafe { next_event(channel, cq, cq_context) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, number: libc::c_uint) {
    // SAFETY: the program passes a live queue.
    if let Ok(cq) = unsafe { object::<Cq>(cq) } {
        cq.completion_acks.acknowledge(number);
    }
}
