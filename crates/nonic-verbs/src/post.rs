//! Posting: from a program's linked list of work requests to the engine.
//!
//! A list is posted under one lock, request by request; scatter/gather lists and inline data are converted on
//! the stack. If one is refused, the program learns which, and those before it stay posted.

use crate::address::Ah;
use crate::errors;
use crate::memory::binding;
use crate::object::{argument, object};
use crate::qp::Qp;
use crate::refusal::ANSWER;
use crate::srq::Srq;
use libc::c_int;
use nonic_abi::errno::{Errno, refused};
use nonic_abi::verbs::*;
use nonic_core::{
    Data, Destination, PostError, Qpn, RecvRequest, RemoteAddress, SendFlags, SendOp, SendRequest, Service,
    Sge,
};
use smallvec::SmallVec;
use std::mem::offset_of;

/// No device offers longer lists.
const MAX_SGE: usize = 32;

pub(crate) type Bytes = SmallVec<[u8; 1024]>;

pub(crate) unsafe extern "C" fn post_send(
    c_qp: *mut ibv_qp,
    first: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the program passes a live queue pair.
    let qp = match unsafe { object::<Qp>(c_qp) } {
        Ok(qp) => qp,
        Err(errno) => return report("ibv_post_send", Err(errno), first, bad),
    };
    // SAFETY: the program's list, of datagrams if the queue pair sends such.
    unsafe { find_ways(qp, first) };
    let mut current = first;
    let result = qp.device.post_each_send(qp.qpn, |poster| {
        // SAFETY: the program's list: each element valid, the last one's `next` NULL.
        while let Some(wr) = unsafe { current.as_ref() } {
            // SAFETY: the element's own lists are as valid as itself.
            unsafe {
                with_request(qp, wr, |request| {
                    poster.post(request, !wr.next.is_null()).map_err(errors::of_post)
                })
            }?;
            if wr.opcode == IBV_WR_BIND_MW {
                // SAFETY: posting checked that there is a window.
                unsafe { (*wr.extra.bind_mw.mw).rkey = wr.extra.bind_mw.rkey };
            }
            current = wr.next;
        }
        Ok(())
    });
    report("ibv_post_send", result, current, bad)
}

/// Before datagrams are posted: finds the ways to queue pairs that are new to their address handles.
///
/// # Safety
///
/// The list is as for [`post_send`].
unsafe fn find_ways(qp: &Qp, first: *mut ibv_send_wr) {
    if qp.service() != Service::Ud {
        return;
    }
    let mut current = first;
    // SAFETY: the caller's promise.
    while let Some(wr) = unsafe { current.as_ref() } {
        // SAFETY: a datagram's request has this field filled in, with a live handle or NULL.
        unsafe {
            let ud = wr.wr.ud;
            if let Ok(ah) = object::<Ah>(ud.ah) {
                ah.find_way(&qp.device, ud.remote_qpn);
            }
        }
        current = wr.next;
    }
}

/// Tells the program which request was refused, and why.
fn report<T>(call: &str, result: Result<(), Errno>, at: *mut T, bad: *mut *mut T) -> c_int {
    if result.is_ok() {
        return 0;
    }
    if !bad.is_null() {
        // SAFETY: the program passes where to put the answer.
        unsafe { *bad = at };
    }
    ANSWER.code(call, result)
}

/// Converts a request and hands it to `post`.
///
/// # Safety
///
/// Everything the request points to is valid.
unsafe fn with_request(
    qp: &Qp,
    wr: &ibv_send_wr,
    post: impl FnOnce(&SendRequest<'_>) -> Result<(), Errno>,
) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let (op, list) = unsafe { (operation(wr)?, sge_list(wr.sg_list, wr.num_sge)?) };
    // SAFETY: the caller's promise.
    let destination = unsafe { destination(qp, wr) }?;
    let request = |data| SendRequest {
        wr_id: wr.wr_id,
        op,
        data,
        flags: SendFlags::from_bits_truncate(wr.send_flags),
        destination,
    };
    if op.is_local() {
        return post(&request(Data::Sges(&[])));
    }
    if wr.send_flags & IBV_SEND_INLINE != 0 && !op.fetches() {
        let mut gathered = Bytes::new();
        // SAFETY: inline data is any memory of the program.
        let bytes = unsafe { inline_bytes(qp, list, &mut gathered) }?;
        return post(&request(Data::Inline(bytes)));
    }
    post(&request(Data::Sges(list)))
}

