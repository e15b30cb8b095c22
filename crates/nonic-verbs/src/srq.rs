//! Shared receive queues. Posting to them is in `post`.

use crate::context::{Shared, context};
use crate::cq::Cq;
use crate::errors;
use crate::limits::MAX_SRQ_WR;
use crate::object::{Acks, Object, Users, argument, argument_mut, next_handle, object, reclaim, zeroed};
use crate::objects::reserve;
use crate::pd::Pd;
use crate::refusal::ANSWER;
use crate::xrc::Xrcd;
use libc::{c_int, c_void};
use nonic_abi::errno::{Errno, refused};
use nonic_abi::verbs::*;
use nonic_core::{ReceiveQueue, SrqId};
use nonic_engine::Device;
use std::cell::UnsafeCell;
use std::sync::Arc;

/// A shared receive queue.
#[repr(C)]
pub(crate) struct Srq {
    c: UnsafeCell<ibv_srq>,
    pub(crate) device: Device,
    pub(crate) queue: Arc<ReceiveQueue>,
    pub(crate) acks: Acks,
    pub(crate) users: Users,
    shared: Arc<Shared>,
    /// For one that peers can name.
    xrc: Option<XrcPart>,
}

/// What an XRC shared receive queue has besides.
struct XrcPart {
    number: u32,
    xrcd: *mut ibv_xrcd,
    cq: *mut ibv_cq,
}

// SAFETY: `repr(C)`, and the C structure is first.
unsafe impl Object for Srq {
    type C = ibv_srq;
}

impl Srq {
    fn id(&self) -> SrqId {
        self.queue.id()
    }
}

