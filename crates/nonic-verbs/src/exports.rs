//! Compile-time checks: the functions that other libraries of nonic call have the types that those are compiled against.
//!
//! Nothing is defined here: the macro has the list, and compares each function with its prototype in `nonic-abi`.

use crate::address::{ibv_create_ah, ibv_destroy_ah};
use crate::channel::{ibv_create_comp_channel, ibv_destroy_comp_channel, nonic_create_internal_channel};
use crate::cm::*;
use crate::cq::{ibv_create_cq, ibv_destroy_cq};
use crate::cq_event::{ibv_ack_cq_events, ibv_get_cq_event};
use crate::descriptors::*;
use crate::device::{ibv_free_device_list, ibv_get_device_list};
use crate::memory::{ibv_dereg_mr, ibv_reg_mr};
use crate::multicast::{ibv_attach_mcast, ibv_detach_mcast};
use crate::open::{ibv_close_device, ibv_open_device};
use crate::pd::ibv_alloc_pd;
use crate::qp::{ibv_create_qp, ibv_destroy_qp, ibv_modify_qp};
use crate::query::{ibv_query_device, ibv_query_gid};
use crate::refusal::nonic_tell_refusal;
use crate::srq::{ibv_create_srq, ibv_destroy_srq};

nonic_abi::check_libibverbs!();
