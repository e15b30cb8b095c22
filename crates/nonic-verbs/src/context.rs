//! The object behind the program's `ibv_context` pointer. Opening and closing it is in `open`.
//!
//! The pointer of a [`Context`] is to a field in its middle, because the extended operations stand before it.
//! [`Shared`] is shared by contexts that `ibv_import_device` made from one another: the engine's device and the lists
//! that find objects by number.

use crate::object::zeroed;
use crate::objects::Objects;
use libc::c_int;
use nonic_abi::errno::{Errno, of_system, refused};
use nonic_abi::fork::Birth;
use nonic_abi::verbs::{ibv_context, ibv_device, verbs_context};
use nonic_engine::Device;
use nonic_engine::os::descriptors::{Identity, InternalFd};
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An open device as the program holds it.
#[repr(C)]
pub(crate) struct Context {
    verbs: verbs_context,
    pub(crate) shared: Arc<Shared>,
    /// What `cmd_fd` names: a file whose identity finds the context again.
    _command: InternalFd,
}

/// What a context and its imports have in common.
pub(crate) struct Shared {
    pub(crate) device: Device,
    objects: Mutex<Objects>,
    /// The identity of the file that is the `cmd_fd` of all its contexts.
    pub(crate) identity: Identity,
    birth: Birth,
}

impl Shared {
    pub(crate) fn new(device: Device, identity: Identity) -> Self {
        Shared {
            device,
            objects: Mutex::default(),
            identity,
            birth: Birth::now(),
        }
    }

    pub(crate) fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is a child of the process that opened the device: nothing of it may be touched here.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.birth.is_elsewhere()
    }
}

impl Context {
    /// The program's pointer.
    pub(crate) fn as_c(&self) -> *mut ibv_context {
        (&raw const self.verbs.context).cast_mut()
    }

    pub(crate) fn device(&self) -> &Device {
        &self.shared.device
    }

    /// A context for the program, with a table of operations that `fill` fills.
    pub(crate) fn leak(
        shared: Arc<Shared>,
        command: OwnedFd,
        c_device: *mut ibv_device,
        fill: impl FnOnce(&mut verbs_context),
    ) -> *mut ibv_context {
        let mut verbs: verbs_context = zeroed();
        fill(&mut verbs);
        verbs.sz = size_of::<verbs_context>();
        let context = &mut verbs.context;
        context.device = c_device;
        context.cmd_fd = command.as_raw_fd();
        context.async_fd = shared.device.events().as_fd().as_raw_fd();
        context.num_comp_vectors = std::thread::available_parallelism().map_or(1, |n| n.get() as c_int);
        // The mark by which the inline functions of the header know that the extended operations stand before the context.
        context.abi_compat = std::ptr::without_provenance_mut(usize::MAX);
        let context = Box::leak(Box::new(Context {
            verbs,
            shared,
            _command: InternalFd::seen_by_the_program(command),
        }));
        // The pointer must be good for the whole box, not for the field alone.
        let base: *mut Context = context;
        // SAFETY: in bounds of the box.
        unsafe { base.byte_add(offset_of!(verbs_context, context)).cast() }
    }
}

/// The context behind a program's pointer; `EINVAL` for NULL.
///
/// # Safety
///
/// The pointer is NULL or came from opening a device that has not been closed; so for all of `'a`.
pub(crate) unsafe fn context<'a>(pointer: *mut ibv_context) -> Result<&'a Context, Errno> {
    if pointer.is_null() {
        return Err(refused(
            libc::EINVAL,
            "context is NULL",
            "pass what ibv_open_device returned",
        ));
    }
    // SAFETY: the context stands at this offset in its box.
    Ok(unsafe { &*base_of(pointer) })
}

/// Takes a context back to be dropped.
///
/// # Safety
///
/// As for [`context`], without NULL, and the pointer is not used afterwards.
pub(crate) unsafe fn reclaim(pointer: *mut ibv_context) -> Box<Context> {
    // SAFETY: the caller's promise.
    unsafe { Box::from_raw(base_of(pointer)) }
}

/// # Safety
///
/// As for [`context`], without NULL.
unsafe fn base_of(pointer: *mut ibv_context) -> *mut Context {
    // SAFETY: stays within the box by the caller's promise.
    unsafe { pointer.byte_sub(offset_of!(verbs_context, context)).cast() }
}

/// Which file a descriptor names.
pub(crate) fn identity_of(fd: c_int) -> Result<Identity, Errno> {
    Identity::of(fd).ok_or_else(|| of_system("fstat of the descriptor"))
}
