//! Public functions that exist and refuse, each with its reason.
//!
//! A program that was linked with a newer or richer libibverbs must start here; it finds out at the call that
//! something is not offered, by the errno every program already handles. What a program reaches through the
//! operations of its context (`verbs_context`) is absent there instead, and the inline functions of `verbs.h` answer
//! `EOPNOTSUPP` by themselves.

use crate::refusal::ANSWER;
use libc::{c_int, c_void};
use nonic_abi::errno::{Errno, refused};

/// Defines a refusing function for each name, with the reason as its documentation.
macro_rules! refuse {
    ($($name:ident -> $answer:ty, $with:ident, $why:literal;)*) => {$(
        #[doc = $why]
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> $answer {
            refuse!(@$with stringify!($name), $why)
        }
    )*};
    (@answers_errno $name:expr, $why:literal) => { ANSWER.code($name, Err(not_offered($why))) };
    (@answers_minus_one $name:expr, $why:literal) => { ANSWER.minus_one($name, Err(not_offered($why))) };
    (@answers_null $name:expr, $why:literal) => { ANSWER.pointer($name, Err(not_offered($why))) };
    // It answers nothing, and so refuses nothing.
    (@ignores $name:expr, $why:literal) => { () };
}

/// Defines what stands in the table of a context's operations for one that is not offered.
macro_rules! refuse_operation {
    ($($name:ident, $public:literal, $why:literal;)*) => {$(
        #[doc = $why]
        pub(crate) extern "C" fn $name() -> *mut c_void {
            ANSWER.pointer($public, Err(not_offered($why)))
        }
    )*};
}

refuse_operation! {
    create_wq, "ibv_create_wq", "Work queues without queue pairs are for the packets of Ethernet.";
    create_rwq_ind_table, "ibv_create_rwq_ind_table", "See `ibv_create_wq`.";
    create_flow, "ibv_create_flow", "Flows steer the packets of Ethernet, which the kernel has.";
    create_flow_action_esp, "ibv_create_flow_action_esp", "See `ibv_create_flow`.";
    create_counters, "ibv_create_counters", "Counters are attached to flows; see `ibv_create_flow`.";
}

fn not_offered(why: &'static str) -> Errno {
    let what = format!("it is not offered. {}", why.trim_end_matches('.'));
    refused(
        libc::EOPNOTSUPP,
        what,
        "do without it; docs/differences.md says what is not offered and why",
    )
}

refuse! {
    ibv_alloc_dmah -> *mut c_void, answers_null, "Hints for the processor's caches are a NIC's.";
    ibv_dealloc_dmah -> c_int, answers_errno, "See `ibv_alloc_dmah`.";
    ibv_reg_mr_ex -> *mut c_void, answers_null, "Its attributes are DMA handles and dma-bufs.";
    ibv_dm_export_dmabuf_fd -> c_int, answers_errno, "dma-bufs are made by kernel drivers.";
    ibv_query_port_speed -> c_int, answers_errno, "A software port has no rated speed.";
    _ibv_query_comp_cntr_caps -> c_int, answers_errno, "Completions are counted by whoever polls them.";
    ibv_create_comp_cntr -> *mut c_void, answers_null, "See `_ibv_query_comp_cntr_caps`.";
    ibv_destroy_comp_cntr -> c_int, answers_errno, "See `_ibv_query_comp_cntr_caps`.";
    ibv_inc_comp_cntr -> c_int, answers_errno, "See `_ibv_query_comp_cntr_caps`.";
    ibv_inc_err_comp_cntr -> c_int, answers_errno, "See `_ibv_query_comp_cntr_caps`.";
    ibv_qp_attach_comp_cntr -> c_int, answers_errno, "See `_ibv_query_comp_cntr_caps`.";
    ibv_read_comp_cntr -> c_int, answers_errno, "See `_ibv_query_comp_cntr_caps`.";
    ibv_read_err_comp_cntr -> c_int, answers_errno, "See `_ibv_query_comp_cntr_caps`.";
    ibv_set_comp_cntr -> c_int, answers_errno, "See `_ibv_query_comp_cntr_caps`.";
    ibv_set_err_comp_cntr -> c_int, answers_errno, "See `_ibv_query_comp_cntr_caps`.";
    ibv_copy_ah_attr_from_kern -> (), ignores, "Translates a kernel's answer; no kernel is asked.";
    ibv_copy_path_rec_from_kern -> (), ignores, "Translates a kernel's answer; no kernel is asked.";
    ibv_copy_path_rec_to_kern -> (), ignores, "Translates a kernel's answer; no kernel is asked.";
    ibv_copy_qp_attr_from_kern -> (), ignores, "Translates a kernel's answer; no kernel is asked.";
}
