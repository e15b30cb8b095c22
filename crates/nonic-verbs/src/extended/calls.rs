//! Extended queue pairs: work requests built between `ibv_wr_start` and `ibv_wr_complete`.
//!
//! Requests are collected in [`Batch`], whose vectors keep their memory, and posted together. A mistake in one of them
//! is remembered until `ibv_wr_complete`, which then posts nothing and reports it.

use super::batch::{Batch, Content, Draft};
use crate::address::Ah;
use crate::context::context;
use crate::errors;
use crate::memory::binding;
use crate::object::{argument, argument_mut, object};
use crate::post::{Bytes, append, datagram, sges};
use crate::qp::{Qp, create, create_target};
use crate::refusal::ANSWER;
use libc::{c_int, c_void, size_t};
use nonic_abi::errno::{Errno, expected, refused};
use nonic_abi::verbs::*;
use nonic_core::{Destination, Flush, FlushRange, Placement, RemoteAddress, SendFlags, SendOp, Service, Sge};

/// Operations each service offers.
fn offered(service: Service) -> u64 {
    let send = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
    let write = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
    let local = IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;
    match service {
        Service::Ud => send,
        Service::Uc => send | write | local,
        _ => {
            send | write
                | local
                | IBV_QP_EX_WITH_SEND_WITH_INV
                | IBV_QP_EX_WITH_RDMA_READ
                | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
                | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
                | IBV_QP_EX_WITH_ATOMIC_WRITE
                | IBV_QP_EX_WITH_FLUSH
        }
    }
}

const KNOWN_MASK: u32 = IBV_QP_INIT_ATTR_PD
    | IBV_QP_INIT_ATTR_XRCD
    | IBV_QP_INIT_ATTR_CREATE_FLAGS
    | IBV_QP_INIT_ATTR_MAX_TSO_HEADER
    | IBV_QP_INIT_ATTR_IND_TABLE
    | IBV_QP_INIT_ATTR_RX_HASH
    | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;

/// # Safety
///
/// The pointers are what the program passed.
unsafe fn create_extended(
    c_context: *mut ibv_context,
    init: *mut ibv_qp_init_attr_ex,
) -> Result<*mut ibv_qp, Errno> {
    // SAFETY: the caller's promise.
    let init = unsafe {
        context(c_context)?;
        argument_mut(init)?
    };
    let given = |bit: u32| init.comp_mask & bit != 0;
    if init.comp_mask & !KNOWN_MASK != 0 {
        return Err(refused(
            libc::EINVAL,
            "init has bits in comp_mask that are not offered",
            "clear the bits; docs/differences.md says what is offered",
        ));
    }
    let unoffered = IBV_QP_INIT_ATTR_MAX_TSO_HEADER | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
    if given(unoffered) || (given(IBV_QP_INIT_ATTR_CREATE_FLAGS) && init.create_flags != 0) {
        return Err(refused(
            libc::EOPNOTSUPP,
            "init asks for TSO, an indirection table, RX hashing or create_flags, which are not offered",
            "leave them out of comp_mask, and create_flags 0",
        ));
    }
    let is_target = init.qp_type == IBV_QPT_XRC_RECV;
    let owner = if is_target {
        IBV_QP_INIT_ATTR_XRCD
    } else {
        IBV_QP_INIT_ATTR_PD
    };
    if !given(owner) {
        return Err(refused(
            libc::EINVAL,
            "init.comp_mask lacks IBV_QP_INIT_ATTR_PD, or for IBV_QPT_XRC_RECV IBV_QP_INIT_ATTR_XRCD",
            "set the bit and the field",
        ));
    }
    let is_extended = given(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS);
    let (pd, xrcd) = (init.pd, init.xrcd);
    // SAFETY: the extended structure begins with the fields of the short one.
    let short = unsafe { &mut *std::ptr::from_mut(init).cast::<ibv_qp_init_attr>() };
    if is_target {
        // SAFETY: the caller's promise.
        let qp = unsafe { create_target(xrcd, short) }?;
        return Ok(Box::into_raw(qp).cast());
    }
    // SAFETY: the caller's promise.
    let mut qp = unsafe { create(pd, short, is_extended) }?;
    if is_extended {
        if init.send_ops_flags & !offered(qp.service()) != 0 {
            // SAFETY: just made, and the program has not seen it.
            unsafe { crate::qp::destroy(Box::into_raw(qp).cast()) }?;
            return Err(refused(
                libc::EOPNOTSUPP,
                format!(
                    "init.send_ops_flags {:#x} has operations that this kind of queue pair does not offer",
                    init.send_ops_flags
                ),
                "READs and atomics need RC or XRC, WRITEs RC, UC or XRC; datagram queue pairs only SEND",
            ));
        }
        let c = qp.c.get_mut();
        fill_calls(&mut c.base);
        c.wr_flush = Some(wr_flush);
    }
    Ok(Box::into_raw(qp).cast())
}

