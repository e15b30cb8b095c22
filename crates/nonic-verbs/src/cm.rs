//! The connection manager for `librdmacm.so.1`, which is built on this library.
//!
//! These functions translate between the private interface of [`nonic_abi::cm`] and the engine's device; nothing is
//! decided here. Read that first.

use crate::context::{Context, context};
use crate::device;
use crate::object::{argument, argument_mut};
use libc::{c_int, c_void};
use nonic_abi::cm::*;
use nonic_abi::errno::{self, Errno, expected};
use nonic_abi::verbs::{ibv_context, ibv_device};
use nonic_core::cm::{
    AcceptParams, AnswerParams, CmError, CmEvent, ConnectParams, ConnectRequest, ConnectResponse,
    ConnectionId, ListenerId, RejectParams, ResolveParams, Route, SidrRequest, SidrResponse,
};
use nonic_core::{AckTimeout, PathMtu, Psn, Qpn, Service};
use nonic_engine::netdev::Gid;
use nonic_engine::{ConnectionSink, ListenError};
use nonic_wire::cm::{IpHeader, RejectReason, ServiceId, SidrStatus, gid_of};
use std::net::IpAddr;
use std::sync::Arc;

/// The function of `librdmacm.so.1` that gets the events.
struct Sink {
    call: nonic_cm_sink,
    cookie: *mut c_void,
}

// SAFETY: the other library promises that its function and its cookie can be used from any thread.
unsafe impl Send for Sink {}
// SAFETY: as above.
unsafe impl Sync for Sink {}

impl ConnectionSink for Sink {
    fn deliver(&self, event: CmEvent) -> Option<Qpn> {
        let event = event_of(&event);
        // SAFETY: the function was given for this use, and the event lives during the call.
        unsafe { (self.call)(self.cookie, &raw const event) };
        // A C program moves its queue pairs itself, when it takes the event.
        None
    }
}

const NOTHING: nonic_cm_event = nonic_cm_event {
    kind: 0,
    connection: 0,
    listener: 0,
    service_id: 0,
    local: [0; 16],
    remote: [0; 16],
    remote_qpn: 0,
    starting_psn: 0,
    qkey: 0,
    reason: 0,
    remote_port: 0,
    service: 0,
    responder_resources: 0,
    initiator_depth: 0,
    flow_control: 0,
    retry_count: 0,
    rnr_retry_count: 0,
    srq: 0,
    path_mtu: 0,
    ack_timeout: 0,
    traffic_class: 0,
    private_data_len: 0,
    private_data: [0; MAX_PRIVATE_DATA],
};

fn event_of(event: &CmEvent) -> nonic_cm_event {
    match event {
        CmEvent::Request(request) => request_of(request),
        CmEvent::Response(response) => response_of(response),
        CmEvent::Established {
            connection,
            private_data,
        } => with_data(ESTABLISHED, *connection, private_data),
        CmEvent::Rejected {
            connection,
            reason,
            private_data,
            ..
        } => nonic_cm_event {
            reason: u32::from(reason.0),
            ..with_data(REJECTED, *connection, private_data)
        },
        CmEvent::Unreachable {
            connection, refused, ..
        } => nonic_cm_event {
            reason: match refused {
                true => libc::ECONNREFUSED as u32,
                false => libc::ETIMEDOUT as u32,
            },
            ..with_data(UNREACHABLE, *connection, &[])
        },
        CmEvent::Disconnected {
            connection,
            private_data,
            ..
        } => with_data(DISCONNECTED, *connection, private_data),
        CmEvent::TimewaitExit { connection } => with_data(TIMEWAIT_EXIT, *connection, &[]),
        CmEvent::SidrRequest(request) => sidr_request_of(request),
        CmEvent::SidrResponse(response) => sidr_response_of(response),
    }
}

fn with_data(kind: u32, connection: ConnectionId, private_data: &[u8]) -> nonic_cm_event {
    let len = private_data.len().min(MAX_PRIVATE_DATA);
    let mut event = nonic_cm_event {
        kind,
        connection: connection.0,
        private_data_len: len as u32,
        ..NOTHING
    };
    event.private_data[..len].copy_from_slice(&private_data[..len]);
    event
}

