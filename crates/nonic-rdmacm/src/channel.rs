//! Event channels: a queue whose descriptor is readable while something is in it.
//!
//! Programs poll the descriptor, make it non-blocking, and wait in `rdma_get_cm_event`: beside it, not by reading from it,
//! which `pthread_cancel` could interrupt after the event was taken.

use crate::cancel::{Moment, Pulse, Step, until_done};
use crate::descriptor::{Audience, Descriptor};
use crate::event;
use crate::id::Id;
use libc::c_int;
use nonic_abi::cm::nonic_cm_event;
use nonic_abi::errno::{self, Errno};
use nonic_abi::event_queue::EventQueue;
use nonic_abi::rdma_cma::{rdma_cm_event, rdma_event_channel};
use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, PoisonError};

/// An event channel.
#[repr(C)]
pub(crate) struct Channel {
    c: rdma_event_channel,
    queue: EventQueue<Pending, Descriptor>,
    /// Something was added to the queue.
    added: Pulse,
}

/// An event on its way to the program.
pub(crate) struct Pending {
    /// Whose it is: it goes when its owner goes.
    pub(crate) owner: Arc<Id>,
    /// Requests: the identifier that was made for it.
    pub(crate) asked: Option<Arc<Id>>,
    pub(crate) what: What,
}

/// What happened.
pub(crate) enum What {
    /// The connection manager said so.
    Wire(Box<nonic_cm_event>),
    /// Something the program asked for is done (or failed).
    Local { event: c_int, status: c_int },
    /// A multicast group was joined.
    Joined(Box<crate::multicast::Group>),
}

impl Pending {
    pub(crate) fn wire(owner: &Arc<Id>, event: nonic_cm_event) -> Self {
        Pending {
            owner: Arc::clone(owner),
            asked: None,
            what: What::Wire(Box::new(event)),
        }
    }

    pub(crate) fn request(listener: &Arc<Id>, asked: Arc<Id>, event: nonic_cm_event) -> Self {
        Pending {
            asked: Some(asked),
            ..Self::wire(listener, event)
        }
    }

    pub(crate) fn local(owner: &Arc<Id>, event: c_int, status: c_int) -> Self {
        Pending {
            owner: Arc::clone(owner),
            asked: None,
            what: What::Local { event, status },
        }
    }
}

impl Channel {
    pub(crate) fn new(audience: Audience) -> Result<Arc<Self>, Errno> {
        let fd = Descriptor::eventfd(0, audience)?;
        Ok(Arc::new(Channel {
            c: rdma_event_channel { fd: fd.as_raw_fd() },
            queue: EventQueue::new(fd),
            added: Pulse::default(),
        }))
    }

    /// The program's pointer.
    pub(crate) fn as_c(&self) -> *mut rdma_event_channel {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    pub(crate) fn push(&self, pending: Pending) {
        self.queue.push(pending);
        self.added.beat();
    }

    /// Whether the program has closed the descriptor.
    pub(crate) fn is_lost(&self) -> bool {
        self.queue.is_lost()
    }

    /// Takes out everything that fits.
    pub(crate) fn purge(&self, fits: impl Fn(&Pending) -> bool) -> Vec<Pending> {
        self.queue.take_out(fits)
    }

    /// The next, if there is one; the moment to wait from if not, unless the program made the descriptor non-blocking.
    fn try_next(&self) -> Result<Result<Pending, Moment<'_>>, Errno> {
        let moment = self.added.now();
        if let Some(pending) = self.queue.pop(|_| ()) {
            return Ok(Ok(pending));
        }
        // A thread that is late, and asks for an event of a channel that another has just destroyed, waits for ever, as one
        // does that came a moment earlier: programs do this on their way to exit.
        match self.queue.is_nonblocking().transpose()?.unwrap_or(false) {
            false => Ok(Err(moment)),
            true => Err(libc::EAGAIN),
        }
    }
}

/// Another reference to the program's channel; `EINVAL` for NULL.
///
/// # Safety
///
/// The pointer is NULL or to a channel that was not destroyed.
pub(crate) unsafe fn channel(pointer: *mut rdma_event_channel) -> Result<Arc<Channel>, Errno> {
    if pointer.is_null() {
        return Err(libc::EINVAL);
    }
    let pointer = pointer.cast::<Channel>().cast_const();
    // SAFETY: the program holds one reference; this is another.
    unsafe {
        Arc::increment_strong_count(pointer);
        Ok(Arc::from_raw(pointer))
    }
}

/// The next event for the program, if there is one; the moment to wait from if not.
pub(crate) fn try_next(channel: &Channel) -> Result<Result<*mut rdma_cm_event, Moment<'_>>, Errno> {
    loop {
        match channel.try_next()? {
            Ok(pending) => {
                if let Some(event) = event::prepare(pending)? {
                    return Ok(Ok(event));
                }
            }
            Err(moment) => return Ok(Err(moment)),
        }
    }
}

/// The next event, if there is one, without the descriptor: it is lost.
pub(crate) fn take(channel: &Channel) -> Option<*mut rdma_cm_event> {
    loop {
        let pending = channel.queue.pop(|_| ())?;
        if let Ok(Some(event)) = event::prepare(pending) {
            return Some(event);
        }
    }
}

/// The next event, for calls that have more to do than to wait for one. They cannot be cancelled.
pub(crate) fn wait(channel: &Channel) -> Result<*mut rdma_cm_event, Errno> {
    loop {
        match try_next(channel)? {
            Ok(event) => return Ok(event),
            Err(moment) => moment.wait()?,
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    match Channel::new(Audience::Program) {
        Ok(channel) => Arc::into_raw(channel).cast_mut().cast(),
        Err(errno) => {
            errno::set(errno);
            std::ptr::null_mut()
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_destroy_event_channel(pointer: *mut rdma_event_channel) {
    if pointer.is_null() {
        return;
    }
    // SAFETY: the program gives its reference back.
    let channel = unsafe { Arc::from_raw(pointer.cast::<Channel>().cast_const()) };
    channel.queue.close();
    let mut destroyed = DESTROYED.lock().unwrap_or_else(PoisonError::into_inner);
    destroyed.push_back(channel);
    if destroyed.len() > MAX_DESTROYED {
        destroyed.pop_front();
    }
}

/// The channels destroyed last, without their descriptors. A thread may still wait for one, or be about to.
static DESTROYED: Mutex<VecDeque<Arc<Channel>>> = Mutex::new(VecDeque::new());
const MAX_DESTROYED: usize = 16;

/// One step of [`rdma_get_cm_event`].
///
/// # Safety
///
/// The pointers are what the program passed.
unsafe fn next_event(
    pointer: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> Result<Step, Errno> {
    if event.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    let channel = unsafe { channel(pointer) }?;
    Ok(match try_next(&channel)? {
        Ok(found) => {
            // SAFETY: the program passes where to put it.
            unsafe { *event = found };
            Step::Done(0)
        }
        // The program keeps a channel while a thread waits for it.
        Err(moment) => Step::Wait(moment.outlived()),
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn rdma_get_cm_event(
    pointer: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    // SAFETY: the program passes its channel and where to put the event.
    until_done(move || Step::of(unsafe { next_event(pointer, event) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    if event.is_null() {
        return errno::minus_one(Err(libc::EINVAL));
    }
    // SAFETY: the program gives back what `rdma_get_cm_event` gave it.
    unsafe { event::acknowledge(event) };
    0
}
