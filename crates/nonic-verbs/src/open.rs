//! Opening, importing and closing devices.

use crate::context::{Context, Shared, identity_of, reclaim};
use crate::device::verbs_device;
use crate::refusal::ANSWER;
use crate::{async_event, errors, operations};
use libc::c_int;
use nonic_abi::errno::{Errno, of_system, refused};
use nonic_abi::verbs::{ibv_context, ibv_device};
use nonic_engine::Device;
use nonic_engine::log::{self, Severity};
use nonic_engine::os::descriptors::Identity;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Every open device of this process, for imports.
static OPEN: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// An empty file for `cmd_fd`. Its identity finds the context again when the program imports it.
fn new_identity() -> Result<(OwnedFd, Identity), Errno> {
    // SAFETY: the name is a string.
    let fd = unsafe { libc::memfd_create(c"nonic-verbs".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(of_system("memfd_create"));
    }
    // SAFETY: just opened, and nothing else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let identity = identity_of(fd.as_raw_fd())?;
    Ok((fd, identity))
}

/// # Safety
///
/// As for [`verbs_device`].
unsafe fn open(c_device: *mut ibv_device) -> Result<*mut ibv_context, Errno> {
    // SAFETY: the caller's promise.
    let known = unsafe { verbs_device(c_device) }.ok_or_else(|| {
        refused(
            libc::EINVAL,
            "device is NULL, or not one that ibv_get_device_list returned",
            "pass an entry of ibv_get_device_list, before the list is freed",
        )
    })?;
    let device = Device::open(&known.netdev().device_name()).map_err(|error| {
        // An error number cannot tell which setting is misspelt or which file cannot be written, and no program would say so.
        log::tell_always(Severity::Error, &format!("the device cannot be opened: {error}"));
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
    ANSWER.pointer("ibv_open_device", unsafe { open(device) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_close_device(pointer: *mut ibv_context) -> c_int {
    if pointer.is_null() {
        return ANSWER.code(
            "ibv_close_device",
            Err(refused(
                libc::EINVAL,
                "context is NULL",
                "pass what ibv_open_device returned",
            )),
        );
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
        .ok_or_else(|| {
            refused(
                libc::EINVAL,
                "cmd_fd is not the cmd_fd of an open context of this process",
                "devices can be imported only within the process that opened them",
            )
        })?;
    drop(open);
    let c_device = crate::device::find(shared.device.netdev()).ok_or_else(|| {
        refused(
            libc::ENODEV,
            "the device of this cmd_fd is gone",
            "open a device that ibv_get_device_list lists now",
        )
    })?;
    // SAFETY: the program gives the descriptor away, as the man page says.
    let command = unsafe { OwnedFd::from_raw_fd(fd) };
    Ok(Context::leak(shared, command, c_device, operations::fill))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_import_device(cmd_fd: c_int) -> *mut ibv_context {
    ANSWER.pointer("ibv_import_device", import(cmd_fd))
}