fn fill_calls(c: &mut ibv_qp_ex) {
    c.wr_atomic_cmp_swp = Some(wr_atomic_cmp_swp);
    c.wr_atomic_fetch_add = Some(wr_atomic_fetch_add);
    c.wr_bind_mw = Some(wr_bind_mw);
    c.wr_local_inv = Some(wr_local_inv);
    c.wr_rdma_read = Some(wr_rdma_read);
    c.wr_rdma_write = Some(wr_rdma_write);
    c.wr_rdma_write_imm = Some(wr_rdma_write_imm);
    c.wr_send = Some(wr_send);
    c.wr_send_imm = Some(wr_send_imm);
    c.wr_send_inv = Some(wr_send_inv);
    c.wr_set_ud_addr = Some(wr_set_ud_addr);
    c.wr_set_xrc_srqn = Some(wr_set_xrc_srqn);
    c.wr_set_inline_data = Some(wr_set_inline_data);
    c.wr_set_inline_data_list = Some(wr_set_inline_data_list);
    c.wr_set_sge = Some(wr_set_sge);
    c.wr_set_sge_list = Some(wr_set_sge_list);
    c.wr_start = Some(wr_start);
    c.wr_complete = Some(wr_complete);
    c.wr_abort = Some(wr_abort);
    c.wr_atomic_write = Some(wr_atomic_write);
}

pub(crate) unsafe extern "C" fn create_qp_ex(
    c_context: *mut ibv_context,
    init: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: the program passes an open context and its structure.
    ANSWER.pointer("ibv_create_qp_ex", unsafe { create_extended(c_context, init) })
}

/// The queue pair and its batch, between start and complete.
///
/// # Safety
///
/// The program called `ibv_wr_start` in this thread, so that the batch is its own.
unsafe fn batch<'a>(c_qp: *mut ibv_qp_ex) -> Option<(&'a Qp, &'a mut Batch)> {
    // SAFETY: the program passes a live queue pair.
    let qp = unsafe { object::<Qp>(c_qp.cast()) }.ok()?;
    // SAFETY: the caller's promise.
    Some((qp, unsafe { &mut *qp.builder.batch.get() }))
}

/// Begins a request.
///
/// # Safety
///
/// As for [`batch`].
unsafe fn begin(c_qp: *mut ibv_qp_ex, op: SendOp) {
    // SAFETY: the caller's promise; the program has set number and flags in the structure.
    let (batch, wr_id, flags) = unsafe {
        let Some((_, batch)) = batch(c_qp) else { return };
        (batch, (*c_qp).wr_id, (*c_qp).wr_flags)
    };
    batch.drafts.push(Draft {
        wr_id,
        op,
        flags: SendFlags::from_bits_truncate(flags),
        content: Content::Sges(0..0),
        destination: None,
    });
}

/// Defines the calls that begin a request.
macro_rules! operations {
    ($($name:ident($($argument:ident: $type:ty),*) = $op:expr;)*) => { $(
        unsafe extern "C" fn $name(qp: *mut ibv_qp_ex $(, $argument: $type)*) {
            // SAFETY: the program calls this between start and complete.
            unsafe { begin(qp, $op) };
        }
    )* };
}

