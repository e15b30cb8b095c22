//! Events of completion queues: taking them from a channel, and acknowledging them.

use crate::channel::CompChannel;
use crate::cq::Cq;
use crate::object::object;
use crate::refusal::ANSWER;
use libc::{c_int, c_void};
use nonic_abi::cancel::{self, Step};
use nonic_abi::errno::Errno;
use nonic_abi::verbs::{ibv_comp_channel, ibv_cq};
use nonic_engine::{MAX_WATCHED, Wait};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The channel's own descriptor, and those of the device that the thread drives.
type Descriptors = cancel::Descriptors<{ 1 + MAX_WATCHED }>;

/// One step of [`ibv_get_cq_event`].
///
/// # Safety
///
/// The pointers are what the program passed.
unsafe fn next_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
    wait: &mut Wait,
) -> Result<Step<Descriptors>, Errno> {
    // SAFETY: the caller's promise.
    let channel = unsafe { object::<CompChannel>(channel) }?;
    let ready = match next_ready(channel, wait)? {
        Ok(ready) => ready.into_inner(),
        Err(descriptors) => return Ok(Step::Wait(descriptors)),
    };
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
    Ok(Step::Done(0))
}

/// Takes an event, or drives the device until there is one or it is time to sleep: what on.
fn next_ready(
    channel: &CompChannel,
    wait: &mut Wait,
) -> Result<Result<AtomicPtr<ibv_cq>, Descriptors>, Errno> {
    let first = cancel::take(channel.fd, || channel.queue.pop(report))?;
    let Some(device) = channel.driven_device() else {
        return Ok(first.map_err(|fd| Descriptors::new(fd, &[])));
    };
    if let Ok(ready) = first {
        device.finish_wait(&channel.waits, wait);
        return Ok(Ok(ready));
    }
    loop {
        channel.queue.attend();
        let watched = device.wait_step(&channel.waits, wait, || !channel.queue.is_empty());
        let ready = channel.queue.pop(report);
        // What is left, or comes from now on, makes the descriptor readable.
        channel.queue.unattend();
        match (ready, watched) {
            (Some(ready), _) => {
                device.end_wait(wait);
                return Ok(Ok(ready));
            }
            (None, Some(watched)) => return Ok(Err(Descriptors::new(channel.fd, watched.fds()))),
            // Another thread has taken what was there.
            (None, None) => {}
        }
    }
}

/// A signal has ended the wait.
///
/// # Safety
///
/// The pointer is what the program passed.
unsafe fn interrupted(channel: *mut ibv_comp_channel, wait: &mut Wait) {
    // SAFETY: the caller's promise.
    let channel = unsafe { object::<CompChannel>(channel) };
    if let Some(device) = channel.ok().and_then(CompChannel::driven_device) {
        device.end_wait(wait);
    }
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
    let step = move |wait: &mut Wait| {
        // SAFETY: the program passes a live channel and where to put the answers.
        let step = unsafe { next_event(channel, cq, cq_context, wait) };
        Step::of(&ANSWER, "ibv_get_cq_event", step)
    };
    // SAFETY: as above.
    let interrupted = move |wait: &mut Wait| unsafe { interrupted(channel, wait) };
    cancel::until_done_with(Wait::default(), step, interrupted)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, number: libc::c_uint) {
    // SAFETY: the program passes a live queue.
    if let Ok(cq) = unsafe { object::<Cq>(cq) } {
        cq.completion_acks.acknowledge(number);
    }
}
