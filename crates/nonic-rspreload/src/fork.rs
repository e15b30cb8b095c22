//! Forked children. An rsocket belongs to the process that made it; its child has the descriptors and the table, but
//! none of the threads and memory that RDMA needs.
//!
//! A forked child therefore finds its inherited sockets lost: calls on them fail with `EOPNOTSUPP`, and closing them
//! leaves the parent's connection alone. A child of `vfork` shares the table with its parent, so it must not change it
//! at all: `nonic_abi::fork::is_owner` tells.

use crate::table::{Flag, SPARE, all};
use crate::watch::{SETS, forget_all};
use nonic_abi::fork;

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;

extern "C" fn at_start() {
    fork::watch();
    // SAFETY: the handlers take nothing and live as long as the process: what is preloaded is not unloaded.
    unsafe { libc::pthread_atfork(Some(before), Some(after), Some(in_child)) };
}

/// No other thread may hold these locks in the moment that the child is a copy of.
unsafe extern "C" fn before() {
    SETS.acquire();
    SPARE.acquire();
}

unsafe extern "C" fn after() {
    SPARE.release();
    SETS.release();
}

unsafe extern "C" fn in_child() {
    SPARE.release();
    SETS.release();
    for (_, socket) in all(0) {
        socket.set(Flag::Lost);
    }
    forget_all();
}
