//! The functions of `libibverbs.so.1` that this library calls: ordinary verbs, and nonic's private ones.

use crate::ibv::*;
use crate::interface::{nonic_cm_params, nonic_cm_sink};
use libc::{c_int, c_uint, c_void, size_t};
use std::mem::offset_of;

unsafe extern "C" {
    pub(crate) fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device;
    pub(crate) fn ibv_free_device_list(list: *mut *mut ibv_device);
    pub(crate) fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context;
    pub(crate) fn ibv_close_device(context: *mut ibv_context) -> c_int;
    pub(crate) fn ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int;
    pub(crate) fn ibv_query_gid(
        context: *mut ibv_context,
        port: u8,
        index: c_int,
        gid: *mut ibv_gid,
    ) -> c_int;
    pub(crate) fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
    pub(crate) fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel;
    pub(crate) fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int;
    pub(crate) fn ibv_create_cq(
        context: *mut ibv_context,
        cqe: c_int,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
        vector: c_int,
    ) -> *mut ibv_cq;
    pub(crate) fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int;
    pub(crate) fn ibv_get_cq_event(
        channel: *mut ibv_comp_channel,
        cq: *mut *mut ibv_cq,
        cq_context: *mut *mut c_void,
    ) -> c_int;
    pub(crate) fn ibv_ack_cq_events(cq: *mut ibv_cq, count: c_uint);
    pub(crate) fn ibv_reg_mr(
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: size_t,
        access: c_int,
    ) -> *mut ibv_mr;
    pub(crate) fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int;
    pub(crate) fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah;
    pub(crate) fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int;
    pub(crate) fn ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp;
    pub(crate) fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int;
    pub(crate) fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int;
    pub(crate) fn ibv_create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq;
    pub(crate) fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int;
    pub(crate) fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int;
    pub(crate) fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int;

    pub(crate) fn nonic_create_internal_channel(context: *mut ibv_context) -> *mut ibv_comp_channel;
    pub(crate) fn nonic_descriptor_keep(fd: c_int, kind: u32) -> *mut c_void;
    pub(crate) fn nonic_descriptor_number(descriptor: *const c_void) -> c_int;
    pub(crate) fn nonic_descriptor_is_lost(descriptor: *const c_void) -> c_int;
    pub(crate) fn nonic_descriptor_close(descriptor: *mut c_void);

    pub(crate) fn nonic_device_with_address(address: *const [u8; 16]) -> *mut ibv_device;
    pub(crate) fn nonic_cm_start(
        context: *mut ibv_context,
        call: nonic_cm_sink,
        cookie: *mut c_void,
    ) -> c_int;
    pub(crate) fn nonic_cm_listen(
        context: *mut ibv_context,
        service_id: u64,
        address: *const [u8; 16],
        backlog: u32,
        listener: *mut u64,
    ) -> c_int;
    pub(crate) fn nonic_cm_unlisten(context: *mut ibv_context, listener: u64) -> c_int;
    pub(crate) fn nonic_cm_connect(
        context: *mut ibv_context,
        params: *const nonic_cm_params,
        connection: *mut u32,
    ) -> c_int;
    pub(crate) fn nonic_cm_accept(
        context: *mut ibv_context,
        connection: u32,
        params: *const nonic_cm_params,
    ) -> c_int;
    pub(crate) fn nonic_cm_reject(
        context: *mut ibv_context,
        connection: u32,
        params: *const nonic_cm_params,
    ) -> c_int;
    pub(crate) fn nonic_cm_establish(context: *mut ibv_context, connection: u32) -> c_int;
    pub(crate) fn nonic_cm_disconnect(context: *mut ibv_context, connection: u32) -> c_int;
    pub(crate) fn nonic_cm_abandon(context: *mut ibv_context, connection: u32) -> c_int;
}

/// The extended operations, which stand before the context.
///
/// # Safety
///
/// The context is open.
pub(crate) unsafe fn extended<'a>(context: *mut ibv_context) -> &'a verbs_context {
    // SAFETY: nonic's contexts are all extended, and their operations never change.
    unsafe { &*context.byte_sub(offset_of!(verbs_context, context)).cast() }
}
