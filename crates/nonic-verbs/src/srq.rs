//! Shared receive queues. Posting to them is in `post`.

use crate::abi::*;
use crate::context::{Shared, context};
use crate::errno::{self, Errno};
use crate::object::{Acks, Object, Users, argument, argument_mut, next_handle, object, reclaim, zeroed};
use crate::pd::Pd;
use crate::query::MAX_SRQ_WR;
use libc::{c_int, c_void};
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
}

// SAFETY: `repr(C)`, and the C structure is first.
unsafe impl Object for Srq {
    type C = ibv_srq;
}

impl Srq {
    fn id(&self) -> SrqId {
        self.queue.srq_id().expect("made as a shared queue")
    }
}

/// # Safety
///
/// The pointers are what the program passed.
unsafe fn create(
    c_pd: *mut ibv_pd,
    srq_context: *mut c_void,
    attr: &mut ibv_srq_attr,
) -> Result<*mut ibv_srq, Errno> {
    // SAFETY: the caller's promise.
    let pd = unsafe { object::<Pd>(c_pd) }?;
    let device = pd.shared.device.clone();
    let max_sge = device.config().max_sge;
    if attr.max_wr == 0 || attr.max_wr > MAX_SRQ_WR || attr.max_sge > max_sge {
        return Err(libc::EINVAL);
    }
    attr.max_sge = attr.max_sge.max(1);
    let queue = device.create_srq(pd.id, attr.max_wr as usize, attr.max_sge as usize);
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
    });
    pd.shared.objects().srqs.insert(srq.id(), srq.as_c());
    Ok(Box::into_raw(srq).cast())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_srq(pd: *mut ibv_pd, init: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    // SAFETY: the program passes a live domain and its structure.
    errno::pointer(unsafe {
        argument_mut(init).and_then(|init| create(pd, init.srq_context, &mut init.attr))
    })
}

pub(crate) unsafe extern "C" fn create_srq_ex(
    c_context: *mut ibv_context,
    init: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    // SAFETY: the program passes an open context and its structure.
    let (context, init) = unsafe { (context(c_context), argument_mut(init)) };
    errno::pointer(context.and_then(|_| {
        let init = init?;
        let basic = init.comp_mask & IBV_SRQ_INIT_ATTR_TYPE == 0 || init.srq_type == IBV_SRQT_BASIC;
        if !basic {
            return Err(libc::EOPNOTSUPP);
        }
        if init.comp_mask & !(IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD) != 0 {
            return Err(libc::EINVAL);
        }
        // SAFETY: the program passes a live domain.
        unsafe { create(init.pd, init.srq_context, &mut init.attr) }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_srq(c_srq: *mut ibv_srq, attr: *mut ibv_srq_attr, mask: c_int) -> c_int {
    // SAFETY: the program passes a live queue and its structure.
    let (srq, attr) = unsafe { (object::<Srq>(c_srq), argument(attr)) };
    errno::code(srq.and_then(|srq| {
        let attr = attr?;
        if mask & !(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) != 0 {
            return Err(libc::EINVAL);
        }
        let resize = mask & IBV_SRQ_MAX_WR != 0;
        if resize && (attr.max_wr == 0 || attr.max_wr > MAX_SRQ_WR) {
            return Err(libc::EINVAL);
        }
        let room = if resize {
            attr.max_wr as usize
        } else {
            srq.queue.capacity()
        };
        if mask & IBV_SRQ_LIMIT != 0 && attr.srq_limit as usize > room {
            return Err(libc::EINVAL);
        }
        if resize && !srq.queue.resize(attr.max_wr as usize) {
            return Err(libc::EINVAL);
        }
        if mask & IBV_SRQ_LIMIT != 0 {
            srq.queue.set_limit(attr.srq_limit as usize);
        }
        Ok(())
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_srq(c_srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    // SAFETY: the program passes a live queue and where to put the answer.
    let (srq, attr) = unsafe { (object::<Srq>(c_srq), argument_mut(attr)) };
    errno::code(srq.and_then(|srq| {
        *attr? = ibv_srq_attr {
            max_wr: srq.queue.capacity() as u32,
            max_sge: srq.queue.max_sge() as u32,
            srq_limit: srq.queue.limit() as u32,
        };
        Ok(())
    }))
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
    srq.shared.objects().srqs.remove(&srq.id());
    srq.acks.wait();
    // SAFETY: a queue keeps its domain from being destroyed; the program does not use the queue again.
    unsafe {
        object::<Pd>((*srq.c.get()).pd)?.users.leave();
        drop(reclaim::<Srq>(c_srq));
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    // SAFETY: the program passes a live queue.
    errno::code(unsafe { destroy(srq) })
}

pub(crate) unsafe extern "C" fn get_srq_num(c_srq: *mut ibv_srq, number: *mut u32) -> c_int {
    // SAFETY: the program passes a live queue and where to put the answer.
    let (srq, number) = unsafe { (object::<Srq>(c_srq), argument_mut(number)) };
    errno::code(srq.and_then(|srq| {
        *number? = srq.id().0;
        Ok(())
    }))
}