/// The bytes of a list: where they are, or gathered if they are in several places.
///
/// # Safety
///
/// The list's memory is readable, for as long as its bytes are used.
unsafe fn inline_bytes<'a>(qp: &Qp, list: &[Sge], gathered: &'a mut Bytes) -> Result<&'a [u8], Errno> {
    if let [only] = list {
        if only.length == 0 {
            return Ok(&[]);
        }
        let from = std::ptr::with_exposed_provenance::<u8>(only.addr as usize);
        // SAFETY: the caller's promise.
        return Ok(unsafe { std::slice::from_raw_parts(from, only.length as usize) });
    }
    for sge in list {
        // SAFETY: the caller's promise.
        unsafe { append(qp, gathered, sge.addr, sge.length as usize) }?;
    }
    Ok(gathered)
}

/// Adds a piece of the program's memory to inline data, up to what the queue pair was created for.
///
/// # Safety
///
/// The piece is readable.
pub(crate) unsafe fn append(qp: &Qp, bytes: &mut Bytes, address: u64, length: usize) -> Result<(), Errno> {
    if bytes.len() + length > qp.cap.max_inline_data as usize {
        return Err(errors::of_post(PostError::Inline));
    }
    if length > 0 {
        let from = std::ptr::with_exposed_provenance::<u8>(address as usize);
        // SAFETY: the caller's promise.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(from, length) });
    }
    Ok(())
}

/// The elements of a program's list, if it can be one.
///
/// # Safety
///
/// The list has `count` elements.
pub(crate) unsafe fn sge_list<'a>(list: *const ibv_sge, count: c_int) -> Result<&'a [Sge], Errno> {
    let count = usize::try_from(count).map_err(|_| {
        refused(
            libc::EINVAL,
            format!("num_sge is {count}"),
            "pass the number of elements of sg_list",
        )
    })?;
    if count == 0 {
        return Ok(&[]);
    }
    if count > MAX_SGE || list.is_null() {
        return Err(refused(
            libc::EINVAL,
            format!(
                "num_sge is {count} and sg_list {}: at most {MAX_SGE} elements are taken",
                if list.is_null() { "NULL" } else { "is there" }
            ),
            "pass sg_list with num_sge elements",
        ));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { sges(list, count) })
}

/// The elements of a program's list, where they are.
///
/// # Safety
///
/// The list has `count` elements, at least one.
pub(crate) unsafe fn sges<'a>(list: *const ibv_sge, count: usize) -> &'a [Sge] {
    const {
        assert!(size_of::<Sge>() == size_of::<ibv_sge>() && align_of::<Sge>() == align_of::<ibv_sge>());
        assert!(offset_of!(Sge, addr) == offset_of!(ibv_sge, addr));
        assert!(offset_of!(Sge, length) == offset_of!(ibv_sge, length));
        assert!(offset_of!(Sge, lkey) == offset_of!(ibv_sge, lkey));
    }
    // SAFETY: the caller's promise, and the two types are laid out alike.
    unsafe { std::slice::from_raw_parts(list.cast(), count) }
}

/// What a request asks for.
///
/// # Safety
///
/// The union's field that goes with the opcode is the one that was filled in.
unsafe fn operation(wr: &ibv_send_wr) -> Result<SendOp, Errno> {
    let rdma = || {
        // SAFETY: used for the RDMA opcodes only.
        let rdma = unsafe { wr.wr.rdma };
        RemoteAddress {
            va: rdma.remote_addr,
            rkey: rdma.rkey,
        }
    };
    let atomic = || {
        // SAFETY: used for the atomic opcodes only.
        let atomic = unsafe { wr.wr.atomic };
        let remote = RemoteAddress {
            va: atomic.remote_addr,
            rkey: atomic.rkey,
        };
        (remote, atomic.compare_add, atomic.swap)
    };
    Ok(match wr.opcode {
        IBV_WR_RDMA_WRITE => SendOp::Write(rdma()),
        IBV_WR_RDMA_WRITE_WITH_IMM => SendOp::WriteWithImmediate(rdma(), u32::from_be(wr.imm_data)),
        IBV_WR_SEND => SendOp::Send,
        IBV_WR_SEND_WITH_IMM => SendOp::SendWithImmediate(u32::from_be(wr.imm_data)),
        IBV_WR_RDMA_READ => SendOp::Read(rdma()),
        IBV_WR_ATOMIC_CMP_AND_SWP => {
            let (remote, compare, swap) = atomic();
            SendOp::CompareSwap {
                remote,
                compare,
                swap,
            }
        }
        IBV_WR_ATOMIC_FETCH_AND_ADD => {
            let (remote, add, _) = atomic();
            SendOp::FetchAdd { remote, add }
        }
        IBV_WR_LOCAL_INV => SendOp::LocalInvalidate(wr.imm_data),
        IBV_WR_ATOMIC_WRITE => SendOp::AtomicWrite(rdma()),
        IBV_WR_SEND_WITH_INV => SendOp::SendWithInvalidate(wr.imm_data),
        // SAFETY: a binding's own field; the objects it names are live.
        IBV_WR_BIND_MW => unsafe { bind_window(wr) }?,
        _ => {
            return Err(refused(
                libc::EINVAL,
                format!("wr.opcode {} is not offered", wr.opcode),
                "use SEND, WRITE, READ, atomics, LOCAL_INV, SEND_WITH_INV or BIND_MW",
            ));
        }
    })
}

