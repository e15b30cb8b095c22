//! Queue pairs that belong to an identifier, with the completion queues they may bring.

use crate::attributes::initialise;
use crate::id::{Id, id};
use crate::refusal;
use crate::refusal::ANSWER;
use libc::c_int;
use nonic_abi::errno::{self, Errno, refused};
use nonic_abi::libibverbs::*;
use nonic_abi::rdma_cma::rdma_cm_id;
use nonic_abi::verbs::*;

/// Completion queues for programs that bring none.
pub(crate) fn create_cqs(id: &Id, send: u32, receive: u32) -> Result<(), Errno> {
    let c = id.as_c();
    // SAFETY: the identifier is bound, so its context is open; its fields are ours to set.
    unsafe {
        let (context, owner) = ((*c).verbs, c.cast());
        let create = |size: u32| -> Result<(*mut ibv_comp_channel, *mut ibv_cq), Errno> {
            let channel = errno::check_pointer(ibv_create_comp_channel(context))?;
            let cq = ibv_create_cq(context, size as c_int, owner, channel, 0);
            let cq = errno::check_pointer(cq).inspect_err(|_| {
                ibv_destroy_comp_channel(channel);
            })?;
            Ok((channel, cq))
        };
        if receive > 0 && (*c).recv_cq.is_null() {
            ((*c).recv_cq_channel, (*c).recv_cq) = create(receive)?;
        }
        if send > 0 && (*c).send_cq.is_null() {
            ((*c).send_cq_channel, (*c).send_cq) = create(send).inspect_err(|_| destroy_cqs(id))?;
        }
    }
    Ok(())
}

/// Destroys those we made.
pub(crate) fn destroy_cqs(id: &Id) {
    let c = id.as_c();
    // SAFETY: the fields are ours, and what is in them was made here.
    unsafe {
        for (cq, channel) in [
            (&raw mut (*c).recv_cq, &raw mut (*c).recv_cq_channel),
            (&raw mut (*c).send_cq, &raw mut (*c).send_cq_channel),
        ] {
            let (cq, channel) = (
                std::mem::replace(&mut *cq, std::ptr::null_mut()),
                std::mem::replace(&mut *channel, std::ptr::null_mut()),
            );
            if !cq.is_null() {
                ibv_destroy_cq(cq);
            }
            if !channel.is_null() {
                ibv_destroy_comp_channel(channel);
            }
        }
    }
}

/// Fills in what the program left to us.
fn with_queues(id: &Id, attr: &mut ibv_qp_init_attr) -> Result<(), Errno> {
    let c = id.as_c();
    let send = if attr.send_cq.is_null() {
        attr.cap.max_send_wr.max(1)
    } else {
        0
    };
    let needs_receive = attr.recv_cq.is_null() && attr.qp_type != IBV_QPT_XRC_SEND;
    let receive = if needs_receive {
        attr.cap.max_recv_wr.max(1)
    } else {
        0
    };
    create_cqs(id, send, receive)?;
    // SAFETY: the fields are ours to read.
    unsafe {
        if attr.send_cq.is_null() {
            attr.send_cq = (*c).send_cq;
        }
        if attr.recv_cq.is_null() {
            attr.recv_cq = (*c).recv_cq;
        }
        if attr.srq.is_null() {
            attr.srq = (*c).srq;
        }
    }
    Ok(())
}

/// # Safety
///
/// The domain is NULL or the program's.
pub(crate) unsafe fn create(id: &Id, pd: *mut ibv_pd, attr: &mut ibv_qp_init_attr) -> Result<(), Errno> {
    if attr.qp_type == IBV_QPT_XRC_RECV {
        // SAFETY: all zeros are attributes.
        let mut target: ibv_qp_init_attr_ex = unsafe { std::mem::zeroed() };
        target.qp_context = attr.qp_context;
        target.qp_type = attr.qp_type;
        // SAFETY: they point to nothing.
        return unsafe { create_extended(id, &mut target) };
    }
    let device = id.device()?;
    let pd = if pd.is_null() { device.pd } else { pd };
    // SAFETY: the caller's promise.
    if !id.qp().is_null() || unsafe { (*pd).context } != device.context {
        return Err(refused(
            libc::EINVAL,
            "the identifier has a queue pair, or pd is of another device",
            "create one queue pair per identifier, with a pd of id->verbs or NULL",
        ));
    }
    with_queues(id, attr)?;
    // SAFETY: the domain and the queues are alive.
    let qp = errno::check_pointer(unsafe { ibv_create_qp(pd, attr) }).inspect_err(|_| destroy_cqs(id))?;
    // SAFETY: the fields are ours to set.
    unsafe { (*id.as_c()).pd = pd };
    adopt(id, qp, attr.qp_type)
}

