//! Opening, importing and closing devices.

use crate::context::{Context, Shared, identity_of, reclaim};
use crate::device::verbs_device;
use crate::{async_event, errors, operations};
use libc::c_int;
use nonic_abi::errno::{self, Errno};
use nonic_abi::verbs::{ibv_context, ibv_device};
use nonic_engine::os::descriptors::Identity;
use nonic_engine::{Device, OpenError};
use std::io::Write as _;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Every open device of this process, for imports.
static OPEN: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// An empty file for `cmd_fd`. Its identity finds the context again when the program imports it.
fn new_identity() -> Result<(OwnedFd, Identity), Errno> {
    // SAFETY: the name is a string.
    let fd = unsafe { libc::memfd_create(c"nonic-verbs".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(errno::last());
    }
    // SAFETY: just opened, and nobody else's.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let identity = identity_of(fd.as_raw_fd())?;
    Ok((fd, identity))
}

/// # Safety
///
/// As for [`verbs_device`].
unsafe fn open(c_device: *mut ibv_device) -> Result<*mut ibv_context, Errno> {
    // SAFETY: the caller's promise.
    let known = unsafe { verbs_device(c_device) }.ok_or(libc::EINVAL)?;
    let device = Device::open(&known.netdev().device_name()).map_err(|error| {
        if let OpenError::Setting(error) = &error {
            // An error number cannot tell which of the variables is misspelt, and no program would say so.
            let _ = writeln!(std::io::stderr(), "nonic: {error}");
        }
        errors::of_open(&error)
    })?;
    async_event::make_blocking(&device)?;
    let (command, identity) = new_identity()?;
    let shared = Arc::new(Shared::new(device, identity));
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|other| other.strong_count() > 0);
    open.push(Arc::downgrade(&shared));
    drop(open);
    Ok(Context::leak(shared, command, c_device, operations::fill))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    // SAFETY: the program passes a device of the list.
    errno::pointer(unsafe { open(device) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_close_device(pointer: *mut ibv_context) -> c_int {
    if pointer.is_null() {
        return errno::code(Err(libc::EINVAL));
    }
    // SAFETY: the program passes an open context and will not use it again.
    let context = unsafe { reclaim(pointer) };
    if context.shared.is_elsewhere() {
        // A child of fork has none of the threads that closing would wait for.
        std::mem::forget(context);
    }
    0
}

/// Finds the open device a descriptor belongs to.
fn import(fd: c_int) -> Result<*mut ibv_context, Errno> {
    let identity = identity_of(fd)?;
    let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let shared = open
        .iter()
        .filter_map(Weak::upgrade)
        .find(|shared| shared.identity == identity)
        .ok_or(libc::EINVAL)?;
    drop(open);
    let c_device = crate::device::find(shared.device.netdev()).ok_or(libc::ENODEV)?;
    // SAFETY: the program gives the descriptor away, as the man page says.
    let command = unsafe { OwnedFd::from_raw_fd(fd) };
    Ok(Context::leak(shared, command, c_device, operations::fill))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_import_device(cmd_fd: c_int) -> *mut ibv_context {
    errno::pointer(import(cmd_fd))
}
