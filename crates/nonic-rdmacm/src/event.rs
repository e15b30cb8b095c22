//! Events as the program gets them: what the connection manager said, and what has to be done first.
//!
//! A peer's acceptance is the one event that needs work before the program may know of it: the queue pair goes to
//! RTS, and the peer is told. All of it happens in the thread that asks for events, as in rdma-core.

use crate::attributes::{address_attributes, ready_to_send};
use crate::channel::Channel;
use crate::descriptor::Audience;
use crate::device::Recipient;
use crate::id::{Id, Pending, What, give};
use crate::refusal::{ANSWER, check_connection};
use libc::c_int;
use nonic_abi::cm::*;
use nonic_abi::errno::Errno;
use nonic_abi::libibverbs::{nonic_cm_establish, nonic_cm_reject};
use nonic_abi::rdma_cma::*;
use std::sync::Arc;

/// An event that the program has and has not acknowledged.
#[repr(C)]
struct Event {
    c: rdma_cm_event,
    /// The identifier it is about, which cannot be destroyed before it is acknowledged.
    owner: Arc<Id>,
    private_data: [u8; MAX_PRIVATE_DATA],
}

impl Event {
    fn new(owner: Arc<Id>, event: c_int, status: c_int) -> Box<Self> {
        // SAFETY: all zeros is a value of the structure.
        let mut c: rdma_cm_event = unsafe { std::mem::zeroed() };
        c.id = owner.as_c();
        c.event = event;
        c.status = status;
        Box::new(Event {
            c,
            owner,
            private_data: [0; MAX_PRIVATE_DATA],
        })
    }

    fn leak(self: Box<Self>) -> *mut rdma_cm_event {
        self.owner.report();
        Box::into_raw(self).cast()
    }
}

/// Does what has to be done before the program knows of an event, and makes the event; `None` if it need not know.
pub(crate) fn prepare(pending: Pending) -> Result<Option<*mut rdma_cm_event>, Errno> {
    let Pending { owner, asked, what } = pending;
    owner.taken();
    let event = match what {
        What::Local { event, status } => Event::new(owner, event, status),
        What::Joined(group) => {
            let mut event = Event::new(owner, RDMA_CM_EVENT_MULTICAST_JOIN, group.status);
            event.c.param.ud = rdma_ud_param {
                private_data: group.context.cast_const(),
                private_data_len: 0,
                ah_attr: group.ah_attr,
                qp_num: 0xff_ffff,
                qkey: RDMA_UDP_QKEY,
            };
            event
        }
        What::Wire(wire) => return from_wire(owner, asked, &wire).map(|event| Some(event.leak())),
    };
    Ok(Some(event.leak()))
}

fn from_wire(owner: Arc<Id>, asked: Option<Arc<Id>>, wire: &nonic_cm_event) -> Result<Box<Event>, Errno> {
    let (kind, status) = match wire.kind {
        REQUEST | SIDR_REQUEST => (RDMA_CM_EVENT_CONNECT_REQUEST, 0),
        RESPONSE => responded(&owner, wire),
        ESTABLISHED => (RDMA_CM_EVENT_ESTABLISHED, 0),
        // As TCP has it, and drivers of hardware tell it.
        REJECTED if owner.is_iwarp() => (RDMA_CM_EVENT_REJECTED, -libc::ECONNREFUSED),
        REJECTED => (RDMA_CM_EVENT_REJECTED, wire.reason as c_int),
        UNREACHABLE => (RDMA_CM_EVENT_UNREACHABLE, -(wire.reason as c_int)),
        DISCONNECTED => (RDMA_CM_EVENT_DISCONNECTED, 0),
        TIMEWAIT_EXIT => (RDMA_CM_EVENT_TIMEWAIT_EXIT, 0),
        SIDR_RESPONSE if wire.reason == 0 => (RDMA_CM_EVENT_ESTABLISHED, 0),
        // As in the kernel: a service that refuses is one that cannot be reached.
        _ => (RDMA_CM_EVENT_UNREACHABLE, wire.reason as c_int),
    };
    let listener = Arc::clone(&owner);
    let mut event = Event::new(owner, kind, status);
    let len = (wire.private_data_len as usize).min(MAX_PRIVATE_DATA);
    event.private_data[..len].copy_from_slice(&wire.private_data[..len]);
    fill(&mut event, wire, len as u8)?;
    if let Some(asked) = asked {
        if listener.state().synchronous {
            // The listener has no channel of the program's, so the new identifier gets one of its own as well.
            asked.move_to(Channel::new(Audience::Program)?);
            asked.state().synchronous = true;
        }
        event.c.listen_id = listener.as_c();
        event.c.id = give(asked);
    }
    Ok(event)
}

