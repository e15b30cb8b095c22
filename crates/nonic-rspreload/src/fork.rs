//! Children. An rsocket belongs to the process that made it; its child has the descriptors and the table, but none of
//! the threads and memory that RDMA needs.
//!
//! A forked child therefore finds its inherited sockets lost: calls on them fail with `EOPNOTSUPP`, closing them
//! leaves the parent's connection alone. A child of `vfork` shares the table with its parent, so it must not
//! change it at all: [`is_owner`] tells.

use crate::epoll::{SETS, forget_all};
use crate::table::{Flag, SPARE, all};
use libc::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

/// The process whose memory this is.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// Whether this process may change the table. A child of `vfork` runs in its parent's memory under another number.
pub(crate) fn is_owner() -> bool {
    // SAFETY: cannot fail.
    OWNER.load(Ordering::Relaxed) == unsafe { libc::getpid() }
}

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;

extern "C" fn at_start() {
    // SAFETY: cannot fail.
    OWNER.store(unsafe { libc::getpid() }, Ordering::Relaxed);
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
    // SAFETY: cannot fail.
    OWNER.store(unsafe { libc::getpid() } as c_int, Ordering::Relaxed);
    for (_, socket) in all(0) {
        socket.set(Flag::Lost);
    }
    forget_all();
}
