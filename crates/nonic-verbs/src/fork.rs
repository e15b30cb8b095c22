//! Forking: nothing needs to be done, and this says so.
//!
//! Hardware must keep pinned pages from being moved by copy-on-write; the NIC here is the CPU of this process and sees
//! the same pages as the program. A child may not use the parent's objects. Destroying them in the child is allowed and
//! does nothing: `nonic_abi::fork::Birth` tells which process made them.

use libc::{c_int, c_void, size_t};

const IBV_FORK_UNNEEDED: c_int = 2;

#[unsafe(no_mangle)]
extern "C" fn ibv_fork_init() -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn ibv_is_fork_initialized() -> c_int {
    IBV_FORK_UNNEEDED
}

#[unsafe(no_mangle)]
extern "C" fn ibv_dontfork_range(_base: *mut c_void, _size: size_t) -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn ibv_dofork_range(_base: *mut c_void, _size: size_t) -> c_int {
    0
}
