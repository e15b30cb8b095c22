//! Taking completions: the path that programs spin on.
//!
//! An empty poll costs what the engine's poll costs and nothing else: no lock is added here.

use crate::cq::Cq;
use crate::errors;
use crate::object::object;
use crate::refusal::ANSWER;
use libc::{c_int, c_uint};
use nonic_abi::errno::refused;
use nonic_abi::verbs::*;
use nonic_core::Completion;

pub(crate) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, entries: c_int, wc: *mut ibv_wc) -> c_int {
    let Ok(max) = usize::try_from(entries) else {
        let errno = refused(
            libc::EINVAL,
            format!("num_entries is {entries}"),
            "pass the number of entries that wc has room for",
        );
        return ANSWER.negative("ibv_poll_cq", Err(errno));
    };
    // SAFETY: the program passes a live queue.
    let cq = match unsafe { object::<Cq>(cq) } {
        Ok(cq) => cq,
        Err(errno) => return ANSWER.negative("ibv_poll_cq", Err(errno)),
    };
    let mut next = wc;
    let taken = cq.device.poll(&cq.queue, max, |completion| {
        // SAFETY: the program's array has `entries` elements, and no more than that come.
        unsafe {
            next.write(work_completion(&completion));
            next = next.add(1);
        }
    });
    match taken {
        Ok(taken) => taken as c_int,
        Err(_overflow) => ANSWER.negative("ibv_poll_cq", Err(errors::overrun())),
    }
}

/// A completion as C sees it.
pub(crate) fn work_completion(completion: &Completion) -> ibv_wc {
    ibv_wc {
        wr_id: completion.wr_id,
        status: completion.status as c_int,
        opcode: completion.opcode as c_int,
        vendor_err: 0,
        byte_len: completion.byte_len,
        imm_data: immediate(completion),
        qp_num: completion.qpn.value(),
        src_qp: completion.src_qp.value(),
        wc_flags: flags(completion),
        pkey_index: 0,
        slid: 0,
        sl: packet_type(completion),
        dlid_path_bits: 0,
    }
}

/// The immediate data in network byte order, or the invalidated key.
pub(crate) fn immediate(completion: &Completion) -> u32 {
    match (completion.immediate, completion.invalidated_rkey) {
        (Some(immediate), _) => immediate.to_be(),
        (None, Some(rkey)) => rkey,
        (None, None) => 0,
    }
}

/// On RoCE, devices tell in place of a service level what stood in front of a datagram, and programs such as UCX
/// rely on it: UDP (8) over IPv6 (1) or IPv4 (2).
fn packet_type(completion: &Completion) -> u8 {
    match (completion.grh, completion.ipv4) {
        (true, true) => 8 | 2,
        (true, false) => 8 | 1,
        (false, _) => 0,
    }
}

pub(crate) fn flags(completion: &Completion) -> c_uint {
    let flag = |present: bool, bit: c_uint| if present { bit } else { 0 };
    flag(completion.grh, IBV_WC_GRH)
        | flag(completion.immediate.is_some(), IBV_WC_WITH_IMM)
        | flag(completion.invalidated_rkey.is_some(), IBV_WC_WITH_INV)
}
