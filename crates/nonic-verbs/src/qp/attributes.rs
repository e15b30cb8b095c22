//! The attributes of a queue pair, set and read: `ibv_modify_qp` and `ibv_query_qp`.

use super::Qp;
use crate::address::path;
use crate::context::{Context, context};
use crate::cq::Cq;
use crate::errors;
use crate::object::{argument, argument_mut, object, zeroed};
use crate::refusal::ANSWER;
use libc::c_int;
use nonic_abi::errno::{Errno, refused};
use nonic_abi::verbs::*;
use nonic_core::{Access, AckTimeout, PathMtu, Psn, QpAttributes, QpState, Qpn, RnrTimer};
use std::sync::PoisonError;

fn state_of(value: c_int) -> Result<QpState, Errno> {
    let found = QpState::ALL.into_iter().find(|state| *state as c_int == value);
    found.ok_or_else(|| {
        refused(
            libc::EINVAL,
            format!("the state {value} is unknown"),
            "use IBV_QPS_RESET, INIT, RTR, RTS, SQD, SQE or ERR",
        )
    })
}

fn mtu_of(value: c_int) -> Result<PathMtu, Errno> {
    let bytes = u32::try_from(value)
        .ok()
        .and_then(|code| 128_u32.checked_shl(code));
    bytes.and_then(PathMtu::from_bytes).ok_or_else(|| {
        refused(
            libc::EINVAL,
            format!("attr.path_mtu is {value}: it is a code, not a number of bytes"),
            "set it to IBV_MTU_256 (1) to IBV_MTU_4096 (5), no more than active_mtu of ibv_query_port",
        )
    })
}

/// The attributes that `mask` names.
fn attributes(context: &Context, attr: &ibv_qp_attr, mask: u32) -> Result<QpAttributes, Errno> {
    let given = |bit: u32| mask & bit != 0;
    let mut set = QpAttributes::default();
    if given(IBV_QP_STATE) {
        set.state = Some(state_of(attr.qp_state)?);
    }
    if given(IBV_QP_AV) {
        if attr.ah_attr.port_num > 1 {
            return Err(refused(
                libc::EINVAL,
                format!("attr.ah_attr.port_num is {}", attr.ah_attr.port_num),
                "every device has one port, number 1",
            ));
        }
        set.path = Some(path(context, &attr.ah_attr)?);
    }
    if given(IBV_QP_PATH_MTU) {
        set.path_mtu = Some(mtu_of(attr.path_mtu)?);
    }
    if given(IBV_QP_TIMEOUT) {
        set.timeout = Some(AckTimeout::from_exponent(attr.timeout).ok_or_else(|| {
            refused(
                libc::EINVAL,
                format!(
                    "attr.timeout is {}: it is an exponent, 4.096 µs times 2 to its power",
                    attr.timeout
                ),
                "set it to 31 or less; 14 is usual",
            )
        })?);
    }
    if given(IBV_QP_MIN_RNR_TIMER) {
        set.min_rnr_timer = Some(RnrTimer::from_code(attr.min_rnr_timer).ok_or_else(|| {
            refused(
                libc::EINVAL,
                format!("attr.min_rnr_timer is {}: it is a code", attr.min_rnr_timer),
                "set it to 31 or less; 12 is usual",
            )
        })?);
    }
    set.access = given(IBV_QP_ACCESS_FLAGS).then_some(Access::from_bits_truncate(attr.qp_access_flags));
    set.pkey_index = given(IBV_QP_PKEY_INDEX).then_some(attr.pkey_index);
    set.port = given(IBV_QP_PORT).then_some(attr.port_num);
    set.qkey = given(IBV_QP_QKEY).then_some(attr.qkey);
    set.retry_count = given(IBV_QP_RETRY_CNT).then_some(attr.retry_cnt);
    set.rnr_retry = given(IBV_QP_RNR_RETRY).then_some(attr.rnr_retry);
    set.rq_psn = given(IBV_QP_RQ_PSN).then_some(Psn::new(attr.rq_psn));
    set.sq_psn = given(IBV_QP_SQ_PSN).then_some(Psn::new(attr.sq_psn));
    set.max_rd_atomic = given(IBV_QP_MAX_QP_RD_ATOMIC).then_some(attr.max_rd_atomic);
    set.max_dest_rd_atomic = given(IBV_QP_MAX_DEST_RD_ATOMIC).then_some(attr.max_dest_rd_atomic);
    set.dest_qpn = given(IBV_QP_DEST_QPN).then_some(Qpn::new(attr.dest_qp_num));
    set.rate_limit = given(IBV_QP_RATE_LIMIT).then_some(attr.rate_limit);
    Ok(set)
}

/// Attributes that have a meaning here; path migration has none.
const KNOWN_ATTRIBUTES: u32 = (((1 << 21) - 1) & !(IBV_QP_ALT_PATH | IBV_QP_CAP)) | IBV_QP_RATE_LIMIT;

