//! Connections: listening, connecting, accepting and all that follows.

use crate::address::{bind, choose_another_port};
use crate::attributes::{ready_to_send, stop};
use crate::convert::{ACK_TIMEOUT, gid_of};
use crate::delivery::complete;
use crate::device::{Device, Recipient};
use crate::event::establish;
use crate::id::{Id, id};
use crate::refusal::{ANSWER, check_connection};
use libc::{c_int, c_void};
use nonic_abi::cm::*;
use nonic_abi::errno::{Errno, refused};
use nonic_abi::libibverbs::*;
use nonic_abi::rdma_cma::*;
use nonic_abi::verbs::*;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// The backlog of a listener whose program does not say, as in Linux.
const MAX_BACKLOG: u32 = 1024;

/// The parameters of a program that passes none.
pub(crate) const NO_PARAMETERS: rdma_conn_param = rdma_conn_param {
    private_data: std::ptr::null(),
    private_data_len: 0,
    responder_resources: RDMA_MAX_RESP_RES,
    initiator_depth: RDMA_MAX_INIT_DEPTH,
    flow_control: 1,
    retry_count: 7,
    rnr_retry_count: 7,
    srq: 0,
    qp_num: 0,
};

/// The service ID of a port: that of the port space, and the port below it.
fn service_id(id: &Id, port: u16) -> u64 {
    // SAFETY: the field is ours to read.
    let port_space = unsafe { (*id.as_c()).ps };
    (port_space as u64) << 16 | u64::from(port)
}

pub(crate) fn listen(id: &Arc<Id>, backlog: c_int) -> Result<(), Errno> {
    if id.state().local.is_none() {
        bind(id, SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0))?;
    }
    let backlog = match u32::try_from(backlog) {
        Ok(backlog @ 1..MAX_BACKLOG) => backlog,
        _ => MAX_BACKLOG,
    };
    // A port that we chose may turn out to be taken: then another is tried.
    const ATTEMPTS: usize = 32;
    for _ in 0..ATTEMPTS {
        match listen_once(id, backlog) {
            Err(errno) if errno.is(libc::EADDRINUSE) && id.state().any_port => choose_another_port(id)?,
            result => return result,
        }
    }
    Err(refused(
        libc::EADDRINUSE,
        "no free port was found",
        "bind to a port of your own",
    ))
}

/// The address that an identifier is to listen at, on which devices, and whether IPv6's unspecified address means no other family.
fn listening_place(id: &Id) -> Result<(SocketAddr, Vec<&'static Device>, bool), Errno> {
    let (local, mut devices, own_family_only) = {
        let state = id.state();
        if !state.listeners.is_empty() {
            return Err(refused(
                libc::EINVAL,
                "the identifier listens already",
                "call rdma_listen once",
            ));
        }
        let devices = match state.device {
            Some(device) => vec![device],
            None => state.everywhere.clone(),
        };
        let local = state.local.ok_or_else(|| {
            refused(
                libc::EINVAL,
                "the identifier has no address",
                "bind it first (rdma_bind_addr), or resolve an address (rdma_resolve_addr)",
            )
        })?;
        (local, devices, state.own_family_only)
    };
    devices.retain(|device| id.check_service(device).is_ok());
    if devices.is_empty() {
        return Err(refused(
            libc::EOPNOTSUPP,
            "no device offers this port space: over iWARP there are reliable connections (RDMA_PS_TCP), and nothing else",
            "use a RoCE device for datagrams",
        ));
    }
    Ok((local, devices, own_family_only))
}

fn listen_once(id: &Arc<Id>, backlog: u32) -> Result<(), Errno> {
    let (local, devices, own_family_only) = listening_place(id)?;
    let gid = gid_of(local.ip());
    // The unspecified address of IPv6 means all, unless the program says otherwise.
    let everywhere = local.ip().is_unspecified() && local.is_ipv6() && !own_family_only;
    let address: *const [u8; 16] = if everywhere {
        std::ptr::null()
    } else {
        &raw const gid
    };
    let service_id = service_id(id, local.port());
    let mut listening = Vec::new();
    for device in devices {
        let mut listener = 0;
        // SAFETY: the context is open; the address and the answer are our variables.
        let code =
            unsafe { nonic_cm_listen(device.context, service_id, address, backlog, &raw mut listener) };
        match check_connection(code) {
            Ok(()) => listening.push((device, listener)),
            // A device that has no address of the family.
            Err(errno) if errno.is(libc::EADDRNOTAVAIL) && local.ip().is_unspecified() => {}
            Err(errno) => {
                for (device, listener) in listening {
                    device.unlisten(listener);
                }
                return Err(errno);
            }
        }
    }
    if listening.is_empty() {
        return Err(refused(
            libc::ENODEV,
            "no device has an address of the family",
            "give an interface such an address (`ip address`, `nonic devices`)",
        ));
    }
    id.state().listeners.clone_from(&listening);
    for (device, listener) in listening {
        device.know_listener(listener, Arc::clone(id) as Arc<dyn Recipient>);
    }
    Ok(())
}