fn request_of(request: &ConnectRequest) -> nonic_cm_event {
    nonic_cm_event {
        listener: request.listener.0,
        service_id: request.service_id.0,
        local: gid_of(request.route.local).octets(),
        remote: gid_of(request.route.remote).octets(),
        remote_qpn: request.remote_qpn.value(),
        starting_psn: request.starting_psn.value(),
        remote_port: request.ip.map_or(0, |ip| ip.source_port),
        service: match request.service {
            Service::Uc => SERVICE_UC,
            Service::Xrc => SERVICE_XRC,
            _ => SERVICE_RC,
        },
        responder_resources: request.responder_resources,
        initiator_depth: request.initiator_depth,
        flow_control: request.flow_control.into(),
        retry_count: request.retry_count,
        rnr_retry_count: request.rnr_retry_count,
        srq: request.srq.into(),
        path_mtu: request.path_mtu as u8,
        ack_timeout: request.ack_timeout.exponent(),
        traffic_class: request.traffic_class,
        ..with_data(REQUEST, request.connection, &request.private_data)
    }
}

fn response_of(response: &ConnectResponse) -> nonic_cm_event {
    nonic_cm_event {
        remote_qpn: response.remote_qpn.value(),
        starting_psn: response.starting_psn.value(),
        responder_resources: response.responder_resources,
        initiator_depth: response.initiator_depth,
        flow_control: response.flow_control.into(),
        rnr_retry_count: response.rnr_retry_count,
        srq: response.srq.into(),
        ..with_data(RESPONSE, response.connection, &response.private_data)
    }
}

fn sidr_request_of(request: &SidrRequest) -> nonic_cm_event {
    nonic_cm_event {
        listener: request.listener.0,
        service_id: request.service_id.0,
        local: gid_of(request.route.local).octets(),
        remote: gid_of(request.route.remote).octets(),
        remote_port: request.ip.map_or(0, |ip| ip.source_port),
        service: SERVICE_UD,
        ..with_data(SIDR_REQUEST, request.connection, &request.private_data)
    }
}

fn sidr_response_of(response: &SidrResponse) -> nonic_cm_event {
    nonic_cm_event {
        reason: u32::from(response.status.0),
        remote_qpn: response.qpn.value(),
        qkey: response.qkey,
        service: SERVICE_UD,
        ..with_data(SIDR_RESPONSE, response.connection, &response.private_data)
    }
}

fn of_cm(error: CmError) -> Errno {
    match error {
        CmError::NoSuchConnection => expected(libc::ENOTCONN),
        CmError::InUse => expected(libc::EADDRINUSE),
        CmError::Limit => expected(libc::ENOMEM),
        _ => expected(libc::EINVAL),
    }
}

fn of_listen(error: &ListenError) -> Errno {
    match error {
        ListenError::InUse => expected(libc::EADDRINUSE),
        ListenError::NoAddress(_) => expected(libc::EADDRNOTAVAIL),
        ListenError::Refused(error) => of_cm(*error),
        ListenError::Io(error) => expected(error.raw_os_error().unwrap_or(libc::EIO)),
        _ => expected(libc::EIO),
    }
}

/// The private data of a request or an answer.
///
/// # Safety
///
/// The pointer in the parameters is good for the length beside it, for all of `'a`.
unsafe fn private_data_of<'a>(params: &nonic_cm_params) -> &'a [u8] {
    if params.private_data.is_null() || params.private_data_len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(params.private_data, params.private_data_len as usize) }
}

fn route_of(params: &nonic_cm_params) -> Route {
    Route {
        local: Gid(params.local).ip(),
        remote: Gid(params.remote).ip(),
    }
}

/// Services at ports are told the addresses the program used.
fn ip_of(params: &nonic_cm_params) -> IpHeader {
    let route = route_of(params);
    IpHeader {
        source_port: params.source_port,
        source: route.local,
        destination: route.remote,
    }
}