fn fill(event: &mut Event, wire: &nonic_cm_event, len: u8) -> Result<(), Errno> {
    let private_data = match len {
        0 => std::ptr::null(),
        _ => event.private_data.as_ptr().cast(),
    };
    if wire.kind == SIDR_RESPONSE {
        event.c.param.ud = rdma_ud_param {
            private_data,
            private_data_len: len,
            ah_attr: address_attributes(&event.owner)?,
            qp_num: wire.remote_qpn,
            qkey: wire.qkey,
        };
    } else if wire.kind == SIDR_REQUEST {
        event.c.param.ud.private_data = private_data;
        event.c.param.ud.private_data_len = len;
    } else {
        event.c.param.conn = rdma_conn_param {
            private_data,
            private_data_len: len,
            responder_resources: wire.responder_resources,
            initiator_depth: wire.initiator_depth,
            flow_control: wire.flow_control,
            retry_count: wire.retry_count,
            rnr_retry_count: wire.rnr_retry_count,
            srq: wire.srq,
            qp_num: wire.remote_qpn,
        };
    }
    Ok(())
}

/// The peer accepted: which event that is for the program.
fn responded(id: &Id, wire: &nonic_cm_event) -> (c_int, c_int) {
    let mut state = id.state();
    state.peer.qpn = wire.remote_qpn;
    state.peer.psn = wire.starting_psn;
    state.peer.rnr_retry_count = wire.rnr_retry_count;
    // The peer may want less than was offered.
    state.responder_resources = state.responder_resources.min(wire.responder_resources);
    state.initiator_depth = state.initiator_depth.min(wire.initiator_depth);
    drop(state);
    if id.qp().is_null() && id.is_iwarp() {
        return (RDMA_CM_EVENT_ESTABLISHED, 0);
    }
    if id.qp().is_null() {
        // The program has its own queue pair: it says when that is ready.
        return (RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
    }
    match ready_to_send(id).and_then(|()| establish(id)) {
        Ok(()) => (RDMA_CM_EVENT_ESTABLISHED, 0),
        Err(errno) => {
            refuse(id);
            // The event has no more room than for a number.
            (RDMA_CM_EVENT_CONNECT_ERROR, -ANSWER.tell("rdma_connect", &errno))
        }
    }
}

/// Tells the peer that we are ready.
pub(crate) fn establish(id: &Id) -> Result<(), Errno> {
    let device = id.device()?;
    // SAFETY: the context is open.
    check_connection(unsafe { nonic_cm_establish(device.context, id.connection()) })
}

fn refuse(id: &Id) {
    if let Ok(device) = id.device() {
        // SAFETY: the context is open, and all zeros are valid parameters.
        unsafe {
            let params: nonic_cm_params = std::mem::zeroed();
            nonic_cm_reject(device.context, id.connection(), &raw const params);
        }
    }
}

/// Takes an event back.
///
/// # Safety
///
/// It came from [`prepare`], and is not used any more.
pub(crate) unsafe fn acknowledge(event: *mut rdma_cm_event) {
    // SAFETY: the caller's promise.
    let event = unsafe { Box::from_raw(event.cast::<Event>()) };
    event.owner.acknowledge();
}