/// The parameters both sides give.
fn params(id: &Id, param: &rdma_conn_param, device: &Device) -> nonic_cm_params {
    let qp = id.qp();
    let (qpn, srq) = match qp.is_null() {
        true => (param.qp_num, param.srq != 0),
        // SAFETY: a queue pair's number and receive queue never change.
        false => unsafe { ((*qp).qp_num, !(*qp).srq.is_null()) },
    };
    // SAFETY: the field is ours to read.
    let service = match unsafe { (*id.as_c()).qp_type } {
        IBV_QPT_UC => SERVICE_UC,
        IBV_QPT_UD => SERVICE_UD,
        IBV_QPT_XRC_SEND | IBV_QPT_XRC_RECV => SERVICE_XRC,
        _ => SERVICE_RC,
    };
    let state = id.state();
    nonic_cm_params {
        local: [0; 16],
        remote: [0; 16],
        service_id: state.peer.service_id,
        private_data: param.private_data.cast(),
        private_data_len: u32::from(param.private_data_len),
        qpn,
        starting_psn: state.starting_psn,
        qkey: RDMA_UDP_QKEY,
        source_port: state.local.map_or(0, |local| local.port()),
        service,
        responder_resources: state.responder_resources,
        initiator_depth: state.initiator_depth,
        flow_control: param.flow_control,
        retry_count: param.retry_count.min(7),
        rnr_retry_count: param.rnr_retry_count.min(7),
        srq: srq.into(),
        path_mtu: device.path_mtu,
        ack_timeout: state.ack_timeout.unwrap_or(ACK_TIMEOUT),
        traffic_class: state.traffic_class,
    }
}

pub(crate) fn connect(id: &Arc<Id>, param: &rdma_conn_param) -> Result<(), Errno> {
    let device = id.device()?;
    id.check_service(device)?;
    let (local, remote) = id.addresses()?;
    if id.connection() != 0 {
        return Err(refused(
            libc::EINVAL,
            "the identifier is connected, or was",
            "make another identifier for another connection",
        ));
    }
    let port = id.state().remote.map_or(0, |remote| remote.port());
    {
        let mut state = id.state();
        state.responder_resources = param.responder_resources.min(device.max_responder_resources);
        state.initiator_depth = param.initiator_depth.min(device.max_initiator_depth);
        state.peer.service_id = service_id(id, port);
        state.peer.path_mtu = device.path_mtu;
        state.peer.retry_count = param.retry_count.min(7);
        state.peer.ack_timeout = ACK_TIMEOUT;
    }
    let params = nonic_cm_params {
        local: gid_of(local),
        remote: gid_of(remote),
        ..params(id, param, device)
    };
    let mut connection = 0;
    // SAFETY: the context is open; parameters and answer are our variables, the private data is the program's.
    check_connection(unsafe { nonic_cm_connect(device.context, &raw const params, &raw mut connection) })?;
    device.know_connection(connection, Arc::clone(id) as Arc<dyn Recipient>);
    complete(id)
}

pub(crate) fn accept(id: &Arc<Id>, param: &rdma_conn_param) -> Result<(), Errno> {
    let device = id.device()?;
    {
        let mut state = id.state();
        state.responder_resources = match param.responder_resources {
            RDMA_MAX_RESP_RES => state.responder_resources,
            wanted => wanted,
        }
        .min(device.max_responder_resources);
        state.initiator_depth = match param.initiator_depth {
            RDMA_MAX_INIT_DEPTH => state.initiator_depth,
            wanted => wanted,
        }
        .min(device.max_initiator_depth);
    }
    let params = params(id, param, device);
    if !id.qp().is_null() && !id.is_datagram() {
        ready_to_send(id)?;
    }
    // SAFETY: the context is open; the parameters are our variable, the private data is the program's.
    check_connection(unsafe { nonic_cm_accept(device.context, id.connection(), &raw const params) })?;
    if id.is_datagram() {
        // No event follows an answer to a datagram service.
        return Ok(());
    }
    complete(id)
}

