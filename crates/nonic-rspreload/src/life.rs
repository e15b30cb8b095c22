//! The life of a carried socket: `socket`, `dup` and its kin, `close` and its kin.

use crate::config::config;
use crate::internal::{is_internal, next_internal};
use crate::table::{Carried, Flag, all, carried, forget, name, named};
use crate::{next, rsockets, watch};
use libc::{c_int, c_uint};
use nonic_abi::errno;
use nonic_abi::fork::is_owner;
use std::sync::Once;
use std::sync::atomic::Ordering;

/// The flags that may stand in a socket's type.
const FLAGS: c_int = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: any arguments may be passed.
    let fd = unsafe { next::socket(domain, kind, protocol) };
    if fd < 0
        || rsockets::inside()
        || !config().carries(domain, kind & !FLAGS, protocol)
        || rsockets::call_us()
        || !rsockets::are_there()
    {
        return fd;
    }
    let before = errno::last();
    carry(fd, domain, kind, protocol);
    errno::set(before);
    fd
}

/// Puts an rsocket behind a new socket. If there is none to be had, the socket stays what it is.
fn carry(fd: c_int, domain: c_int, kind: c_int, protocol: c_int) {
    // SAFETY: any arguments may be passed.
    let inner = unsafe { rsockets::socket(domain, kind & !FLAGS, protocol) };
    if inner < 0 {
        return;
    }
    adopt(fd, inner, domain, kind);
}

/// An rsocket carries this socket from now on.
pub(crate) fn adopt(fd: c_int, inner: c_int, domain: c_int, kind: c_int) {
    rsockets::set_nonblocking(inner, kind & libc::SOCK_NONBLOCK != 0);
    for (option, value) in &config().sizes {
        let value: *const c_int = value;
        // SAFETY: the value is an integer. That a size is refused leaves the default.
        unsafe {
            rsockets::setsockopt(
                inner,
                rsockets::SOL_RDMA,
                *option,
                value.cast(),
                size_of::<c_int>() as u32,
            );
        }
    }
    let socket = Carried::of(inner, domain, kind & !FLAGS);
    if !name(fd, socket) {
        // SAFETY: nothing else knows the rsocket.
        unsafe { rsockets::close(inner) };
        socket.recycle();
    }
}

/// Ends the rsocket behind a socket that no descriptor names any more.
pub(crate) fn end(socket: &'static Carried) {
    if socket.is(Flag::Lost) {
        // It is the parent's.
        return;
    }
    // SAFETY: no descriptor names it any more.
    unsafe { rsockets::close(socket.inner()) };
    socket.recycle();
}

/// A descriptor is about to name something else, or nothing.
fn release(fd: c_int) {
    watch::closed(fd);
    if let Some((socket, true)) = forget(fd) {
        end(socket);
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn close(fd: c_int) -> c_int {
    if is_internal(fd) {
        // The program never had it: to it, the number is not open.
        return errno::fail(libc::EBADF);
    }
    if !rsockets::inside() && (named(fd).is_some() || watch::knows(fd)) && is_owner() {
        release(fd);
    }
    // SAFETY: the caller's.
    unsafe { next::close(fd) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if flags & CLOSE_RANGE_CLOEXEC == 0 && is_owner() {
        let first = c_int::try_from(first).unwrap_or(c_int::MAX);
        for (fd, _) in all(first).take_while(|(fd, _)| *fd as c_uint <= last) {
            release(fd);
        }
    }
    // SAFETY: the caller's.
    unsafe { close_around(first, last, flags) }
}

const CLOSE_RANGE_CLOEXEC: c_int = 4;

/// Closes a range, but for the descriptors of the libraries in it.
///
/// # Safety
/// As `close_range`.
unsafe fn close_around(mut first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // Ours have that flag already; and a table of the program's own (`CLOSE_RANGE_UNSHARE`) is made once, if at all.
    if flags == 0 && first <= last {
        while let Some(kept) = c_int::try_from(first).ok().and_then(next_internal) {
            let kept = kept as c_uint;
            if kept > last {
                break;
            }
            // SAFETY: the caller's.
            if kept > first && unsafe { next::close_range(first, kept - 1, flags) } < 0 {
                return -1;
            }
            first = kept + 1;
        }
        if first > last {
            return 0;
        }
    }
    // SAFETY: the caller's.
    unsafe { next::close_range(first, last, flags) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn closefrom(first: c_int) {
    // SAFETY: the caller's.
    unsafe { close_range(first.max(0) as c_uint, c_uint::MAX, 0) };
}

/// A copy of a descriptor that the kernel made names what the original does.
pub(crate) fn copied(socket: Option<&'static Carried>, new: c_int) -> c_int {
    let Some(socket) = socket else {
        return new;
    };
    if new >= 0 && is_owner() && !name(new, socket) {
        // SAFETY: it is ours, and the program has not seen it.
        unsafe { next::close(new) };
        return errno::fail(libc::EMFILE);
    }
    new
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn dup(fd: c_int) -> c_int {
    // SAFETY: the caller's.
    copied(carried(fd), unsafe { next::dup(fd) })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    // SAFETY: the caller's.
    onto(old, new, || unsafe { next::dup2(old, new) })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    // SAFETY: the caller's.
    onto(old, new, || unsafe { next::dup3(old, new, flags) })
}

/// `dup2` and `dup3`: what the target named is closed. It is released once the kernel has agreed; until then a
/// thread may still use it.
fn onto(old: c_int, new: c_int, duplicate: impl FnOnce() -> c_int) -> c_int {
    if rsockets::inside() || old == new {
        return duplicate();
    }
    if is_internal(new) {
        // As the kernel answers while another thread is opening that number.
        return errno::fail(libc::EBUSY);
    }
    let source = carried(old);
    let answer = duplicate();
    if answer >= 0 && is_owner() {
        if named(new).is_some() || watch::knows(new) {
            release(new);
        }
        return copied(source, answer);
    }
    answer
}

/// What a program has sent still arrives if it ends without closing, as with TCP.
///
/// Handlers run in the opposite order of their registration. To be called when a device is open, so that ours comes
/// before the device's own, which ends connections without waiting for anything.
pub(crate) fn finish_at_exit() {
    static ONCE: Once = Once::new();
    // SAFETY: the handler takes nothing and may be called at any time.
    ONCE.call_once(|| unsafe {
        libc::atexit(at_exit);
    });
}

extern "C" fn at_exit() {
    if !is_owner() {
        return;
    }
    for (fd, socket) in all(0) {
        if socket.names.load(Ordering::Relaxed) > 0 {
            release(fd);
        }
    }
}
