//! The private side of libibverbs: names that are no API, but that other libraries of rdma-core import.
//!
//! perftest, UCX and libfabric link libmlx5 and libefa. Those bind every symbol when they are loaded, so each
//! name must exist at its version or the program does not start; then their constructors offer us a driver.
//! There is no hardware for a driver to drive, so offers are ignored and nothing below is ever called. Should it
//! be, it refuses. What really works is what programs use: [`ibv_query_gid_type`], and `ibv_wr_opcode_str` in
//! [`crate::strings`].
//!
//! A release of rdma-core may add names to a private node that exists already, so every node here has every name:
//! what one release's libmlx5 imports at a node, another's may import at the same. `cargo xtask symbols` writes down
//! which names there are, and `tests/symbols.rs` compares.
//!
//! Read with `libibverbs.map` (which name at which version) and [`crate::compat`] (several versions of a name).

use crate::query::ibv_query_gid;
use crate::refusal::ANSWER;
use libc::{c_int, c_uint, c_void};
use nonic_abi::errno::{Errno, refused};
use nonic_abi::verbs::{ibv_context, ibv_gid};

/// `IBV_GID_TYPE_SYSFS_ROCE_V2`: the only kind of GID there is.
const GID_TYPE_ROCE_V2: c_uint = 1;

/// What kind of address an entry of the GID table is. `ibv_devinfo` and pyverbs ask it.
///
/// # Safety
/// `context` is an open device's, `kind` can be written.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_gid_type(
    context: *mut ibv_context,
    port: u8,
    index: c_uint,
    kind: *mut c_uint,
) -> c_int {
    let Ok(index) = c_int::try_from(index) else {
        let what = format!("index is {index}");
        let next = "ask for an index below gid_tbl_len of ibv_query_port";
        return ANSWER.minus_one("ibv_query_gid_type", Err(refused(libc::EINVAL, what, next)));
    };
    let mut gid = ibv_gid { raw: [0; 16] };
    // SAFETY: the context is the caller's promise, the GID is ours.
    if unsafe { ibv_query_gid(context, port, index, &raw mut gid) } != 0 {
        return -1;
    }
    // SAFETY: the caller's promise.
    unsafe { kind.write(GID_TYPE_ROCE_V2) };
    0
}

/// Whether destroying an object of a device that is gone succeeds: a switch of the provider interface.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name is the interface")]
static verbs_allow_disassociate_destroy: std::sync::atomic::AtomicBool =
    std::sync::atomic::AtomicBool::new(false);

/// Refuses with an errno as the answer.
pub(crate) extern "C" fn answers_errno() -> c_int {
    ANSWER.code(PROVIDERS, Err(not_offered()))
}

/// Refuses with −1.
pub(crate) extern "C" fn answers_minus_one() -> c_int {
    ANSWER.minus_one(PROVIDERS, Err(not_offered()))
}

/// Refuses with NULL.
pub(crate) extern "C" fn answers_null() -> *mut c_void {
    ANSWER.pointer(PROVIDERS, Err(not_offered()))
}

/// Many names are one function, which does not know by which it was called.
const PROVIDERS: &str = "a function of libibverbs for drivers of hardware";

fn not_offered() -> Errno {
    refused(
        libc::EOPNOTSUPP,
        "it is not offered: there is no hardware to drive",
        "use the verbs that docs/abi.md lists; docs/differences.md says what is not offered and why",
    )
}

/// Does nothing: for functions that answer nothing, such as the offer of a driver.
pub(crate) extern "C" fn ignores() {}

/// Defines a refusing function for each name.
macro_rules! refuse {
    ($answer:ty, $with:ident: $($name:ident)*) => {$(
        #[doc = concat!("`", stringify!($name), "`, for providers; refuses.")]
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> $answer {
            $with()
        }
    )*};
}

/// The names at every private node whose functions answer an errno, given to a macro.
macro_rules! names_that_answer_errno {
    ($macro:ident $($arguments:tt)*) => {
        $macro! { $($arguments)*
            execute_ioctl ibv_cmd_advise_mr ibv_cmd_alloc_dm ibv_cmd_alloc_dmah ibv_cmd_alloc_mw
            ibv_cmd_alloc_pd ibv_cmd_attach_mcast ibv_cmd_close_xrcd ibv_cmd_create_ah
            ibv_cmd_create_comp_cntr ibv_cmd_create_counters ibv_cmd_create_cq ibv_cmd_create_cq_ex
            ibv_cmd_create_cq_ex2 ibv_cmd_create_flow ibv_cmd_create_flow_action_esp ibv_cmd_create_qp
            ibv_cmd_create_qp_ex ibv_cmd_create_qp_ex2 ibv_cmd_create_rwq_ind_table ibv_cmd_create_srq
            ibv_cmd_create_srq_ex ibv_cmd_create_wq ibv_cmd_dealloc_mw ibv_cmd_dealloc_pd ibv_cmd_dereg_mr
            ibv_cmd_destroy_ah ibv_cmd_destroy_comp_cntr ibv_cmd_destroy_counters ibv_cmd_destroy_cq
            ibv_cmd_destroy_flow ibv_cmd_destroy_flow_action ibv_cmd_destroy_qp ibv_cmd_destroy_rwq_ind_table
            ibv_cmd_destroy_srq ibv_cmd_destroy_wq ibv_cmd_detach_mcast ibv_cmd_export_dmabuf_fd
            ibv_cmd_free_dm ibv_cmd_free_dmah ibv_cmd_get_context ibv_cmd_inc_comp_cntr
            ibv_cmd_inc_err_comp_cntr ibv_cmd_modify_cq ibv_cmd_modify_flow_action_esp ibv_cmd_modify_qp
            ibv_cmd_modify_qp_ex ibv_cmd_modify_srq ibv_cmd_modify_wq ibv_cmd_open_qp ibv_cmd_open_xrcd
            ibv_cmd_poll_cq ibv_cmd_post_recv ibv_cmd_post_send ibv_cmd_post_srq_recv
            ibv_cmd_qp_attach_comp_cntr ibv_cmd_query_comp_cntr_caps ibv_cmd_query_context
            ibv_cmd_query_device_any ibv_cmd_query_mr ibv_cmd_query_port ibv_cmd_query_port_speed
            ibv_cmd_query_qp ibv_cmd_query_srq ibv_cmd_read_comp_cntr ibv_cmd_read_counters
            ibv_cmd_read_err_comp_cntr ibv_cmd_reg_dm_mr ibv_cmd_reg_dmabuf_mr ibv_cmd_reg_mr
            ibv_cmd_reg_mr_ex ibv_cmd_req_notify_cq ibv_cmd_rereg_mr ibv_cmd_resize_cq ibv_cmd_set_comp_cntr
            ibv_cmd_set_err_comp_cntr
        }
    };
}
pub(crate) use names_that_answer_errno;

names_that_answer_errno! { refuse c_int, answers_errno: }
refuse! { c_int, answers_minus_one: ibv_read_ibdev_sysfs_file }
refuse! { *mut c_void, answers_null:
    _verbs_init_and_alloc_context ibv_dmabuf_heap_alloc ibv_dmabuf_heap_cc_shared_init verbs_open_device
}
refuse! { (), ignores:
    __verbs_log ibv_dmabuf_heap_destroy ibv_dmabuf_heap_free verbs_init_cq verbs_register_driver_34 verbs_set_ops
    verbs_uninit_context
}

/// How many attributes an ioctl of a provider has; there is no ioctl.
#[unsafe(no_mangle)]
extern "C" fn __ioctl_final_num_attrs() -> c_uint {
    0
}