/// # Safety
///
/// The private data is there.
unsafe fn connect(context: &Context, params: &nonic_cm_params) -> Result<ConnectionId, Errno> {
    // SAFETY: the caller's promise.
    let private_data = unsafe { private_data_of(params) };
    let (route, service_id) = (route_of(params), ServiceId(params.service_id));
    let service = match params.service {
        SERVICE_RC => Service::Rc,
        SERVICE_UC => Service::Uc,
        SERVICE_XRC => Service::Xrc,
        SERVICE_UD => {
            let params = ResolveParams {
                route,
                service_id,
                ip: Some(ip_of(params)),
                private_data,
            };
            return context.device().resolve_service(&params).map_err(of_cm);
        }
        _ => return Err(expected(libc::EINVAL)),
    };
    let mtu = 128_u32.checked_shl(u32::from(params.path_mtu));
    let params = ConnectParams {
        service,
        responder_resources: params.responder_resources,
        initiator_depth: params.initiator_depth,
        retry_count: params.retry_count,
        rnr_retry_count: params.rnr_retry_count,
        flow_control: params.flow_control != 0,
        srq: params.srq != 0,
        path_mtu: mtu
            .and_then(PathMtu::from_bytes)
            .ok_or_else(|| expected(libc::EINVAL))?,
        ack_timeout: AckTimeout::from_exponent(params.ack_timeout).ok_or_else(|| expected(libc::EINVAL))?,
        traffic_class: params.traffic_class,
        ip: Some(ip_of(params)),
        private_data,
        ..ConnectParams::new(
            route,
            service_id,
            Qpn::new(params.qpn),
            Psn::new(params.starting_psn),
        )
    };
    context.device().connect(&params).map_err(of_cm)
}

/// # Safety
///
/// The private data is there.
unsafe fn accept(context: &Context, connection: ConnectionId, params: &nonic_cm_params) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let private_data = unsafe { private_data_of(params) };
    let qpn = Qpn::new(params.qpn);
    if params.service == SERVICE_UD {
        let answer = AnswerParams {
            status: SidrStatus::VALID,
            qpn,
            qkey: params.qkey,
            info: &[],
            private_data,
        };
        let answered = context.device().answer_service(connection, &answer);
        return answered.map_err(of_cm);
    }
    let params = AcceptParams {
        responder_resources: params.responder_resources,
        initiator_depth: params.initiator_depth,
        flow_control: params.flow_control != 0,
        rnr_retry_count: params.rnr_retry_count,
        srq: params.srq != 0,
        private_data,
        ..AcceptParams::new(qpn, Psn::new(params.starting_psn))
    };
    context.device().accept(connection, &params).map_err(of_cm)
}

/// # Safety
///
/// The private data is there.
unsafe fn reject(context: &Context, connection: ConnectionId, params: &nonic_cm_params) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let private_data = unsafe { private_data_of(params) };
    if params.service == SERVICE_UD {
        let answer = AnswerParams {
            status: SidrStatus::REJECT,
            qpn: Qpn::new(0),
            qkey: 0,
            info: &[],
            private_data,
        };
        let answered = context.device().answer_service(connection, &answer);
        return answered.map_err(of_cm);
    }
    let params = RejectParams {
        reason: RejectReason::CONSUMER_DEFINED,
        info: &[],
        private_data,
    };
    context.device().reject(connection, &params).map_err(of_cm)
}

/// The device that has an address; NULL if none has.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nonic_device_with_address(address: *const [u8; 16]) -> *mut ibv_device {
    // SAFETY: the other library passes an address.
    errno::pointer_for_library(unsafe { argument(address) }.and_then(|address| {
        let address: IpAddr = Gid(*address).ip();
        device::with_address(address).ok_or_else(|| expected(libc::ENODEV))
    }))
}

/// One of the addresses of a device, by its place; `ENODATA` behind the last.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nonic_device_address(
    c: *mut ibv_context,
    index: u32,
    address: *mut [u8; 16],
) -> c_int {
    // SAFETY: the other library passes an open context and where to put the answer.
    let (context, address) = unsafe { (context(c), argument_mut(address)) };
    errno::code_for_library(context.and_then(|context| {
        let gids = context.device().gids();
        let found = gids.get(index as usize).ok_or_else(|| expected(libc::ENODATA))?;
        *address? = gid_of(found.address.ip).octets();
        Ok(())
    }))
}

