//! The functions of `libibverbs.so.1` that the other libraries call: ordinary verbs, and nonic's private ones.
//!
//! Of the private functions, those about connections are for `librdmacm.so.1` and answer zero or an errno ([`cm`](crate::cm)
//! has what they are told). Those about descriptors are for both: the other libraries have descriptors of their own, which are
//! kept as the engine keeps its own, at high numbers where no program sees them, and closed only while they still are theirs.
//!
//! `librdmacm.so.1` is linked with these functions; `librspreload.so` looks them up by name when it carries the first socket.
//! The exporting library compares them all with its own (`check_libibverbs!`).

#![allow(non_camel_case_types, reason = "C names, as in the rest of the ABI")]
#![allow(missing_docs, reason = "the man pages of rdma-core describe every verb")]

use crate::cm::{nonic_cm_params, nonic_cm_sink};
use crate::verbs::*;
use libc::{c_char, c_int, c_uint, c_void, size_t};
use std::mem::offset_of;

/// A descriptor that `libibverbs.so.1` keeps for another library.
#[repr(C)]
pub struct nonic_descriptor {
    _opaque: [u8; 0],
}

/// The kind of a descriptor that no program sees.
pub const INTERNAL: u32 = 0;
/// The kind of one that the program polls.
pub const PROGRAM: u32 = 1;
/// The kind of one that is the number of an rsocket: the program's, unless its sockets are carried by rsockets.
pub const SOCKET: u32 = 2;

functions! { libibverbs, check_libibverbs;
    extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device;
    extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device);
    extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context;
    extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int;
    extern "C" fn ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int;
    extern "C" fn ibv_query_gid(
        context: *mut ibv_context,
        port: u8,
        index: c_int,
        gid: *mut ibv_gid,
    ) -> c_int;
    extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
    extern "C" fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel;
    extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int;
    extern "C" fn ibv_create_cq(
        context: *mut ibv_context,
        cqe: c_int,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
        vector: c_int,
    ) -> *mut ibv_cq;
    extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int;
    extern "C-unwind" fn ibv_get_cq_event(
        channel: *mut ibv_comp_channel,
        cq: *mut *mut ibv_cq,
        cq_context: *mut *mut c_void,
    ) -> c_int;
    extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, count: c_uint);
    extern "C" fn ibv_reg_mr(
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: size_t,
        access: c_int,
    ) -> *mut ibv_mr;
    extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int;
    extern "C" fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah;
    extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int;
    extern "C" fn ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp;
    extern "C" fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int;
    extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int;
    extern "C" fn ibv_create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq;
    extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int;
    extern "C" fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int;
    extern "C" fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int;

    /// A completion channel whose descriptor no program sees.
    extern "C" fn nonic_create_internal_channel(context: *mut ibv_context) -> *mut ibv_comp_channel;

    /// Logs that a call was refused, why, and what to do. Texts are UTF-8, each with its length.
    extern "C" fn nonic_tell_refusal(
        call: *const c_char,
        call_len: size_t,
        number: c_int,
        what: *const c_char,
        what_len: size_t,
        next: *const c_char,
        next_len: size_t,
    );

    /// Takes over a descriptor of one of the kinds above. Its number may change.
    extern "C" fn nonic_descriptor_keep(fd: c_int, kind: u32) -> *mut nonic_descriptor;
    /// The number of a descriptor that is kept.
    extern "C" fn nonic_descriptor_number(descriptor: *const nonic_descriptor) -> c_int;
    /// Whether the program has closed it.
    extern "C" fn nonic_descriptor_is_lost(descriptor: *const nonic_descriptor) -> c_int;
    /// Closes it, unless the program has.
    extern "C" fn nonic_descriptor_close(descriptor: *mut nonic_descriptor);
    /// From now on those of the kind [`SOCKET`] are internal.
    extern "C" fn nonic_descriptor_hide_sockets();
    /// Whether a number is internal.
    extern "C" fn nonic_descriptor_is_internal(fd: c_int) -> c_int;
    /// The first internal number from this one on, or −1.
    extern "C" fn nonic_descriptor_next_internal(from: c_int) -> c_int;

    /// The device that has an address; NULL if none has.
    extern "C" fn nonic_device_with_address(address: *const [u8; 16]) -> *mut ibv_device;
    /// One of the addresses of a device, by its place; `ENODATA` behind the last.
    extern "C" fn nonic_device_address(
        context: *mut ibv_context,
        index: u32,
        address: *mut [u8; 16],
    ) -> c_int;
    /// Sets the sink for the events of a device's connections.
    extern "C" fn nonic_cm_start(context: *mut ibv_context, call: nonic_cm_sink, cookie: *mut c_void) -> c_int;
    /// Listens for a service: at an address, at all of its family if it is the unspecified one, at all if it is NULL.
    extern "C" fn nonic_cm_listen(
        context: *mut ibv_context,
        service_id: u64,
        address: *const [u8; 16],
        backlog: u32,
        listener: *mut u64,
    ) -> c_int;
    /// Listens no more.
    extern "C" fn nonic_cm_unlisten(context: *mut ibv_context, listener: u64) -> c_int;
    /// Connects, or resolves a datagram service.
    extern "C" fn nonic_cm_connect(
        context: *mut ibv_context,
        params: *const nonic_cm_params,
        connection: *mut u32,
    ) -> c_int;
    /// Accepts a request to connect, or answers one for a datagram service.
    extern "C" fn nonic_cm_accept(
        context: *mut ibv_context,
        connection: u32,
        params: *const nonic_cm_params,
    ) -> c_int;
    /// Rejects either. Of the parameters, the service and the private data count.
    extern "C" fn nonic_cm_reject(
        context: *mut ibv_context,
        connection: u32,
        params: *const nonic_cm_params,
    ) -> c_int;
    /// Active: says that our queue pair is ready. Passive: takes it for said that the peer's is.
    extern "C" fn nonic_cm_establish(context: *mut ibv_context, connection: u32) -> c_int;
    /// Ends a connection.
    extern "C" fn nonic_cm_disconnect(context: *mut ibv_context, connection: u32) -> c_int;
    /// Gives a connection up, whatever its state: no event of it is delivered any more.
    extern "C" fn nonic_cm_abandon(context: *mut ibv_context, connection: u32) -> c_int;
}

/// The extended operations of a context, which stand before it.
///
/// # Safety
///
/// The context is open.
pub unsafe fn extended<'a>(context: *mut ibv_context) -> &'a verbs_context {
    // SAFETY: nonic's contexts are all extended, and their operations never change.
    unsafe { &*context.byte_sub(offset_of!(verbs_context, context)).cast() }
}
