//! Public functions that exist and refuse, each with its reason.
//!
//! A program that was linked with a newer or richer libibverbs must start here; it finds out at the call that
//! something is not offered, by the errno every program already handles. What a program reaches through the
//! operations of its context (`verbs_context`) is absent there instead, and the inline functions of `verbs.h` answer
//! `EOPNOTSUPP` by themselves.

use crate::private::{answers_errno, answers_null, ignores};
use libc::{c_int, c_void};

/// Defines a refusing function for each name, with the reason as its documentation.
macro_rules! refuse {
    ($($name:ident -> $answer:ty, $with:ident, $why:literal;)*) => {$(
        #[doc = $why]
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> $answer {
            $with()
        }
    )*};
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
