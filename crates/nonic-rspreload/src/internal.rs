//! Descriptors that are not the program's to close: those of the libraries that carry its sockets.
//!
//! A program closes what it did not open: a daemon everything from 3 on, iperf3 one number twice, of which the second
//! time may be ours. `libibverbs.so.1` knows which numbers are its own or `librdmacm.so.1`'s; both close theirs without
//! coming past here. Ours, the bells of `epoll`, are kept by it too.

use crate::rsockets;
use crate::symbol::Symbol;
use libc::{c_int, c_void};

/// Whether a descriptor belongs to the libraries. One load, before the first socket is carried.
pub(crate) fn is_internal(fd: c_int) -> bool {
    static SYMBOL: Symbol = Symbol::new(c"nonic_descriptor_is_internal");
    // SAFETY: that is its signature.
    ask(&SYMBOL, |function| unsafe {
        std::mem::transmute::<*mut c_void, extern "C" fn(c_int) -> c_int>(function)(fd) != 0
    })
    .unwrap_or(false)
}

/// The first of them that is not below this number.
pub(crate) fn next_internal(from: c_int) -> Option<c_int> {
    static SYMBOL: Symbol = Symbol::new(c"nonic_descriptor_next_internal");
    // SAFETY: that is its signature.
    let found = ask(&SYMBOL, |function| unsafe {
        std::mem::transmute::<*mut c_void, extern "C" fn(c_int) -> c_int>(function)(from)
    });
    found.filter(|fd| *fd >= 0)
}

/// From now on rsockets are internal as well: the program knows the numbers of its own sockets only.
pub(crate) fn hide_rsockets(verbs: *mut c_void) {
    static SYMBOL: Symbol = Symbol::new(c"nonic_descriptor_hide_sockets");
    if verbs.is_null() {
        return;
    }
    if let Some(function) = SYMBOL.find(verbs) {
        // SAFETY: that is its signature.
        unsafe { std::mem::transmute::<*mut c_void, extern "C" fn()>(function)() };
    }
}

/// A descriptor of this library's own.
pub(crate) struct Kept {
    number: c_int,
    /// What `libibverbs.so.1` knows it by, if that is there and ours.
    handle: Option<*mut c_void>,
}

// SAFETY: the handle is to something that does not change, and may be used from any thread.
unsafe impl Send for Kept {}

impl Kept {
    /// Takes over a descriptor, which gets another number.
    pub(crate) fn new(fd: c_int) -> Self {
        static KEEP: Symbol = Symbol::new(c"nonic_descriptor_keep");
        static NUMBER: Symbol = Symbol::new(c"nonic_descriptor_number");
        const INTERNAL: u32 = 0;
        // SAFETY: these are their signatures; the descriptor is given away, and the handle is the one we were given.
        let handle = ask(&KEEP, |keep| unsafe {
            std::mem::transmute::<*mut c_void, extern "C" fn(c_int, u32) -> *mut c_void>(keep)(fd, INTERNAL)
        });
        let number = handle.and_then(|handle| {
            // SAFETY: as above.
            ask(&NUMBER, |number| unsafe {
                std::mem::transmute::<*mut c_void, extern "C" fn(*const c_void) -> c_int>(number)(handle)
            })
        });
        Kept {
            number: number.unwrap_or(fd),
            handle,
        }
    }

    pub(crate) fn number(&self) -> c_int {
        self.number
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        static CLOSE: Symbol = Symbol::new(c"nonic_descriptor_close");
        match self.handle {
            // SAFETY: that is its signature, and the handle is not used again.
            Some(handle) => drop(ask(&CLOSE, |close| unsafe {
                std::mem::transmute::<*mut c_void, extern "C" fn(*mut c_void)>(close)(handle);
            })),
            // SAFETY: it is ours.
            None => drop(unsafe { crate::next::close(self.number) }),
        }
    }
}

fn ask<T>(symbol: &Symbol, call: impl FnOnce(*mut c_void) -> T) -> Option<T> {
    let verbs = rsockets::verbs()?;
    symbol.find(verbs).map(call)
}
