//! rsockets: the functions of `librdmacm.so.1` that do what the C library's functions for sockets do.
//!
//! The library is loaded when the first socket is to be carried: programs that open none do not pay for it. It is
//! looked for where ours is installed, then where the loader looks.
//!
//! The library itself calls `socket`, `poll` and the others, and these calls come to us like any other. Its
//! descriptors are not in the table and so are passed on; and while a thread is inside one of these functions,
//! [`inside`] has everything passed on, whatever the table says.

use crate::caller;
use crate::symbol::typed;
use libc::{c_char, c_int, c_void, iovec, msghdr, nfds_t, pollfd, size_t, sockaddr, socklen_t, ssize_t};
use nonic_abi::errno;
use nonic_abi::libibverbs::nonic_descriptor_hide_sockets;
use nonic_abi::librdmacm::rfcntl;
pub(crate) use nonic_abi::librdmacm::{RDMA_INLINE, RDMA_RQSIZE, RDMA_SQSIZE, SOL_RDMA};
use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// `fn name = symbol(argument: type) -> type`: each becomes a function that calls the one of that symbol in the library,
/// whose type is the one that `nonic-abi` has for it. The thread is inside while it runs. All of them answer −1 for failure;
/// so does a function that is not there (`ENOSYS`).
macro_rules! rsockets {
    ($(fn $name:ident = $symbol:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => { $(
        pub(crate) unsafe fn $name($($argument: $type),*) -> $answer {
            use nonic_abi::librdmacm::$symbol;
            let _inside = Inside::enter();
            match typed!($symbol in library()) {
                // SAFETY: the caller keeps to the contract of the function, which is that of its namesake for sockets.
                Some(function) => unsafe { function($($argument),*) },
                None => errno::fail(libc::ENOSYS),
            }
        }
    )* };
}

rsockets! {
    fn socket = rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn bind = rbind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
    fn listen = rlisten(fd: c_int, backlog: c_int) -> c_int;
    fn accept = raccept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    fn connect = rconnect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
    fn shutdown = rshutdown(fd: c_int, how: c_int) -> c_int;
    fn close = rclose(fd: c_int) -> c_int;
    fn recv = rrecv(fd: c_int, buffer: *mut c_void, length: size_t, flags: c_int) -> ssize_t;
    fn recvfrom = rrecvfrom(fd: c_int, buffer: *mut c_void, length: size_t, flags: c_int, address: *mut sockaddr, address_length: *mut socklen_t) -> ssize_t;
    fn recvmsg = rrecvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    fn readv = rreadv(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t;
    fn send = rsend(fd: c_int, buffer: *const c_void, length: size_t, flags: c_int) -> ssize_t;
    fn sendto = rsendto(fd: c_int, buffer: *const c_void, length: size_t, flags: c_int, address: *const sockaddr, address_length: socklen_t) -> ssize_t;
    fn sendmsg = rsendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    fn writev = rwritev(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t;
    fn poll = rpoll(fds: *mut pollfd, count: nfds_t, timeout_ms: c_int) -> c_int;
    fn getpeername = rgetpeername(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    fn getsockname = rgetsockname(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    fn setsockopt = rsetsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, length: socklen_t) -> c_int;
    fn getsockopt = rgetsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut socklen_t) -> c_int;
}

/// Makes an rsocket block, or not.
pub(crate) fn set_nonblocking(inner: c_int, nonblocking: bool) -> c_int {
    let flags: c_int = if nonblocking { libc::O_NONBLOCK } else { 0 };
    let _inside = Inside::enter();
    match typed!(rfcntl in library()) {
        // SAFETY: this command takes an integer.
        Some(rfcntl) => unsafe { rfcntl(inner, libc::F_SETFL, flags) },
        None => errno::fail(libc::ENOSYS),
    }
}

/// An option with an integer, or the error.
pub(crate) fn option(inner: c_int, level: c_int, name: c_int) -> Result<c_int, c_int> {
    let mut value: c_int = 0;
    let mut length = size_of::<c_int>() as socklen_t;
    // SAFETY: both point to variables of the right size.
    match unsafe { getsockopt(inner, level, name, (&raw mut value).cast(), &raw mut length) } {
        0 => Ok(value),
        _ => Err(errno::last()),
    }
}

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Whether this thread is in a function of the library.
pub(crate) fn inside() -> bool {
    DEPTH.get() > 0
}

/// While it lives, this thread is in a function of the library.
struct Inside;

impl Inside {
    fn enter() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Inside
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// What was loaded.
struct Loaded {
    verbs: *mut c_void,
    rdmacm: *mut c_void,
    /// Where the code of the two libraries begins.
    bases: [*mut c_void; 2],
}

// SAFETY: a handle of the loader's is not bound to a thread.
unsafe impl Send for Loaded {}
// SAFETY: as above; nothing changes it.
unsafe impl Sync for Loaded {}

static LOADED: OnceLock<Loaded> = OnceLock::new();

/// The handle of the library, null if there is none.
fn library() -> *mut c_void {
    LOADED.get_or_init(load).rdmacm
}

/// The handle of `libibverbs.so.1`, once it is loaded.
pub(crate) fn verbs() -> Option<*mut c_void> {
    let loaded = LOADED.get()?;
    (!loaded.verbs.is_null()).then_some(loaded.verbs)
}

/// Whether there is a library to carry sockets with.
pub(crate) fn are_there() -> bool {
    if inside() {
        return false;
    }
    let _inside = Inside::enter();
    !library().is_null()
}

/// Whether the libraries called us, whose sockets are never carried: their threads open some without being inside.
pub(crate) fn call_us() -> bool {
    let Some(loaded) = LOADED.get() else {
        return false;
    };
    let us = base(call_us as *const c_void);
    let caller = caller::beyond(|code| base(code) == us);
    caller
        .and_then(base)
        .is_some_and(|base| loaded.bases.contains(&base))
}

/// Loads `libibverbs.so.1` first: the other one asks for it by name, and then gets the one of the same folder.
fn load() -> Loaded {
    let verbs = open_installed(c"libibverbs.so.1");
    let rdmacm = open_installed(c"librdmacm.so.1");
    let place = |library: *mut c_void, symbol: &CStr| {
        if library.is_null() {
            return std::ptr::null_mut();
        }
        // SAFETY: the library is loaded and the name ends with a zero.
        let code = unsafe { libc::dlsym(library, symbol.as_ptr()) };
        base(code).unwrap_or(std::ptr::null_mut())
    };
    hide_rsockets(verbs);
    Loaded {
        verbs,
        rdmacm,
        bases: [place(verbs, c"ibv_get_device_list"), place(rdmacm, c"rsocket")],
    }
}

/// From now on rsockets are internal as well: the program knows the numbers of its own sockets only.
fn hide_rsockets(verbs: *mut c_void) {
    if verbs.is_null() {
        return;
    }
    if let Some(hide_sockets) = typed!(nonic_descriptor_hide_sockets in verbs) {
        // SAFETY: it may be called at any time.
        unsafe { hide_sockets() };
    }
}

fn open_installed(name: &CStr) -> *mut c_void {
    let beside = installed().map(|folder| folder.join(std::ffi::OsStr::from_bytes(name.to_bytes())));
    let beside = beside.filter(|file| file.is_file());
    let path = beside.and_then(|file| CString::new(file.into_os_string().into_encoded_bytes()).ok());
    // SAFETY: both end with a zero.
    unsafe {
        libc::dlopen(
            path.as_deref().unwrap_or(name).as_ptr(),
            libc::RTLD_NOW | libc::RTLD_GLOBAL,
        )
    }
}

/// The folder of the libraries: ours is in a folder of its own within it, as rdma-core has it.
fn installed() -> Option<PathBuf> {
    let information = information(installed as *const c_void)?;
    // SAFETY: the loader's name of an object lives as long as the object, which is us.
    let name = unsafe { CStr::from_ptr(information.dli_fname as *const c_char) };
    let us = Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()))
        .canonicalize()
        .ok()?;
    Some(us.parent()?.parent()?.to_owned())
}

fn base(code: *const c_void) -> Option<*mut c_void> {
    information(code).map(|information| information.dli_fbase)
}

/// What the loader knows of the object that has this address.
fn information(address: *const c_void) -> Option<libc::Dl_info> {
    let mut information = std::mem::MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: any address may be asked for; the answer is filled in if it is not zero.
    unsafe { (libc::dladdr(address, information.as_mut_ptr()) != 0).then(|| information.assume_init()) }
}
