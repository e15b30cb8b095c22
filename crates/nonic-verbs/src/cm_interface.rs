//! What `librdmacm.so.1` asks of `libibverbs.so.1`: the private interface between the two libraries.
//!
//! The connection manager belongs to a device, and devices live in `libibverbs.so.1`. The other library must not
//! bring an engine of its own, so it calls the functions declared here, which are exported at the node
//! `NONIC_PRIVATE_1`. Both crates compile this one file: `nonic-verbs` implements it in `cm.rs`, `nonic-rdmacm`
//! uses it. How descriptors are kept is in `descriptors.rs`. Whoever changes a structure or a function changes the number of the node, so that libraries that do
//! not fit refuse to load together.
//!
//! Every function answers zero or an errno. Addresses are GIDs: an IPv4 address is mapped into IPv6.

#![allow(non_camel_case_types, reason = "C names, as in the rest of the ABI")]
#![allow(dead_code, reason = "each side uses its half")]

use libc::c_void;

/// What happened, in [`nonic_cm_event::kind`]. The names are those of `nonic_core::cm::CmEvent`.
pub(crate) const REQUEST: u32 = 1;
pub(crate) const RESPONSE: u32 = 2;
pub(crate) const ESTABLISHED: u32 = 3;
pub(crate) const REJECTED: u32 = 4;
pub(crate) const UNREACHABLE: u32 = 5;
pub(crate) const DISCONNECTED: u32 = 6;
pub(crate) const TIMEWAIT_EXIT: u32 = 7;
pub(crate) const SIDR_REQUEST: u32 = 8;
pub(crate) const SIDR_RESPONSE: u32 = 9;

/// Who knows the number of a descriptor that is kept by `libibverbs.so.1` for the other library: nobody else, the
/// program, or the program unless its sockets are carried by rsockets.
pub(crate) const INTERNAL: u32 = 0;
pub(crate) const PROGRAM: u32 = 1;
pub(crate) const SOCKET: u32 = 2;

/// The kinds of queue pairs, as requests to connect name them.
pub(crate) const SERVICE_RC: u8 = 0;
pub(crate) const SERVICE_UC: u8 = 1;
pub(crate) const SERVICE_UD: u8 = 2;
pub(crate) const SERVICE_XRC: u8 = 3;

/// The most private data any message carries.
pub(crate) const MAX_PRIVATE_DATA: usize = 224;

/// What one side says when it connects or accepts.
#[repr(C)]
#[derive(Copy, Clone)]
pub(crate) struct nonic_cm_params {
    /// Connecting only: our address, the peer's, and what is asked for.
    pub(crate) local: [u8; 16],
    pub(crate) remote: [u8; 16],
    pub(crate) service_id: u64,
    pub(crate) private_data: *const u8,
    pub(crate) private_data_len: u32,
    pub(crate) qpn: u32,
    pub(crate) starting_psn: u32,
    /// Accepting for a datagram queue pair only.
    pub(crate) qkey: u32,
    /// Connecting only: our port.
    pub(crate) source_port: u16,
    /// One of the `SERVICE_` constants. `SERVICE_UD` resolves or answers instead of connecting or accepting.
    pub(crate) service: u8,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) flow_control: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    pub(crate) srq: u8,
    /// As `enum ibv_mtu`.
    pub(crate) path_mtu: u8,
    pub(crate) ack_timeout: u8,
    pub(crate) traffic_class: u8,
}

/// Something that happened to a connection. What an event does not have is zero.
#[repr(C)]
#[derive(Copy, Clone)]
pub(crate) struct nonic_cm_event {
    pub(crate) kind: u32,
    pub(crate) connection: u32,
    /// Requests: who was asked.
    pub(crate) listener: u64,
    pub(crate) service_id: u64,
    /// Requests: between which addresses.
    pub(crate) local: [u8; 16],
    pub(crate) remote: [u8; 16],
    pub(crate) remote_qpn: u32,
    pub(crate) starting_psn: u32,
    pub(crate) qkey: u32,
    /// Why it was rejected (`REJECTED`), or whether the rest counts (`SIDR_RESPONSE`: 0).
    pub(crate) reason: u32,
    /// Requests: the peer's port.
    pub(crate) remote_port: u16,
    pub(crate) service: u8,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) flow_control: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    pub(crate) srq: u8,
    pub(crate) path_mtu: u8,
    pub(crate) ack_timeout: u8,
    pub(crate) traffic_class: u8,
    pub(crate) private_data_len: u32,
    pub(crate) private_data: [u8; MAX_PRIVATE_DATA],
}

/// Hears of events. It is called while the device is locked: it must not call `libibverbs.so.1`.
pub(crate) type nonic_cm_sink = unsafe extern "C" fn(cookie: *mut c_void, event: *const nonic_cm_event);
