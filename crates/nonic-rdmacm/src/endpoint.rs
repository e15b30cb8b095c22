//! Endpoints: an identifier with its queue pair in one call, and requests taken by waiting for them.

use crate::address::{bind, resolve_address, resolve_route};
use crate::convert::address;
use crate::delivery::{release_event, try_next};
use crate::id::{self, Id, give, id};
use crate::lifetime::rdma_destroy_id;
use crate::refusal::{ANSWER, not_connected};
use crate::{qp, srq};
use libc::c_int;
use nonic_abi::cancel::{RawEventKey, Step, until_done};
use nonic_abi::errno::{Errno, refused};
use nonic_abi::rdma_cma::*;
use nonic_abi::verbs::{ibv_pd, ibv_qp_init_attr};
use std::sync::Arc;

/// # Safety
///
/// The pointers are what the program passed.
unsafe fn create(
    info: &rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> Result<Arc<Id>, Errno> {
    // SAFETY: the caller's promise.
    let attr = unsafe { attr.as_mut() };
    // SAFETY: there is no channel.
    let id = unsafe {
        id::create(
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            info.ai_port_space,
            info.ai_qp_type,
        )
    }?;
    if info.ai_flags & RAI_PASSIVE != 0 {
        // SAFETY: the caller's promise.
        bind(&id, unsafe { address(info.ai_src_addr) }?)?;
        if !pd.is_null() {
            // SAFETY: the field is ours to set.
            unsafe { (*id.as_c()).pd = pd };
        }
        if let Some(attr) = attr {
            attr.qp_type = info.ai_qp_type;
            id.state().queue_pairs = Some(*attr);
        }
        return Ok(id);
    }
    // SAFETY: the caller's promise.
    unsafe { resolve_address(&id, info.ai_src_addr, info.ai_dst_addr) }?;
    resolve_route(&id)?;
    if let Some(attr) = attr {
        attr.qp_type = info.ai_qp_type;
        // SAFETY: the caller's promise.
        unsafe { qp::create(&id, pd, attr) }?;
    }
    Ok(id)
}

/// The next request, if there is one; the key to wait with if not.
fn next_request(listener: &Id) -> Result<Result<*mut rdma_cm_id, RawEventKey>, Errno> {
    if !listener.state().synchronous {
        return Err(refused(
            libc::EINVAL,
            "the listener has a channel of its own",
            "take its requests with rdma_get_cm_event; rdma_get_request is for listeners of rdma_create_ep",
        ));
    }
    release_event(listener);
    let channel = listener.channel();
    let event = match try_next(&channel)? {
        Ok(event) => event,
        // SAFETY: the program keeps a listener, and that its channel, while a thread waits for it.
        Err(key) => return Ok(Err(unsafe { key.outlived() })),
    };
    // SAFETY: the event is ours until it is acknowledged.
    let (kind, status, asked) = unsafe { ((*event).event, (*event).status, (*event).id) };
    let leave_it = |errno| {
        // SAFETY: the field is ours; the next call acknowledges the event.
        unsafe { (*listener.as_c()).event = event };
        Err(errno)
    };
    if status != 0 {
        return leave_it(not_connected(status.abs()));
    }
    if kind != RDMA_CM_EVENT_CONNECT_REQUEST {
        return leave_it(refused(
            libc::EINVAL,
            "another event than a request to connect came to the listener",
            "look at listen->event",
        ));
    }
    let wanted = listener.state().queue_pairs;
    if let Some(mut attr) = wanted {
        // SAFETY: the field is ours to read, and the identifier is the one just made.
        let created = unsafe {
            let pd = (*listener.as_c()).pd;
            id(asked).and_then(|asked| qp::create(&asked, pd, &mut attr))
        };
        if let Err(errno) = created {
            return leave_it(errno);
        }
    }
    // SAFETY: the field is ours to set.
    unsafe { (*asked).event = event };
    Ok(Ok(asked))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_ep(
    made: *mut *mut rdma_cm_id,
    info: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    if made.is_null() {
        return ANSWER.minus_one(
            "rdma_create_ep",
            Err(refused(
                libc::EINVAL,
                "id is NULL",
                "pass where to put the identifier",
            )),
        );
    }
    // SAFETY: the program passes what `rdma_getaddrinfo` gave it, its domain and its attributes.
    let id = unsafe {
        info.as_ref()
            .ok_or_else(|| refused(libc::EINVAL, "res is NULL", "pass what rdma_getaddrinfo found"))
            .and_then(|info| create(info, pd, attr))
    };
    ANSWER.minus_one(
        "rdma_create_ep",
        id.map(|id| {
            // SAFETY: the program passes where to put it.
            unsafe { *made = give(id) };
        }),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_destroy_ep(pointer: *mut rdma_cm_id) {
    // SAFETY: the program passes its identifier and does not use it again.
    unsafe {
        if let Ok(id) = id(pointer) {
            qp::destroy(&id);
            srq::destroy(&id);
        }
        rdma_destroy_id(pointer);
    }
}

/// One step of [`rdma_get_request`].
///
/// # Safety
///
/// The pointers are what the program passed.
unsafe fn take_request(
    listener: *mut rdma_cm_id,
    request: *mut *mut rdma_cm_id,
) -> Result<Step<RawEventKey>, Errno> {
    if request.is_null() {
        return Err(refused(
            libc::EINVAL,
            "id is NULL",
            "pass where to put the request",
        ));
    }
    // SAFETY: the caller's promise.
    let listener = unsafe { id(listener) }?;
    Ok(match next_request(&listener)? {
        Ok(asked) => {
            // SAFETY: the program passes where to put it.
            unsafe { *request = asked };
            Step::Done(0)
        }
        Err(key) => Step::Wait(key),
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn rdma_get_request(
    listener: *mut rdma_cm_id,
    request: *mut *mut rdma_cm_id,
) -> c_int {
    until_done(move || {
        // SAFETY: the program passes its identifier and where to put the request.
        let step = unsafe { take_request(listener, request) };
        Step::of(&ANSWER, "rdma_get_request", step)
    })
}
