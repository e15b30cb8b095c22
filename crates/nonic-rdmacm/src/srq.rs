//! Shared receive queues that belong to an identifier.

use crate::id::{Id, id};
use crate::qp::{create_cqs, destroy_cqs};
use crate::refusal;
use crate::refusal::ANSWER;
use libc::c_int;
use nonic_abi::errno::{self, Errno, refused};
use nonic_abi::libibverbs::*;
use nonic_abi::rdma_cma::rdma_cm_id;
use nonic_abi::verbs::*;

fn adopt(id: &Id, srq: *mut ibv_srq, pd: *mut ibv_pd) {
    let c = id.as_c();
    // SAFETY: the fields are ours to set.
    unsafe {
        (*c).srq = srq;
        if !pd.is_null() {
            (*c).pd = pd;
        }
    }
}

/// # Safety
///
/// The domain is NULL or the program's.
unsafe fn create(id: &Id, pd: *mut ibv_pd, attr: &mut ibv_srq_init_attr) -> Result<(), Errno> {
    let device = id.device()?;
    let pd = if pd.is_null() { device.pd } else { pd };
    // SAFETY: the field is ours to read.
    if unsafe { (*id.as_c()).qp_type } == IBV_QPT_XRC_RECV {
        // SAFETY: all zeros are attributes.
        let mut shared: ibv_srq_init_attr_ex = unsafe { std::mem::zeroed() };
        shared.srq_context = attr.srq_context;
        shared.attr = attr.attr;
        shared.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
        shared.srq_type = IBV_SRQT_XRC;
        shared.pd = pd;
        // SAFETY: the caller's promise.
        return unsafe { create_extended(id, &mut shared) };
    }
    // SAFETY: the caller's promise.
    if unsafe { (*pd).context } != device.context {
        return Err(refused(
            libc::EINVAL,
            "pd is of another device",
            "use a pd of id->verbs, or NULL",
        ));
    }
    // SAFETY: the domain is alive.
    let srq = errno::check_pointer(unsafe { ibv_create_srq(pd, attr) })?;
    adopt(id, srq, pd);
    Ok(())
}

/// # Safety
///
/// What the attributes point to is the program's.
unsafe fn create_extended(id: &Id, attr: &mut ibv_srq_init_attr_ex) -> Result<(), Errno> {
    let device = id.device()?;
    if attr.comp_mask & IBV_SRQ_INIT_ATTR_TYPE == 0 {
        return Err(refused(
            libc::EINVAL,
            "attr.comp_mask lacks IBV_SRQ_INIT_ATTR_TYPE",
            "set the bit and srq_type",
        ));
    }
    if attr.comp_mask & IBV_SRQ_INIT_ATTR_PD == 0 || attr.pd.is_null() {
        attr.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
        attr.pd = device.pd;
    }
    if attr.srq_type == IBV_SRQT_XRC && (attr.comp_mask & IBV_SRQ_INIT_ATTR_CQ == 0 || attr.cq.is_null()) {
        create_cqs(id, 0, attr.attr.max_wr.max(1))?;
        attr.comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
        // SAFETY: the field is ours to read.
        attr.cq = unsafe { (*id.as_c()).recv_cq };
    }
    if attr.srq_type == IBV_SRQT_XRC && (attr.comp_mask & IBV_SRQ_INIT_ATTR_XRCD == 0 || attr.xrcd.is_null())
    {
        attr.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD;
        attr.xrcd = device.xrc_domain()?;
    }
    // SAFETY: the context is open, and what the attributes name is alive.
    let srq = unsafe {
        let create = extended(device.context)
            .create_srq_ex
            .ok_or_else(refusal::no_such_operation)?;
        errno::check_pointer(create(device.context, attr))
    };
    adopt(id, srq.inspect_err(|_| destroy_cqs(id))?, attr.pd);
    Ok(())
}

/// Destroys it.
pub(crate) fn destroy(id: &Id) {
    let c = id.as_c();
    // SAFETY: the field is ours; the queue is destroyed once.
    unsafe {
        let srq = std::mem::replace(&mut (*c).srq, std::ptr::null_mut());
        if !srq.is_null() {
            ibv_destroy_srq(srq);
        }
        if (*c).qp.is_null() {
            destroy_cqs(id);
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_srq(
    pointer: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> c_int {
    // SAFETY: the program passes its identifier, its domain or NULL, and its attributes.
    ANSWER.minus_one("rdma_create_srq", unsafe {
        id(pointer).and_then(|id| {
            create(
                &id,
                pd,
                attr.as_mut().ok_or_else(|| {
                    refused(libc::EINVAL, "attr is NULL", "pass the attributes of the queue")
                })?,
            )
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_srq_ex(pointer: *mut rdma_cm_id, attr: *mut ibv_srq_init_attr_ex) -> c_int {
    // SAFETY: the program passes its identifier and its attributes.
    ANSWER.minus_one("rdma_create_srq_ex", unsafe {
        id(pointer).and_then(|id| {
            create_extended(
                &id,
                attr.as_mut().ok_or_else(|| {
                    refused(libc::EINVAL, "attr is NULL", "pass the attributes of the queue")
                })?,
            )
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_destroy_srq(pointer: *mut rdma_cm_id) {
    // SAFETY: the program passes its identifier.
    if let Ok(id) = unsafe { id(pointer) } {
        destroy(&id);
    }
}
