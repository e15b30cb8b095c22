//! The attributes that connect a queue pair: `rdma_init_qp_attr`, and the steps to RTS.

use crate::convert::{ah_attributes, gid_of};
use crate::id::{Id, id};
use crate::refusal::ANSWER;
use libc::c_int;
use nonic_abi::errno::{self, Errno, refused};
use nonic_abi::libibverbs::ibv_modify_qp;
use nonic_abi::rdma_cma::*;
use nonic_abi::verbs::*;

/// How long a peer waits when there is no receive posted (0.64 ms). Linux asks for the longest wait there is, which
/// makes programs crawl that are only slow to post.
const MIN_RNR_TIMER: u8 = 12;

const INIT: c_int = 1;
const RTR: c_int = 2;
const RTS: c_int = 3;
const ERR: c_int = 6;

/// The way to the peer.
pub(crate) fn address_attributes(id: &Id) -> Result<ibv_ah_attr, Errno> {
    let (local, remote) = id.addresses()?;
    let gid_index = id.device()?.gid_index(&gid_of(local))?;
    let traffic_class = id.state().traffic_class;
    Ok(ah_attributes(gid_of(remote), gid_index, traffic_class))
}

/// The attributes for a state, and which they are.
fn attributes(id: &Id, state: c_int) -> Result<(ibv_qp_attr, u32), Errno> {
    // SAFETY: all zeros are attributes.
    let mut attr: ibv_qp_attr = unsafe { std::mem::zeroed() };
    attr.qp_state = state;
    if id.is_iwarp() {
        let mask = match state {
            INIT | RTR => init(&mut attr, false) & IBV_QP_ACCESS_FLAGS | IBV_QP_STATE,
            // Connecting does it.
            RTS => 0,
            ERR => IBV_QP_STATE,
            _ => {
                return Err(refused(
                    libc::EINVAL,
                    format!("qp_attr.qp_state {state} is not one that a connection passes"),
                    "use IBV_QPS_INIT, RTR, RTS or ERR",
                ));
            }
        };
        return Ok((attr, mask));
    }
    let mask = match (state, id.is_datagram()) {
        (INIT, _) => init(&mut attr, id.is_datagram()),
        (RTR, true) => 0,
        (RTS, true) => IBV_QP_SQ_PSN,
        (RTR, false) => rtr(id, &mut attr)?,
        (RTS, false) => rts(id, &mut attr),
        (ERR, _) => 0,
        _ => {
            return Err(refused(
                libc::EINVAL,
                format!("qp_attr.qp_state {state} is not one that a connection passes"),
                "use IBV_QPS_INIT, RTR, RTS or ERR",
            ));
        }
    };
    Ok((attr, mask | IBV_QP_STATE))
}

fn init(attr: &mut ibv_qp_attr, is_datagram: bool) -> u32 {
    attr.port_num = 1;
    if is_datagram {
        attr.qkey = RDMA_UDP_QKEY;
        return IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
    }
    attr.qp_access_flags = (IBV_ACCESS_LOCAL_WRITE
        | IBV_ACCESS_REMOTE_WRITE
        | IBV_ACCESS_REMOTE_READ
        | IBV_ACCESS_REMOTE_ATOMIC) as libc::c_uint;
    IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS
}

fn rtr(id: &Id, attr: &mut ibv_qp_attr) -> Result<u32, Errno> {
    attr.ah_attr = address_attributes(id)?;
    let state = id.state();
    attr.path_mtu = c_int::from(state.peer.path_mtu);
    attr.dest_qp_num = state.peer.qpn;
    // Each side chooses with which number the other begins.
    attr.rq_psn = state.starting_psn;
    let mask = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if !matches!(qp_type(id), IBV_QPT_RC | IBV_QPT_XRC_RECV) {
        return Ok(mask);
    }
    attr.max_dest_rd_atomic = state.responder_resources;
    attr.min_rnr_timer = MIN_RNR_TIMER;
    Ok(mask | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
}

fn rts(id: &Id, attr: &mut ibv_qp_attr) -> u32 {
    let state = id.state();
    attr.sq_psn = state.peer.psn;
    attr.timeout = state.ack_timeout.unwrap_or(state.peer.ack_timeout);
    attr.retry_cnt = state.peer.retry_count;
    attr.rnr_retry = state.peer.rnr_retry_count;
    attr.max_rd_atomic = state.initiator_depth;
    match qp_type(id) {
        IBV_QPT_RC | IBV_QPT_XRC_SEND => {
            IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
        }
        IBV_QPT_XRC_RECV => IBV_QP_SQ_PSN | IBV_QP_TIMEOUT,
        _ => IBV_QP_SQ_PSN,
    }
}

fn qp_type(id: &Id) -> c_int {
    // SAFETY: the field is ours to read.
    unsafe { (*id.as_c()).qp_type }
}

fn step(id: &Id, state: c_int) -> Result<(), Errno> {
    let (mut attr, mask) = attributes(id, state)?;
    // SAFETY: the identifier has a queue pair, as the callers see to.
    errno::check(unsafe { ibv_modify_qp(id.qp(), &raw mut attr, mask as c_int) })
}

/// A new queue pair: connected ones can take receives now, datagrams can be sent.
pub(crate) fn initialise(id: &Id) -> Result<(), Errno> {
    step(id, INIT)?;
    if id.is_datagram() {
        step(id, RTR)?;
        step(id, RTS)?;
    }
    Ok(())
}

/// Both sides know of each other: the queue pair can be used.
pub(crate) fn ready_to_send(id: &Id) -> Result<(), Errno> {
    if id.is_iwarp() {
        // Connecting and accepting have it so.
        return Ok(());
    }
    step(id, RTR)?;
    step(id, RTS)
}

/// The connection has ended: the queue pair goes to the error state, which flushes what is posted.
pub(crate) fn stop(id: &Id) -> Result<(), Errno> {
    if id.qp().is_null() || id.is_datagram() || id.is_iwarp() {
        // iWARP: ending the connection ends the queue pair, in good order if nothing is under way.
        return Ok(());
    }
    step(id, ERR)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_init_qp_attr(
    pointer: *mut rdma_cm_id,
    attr: *mut ibv_qp_attr,
    mask: *mut c_int,
) -> c_int {
    if attr.is_null() || mask.is_null() {
        return ANSWER.minus_one(
            "rdma_init_qp_attr",
            Err(refused(
                libc::EINVAL,
                "qp_attr or qp_attr_mask is NULL",
                "pass where to put the attributes",
            )),
        );
    }
    // SAFETY: the program passes its identifier and where the answers go; the state it wants is there.
    ANSWER.minus_one(
        "rdma_init_qp_attr",
        unsafe { id(pointer) }.and_then(|id| {
            // SAFETY: as above.
            unsafe {
                let (found, which) = attributes(&id, (*attr).qp_state)?;
                *attr = found;
                *mask = which as c_int;
            }
            Ok(())
        }),
    )
}