/// # Safety
///
/// The request is a binding, and what it names is live.
unsafe fn bind_window(wr: &ibv_send_wr) -> Result<SendOp, Errno> {
    // SAFETY: the caller's promise.
    let bind = unsafe { wr.extra.bind_mw };
    // SAFETY: the caller's promise.
    match unsafe { argument(bind.mw) } {
        Ok(mw) if mw.mw_type == IBV_MW_TYPE_2 => {}
        // Windows of type 1 have a verb of their own.
        _ => {
            return Err(refused(
                libc::EINVAL,
                "wr.bind_mw.mw is NULL or a window of type 1",
                "allocate it as IBV_MW_TYPE_2; windows of type 1 are bound with ibv_bind_mw",
            ));
        }
    }
    // SAFETY: the caller's promise.
    unsafe { binding(bind.mw, bind.rkey, &bind.bind_info) }.map(SendOp::BindWindow)
}

/// Where a request goes, if the queue pair does not know already.
///
/// # Safety
///
/// The address handle of a datagram is live.
unsafe fn destination(qp: &Qp, wr: &ibv_send_wr) -> Result<Option<Destination>, Errno> {
    match qp.service() {
        Service::Ud => {}
        Service::Xrc => return Ok(Some(Destination::srq(wr.remote_srqn))),
        _ => return Ok(None),
    }
    // SAFETY: a datagram's request has this field filled in.
    let ud = unsafe { wr.wr.ud };
    // SAFETY: the caller's promise.
    unsafe { datagram(ud.ah, ud.remote_qpn, ud.remote_qkey) }.map(Some)
}

/// A destination from its parts.
///
/// # Safety
///
/// The address handle is NULL or live.
pub(crate) unsafe fn datagram(ah: *mut ibv_ah, qpn: u32, qkey: u32) -> Result<Destination, Errno> {
    // SAFETY: the caller's promise.
    let ah = unsafe { object::<Ah>(ah) }?;
    Ok(Destination {
        gid_index: ah.gid_index,
        ip: ah.ip,
        qpn: Qpn::new(qpn),
        qkey,
    })
}

/// Converts a receive and hands it to `post`.
///
/// # Safety
///
/// Everything the request points to is valid.
unsafe fn with_receive(
    wr: &ibv_recv_wr,
    post: impl FnOnce(&RecvRequest<'_>) -> Result<(), Errno>,
) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let list = unsafe { sge_list(wr.sg_list, wr.num_sge) }?;
    post(&RecvRequest {
        wr_id: wr.wr_id,
        sges: list,
    })
}

pub(crate) unsafe extern "C" fn post_recv(
    c_qp: *mut ibv_qp,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the program passes a live queue pair.
    let qp = match unsafe { object::<Qp>(c_qp) } {
        Ok(qp) => qp,
        Err(errno) => return report("ibv_post_recv", Err(errno), first, bad),
    };
    let mut current = first;
    let result = qp.device.post_each_recv(qp.qpn, |poster| {
        // SAFETY: the program's list: each element valid, the last one's `next` NULL.
        while let Some(wr) = unsafe { current.as_ref() } {
            // SAFETY: the element's own list is as valid as itself.
            unsafe { with_receive(wr, |request| poster.post(request).map_err(errors::of_post)) }?;
            current = wr.next;
        }
        Ok(())
    });
    report("ibv_post_recv", result, current, bad)
}

pub(crate) unsafe extern "C" fn post_srq_recv(
    c_srq: *mut ibv_srq,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the program passes a live queue.
    let srq = match unsafe { object::<Srq>(c_srq) } {
        Ok(srq) => srq,
        Err(errno) => return report("ibv_post_srq_recv", Err(errno), first, bad),
    };
    let mut current = first;
    let mut post_all = || {
        // SAFETY: the program's list: each element valid, the last one's `next` NULL.
        while let Some(wr) = unsafe { current.as_ref() } {
            let post = |request: &RecvRequest<'_>| srq.queue.post(request).map_err(errors::of_receive);
            // SAFETY: the element's own list is as valid as itself.
            unsafe { with_receive(wr, post) }?;
            current = wr.next;
        }
        Ok(())
    };
    let result = post_all();
    srq.device.receives_posted();
    report("ibv_post_srq_recv", result, current, bad)
}
