//! Delivery of events: the program creates a channel, takes events from it and acknowledges them. Calls on an
//! identifier without a channel of the program's wait for the event that they lead to.

use crate::channel::{Channel, channel};
use crate::descriptor::Audience;
use crate::event;
use crate::id::{Id, Pending};
use crate::refusal::{ANSWER, not_connected};
use libc::c_int;
use nonic_abi::cancel::{EventKey, RawEventKey, Step, until_done};
use nonic_abi::errno::{Errno, refused};
use nonic_abi::rdma_cma::{RDMA_CM_EVENT_REJECTED, rdma_cm_event, rdma_event_channel};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// The next event for the program, if there is one; the key to wait with if not.
pub(crate) fn try_next(
    channel: &Channel<Pending>,
) -> Result<Result<*mut rdma_cm_event, EventKey<'_>>, Errno> {
    loop {
        match channel.try_next()? {
            Ok(pending) => {
                if let Some(event) = event::prepare(pending)? {
                    return Ok(Ok(event));
                }
            }
            Err(key) => return Ok(Err(key)),
        }
    }
}

/// The next event, if there is one, without the descriptor: it is lost.
pub(crate) fn take(channel: &Channel<Pending>) -> Option<*mut rdma_cm_event> {
    loop {
        let pending = channel.take()?;
        if let Ok(Some(event)) = event::prepare(pending) {
            return Some(event);
        }
    }
}

/// The next event, for calls that have more to do than to wait for one. They cannot be cancelled.
pub(crate) fn wait(channel: &Channel<Pending>) -> Result<*mut rdma_cm_event, Errno> {
    loop {
        match try_next(channel)? {
            Ok(event) => return Ok(event),
            Err(key) => key.wait()?,
        }
    }
}

/// Waits for the event a call leads to, if the program wants that.
pub(crate) fn complete(id: &Id) -> Result<(), Errno> {
    if !id.state().synchronous {
        return Ok(());
    }
    let c = id.as_c();
    release_event(id);
    let event = wait(&id.channel())?;
    // SAFETY: the event is ours until it is acknowledged, and so is the field.
    unsafe {
        (*c).event = event;
        match ((*event).status, (*event).event) {
            (0, _) => Ok(()),
            (_, RDMA_CM_EVENT_REJECTED) => Err(not_connected(libc::ECONNREFUSED)),
            (status, _) => Err(not_connected(status.abs())),
        }
    }
}

/// Acknowledges the event that a waiting call left.
pub(crate) fn release_event(id: &Id) {
    let c = id.as_c();
    // SAFETY: the field is ours, and the event in it was not acknowledged yet.
    unsafe {
        let event = std::mem::replace(&mut (*c).event, std::ptr::null_mut());
        if !event.is_null() {
            event::acknowledge(event);
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    let channel = Channel::<Pending>::new(Audience::Program);
    ANSWER.pointer(
        "rdma_create_event_channel",
        channel.map(|channel| Arc::into_raw(channel).cast_mut().cast()),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_destroy_event_channel(pointer: *mut rdma_event_channel) {
    if pointer.is_null() {
        return;
    }
    // SAFETY: the program gives its reference back.
    let channel = unsafe { Arc::from_raw(pointer.cast::<Channel<Pending>>().cast_const()) };
    channel.close();
    let mut destroyed = DESTROYED.lock().unwrap_or_else(PoisonError::into_inner);
    destroyed.push_back(channel);
    if destroyed.len() > MAX_DESTROYED {
        destroyed.pop_front();
    }
}

/// The channels destroyed last, without their descriptors. A thread may still wait for one, or be about to.
static DESTROYED: Mutex<VecDeque<Arc<Channel<Pending>>>> = Mutex::new(VecDeque::new());
const MAX_DESTROYED: usize = 16;

/// One step of [`rdma_get_cm_event`].
///
/// # Safety
///
/// The pointers are what the program passed.
unsafe fn next_event(
    pointer: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> Result<Step<RawEventKey>, Errno> {
    if event.is_null() {
        return Err(refused(
            libc::EINVAL,
            "event is NULL",
            "pass where to put the event",
        ));
    }
    // SAFETY: the caller's promise.
    let channel = unsafe { channel(pointer) }?;
    Ok(match try_next(&channel)? {
        Ok(found) => {
            // SAFETY: the program passes where to put it.
            unsafe { *event = found };
            Step::Done(0)
        }
        // SAFETY: the program keeps a channel while a thread waits for it.
        Err(key) => Step::Wait(unsafe { key.outlived() }),
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn rdma_get_cm_event(
    pointer: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    until_done(move || {
        // SAFETY: the program passes its channel and where to put the event.
        let step = unsafe { next_event(pointer, event) };
        Step::of(&ANSWER, "rdma_get_cm_event", step)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    if event.is_null() {
        return ANSWER.minus_one(
            "rdma_ack_cm_event",
            Err(refused(
                libc::EINVAL,
                "event is NULL",
                "pass what rdma_get_cm_event gave",
            )),
        );
    }
    // SAFETY: the program gives back what `rdma_get_cm_event` gave it.
    unsafe { event::acknowledge(event) };
    0
}