operations! {
    wr_send() = SendOp::Send;
    wr_send_imm(imm: u32) = SendOp::SendWithImmediate(u32::from_be(imm));
    wr_send_inv(rkey: u32) = SendOp::SendWithInvalidate(rkey);
    wr_local_inv(rkey: u32) = SendOp::LocalInvalidate(rkey);
    wr_rdma_read(rkey: u32, va: u64) = SendOp::Read(RemoteAddress { va, rkey });
    wr_rdma_write(rkey: u32, va: u64) = SendOp::Write(RemoteAddress { va, rkey });
    wr_rdma_write_imm(rkey: u32, va: u64, imm: u32) =
        SendOp::WriteWithImmediate(RemoteAddress { va, rkey }, u32::from_be(imm));
    wr_atomic_cmp_swp(rkey: u32, va: u64, compare: u64, swap: u64) =
        SendOp::CompareSwap { remote: RemoteAddress { va, rkey }, compare, swap };
    wr_atomic_fetch_add(rkey: u32, va: u64, add: u64) =
        SendOp::FetchAdd { remote: RemoteAddress { va, rkey }, add };
}

unsafe extern "C" fn wr_bind_mw(
    c_qp: *mut ibv_qp_ex,
    mw: *mut ibv_mw,
    rkey: u32,
    info: *const ibv_mw_bind_info,
) {
    // SAFETY: the program passes live objects and its structure.
    let bind = unsafe { argument(info).and_then(|info| binding(mw, rkey, info)) };
    // SAFETY: the program calls this between start and complete.
    unsafe {
        match (bind, batch(c_qp)) {
            (Ok(bind), Some(_)) => {
                begin(c_qp, SendOp::BindWindow(bind));
                (*mw).rkey = rkey;
            }
            (Err(errno), Some((_, batch))) => batch.mistake = Some(errno),
            _ => {}
        }
    }
}

/// The request's eight bytes come with the call.
unsafe extern "C" fn wr_atomic_write(c_qp: *mut ibv_qp_ex, rkey: u32, va: u64, data: *const c_void) {
    // SAFETY: the program calls this between start and complete, with eight readable bytes.
    unsafe {
        begin(c_qp, SendOp::AtomicWrite(RemoteAddress { va, rkey }));
        let (Some((_, batch)), Ok(data)) = (batch(c_qp), argument(data.cast::<[u8; 8]>())) else {
            return;
        };
        let start = batch.bytes.len();
        batch.bytes.extend_from_slice(data);
        batch.set_content(Content::Inline(start..batch.bytes.len()));
    }
}

unsafe extern "C" fn wr_flush(c_qp: *mut ibv_qp_ex, rkey: u32, va: u64, length: size_t, kind: u8, level: u8) {
    let flush = Flush {
        remote: RemoteAddress { va, rkey },
        length: u32::try_from(length).unwrap_or(u32::MAX),
        placement: Placement::from_bits_truncate(kind),
        range: if level == 0 {
            FlushRange::Named
        } else {
            FlushRange::WholeKey
        },
    };
    // SAFETY: the program calls this between start and complete.
    unsafe { begin(c_qp, SendOp::Flush(flush)) };
}

unsafe extern "C" fn wr_set_ud_addr(c_qp: *mut ibv_qp_ex, ah: *mut ibv_ah, qpn: u32, qkey: u32) {
    // SAFETY: the program calls this between start and complete.
    let Some((qp, batch)) = (unsafe { batch(c_qp) }) else {
        return;
    };
    // SAFETY: the program passes a live handle.
    if let Ok(ah) = unsafe { object::<Ah>(ah) } {
        ah.find_way(&qp.device, qpn);
    }
    // SAFETY: the program passes a live handle.
    match (unsafe { datagram(ah, qpn, qkey) }, batch.drafts.last_mut()) {
        (Ok(destination), Some(draft)) => draft.destination = Some(destination),
        _ => {
            batch.mistake = Some(refused(
                libc::EINVAL,
                "ibv_wr_set_ud_addr: ah is NULL, or no request was begun",
                "call ibv_wr_send first, and pass what ibv_create_ah returned",
            ))
        }
    }
}

unsafe extern "C" fn wr_set_xrc_srqn(c_qp: *mut ibv_qp_ex, number: u32) {
    // SAFETY: the program calls this between start and complete.
    let Some((_, batch)) = (unsafe { batch(c_qp) }) else {
        return;
    };
    match batch.drafts.last_mut() {
        Some(draft) => draft.destination = Some(Destination::srq(number)),
        None => {
            batch.mistake = Some(refused(
                libc::EINVAL,
                "ibv_wr_set_xrc_srqn came before any request was begun",
                "call ibv_wr_send or another of them first",
            ))
        }
    }
}