/// A queue pair just made becomes the identifier's.
fn adopt(id: &Id, qp: *mut ibv_qp, qp_type: c_int) -> Result<(), Errno> {
    let c = id.as_c();
    // SAFETY: the fields are ours to set.
    unsafe {
        (*c).qp = qp;
        (*c).qp_type = qp_type;
    }
    initialise(id).inspect_err(|_| destroy(id))
}

/// # Safety
///
/// What the attributes point to is the program's.
unsafe fn create_extended(id: &Id, attr: &mut ibv_qp_init_attr_ex) -> Result<(), Errno> {
    let device = id.device()?;
    if !id.qp().is_null() {
        return Err(refused(
            libc::EINVAL,
            "the identifier has a queue pair",
            "create one queue pair per identifier",
        ));
    }
    let is_target = attr.qp_type == IBV_QPT_XRC_RECV;
    if is_target && (attr.comp_mask & IBV_QP_INIT_ATTR_XRCD == 0 || attr.xrcd.is_null()) {
        attr.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
        attr.xrcd = device.xrc_domain()?;
    }
    if !is_target && (attr.comp_mask & IBV_QP_INIT_ATTR_PD == 0 || attr.pd.is_null()) {
        attr.comp_mask |= IBV_QP_INIT_ATTR_PD;
        attr.pd = device.pd;
    }
    // SAFETY: the caller's promise.
    if !is_target && unsafe { (*attr.pd).context } != device.context {
        return Err(refused(
            libc::EINVAL,
            "attr.pd is of another device",
            "use a pd of id->verbs, or NULL",
        ));
    }
    if !is_target {
        let mut plain = ibv_qp_init_attr {
            qp_context: attr.qp_context,
            send_cq: attr.send_cq,
            recv_cq: attr.recv_cq,
            srq: attr.srq,
            cap: attr.cap,
            qp_type: attr.qp_type,
            sq_sig_all: attr.sq_sig_all,
        };
        with_queues(id, &mut plain)?;
        (attr.send_cq, attr.recv_cq, attr.srq) = (plain.send_cq, plain.recv_cq, plain.srq);
        // SAFETY: the fields are ours to set.
        unsafe { (*id.as_c()).pd = attr.pd };
    }
    // SAFETY: the context is open, and what the attributes name is alive.
    let qp = unsafe {
        let create = extended(device.context)
            .create_qp_ex
            .ok_or_else(refusal::no_such_operation)?;
        errno::check_pointer(create(device.context, attr))
    };
    adopt(id, qp.inspect_err(|_| destroy_cqs(id))?, attr.qp_type)
}

/// Destroys the identifier's queue pair and what came with it.
pub(crate) fn destroy(id: &Id) {
    let c = id.as_c();
    // SAFETY: the field is ours; the queue pair is destroyed once.
    unsafe {
        let qp = std::mem::replace(&mut (*c).qp, std::ptr::null_mut());
        if !qp.is_null() {
            ibv_destroy_qp(qp);
        }
    }
    destroy_cqs(id);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_qp(
    pointer: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the program passes its identifier, its domain or NULL, and its attributes.
    ANSWER.minus_one("rdma_create_qp", unsafe {
        id(pointer).and_then(|id| {
            create(
                &id,
                pd,
                attr.as_mut().ok_or_else(|| {
                    refused(
                        libc::EINVAL,
                        "qp_init_attr is NULL",
                        "pass the attributes of the queue pair",
                    )
                })?,
            )
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_qp_ex(pointer: *mut rdma_cm_id, attr: *mut ibv_qp_init_attr_ex) -> c_int {
    // SAFETY: the program passes its identifier and its attributes.
    ANSWER.minus_one("rdma_create_qp_ex", unsafe {
        id(pointer).and_then(|id| {
            create_extended(
                &id,
                attr.as_mut().ok_or_else(|| {
                    refused(
                        libc::EINVAL,
                        "qp_init_attr is NULL",
                        "pass the attributes of the queue pair",
                    )
                })?,
            )
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_destroy_qp(pointer: *mut rdma_cm_id) {
    // SAFETY: the program passes its identifier.
    if let Ok(id) = unsafe { id(pointer) } {
        destroy(&id);
    }
}
