//! Asynchronous events: what the NIC reports about objects rather than about requests.

use crate::context::context;
use crate::cq::Cq;
use crate::object::{argument, argument_mut, object};
use crate::objects::Objects;
use crate::qp::Qp;
use crate::refusal::ANSWER;
use crate::srq::Srq;
use libc::c_int;
use nonic_abi::cancel::{self, Descriptors, Step};
use nonic_abi::errno::{Errno, of_system};
use nonic_abi::verbs::*;
use nonic_core::Event;
use nonic_engine::Device;
use std::os::fd::{AsFd, AsRawFd};

/// Whether the program waits for events or is told that there are none is the descriptor's mode, which the
/// program sets; the engine's own code never reads from it when it is empty.
pub(crate) fn make_blocking(device: &Device) -> Result<(), Errno> {
    let fd = device.events().as_fd().as_raw_fd();
    // SAFETY: changes a flag of a descriptor that is ours; no memory is involved.
    let changed = unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        libc::fcntl(fd, libc::F_SETFL, flags & !libc::O_NONBLOCK)
    };
    if changed < 0 {
        Err(of_system("fcntl of the event descriptor"))
    } else {
        Ok(())
    }
}

/// An event as C sees it, reported to the object it is about. `None` if that is gone.
fn translate(event: Event, objects: &Objects) -> Option<ibv_async_event> {
    let (event_type, element) = match event {
        Event::Completion(_) => return None,
        Event::DeviceFatal => (IBV_EVENT_DEVICE_FATAL, ibv_async_element { port_num: 0 }),
        Event::CqError(id) => {
            let cq = *objects.cqs.get(&id)?;
            // SAFETY: listed objects are alive.
            unsafe { object::<Cq>(cq) }.ok()?.async_acks.report();
            (IBV_EVENT_CQ_ERR, ibv_async_element { cq })
        }
        Event::SrqLimit(id) => {
            let srq = *objects.srqs.get(&id)?;
            // SAFETY: listed objects are alive.
            unsafe { object::<Srq>(srq) }.ok()?.acks.report();
            (IBV_EVENT_SRQ_LIMIT_REACHED, ibv_async_element { srq })
        }
        Event::QpFatal(qpn)
        | Event::QpRequestError(qpn)
        | Event::QpAccessError(qpn)
        | Event::LastWqeReached(qpn)
        | Event::SqDrained(qpn)
        | Event::CommunicationEstablished(qpn) => {
            let qp = *objects.qps.get(&qpn)?;
            // SAFETY: listed objects are alive.
            unsafe { object::<Qp>(qp) }.ok()?.acks.report();
            (qp_event_type(event), ibv_async_element { qp })
        }
    };
    Some(ibv_async_event { element, event_type })
}

fn qp_event_type(event: Event) -> c_int {
    match event {
        Event::QpRequestError(_) => IBV_EVENT_QP_REQ_ERR,
        Event::QpAccessError(_) => IBV_EVENT_QP_ACCESS_ERR,
        Event::LastWqeReached(_) => IBV_EVENT_QP_LAST_WQE_REACHED,
        Event::SqDrained(_) => IBV_EVENT_SQ_DRAINED,
        Event::CommunicationEstablished(_) => IBV_EVENT_COMM_EST,
        _ => IBV_EVENT_QP_FATAL,
    }
}

/// One step of [`ibv_get_async_event`].
///
/// # Safety
///
/// The pointers are what the program passed.
unsafe fn next_event(
    c_context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> Result<Step<Descriptors<1>>, Errno> {
    // SAFETY: the caller's promise.
    let (context, event) = unsafe { (context(c_context)?, argument_mut(event)?) };
    let channel = context.device().events();
    let taken = cancel::take(channel.as_fd().as_raw_fd(), || {
        loop {
            // The lists stay locked from here: an object is found alive and reported, or not found.
            let objects = context.shared.objects();
            let translated = translate(channel.pop()?, &objects);
            if translated.is_some() {
                return translated;
            }
        }
    })?;
    Ok(match taken {
        Ok(taken) => {
            *event = taken;
            Step::Done(0)
        }
        Err(fd) => Step::Wait(Descriptors::new(fd, &[])),
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn ibv_get_async_event(
    c_context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    cancel::until_done(move || {
        // SAFETY: the program passes an open context and where to put the event.
        let step = unsafe { next_event(c_context, event) };
        Step::of(&ANSWER, "ibv_get_async_event", step)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    // SAFETY: the program passes an event it got; the object waits for this before it goes away.
    unsafe {
        let Ok(event) = argument(event) else { return };
        match event.event_type {
            IBV_EVENT_CQ_ERR => {
                if let Ok(cq) = object::<Cq>(event.element.cq) {
                    cq.async_acks.acknowledge(1);
                }
            }
            IBV_EVENT_SRQ_LIMIT_REACHED => {
                if let Ok(srq) = object::<Srq>(event.element.srq) {
                    srq.acks.acknowledge(1);
                }
            }
            IBV_EVENT_QP_FATAL
            | IBV_EVENT_QP_REQ_ERR
            | IBV_EVENT_QP_ACCESS_ERR
            | IBV_EVENT_COMM_EST
            | IBV_EVENT_SQ_DRAINED
            | IBV_EVENT_QP_LAST_WQE_REACHED => {
                if let Ok(qp) = object::<Qp>(event.element.qp) {
                    qp.acks.acknowledge(1);
                }
            }
            _ => {}
        }
    }
}