pub(crate) fn reject(id: &Id, private_data: *const c_void, len: u8) -> Result<(), Errno> {
    let device = id.device()?;
    let param = rdma_conn_param {
        private_data,
        private_data_len: len,
        ..NO_PARAMETERS
    };
    let params = params(id, &param, device);
    // SAFETY: as in `accept`.
    check_connection(unsafe { nonic_cm_reject(device.context, id.connection(), &raw const params) })
}

pub(crate) fn disconnect(id: &Id) -> Result<(), Errno> {
    let device = id.device()?;
    stop(id)?;
    // SAFETY: the context is open.
    match check_connection(unsafe { nonic_cm_disconnect(device.context, id.connection()) }) {
        // It is over already: the peer was faster.
        Err(errno) if !errno.is(libc::ENOTCONN) && !errno.is(libc::EINVAL) => Err(errno),
        Ok(()) | Err(_) => complete(id),
    }
}

/// # Safety
///
/// The pointer is NULL or to the program's parameters.
unsafe fn parameters(pointer: *const rdma_conn_param) -> rdma_conn_param {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.copied().unwrap_or(NO_PARAMETERS)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_listen(pointer: *mut rdma_cm_id, backlog: c_int) -> c_int {
    // SAFETY: the program passes its identifier.
    ANSWER.minus_one(
        "rdma_listen",
        unsafe { id(pointer) }.and_then(|id| listen(&id, backlog)),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_connect(pointer: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    // SAFETY: the program passes its identifier and its parameters.
    ANSWER.minus_one("rdma_connect", unsafe {
        id(pointer).and_then(|id| connect(&id, &parameters(param)))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_accept(pointer: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    // SAFETY: the program passes its identifier and its parameters.
    ANSWER.minus_one("rdma_accept", unsafe {
        id(pointer).and_then(|id| accept(&id, &parameters(param)))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_reject(pointer: *mut rdma_cm_id, private_data: *const c_void, len: u8) -> c_int {
    // SAFETY: the program passes its identifier and its data.
    ANSWER.minus_one(
        "rdma_reject",
        unsafe { id(pointer) }.and_then(|id| reject(&id, private_data, len)),
    )
}

/// Extended capabilities are for vendors' hardware; there are none to reject.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_reject_ece(
    pointer: *mut rdma_cm_id,
    private_data: *const c_void,
    len: u8,
) -> c_int {
    // SAFETY: the same arguments.
    unsafe { rdma_reject(pointer, private_data, len) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_establish(pointer: *mut rdma_cm_id) -> c_int {
    // SAFETY: the program passes its identifier.
    ANSWER.minus_one("rdma_establish", unsafe { id(pointer) }.and_then(|id| {
        if !id.qp().is_null() {
            // With a queue pair of ours it was done when the peer accepted.
            return Err(refused(libc::EINVAL, "the identifier has a queue pair of rdma_create_qp, which was established when the peer accepted", "call rdma_establish only if you move the queue pair yourself"));
        }
        establish(&id)
    }))
}

/// The program says that data came before the peer's RTU did.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_notify(pointer: *mut rdma_cm_id, event: c_int) -> c_int {
    /// `IBV_EVENT_COMM_EST`.
    const COMMUNICATION_ESTABLISHED: c_int = 4;
    // SAFETY: the program passes its identifier.
    ANSWER.minus_one(
        "rdma_notify",
        unsafe { id(pointer) }.and_then(|id| match event {
            // Established already: nothing is missing.
            COMMUNICATION_ESTABLISHED => establish(&id).or(Ok(())),
            _ => Err(refused(
                libc::EINVAL,
                format!("event {event} is not one to notify of"),
                "pass IBV_EVENT_COMM_EST",
            )),
        }),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_disconnect(pointer: *mut rdma_cm_id) -> c_int {
    // SAFETY: the program passes its identifier.
    ANSWER.minus_one(
        "rdma_disconnect",
        unsafe { id(pointer) }.and_then(|id| disconnect(&id)),
    )
}