unsafe extern "C" fn wr_set_sge(c_qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    // SAFETY: the program calls this between start and complete.
    if let Some((_, batch)) = unsafe { batch(c_qp) } {
        batch.set_sges(std::iter::once(Sge { addr, length, lkey }));
    }
}

unsafe extern "C" fn wr_set_sge_list(c_qp: *mut ibv_qp_ex, count: size_t, list: *const ibv_sge) {
    // SAFETY: the program calls this between start and complete.
    let Some((qp, batch)) = (unsafe { batch(c_qp) }) else {
        return;
    };
    if count > qp.cap.max_send_sge as usize || (count > 0 && list.is_null()) {
        batch.mistake = Some(refused(
            libc::EINVAL,
            format!(
                "ibv_wr_set_sge_list: num_sge is {count}, the queue pair takes {}; or sg_list is NULL",
                qp.cap.max_send_sge
            ),
            "create the queue pair with a larger max_send_sge, or post fewer elements",
        ));
    } else if count > 0 {
        // SAFETY: the program's list has `count` elements.
        let list = unsafe { sges(list, count) };
        batch.set_sges(list.iter().copied());
    }
}

unsafe extern "C" fn wr_set_inline_data(c_qp: *mut ibv_qp_ex, addr: *mut c_void, length: size_t) {
    let buffer = ibv_data_buf { addr, length };
    // SAFETY: the same promises; one buffer.
    unsafe { wr_set_inline_data_list(c_qp, 1, &raw const buffer) };
}

unsafe extern "C" fn wr_set_inline_data_list(c_qp: *mut ibv_qp_ex, count: size_t, list: *const ibv_data_buf) {
    // SAFETY: the program calls this between start and complete.
    let Some((qp, batch)) = (unsafe { batch(c_qp) }) else {
        return;
    };
    let mut bytes = Bytes::new();
    for index in 0..count {
        // SAFETY: the program's list has `count` readable buffers.
        let appended = unsafe {
            let buffer = &*list.add(index);
            append(
                qp,
                &mut bytes,
                buffer.addr.expose_provenance() as u64,
                buffer.length,
            )
        };
        if appended.is_err() {
            batch.mistake = Some(refused(
                libc::ENOMEM,
                format!(
                    "inline data is longer than the queue was created for, {} bytes",
                    qp.cap.max_inline_data
                ),
                "create the queue pair with a larger max_inline_data, or send from registered memory",
            ));
            return;
        }
    }
    let start = batch.bytes.len();
    batch.bytes.extend_from_slice(&bytes);
    batch.set_content(Content::Inline(start..batch.bytes.len()));
}

unsafe extern "C" fn wr_start(c_qp: *mut ibv_qp_ex) {
    // SAFETY: the program passes a live queue pair.
    if let Ok(qp) = unsafe { object::<Qp>(c_qp.cast()) } {
        qp.builder.lock.lock();
        // SAFETY: locked: the batch is this thread's until complete or abort.
        unsafe { (*qp.builder.batch.get()).clear() };
    }
}

unsafe extern "C" fn wr_complete(c_qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: the program has started, and so holds the lock.
    let Some((qp, batch)) = (unsafe { batch(c_qp) }) else {
        let errno = refused(libc::EINVAL, "qp is NULL", "pass what ibv_qp_to_qp_ex returned");
        return ANSWER.code("ibv_wr_complete", Err(errno));
    };
    let result = match batch.mistake.take() {
        Some(mistake) => Err(mistake),
        None => qp.device.post_each_send(qp.qpn, |poster| {
            // All of them or none.
            if batch.drafts.len() > poster.room() {
                return Err(expected(libc::ENOMEM));
            }
            let mut drafts = batch.drafts.iter().enumerate();
            drafts.try_for_each(|(index, draft)| {
                let more = index + 1 < batch.drafts.len();
                poster.post(&batch.request(draft), more).map_err(errors::of_post)
            })
        }),
    };
    qp.builder.lock.unlock();
    ANSWER.code("ibv_wr_complete", result)
}

unsafe extern "C" fn wr_abort(c_qp: *mut ibv_qp_ex) {
    // SAFETY: the program has started, and so holds the lock.
    if let Some((qp, _)) = unsafe { batch(c_qp) } {
        qp.builder.lock.unlock();
    }
}