/// # Safety
///
/// The pointers are what the program passed.
unsafe fn modify(c_qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: u32) -> Result<(), Errno> {
    // SAFETY: the caller's promise; a queue pair's context is open.
    let (qp, attr, context) = unsafe {
        let qp = object::<Qp>(c_qp)?;
        (qp, argument(attr)?, context(qp.links().context)?)
    };
    if mask & !KNOWN_ATTRIBUTES != 0 {
        return Err(refused(
            libc::EINVAL,
            format!("attr_mask {mask:#x} has bits that are not known"),
            "set the bits of enum ibv_qp_attr_mask alone",
        ));
    }
    if mask & IBV_QP_CUR_STATE != 0 {
        let expected = state_of(attr.cur_qp_state)?;
        if qp.device.qp_state(qp.qpn) != Some(expected) {
            return Err(refused(
                libc::EINVAL,
                format!(
                    "attr.cur_qp_state is {}, the queue pair is in another state",
                    attr.cur_qp_state
                ),
                "ask ibv_query_qp, or leave IBV_QP_CUR_STATE out",
            ));
        }
    }
    let set = attributes(context, attr, mask)?;
    qp.device.modify_qp(qp.qpn, &set).map_err(errors::of_modify)?;
    if set.path.is_some() {
        *qp.route.lock().unwrap_or_else(PoisonError::into_inner) = attr.ah_attr;
    }
    if set.state == Some(QpState::Reset) {
        forget_completions(qp);
    }
    if let Some(state) = set.state {
        // SAFETY: programs modify one queue pair from one thread at a time, and only read the field.
        unsafe { (*c_qp).state = state as c_int };
    }
    Ok(())
}

/// A queue pair that begins anew has no completions from its former life.
fn forget_completions(qp: &Qp) {
    for cq in [qp.links().send_cq, qp.links().recv_cq] {
        // SAFETY: a queue pair keeps its completion queues from being destroyed.
        if let Ok(cq) = unsafe { object::<Cq>(cq) } {
            cq.queue.purge(qp.qpn);
        }
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
    // SAFETY: the program passes a live queue pair and its structure.
    ANSWER.code("ibv_modify_qp", unsafe { modify(qp, attr, mask as u32) })
}

/// How fast requests leave from now on; 0 is as fast as they can. Bursts are short whatever is asked for.
pub(crate) unsafe extern "C" fn modify_qp_rate_limit(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_rate_limit_attr,
) -> c_int {
    // SAFETY: the program passes a live queue pair and its structure.
    let (qp, attr) = unsafe { (object::<Qp>(qp), argument(attr)) };
    ANSWER.code(
        "ibv_modify_qp_rate_limit",
        qp.and_then(|qp| {
            let attr = attr?;
            if attr.comp_mask != 0 {
                return Err(refused(libc::EINVAL, "attr.comp_mask is not 0", "set it to 0"));
            }
            let set = QpAttributes {
                rate_limit: Some(attr.rate_limit),
                ..QpAttributes::default()
            };
            qp.device.modify_qp(qp.qpn, &set).map_err(errors::of_modify)
        }),
    )
}

/// The attributes in force, as C sees them.
fn answer(qp: &Qp, now: &QpAttributes) -> ibv_qp_attr {
    let mut attr: ibv_qp_attr = zeroed();
    let state = now.state.unwrap_or_default() as c_int;
    attr.qp_state = state;
    attr.cur_qp_state = state;
    attr.path_mtu = now.path_mtu.map_or(0, |mtu| mtu as c_int);
    attr.qkey = now.qkey.unwrap_or_default();
    attr.rq_psn = now.rq_psn.unwrap_or_default().value();
    attr.sq_psn = now.sq_psn.unwrap_or_default().value();
    attr.dest_qp_num = now.dest_qpn.unwrap_or_default().value();
    attr.qp_access_flags = now.access.map_or(0, |access| access.bits());
    attr.cap = qp.cap;
    attr.ah_attr = *qp.route.lock().unwrap_or_else(PoisonError::into_inner);
    attr.pkey_index = now.pkey_index.unwrap_or_default();
    attr.max_rd_atomic = now.max_rd_atomic.unwrap_or_default();
    attr.max_dest_rd_atomic = now.max_dest_rd_atomic.unwrap_or_default();
    attr.min_rnr_timer = now.min_rnr_timer.map_or(0, RnrTimer::code);
    attr.port_num = now.port.unwrap_or_default();
    attr.timeout = now.timeout.map_or(0, AckTimeout::exponent);
    attr.retry_cnt = now.retry_count.unwrap_or_default();
    attr.rnr_retry = now.rnr_retry.unwrap_or_default();
    attr.rate_limit = now.rate_limit.unwrap_or_default();
    attr
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_qp(
    c_qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the program passes a live queue pair and where to put the answers.
    let (qp, attr, init) = unsafe { (object::<Qp>(c_qp), argument_mut(attr), argument_mut(init)) };
    ANSWER.code(
        "ibv_query_qp",
        qp.and_then(|qp| {
            let now = qp.device.query_qp(qp.qpn).ok_or_else(|| {
                refused(
                    libc::EINVAL,
                    "the queue pair is gone",
                    "query it before it is destroyed",
                )
            })?;
            let attr = attr?;
            *attr = answer(qp, &now);
            let links = qp.links();
            if let Ok(init) = init {
                *init = ibv_qp_init_attr {
                    qp_context: links.qp_context,
                    send_cq: links.send_cq,
                    recv_cq: links.recv_cq,
                    srq: links.srq,
                    cap: qp.cap,
                    qp_type: links.qp_type,
                    sq_sig_all: c_int::from(qp.signal_all),
                };
            }
            // SAFETY: as in `modify`.
            unsafe { (*c_qp).state = attr.qp_state };
            Ok(())
        }),
    )
}
