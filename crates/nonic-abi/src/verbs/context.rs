//! The context and the tables of operations in it.
//!
//! `verbs_context` grows upwards: a program compiled against an older header finds its operations by their
//! distance from the end, so new fields go to the top.

use super::*;
use libc::{c_int, c_void, pthread_mutex_t, size_t};

/// A slot that no program calls any more, or an operation that is not offered.
pub type unused_operation = Option<unsafe extern "C" fn()>;

/// One that is not offered, and that says so instead of being absent: then the inline function of the header would refuse in silence.
pub type refused_operation = Option<unsafe extern "C" fn() -> *mut c_void>;

#[repr(C)]
pub struct ibv_context_ops {
    pub _compat_query_device: unused_operation,
    pub _compat_query_port: unused_operation,
    pub _compat_alloc_pd: unused_operation,
    pub _compat_dealloc_pd: unused_operation,
    pub _compat_reg_mr: unused_operation,
    pub _compat_rereg_mr: unused_operation,
    pub _compat_dereg_mr: unused_operation,
    pub alloc_mw: Option<unsafe extern "C" fn(*mut ibv_pd, c_int) -> *mut ibv_mw>,
    pub bind_mw: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_mw, *mut ibv_mw_bind) -> c_int>,
    pub dealloc_mw: Option<unsafe extern "C" fn(*mut ibv_mw) -> c_int>,
    pub _compat_create_cq: unused_operation,
    pub poll_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int>,
    pub req_notify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int>,
    pub _compat_cq_event: unused_operation,
    pub _compat_resize_cq: unused_operation,
    pub _compat_destroy_cq: unused_operation,
    pub _compat_create_srq: unused_operation,
    pub _compat_modify_srq: unused_operation,
    pub _compat_query_srq: unused_operation,
    pub _compat_destroy_srq: unused_operation,
    pub post_srq_recv:
        Option<unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int>,
    pub _compat_create_qp: unused_operation,
    pub _compat_query_qp: unused_operation,
    pub _compat_modify_qp: unused_operation,
    pub _compat_destroy_qp: unused_operation,
    pub post_send:
        Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int>,
    pub post_recv:
        Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int>,
    pub _compat_create_ah: unused_operation,
    pub _compat_destroy_ah: unused_operation,
    pub _compat_attach_mcast: unused_operation,
    pub _compat_detach_mcast: unused_operation,
    pub _compat_async_event: unused_operation,
}

#[repr(C)]
pub struct ibv_context {
    pub device: *mut ibv_device,
    pub ops: ibv_context_ops,
    pub cmd_fd: c_int,
    pub async_fd: c_int,
    pub num_comp_vectors: c_int,
    pub mutex: pthread_mutex_t,
    pub abi_compat: *mut c_void,
}

#[repr(C)]
pub struct verbs_context {
    pub query_port: Option<unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr, size_t) -> c_int>,
    pub advise_mr: Option<unsafe extern "C" fn(*mut ibv_pd, c_int, u32, *mut ibv_sge, u32) -> c_int>,
    pub alloc_null_mr: Option<unsafe extern "C" fn(*mut ibv_pd) -> *mut ibv_mr>,
    pub read_counters: unused_operation,
    pub attach_counters_point_flow: unused_operation,
    pub create_counters: refused_operation,
    pub destroy_counters: unused_operation,
    pub reg_dm_mr:
        Option<unsafe extern "C" fn(*mut ibv_pd, *mut ibv_dm, u64, size_t, libc::c_uint) -> *mut ibv_mr>,
    pub alloc_dm: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_alloc_dm_attr) -> *mut ibv_dm>,
    pub free_dm: Option<unsafe extern "C" fn(*mut ibv_dm) -> c_int>,
    pub modify_flow_action_esp: unused_operation,
    pub destroy_flow_action: unused_operation,
    pub create_flow_action_esp: refused_operation,
    pub modify_qp_rate_limit: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_qp_rate_limit_attr) -> c_int>,
    pub alloc_parent_domain:
        Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_parent_domain_init_attr) -> *mut ibv_pd>,
    pub dealloc_td: Option<unsafe extern "C" fn(*mut ibv_td) -> c_int>,
    pub alloc_td: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_td_init_attr) -> *mut ibv_td>,
    pub modify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, *mut ibv_modify_cq_attr) -> c_int>,
    pub post_srq_ops: unused_operation,
    pub destroy_rwq_ind_table: unused_operation,
    pub create_rwq_ind_table: refused_operation,
    pub destroy_wq: unused_operation,
    pub modify_wq: unused_operation,
    pub create_wq: refused_operation,
    pub query_rt_values: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_values_ex) -> c_int>,
    pub create_cq_ex:
        Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex>,
    pub private: *mut c_void,
    pub query_device_ex: Option<
        unsafe extern "C" fn(
            *mut ibv_context,
            *const ibv_query_device_ex_input,
            *mut ibv_device_attr_ex,
            size_t,
        ) -> c_int,
    >,
    pub ibv_destroy_flow: unused_operation,
    pub abi_placeholder2: unused_operation,
    pub ibv_create_flow: refused_operation,
    pub abi_placeholder1: unused_operation,
    pub open_qp: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_open_attr) -> *mut ibv_qp>,
    pub create_qp_ex: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp>,
    pub get_srq_num: Option<unsafe extern "C" fn(*mut ibv_srq, *mut u32) -> c_int>,
    pub create_srq_ex:
        Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_srq_init_attr_ex) -> *mut ibv_srq>,
    pub open_xrcd: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd>,
    pub close_xrcd: Option<unsafe extern "C" fn(*mut ibv_xrcd) -> c_int>,
    pub abi_placeholder3: u64,
    /// Immediately before the context, because that is where programs look for it.
    pub sz: size_t,
    pub context: ibv_context,
}
