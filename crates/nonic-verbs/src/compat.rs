//! Names that are exported at more than one symbol version.
//!
//! Rust has no word for that; the assembler has (`.symver`). It must stand in the same object as the definition,
//! so a definition here is one jump instruction, with any number of names for it.
//!
//! * **IBVERBS_1.0**: 33 functions that version 1.1 (2007) replaced because the structures changed under them.
//!   Programs older than that would call our operations at other offsets, so they are told *not implemented* at
//!   the first step: their `ibv_get_device_list` answers NULL with `ENOSYS`. The names must exist nevertheless:
//!   some loaders and old libraries ask for them.
//! * **Private nodes** other than 34: the same names as at 34 ([`crate::private`]) for provider libraries of other
//!   releases of rdma-core, and the few that are gone since.
//!
//! It refuses to emulate the old structures.

use crate::private::{
    answers_errno, answers_minus_one, answers_null, ibv_query_gid_type, ignores, names_that_answer_errno,
};
use crate::refusal::ANSWER;
use crate::strings::ibv_wr_opcode_str;
use libc::{c_int, c_void};
use nonic_abi::errno::{Errno, refused};
use std::arch::global_asm;

/// The answer of old functions that return an integer.
extern "C" fn not_implemented() -> c_int {
    ANSWER.code(OLD, Err(too_old()))
}

/// The answer of old functions that return a pointer, or nothing.
extern "C" fn none_implemented() -> *mut c_void {
    ANSWER.pointer(OLD, Err(too_old()))
}

/// Many names are one function, which does not know by which it was called.
const OLD: &str = "a function of version IBVERBS_1.0";

fn too_old() -> Errno {
    refused(
        libc::ENOSYS,
        "the program was linked with a libibverbs of before 2007, whose structures are others",
        "link it again, with rdma-core",
    )
}

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp {target}"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        "b {target}"
    };
}

/// `names!("NODE", target: a b c)`: each name at the node is a jump to the target.
macro_rules! names {
    ($node:literal, $target:path: $first:ident $($name:ident)*) => {
        global_asm!(
            concat!(".pushsection .text.", $node, ".", stringify!($first), ",\"ax\",@progbits"),
            ".p2align 4",
            concat!(".Lnonic_", $node, "_", stringify!($first), ":"),
            jump!(),
            names!(@name $node, $first, $first),
            $(names!(@name $node, $first, $name),)*
            ".popsection",
            target = sym $target,
        );
    };
    (@name $node:literal, $first:ident, $name:ident) => {
        concat!(
            ".globl nonic_", stringify!($name), "_", $node, "\n",
            ".type nonic_", stringify!($name), "_", $node, ",@function\n",
            ".set nonic_", stringify!($name), "_", $node, ", .Lnonic_", $node, "_", stringify!($first), "\n",
            ".symver nonic_", stringify!($name), "_", $node, ", ", stringify!($name), "@", $node, "\n",
        )
    };
}

names! { "IBVERBS_1.0", not_implemented:
    ibv_attach_mcast ibv_close_device ibv_dealloc_pd ibv_dereg_mr ibv_destroy_ah ibv_destroy_cq ibv_destroy_qp
    ibv_destroy_srq ibv_detach_mcast ibv_get_async_event ibv_get_cq_event ibv_modify_qp ibv_modify_srq
    ibv_query_device ibv_query_gid ibv_query_pkey ibv_query_port ibv_query_qp ibv_query_srq ibv_resize_cq
}
names! { "IBVERBS_1.0", none_implemented:
    ibv_ack_async_event ibv_ack_cq_events ibv_alloc_pd ibv_create_ah ibv_create_cq ibv_create_qp ibv_create_srq
    ibv_free_device_list ibv_get_device_guid ibv_get_device_list ibv_get_device_name ibv_open_device ibv_reg_mr
}
// Drivers were registered by this name until the private nodes came.
names! { "IBVERBS_1.1", ignores: ibv_register_driver }

/// One private node: what all have, then what only this one has.
macro_rules! private_node {
    ($node:literal, $register:ident: $($more:ident)*) => {
        names_that_answer_errno! { names $node, answers_errno: $($more)* }
        names! { $node, answers_minus_one: ibv_read_ibdev_sysfs_file }
        names! { $node, answers_null:
            _verbs_init_and_alloc_context ibv_dmabuf_heap_alloc ibv_dmabuf_heap_cc_shared_init verbs_open_device
            __ioctl_final_num_attrs
        }
        names! { $node, ignores:
            $register __verbs_log ibv_dmabuf_heap_destroy ibv_dmabuf_heap_free verbs_init_cq verbs_set_ops
            verbs_uninit_context
        }
        names! { $node, ibv_query_gid_type: ibv_query_gid_type }
        names! { $node, ibv_wr_opcode_str: ibv_wr_opcode_str }
        global_asm!(
            concat!(".pushsection .bss.", $node, ",\"aw\",@nobits"),
            concat!(".globl nonic_allow_", $node),
            concat!(".type nonic_allow_", $node, ",@object"),
            concat!(".size nonic_allow_", $node, ",1"),
            concat!("nonic_allow_", $node, ": .zero 1"),
            concat!(".symver nonic_allow_", $node, ", verbs_allow_disassociate_destroy@", $node),
            ".popsection",
        );
    };
}

private_node! { "IBVERBS_PRIVATE_25", verbs_register_driver_25:
    ibv_cmd_query_device ibv_cmd_query_device_ex ibv_get_fw_ver
}
private_node! { "IBVERBS_PRIVATE_33", verbs_register_driver_33: ibv_cmd_query_device ibv_cmd_query_device_ex }
private_node! { "IBVERBS_PRIVATE_57", verbs_register_driver_57: }
private_node! { "IBVERBS_PRIVATE_59", verbs_register_driver_59: }
private_node! { "IBVERBS_PRIVATE_64", verbs_register_driver_64: }
private_node! { "IBVERBS_PRIVATE_65", verbs_register_driver_65: }