/// # Safety
///
/// The pointers are what the program passed.
unsafe fn create(
    c_pd: *mut ibv_pd,
    srq_context: *mut c_void,
    attr: &mut ibv_srq_attr,
    xrc: Option<(*mut ibv_xrcd, *mut ibv_cq)>,
) -> Result<*mut ibv_srq, Errno> {
    // SAFETY: the caller's promise.
    let pd = unsafe { object::<Pd>(c_pd) }?;
    let device = pd.shared.device.clone();
    let max_sge = device.config().max_sge;
    if attr.max_wr == 0 || attr.max_wr > MAX_SRQ_WR || attr.max_sge > max_sge {
        return Err(refused(
            libc::EINVAL,
            format!(
                "attr.max_wr is {} and attr.max_sge {}: max_wr must be from 1 to {MAX_SRQ_WR}, max_sge at most {max_sge}",
                attr.max_wr, attr.max_sge
            ),
            "ask for no more than ibv_query_device says (max_srq_wr, max_srq_sge)",
        ));
    }
    reserve(&mut pd.shared.objects().srqs)?;
    attr.max_sge = attr.max_sge.max(1);
    let (depth, width) = (attr.max_wr as usize, attr.max_sge as usize);
    let (queue, xrc) = match xrc {
        None => (device.create_srq(pd.id, depth, width), None),
        Some((c_xrcd, c_cq)) => {
            // SAFETY: the caller's promise.
            let (xrcd, cq) = unsafe { (object::<Xrcd>(c_xrcd)?, object::<Cq>(c_cq)?) };
            let made = device.create_xrc_srq(xrcd.domain(), pd.id, &cq.queue, depth, width);
            let (queue, number) = made.map_err(errors::of_create)?;
            xrcd.users.join();
            cq.users.join();
            let (xrcd, cq) = (c_xrcd, c_cq);
            (queue, Some(XrcPart { number, xrcd, cq }))
        }
    };
    pd.users.join();
    let mut c: ibv_srq = zeroed();
    c.context = pd.c_context();
    c.srq_context = srq_context;
    c.pd = c_pd;
    c.handle = next_handle();
    let srq = Box::new(Srq {
        c: UnsafeCell::new(c),
        device,
        queue,
        acks: Acks::default(),
        users: Users::default(),
        shared: Arc::clone(&pd.shared),
        xrc,
    });
    pd.shared.objects().srqs.insert(srq.id(), srq.as_c());
    Ok(Box::into_raw(srq).cast())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_srq(
    pd: *mut ibv_pd,
    init: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    // SAFETY: the program passes a live domain and its structure.
    ANSWER.pointer("ibv_create_srq", unsafe {
        argument_mut(init).and_then(|init| create(pd, init.srq_context, &mut init.attr, None))
    })
}

pub(crate) unsafe extern "C" fn create_srq_ex(
    c_context: *mut ibv_context,
    init: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    // SAFETY: the program passes an open context and its structure.
    let (context, init) = unsafe { (context(c_context), argument_mut(init)) };
    ANSWER.pointer(
        "ibv_create_srq_ex",
        context.and_then(|_| {
            let init = init?;
            let has_type = init.comp_mask & IBV_SRQ_INIT_ATTR_TYPE != 0;
            let kind = if has_type { init.srq_type } else { IBV_SRQT_BASIC };
            let (needed, xrc) = match kind {
                IBV_SRQT_BASIC => (IBV_SRQ_INIT_ATTR_PD, None),
                IBV_SRQT_XRC => (
                    IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
                    Some((init.xrcd, init.cq)),
                ),
                IBV_SRQT_TM => {
                    return Err(refused(
                        libc::EOPNOTSUPP,
                        "init.srq_type is IBV_SRQT_TM: tag matching is not offered",
                        "use IBV_SRQT_BASIC or IBV_SRQT_XRC",
                    ));
                }
                _ => {
                    return Err(refused(
                        libc::EINVAL,
                        format!("init.srq_type {} is unknown", init.srq_type),
                        "use IBV_SRQT_BASIC or IBV_SRQT_XRC",
                    ));
                }
            };
            if init.comp_mask & !IBV_SRQ_INIT_ATTR_TYPE != needed {
                return Err(refused(
                    libc::EINVAL,
                    "init.comp_mask does not go with init.srq_type",
                    "set IBV_SRQ_INIT_ATTR_PD, for XRC also _XRCD and _CQ, and nothing else but _TYPE",
                ));
            }
            // SAFETY: the program passes live objects.
            unsafe { create(init.pd, init.srq_context, &mut init.attr, xrc) }
        }),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_srq(c_srq: *mut ibv_srq, attr: *mut ibv_srq_attr, mask: c_int) -> c_int {
    // SAFETY: the program passes a live queue and its structure.
    let (srq, attr) = unsafe { (object::<Srq>(c_srq), argument(attr)) };
    ANSWER.code(
        "ibv_modify_srq",
        srq.and_then(|srq| {
            let attr = attr?;
            if mask & !(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) != 0 {
                return Err(refused(
                    libc::EINVAL,
                    "mask has more than IBV_SRQ_MAX_WR and IBV_SRQ_LIMIT",
                    "set those bits alone",
                ));
            }
            let resize = mask & IBV_SRQ_MAX_WR != 0;
            if resize && (attr.max_wr == 0 || attr.max_wr > MAX_SRQ_WR) {
                return Err(refused(
                    libc::EINVAL,
                    format!(
                        "attr.max_wr is {}: it must be from 1 to {MAX_SRQ_WR}",
                        attr.max_wr
                    ),
                    "ask for no more than ibv_query_device says (max_srq_wr)",
                ));
            }
            let room = if resize {
                attr.max_wr as usize
            } else {
                srq.queue.capacity()
            };
            if mask & IBV_SRQ_LIMIT != 0 && attr.srq_limit as usize > room {
                return Err(refused(
                    libc::EINVAL,
                    format!(
                        "attr.srq_limit is {}, the queue has room for {room}",
                        attr.srq_limit
                    ),
                    "set the limit below the length of the queue",
                ));
            }
            if resize && !srq.queue.resize(attr.max_wr as usize) {
                return Err(refused(
                    libc::EINVAL,
                    format!(
                        "attr.max_wr is {}, and more receives than that are posted",
                        attr.max_wr
                    ),
                    "shrink the queue when receives have been used up",
                ));
            }
            if mask & IBV_SRQ_LIMIT != 0 {
                srq.queue.set_limit(attr.srq_limit as usize);
            }
            Ok(())
        }),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_srq(c_srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    // SAFETY: the program passes a live queue and where to put the answer.
    let (srq, attr) = unsafe { (object::<Srq>(c_srq), argument_mut(attr)) };
    ANSWER.code(
        "ibv_query_srq",
        srq.and_then(|srq| {
            *attr? = ibv_srq_attr {
                max_wr: srq.queue.capacity() as u32,
                max_sge: srq.queue.max_sge() as u32,
                srq_limit: srq.queue.limit() as u32,
            };
            Ok(())
        }),
    )
}

/// # Safety
///
/// The pointer is what the program passed.
unsafe fn destroy(c_srq: *mut ibv_srq) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let srq = unsafe { object::<Srq>(c_srq) }?;
    if srq.shared.is_elsewhere() {
        return Ok(());
    }
    srq.users.none()?;
    if let Some(xrc) = &srq.xrc {
        srq.device.remove_xrc_srq(xrc.number);
    }
    srq.shared.objects().srqs.remove(&srq.id());
    srq.acks.wait();
    // SAFETY: a queue keeps what it uses from being destroyed; the program does not use the queue again.
    unsafe {
        object::<Pd>((*srq.c.get()).pd)?.users.leave();
        if let Some(xrc) = &srq.xrc {
            object::<Xrcd>(xrc.xrcd)?.users.leave();
            object::<Cq>(xrc.cq)?.users.leave();
        }
        drop(reclaim::<Srq>(c_srq));
    }
    Ok(())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    // SAFETY: the program passes a live queue.
    ANSWER.code("ibv_destroy_srq", unsafe { destroy(srq) })
}

pub(crate) unsafe extern "C" fn get_srq_num(c_srq: *mut ibv_srq, number: *mut u32) -> c_int {
    // SAFETY: the program passes a live queue and where to put the answer.
    let (srq, number) = unsafe { (object::<Srq>(c_srq), argument_mut(number)) };
    ANSWER.code(
        "ibv_get_srq_num",
        srq.and_then(|srq| {
            *number? = srq.xrc.as_ref().map_or(srq.id().0, |xrc| xrc.number);
            Ok(())
        }),
    )
}
