//! Completion channels: created and destroyed. Taking events from them is in `cq_event`.
//!
//! A channel is a queue of completion queues that have something, with a descriptor that is readable while
//! the queue is not empty. The descriptor is in blocking mode until the program says otherwise: whether
//! `ibv_get_cq_event` waits depends on it.

use crate::context::context;
use crate::object::{Object, Users, object, reclaim};
use crate::refusal::ANSWER;
use libc::c_int;
use nonic_abi::errno::Errno;
use nonic_abi::fork::Birth;
use nonic_abi::verbs::{ibv_comp_channel, ibv_context, ibv_cq};
use nonic_abi::{event_queue, eventfd};
use nonic_core::CqId;
use nonic_engine::os::descriptors::InternalFd;
use nonic_engine::{Device, Notify, Waits, WeakDevice};
use std::cell::UnsafeCell;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A completion channel.
#[repr(C)]
pub(crate) struct CompChannel {
    c: UnsafeCell<ibv_comp_channel>,
    pub(crate) queue: Arc<EventQueue>,
    /// The number of the queue's descriptor.
    pub(crate) fd: RawFd,
    pub(crate) users: Users,
    pub(crate) waits: Waits,
    /// Not kept open: a program may close it before it destroys the channel.
    pub(crate) device: WeakDevice,
    birth: Birth,
}

// SAFETY: `repr(C)`, and the C structure is first.
unsafe impl Object for CompChannel {
    type C = ibv_comp_channel;
}

impl CompChannel {
    /// The device of its completion queues, which a waiting thread drives: not in a child of `fork`.
    pub(crate) fn driven_device(&self) -> Option<Device> {
        match self.birth.is_elsewhere() {
            true => None,
            false => self.device.upgrade(),
        }
    }
}

/// The queue behind a channel: the completion queues that have something.
pub(crate) type EventQueue = event_queue::EventQueue<AtomicPtr<ibv_cq>, ChannelFd>;

/// The descriptor of a channel.
pub(crate) struct ChannelFd(InternalFd);

impl event_queue::Descriptor for ChannelFd {
    fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    fn is_lost(&self) -> bool {
        self.0.is_lost()
    }
}

/// Whether a program waits for a channel, or rsockets do.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Audience {
    Program,
    Library,
}

impl ChannelFd {
    fn new(audience: Audience) -> Result<Self, Errno> {
        let fd = eventfd::new(0)?;
        Ok(ChannelFd(match audience {
            Audience::Program => InternalFd::seen_by_the_program(fd),
            Audience::Library => fd.into(),
        }))
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
            self.queue.push(AtomicPtr::new(cq));
        }
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_comp_channel(
    c_context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    // SAFETY: the program passes an open context.
    unsafe { create(c_context, Audience::Program) }
}

/// For `librdmacm.so.1`: a channel whose descriptor no program sees.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nonic_create_internal_channel(
    c_context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    // SAFETY: the library passes an open context.
    unsafe { create(c_context, Audience::Library) }
}

/// # Safety
///
/// The context is NULL or open.
unsafe fn create(c_context: *mut ibv_context, audience: Audience) -> *mut ibv_comp_channel {
    // SAFETY: the caller's promise.
    let context = unsafe { context(c_context) };
    ANSWER.pointer(
        "ibv_create_comp_channel",
        context.and_then(|context| {
            let descriptor = ChannelFd::new(audience)?;
            let fd = descriptor.0.as_raw_fd();
            let c = ibv_comp_channel {
                context: c_context,
                fd,
                refcnt: 0,
            };
            let channel = CompChannel {
                c: UnsafeCell::new(c),
                queue: Arc::new(EventQueue::new(descriptor)),
                fd,
                users: Users::default(),
                waits: Waits::default(),
                device: context.device().downgrade(),
                birth: Birth::now(),
            };
            Ok(channel.leak())
        }),
    )
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: the program passes a live channel.
    let object = unsafe { object::<CompChannel>(channel) };
    ANSWER.code(
        "ibv_destroy_comp_channel",
        object.and_then(|object| {
            if object.birth.is_elsewhere() {
                return Ok(());
            }
            object.users.none()?;
            // SAFETY: the program does not use it again.
            drop(unsafe { reclaim::<CompChannel>(channel) });
            Ok(())
        }),
    )
}
