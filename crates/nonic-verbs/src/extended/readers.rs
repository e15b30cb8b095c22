//! Extended completion queues: one completion at a time, its fields read on demand.
//!
//! Between `ibv_start_poll` and `ibv_end_poll` the queue belongs to the thread that started, as the man page
//! says, unless the program promised to use it from one thread only.

use crate::context::context;
use crate::cq::{Cq, CqRequest, create};
use crate::errors;
use crate::object::{argument, object};
use crate::poll::work_completion;
use crate::query::clock;
use crate::refusal::ANSWER;
use libc::{c_int, c_uint};
use nonic_abi::errno::{Errno, refused};
use nonic_abi::verbs::*;
use nonic_core::Completion;

const SUPPORTED_FLAGS: u64 = IBV_WC_STANDARD_FLAGS
    | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
    | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

/// # Safety
///
/// The pointers are what the program passed.
unsafe fn create_extended(
    c_context: *mut ibv_context,
    init: *mut ibv_cq_init_attr_ex,
) -> Result<*mut ibv_cq_ex, Errno> {
    // SAFETY: the caller's promise.
    let (context, init) = unsafe { (context(c_context)?, argument(init)?) };
    if init.comp_mask & !(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD) != 0 {
        return Err(refused(
            libc::EINVAL,
            "cq_attr has bits in comp_mask that are not offered",
            "clear the bits; docs/differences.md says what is offered",
        ));
    }
    let has_flags = init.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS != 0;
    let flags = if has_flags { init.flags } else { 0 };
    if init.wc_flags & !SUPPORTED_FLAGS != 0 || flags & !IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0 {
        return Err(refused(
            libc::EOPNOTSUPP,
            format!(
                "cq_attr.wc_flags {:#x} or flags {flags:#x} ask for what is not offered",
                init.wc_flags
            ),
            "ask for fields that hardware of every vendor has: tunnel headers, raw clocks and VLAN are not offered",
        ));
    }
    let has_domain = init.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD != 0;
    if has_domain && init.parent_domain.is_null() {
        return Err(refused(
            libc::EINVAL,
            "cq_attr.parent_domain is NULL",
            "pass a domain of ibv_alloc_parent_domain, or leave IBV_CQ_INIT_ATTR_MASK_PD out of comp_mask",
        ));
    }
    let request = CqRequest {
        entries: init.cqe,
        cq_context: init.cq_context,
        channel: init.channel,
        vector: init.comp_vector,
        single_threaded: flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0,
        parent_domain: if has_domain {
            init.parent_domain
        } else {
            std::ptr::null_mut()
        },
    };
    // SAFETY: the caller's promise.
    let mut cq = unsafe { create(context, &request) }?;
    fill_readers(cq.c.get_mut());
    Ok(Box::into_raw(cq).cast())
}

fn fill_readers(c: &mut ibv_cq_ex) {
    c.start_poll = Some(start_poll);
    c.next_poll = Some(next_poll);
    c.end_poll = Some(end_poll);
    c.read_opcode = Some(read_opcode);
    c.read_vendor_err = Some(read_vendor_err);
    c.read_byte_len = Some(read_byte_len);
    c.read_imm_data = Some(read_imm_data);
    c.read_qp_num = Some(read_qp_num);
    c.read_src_qp = Some(read_src_qp);
    c.read_wc_flags = Some(read_wc_flags);
    c.read_slid = Some(read_slid);
    c.read_sl = Some(read_sl);
    c.read_dlid_path_bits = Some(read_dlid_path_bits);
    c.read_completion_ts = Some(read_completion_ts);
    c.read_completion_wallclock_ns = Some(read_completion_wallclock_ns);
}

pub(crate) unsafe extern "C" fn create_cq_ex(
    c_context: *mut ibv_context,
    init: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    // SAFETY: the program passes an open context and its structure.
    ANSWER.pointer("ibv_create_cq_ex", unsafe { create_extended(c_context, init) })
}

/// Makes a completion the one that is read.
fn show(cq: &Cq, completion: &Completion) {
    let wc = work_completion(completion);
    // SAFETY: the caller holds the queue's lock, or the program promised to be alone.
    unsafe {
        (*cq.c.get()).status = wc.status;
        (*cq.c.get()).wr_id = wc.wr_id;
        *cq.current.completion.get() = wc;
    }
}

unsafe extern "C" fn start_poll(c_cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: the program passes a live queue, and NULL or its structure.
    let (cq, attr) = unsafe { (object::<Cq>(c_cq.cast()), attr.as_ref()) };
    let cq = match cq {
        Ok(cq) => cq,
        Err(errno) => return ANSWER.code("ibv_start_poll", Err(errno)),
    };
    if attr.is_some_and(|attr| attr.comp_mask != 0) {
        let errno = refused(libc::EINVAL, "attr.comp_mask is not 0", "set it to 0");
        return ANSWER.code("ibv_start_poll", Err(errno));
    }
    cq.current.lock();
    let taken = cq.device.poll(&cq.queue, 1, |completion| show(cq, &completion));
    match taken {
        Ok(1..) => 0,
        // Without a completion there will be no `end_poll`.
        Ok(_) => {
            cq.current.unlock();
            libc::ENOENT
        }
        Err(_overflow) => {
            cq.current.unlock();
            ANSWER.code("ibv_start_poll", Err(errors::overrun()))
        }
    }
}

unsafe extern "C" fn next_poll(c_cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: the program passes a live queue whose polling it has started.
    let cq = match unsafe { object::<Cq>(c_cq.cast()) } {
        Ok(cq) => cq,
        Err(errno) => return ANSWER.code("ibv_next_poll", Err(errno)),
    };
    match cq.queue.poll(1, |completion| show(cq, &completion)) {
        Ok(1..) => 0,
        Ok(_) => libc::ENOENT,
        Err(_overflow) => ANSWER.code("ibv_next_poll", Err(errors::overrun())),
    }
}

unsafe extern "C" fn end_poll(c_cq: *mut ibv_cq_ex) {
    // SAFETY: the program passes a live queue whose polling it has started.
    if let Ok(cq) = unsafe { object::<Cq>(c_cq.cast()) } {
        cq.current.unlock();
    }
}

/// Defines a reader of one field of the current completion.
macro_rules! readers {
    ($($name:ident -> $type:ty = $field:ident;)*) => { $(
        unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $type {
            // SAFETY: the program passes a live queue whose polling it has started, and so holds its lock.
            match unsafe { object::<Cq>(cq.cast()) } {
                // SAFETY: as above.
                Ok(cq) => <$type>::from(unsafe { (*cq.current.completion.get()).$field }),
                Err(_) => 0,
            }
        }
    )* };
}

readers! {
    read_opcode -> c_int = opcode;
    read_vendor_err -> u32 = vendor_err;
    read_byte_len -> u32 = byte_len;
    read_imm_data -> u32 = imm_data;
    read_qp_num -> u32 = qp_num;
    read_src_qp -> u32 = src_qp;
    read_wc_flags -> c_uint = wc_flags;
    read_slid -> u32 = slid;
    read_sl -> u8 = sl;
    read_dlid_path_bits -> u8 = dlid_path_bits;
}

fn nanoseconds(time: libc::timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The time of reading: completions do not remember theirs, and it is the closest there is.
unsafe extern "C" fn read_completion_ts(_cq: *mut ibv_cq_ex) -> u64 {
    nanoseconds(clock(libc::CLOCK_MONOTONIC))
}

unsafe extern "C" fn read_completion_wallclock_ns(_cq: *mut ibv_cq_ex) -> u64 {
    nanoseconds(clock(libc::CLOCK_REALTIME))
}