/// Sets the sink for the events of a device's connections.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nonic_cm_start(
    c: *mut ibv_context,
    call: nonic_cm_sink,
    cookie: *mut c_void,
) -> c_int {
    // SAFETY: the other library passes an open context.
    errno::code_for_library(unsafe { context(c) }.map(|context| {
        context
            .device()
            .set_connection_sink(Arc::new(Sink { call, cookie }));
    }))
}

/// Listens for a service: at an address, at all of its family if it is the unspecified one, at all if it is NULL.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nonic_cm_listen(
    c: *mut ibv_context,
    service_id: u64,
    address: *const [u8; 16],
    backlog: u32,
    listener: *mut u64,
) -> c_int {
    // SAFETY: the other library passes an open context, an address or NULL, and where to put the answer.
    let (context, address) = unsafe { (context(c), address.as_ref()) };
    errno::code_for_library(context.and_then(|context| {
        let address = address.map(|address| Gid(*address).ip());
        let listening = context
            .device()
            .listen(ServiceId(service_id), address, backlog as usize)
            .map_err(|error| of_listen(&error))?;
        // SAFETY: as above.
        unsafe { *listener = listening.0 };
        Ok(())
    }))
}

/// Listens no more.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nonic_cm_unlisten(c: *mut ibv_context, listener: u64) -> c_int {
    // SAFETY: the other library passes an open context.
    errno::code_for_library(unsafe { context(c) }.and_then(|context| {
        if context.device().unlisten(ListenerId(listener)) {
            Ok(())
        } else {
            Err(expected(libc::EINVAL))
        }
    }))
}

/// Connects, or resolves a datagram service.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nonic_cm_connect(
    c: *mut ibv_context,
    params: *const nonic_cm_params,
    connection: *mut u32,
) -> c_int {
    // SAFETY: the other library passes an open context, its parameters and where to put the answer.
    errno::code_for_library(unsafe {
        context(c).and_then(|context| {
            *connection = connect(context, argument(params)?)?.0;
            Ok(())
        })
    })
}

/// Accepts a request to connect, or answers one for a datagram service.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nonic_cm_accept(
    c: *mut ibv_context,
    connection: u32,
    params: *const nonic_cm_params,
) -> c_int {
    // SAFETY: the other library passes an open context and its parameters.
    errno::code_for_library(unsafe {
        context(c).and_then(|context| accept(context, ConnectionId(connection), argument(params)?))
    })
}

/// Rejects either. Of the parameters, the service and the private data count.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nonic_cm_reject(
    c: *mut ibv_context,
    connection: u32,
    params: *const nonic_cm_params,
) -> c_int {
    // SAFETY: the other library passes an open context and its parameters.
    errno::code_for_library(unsafe {
        context(c).and_then(|context| reject(context, ConnectionId(connection), argument(params)?))
    })
}

/// Active: says that our queue pair is ready. Passive: takes it for said that the peer's is.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nonic_cm_establish(c: *mut ibv_context, connection: u32) -> c_int {
    // SAFETY: the other library passes an open context.
    errno::code_for_library(unsafe { context(c) }.and_then(|context| {
        let established = context.device().establish(ConnectionId(connection), &[]);
        established.map_err(of_cm)
    }))
}

/// Ends a connection.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nonic_cm_disconnect(c: *mut ibv_context, connection: u32) -> c_int {
    // SAFETY: the other library passes an open context.
    errno::code_for_library(unsafe { context(c) }.and_then(|context| {
        let ended = context.device().disconnect(ConnectionId(connection), &[]);
        ended.map_err(of_cm)
    }))
}

/// Gives a connection up; there are no more events of it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nonic_cm_abandon(c: *mut ibv_context, connection: u32) -> c_int {
    // SAFETY: the other library passes an open context.
    errno::code_for_library(unsafe { context(c) }.and_then(|context| {
        let abandoned = context.device().abandon(ConnectionId(connection));
        abandoned.map_err(of_cm)
    }))
}
