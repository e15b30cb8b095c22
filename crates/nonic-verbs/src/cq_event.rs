//! Events of completion queues: taking them from a channel, and acknowledging them.

use crate::cancel;
use crate::channel::CompChannel;
use crate::cq::Cq;
use crate::object::object;
use libc::{c_int, c_void};
use nonic_abi::errno::Errno;
use nonic_abi::verbs::{ibv_comp_channel, ibv_cq};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicPtr, Ordering};

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
    let channel = unsafe { object::<CompChannel>(channel) }?;
    let taken = cancel::take(channel.fd, || channel.queue.pop(report))?;
    Ok(taken.map(|ready| {
        let ready = ready.into_inner();
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

/// An event is being taken. It is counted while the channel's queue is locked, so that a completion queue that is being
/// destroyed is either removed from the channel first or waits for the acknowledgement.
fn report(cq: &AtomicPtr<ibv_cq>) {
    // SAFETY: a completion queue leaves the channel before it is destroyed.
    if let Ok(cq) = unsafe { object::<Cq>(cq.load(Ordering::Relaxed)) } {
        cq.completion_acks.report();
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the program passes a live channel and where to put the answers.
    cancel::until_done(move || cancel::step(unsafe { next_event(channel, cq, cq_context) }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, number: libc::c_uint) {
    // SAFETY: the program passes a live queue.
    if let Ok(cq) = unsafe { object::<Cq>(cq) } {
        cq.completion_acks.acknowledge(number);
    }
}
