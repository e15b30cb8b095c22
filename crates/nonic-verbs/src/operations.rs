//! The tables of operations through which programs call most verbs: `verbs.h` has inline functions that follow the
//! pointers in a context. An operation that is not offered refuses and says so; the operations on what it would have
//! made stay NULL, which those functions report as `EOPNOTSUPP`.
//!
//! This is the top of the crate: it knows every verb that is not called by name.

use crate::{cq, extended, memory, pd, poll, post, qp, query, srq, unsupported, xrc};
use nonic_abi::verbs::verbs_context;

/// Fills the tables of a new context.
pub(crate) fn fill(verbs: &mut verbs_context) {
    let ops = &mut verbs.context.ops;
    ops.alloc_mw = Some(memory::alloc_mw);
    ops.bind_mw = Some(memory::bind_mw);
    ops.dealloc_mw = Some(memory::dealloc_mw);
    ops.poll_cq = Some(poll::poll_cq);
    ops.req_notify_cq = Some(cq::req_notify_cq);
    ops.post_srq_recv = Some(post::post_srq_recv);
    ops.post_send = Some(post::post_send);
    ops.post_recv = Some(post::post_recv);
    verbs.query_port = Some(query::query_port);
    verbs.query_device_ex = Some(query::query_device_ex);
    verbs.query_rt_values = Some(query::query_rt_values);
    verbs.advise_mr = Some(memory::advise_mr);
    verbs.alloc_null_mr = Some(memory::alloc_null_mr);
    verbs.reg_dm_mr = Some(memory::reg_dm_mr);
    verbs.alloc_dm = Some(memory::alloc_dm);
    verbs.free_dm = Some(memory::free_dm);
    verbs.alloc_parent_domain = Some(pd::alloc_parent_domain);
    verbs.alloc_td = Some(pd::alloc_td);
    verbs.dealloc_td = Some(pd::dealloc_td);
    verbs.modify_cq = Some(cq::modify_cq);
    verbs.create_cq_ex = Some(extended::create_cq_ex);
    verbs.create_qp_ex = Some(extended::create_qp_ex);
    verbs.create_srq_ex = Some(srq::create_srq_ex);
    verbs.get_srq_num = Some(srq::get_srq_num);
    verbs.open_xrcd = Some(xrc::open_xrcd);
    verbs.close_xrcd = Some(xrc::close_xrcd);
    verbs.open_qp = Some(qp::open_qp);
    verbs.create_wq = Some(unsupported::create_wq);
    verbs.create_rwq_ind_table = Some(unsupported::create_rwq_ind_table);
    verbs.ibv_create_flow = Some(unsupported::create_flow);
    verbs.create_flow_action_esp = Some(unsupported::create_flow_action_esp);
    verbs.create_counters = Some(unsupported::create_counters);
    verbs.modify_qp_rate_limit = Some(qp::modify_qp_rate_limit);
}
