//! The private interface for connections between `librdmacm.so.1` and `libibverbs.so.1`.
//!
//! The connection manager belongs to a device, and devices live in `libibverbs.so.1`. The other library must not bring
//! an engine of its own, so it calls the functions of [`libibverbs`](crate::libibverbs) whose names begin with
//! `nonic_`, which are exported at the node `NONIC_PRIVATE_4`. A change to a structure here or to one of those
//! functions must change the number of the node, so that libraries that do not fit refuse to load together.
//!
//! Addresses are GIDs: an IPv4 address is mapped into IPv6.

#![allow(non_camel_case_types, reason = "C names, as in the rest of the ABI")]
#![allow(
    missing_docs,
    reason = "the fields that are not described are those of the messages they come from"
)]

use libc::c_void;

/// What happened, in [`nonic_cm_event::kind`]. The names are those of `nonic_core::cm::CmEvent`.
pub const REQUEST: u32 = 1;
pub const RESPONSE: u32 = 2;
pub const ESTABLISHED: u32 = 3;
pub const REJECTED: u32 = 4;
pub const UNREACHABLE: u32 = 5;
pub const DISCONNECTED: u32 = 6;
pub const TIMEWAIT_EXIT: u32 = 7;
pub const SIDR_REQUEST: u32 = 8;
pub const SIDR_RESPONSE: u32 = 9;

/// The kinds of queue pairs, as requests to connect name them.
pub const SERVICE_RC: u8 = 0;
pub const SERVICE_UC: u8 = 1;
pub const SERVICE_UD: u8 = 2;
pub const SERVICE_XRC: u8 = 3;

/// The most private data any message carries.
pub const MAX_PRIVATE_DATA: usize = 255;

/// What one side says when it connects or accepts.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct nonic_cm_params {
    /// Connecting only: our address, the peer's, and what is asked for.
    pub local: [u8; 16],
    pub remote: [u8; 16],
    pub service_id: u64,
    pub private_data: *const u8,
    pub private_data_len: u32,
    pub qpn: u32,
    pub starting_psn: u32,
    /// Accepting for a datagram queue pair only.
    pub qkey: u32,
    /// Connecting only: our port.
    pub source_port: u16,
    /// One of the `SERVICE_` constants. `SERVICE_UD` resolves or answers instead of connecting or accepting.
    pub service: u8,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub flow_control: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    pub srq: u8,
    /// As `enum ibv_mtu`.
    pub path_mtu: u8,
    pub ack_timeout: u8,
    pub traffic_class: u8,
}

/// An event of a connection. What an event does not have is zero.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct nonic_cm_event {
    pub kind: u32,
    pub connection: u32,
    /// Requests: the listener that was asked.
    pub listener: u64,
    pub service_id: u64,
    /// Requests: between which addresses.
    pub local: [u8; 16],
    pub remote: [u8; 16],
    pub remote_qpn: u32,
    pub starting_psn: u32,
    pub qkey: u32,
    /// Why it was rejected (`REJECTED`), whether the rest counts (`SIDR_RESPONSE`: 0), or how the peer was found to be
    /// out of reach (`UNREACHABLE`), as an errno: `ECONNREFUSED` if its host said that no process holds the port, else
    /// `ETIMEDOUT`.
    pub reason: u32,
    /// Requests: the peer's port.
    pub remote_port: u16,
    pub service: u8,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub flow_control: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    pub srq: u8,
    pub path_mtu: u8,
    pub ack_timeout: u8,
    pub traffic_class: u8,
    pub private_data_len: u32,
    pub private_data: [u8; MAX_PRIVATE_DATA],
}

/// Receives events. It is called while the device is locked: it must not call `libibverbs.so.1`.
pub type nonic_cm_sink = unsafe extern "C" fn(cookie: *mut c_void, event: *const nonic_cm_event);
