//! Opening a device: the context with its tables of operations.
//!
//! [`Context`] is what the program's `ibv_context` pointer leads to; the pointer is to a field in its middle,
//! because the extended operations stand before it. [`Shared`] is what contexts share that were made from one
//! another by `ibv_import_device`: the engine's device and the lists that find objects by number.

use crate::device::verbs_device;
use crate::errors;
use crate::memory::{self, ExportedDm, ExportedMr};
use crate::object::zeroed;
use crate::xrc::NamedDomains;
use crate::{async_event, cq, extended, pd, poll, post, qp, query, srq, xrc};
use libc::c_int;
use nonic_abi::errno::{self, Errno};
use nonic_abi::fork::Birth;
use nonic_abi::verbs::{ibv_context, ibv_cq, ibv_device, ibv_qp, ibv_srq, verbs_context};
use nonic_core::{CqId, PdId, Qpn, SrqId};
use nonic_engine::Device;
use nonic_engine::os::descriptors::{Identity, InternalFd};
use std::collections::HashMap;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

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
    pub(crate) objects: Mutex<Objects>,
    identity: Identity,
    birth: Birth,
}

/// Objects by the numbers that events and imports use. Pointers are to live objects: each object removes
/// itself before it goes.
#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) qps: HashMap<Qpn, *mut ibv_qp>,
    pub(crate) cqs: HashMap<CqId, *mut ibv_cq>,
    pub(crate) srqs: HashMap<SrqId, *mut ibv_srq>,
    pub(crate) pds: HashMap<u32, PdId>,
    pub(crate) mrs: HashMap<u32, ExportedMr>,
    pub(crate) dms: HashMap<u32, ExportedDm>,
    pub(crate) domains: NamedDomains,
}

// SAFETY: the pointers are followed only while the lock around them is held, and their targets may be used from
// any thread.
unsafe impl Send for Objects {}

/// Every open device of this process, for imports.
static OPEN: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

impl Shared {
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

    fn open(shared: Arc<Shared>, command: OwnedFd, c_device: *mut ibv_device) -> *mut ibv_context {
        let mut verbs: verbs_context = zeroed();
        fill_operations(&mut verbs);
        verbs.sz = size_of::<verbs_context>();
        let context = &mut verbs.context;
        context.device = c_device;
        context.cmd_fd = command.as_raw_fd();
        context.async_fd = shared.device.events().as_fd().as_raw_fd();
        context.num_comp_vectors = std::thread::available_parallelism().map_or(1, |n| n.get() as c_int);
        // Says that the extended operations stand before the context.
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
        return Err(libc::EINVAL);
    }
    // SAFETY: the context stands at this offset in its box.
    Ok(unsafe { &*base_of(pointer) })
}

/// # Safety
///
/// As for [`context`], without NULL.
unsafe fn base_of(pointer: *mut ibv_context) -> *mut Context {
    // SAFETY: stays within the box by the caller's promise.
    unsafe { pointer.byte_sub(offset_of!(verbs_context, context)).cast() }
}

fn fill_operations(verbs: &mut verbs_context) {
    let ops = &mut verbs.context.ops;
    ops.alloc_mw = Some(memory::alloc_mw);
    ops.bind_mw = Some(memory::bind_mw);
    ops.dealloc_mw = Some(memory::dealloc_mw);
    ops.poll_cq = Some(poll::poll_cq);
    ops.req_notify_cq = Some(cq::req_notify_cq);
    ops.post_srq_recv = Some(post::post_srq_recv);
    ops.post_send = Some(post::post_send);
    ops.post_recv = Some(post::post_recv);
    verbs.query_port = Some(query::query_port);
    verbs.query_device_ex = Some(query::query_device_ex);
    verbs.query_rt_values = Some(query::query_rt_values);
    verbs.advise_mr = Some(memory::advise_mr);
    verbs.alloc_null_mr = Some(memory::alloc_null_mr);
    verbs.reg_dm_mr = Some(memory::reg_dm_mr);
    verbs.alloc_dm = Some(memory::alloc_dm);
    verbs.free_dm = Some(memory::free_dm);
    verbs.alloc_parent_domain = Some(pd::alloc_parent_domain);
    verbs.alloc_td = Some(pd::alloc_td);
    verbs.dealloc_td = Some(pd::dealloc_td);
    verbs.modify_cq = Some(cq::modify_cq);
    verbs.create_cq_ex = Some(extended::create_cq_ex);
    verbs.create_qp_ex = Some(extended::create_qp_ex);
    verbs.create_srq_ex = Some(srq::create_srq_ex);
    verbs.get_srq_num = Some(srq::get_srq_num);
    verbs.open_xrcd = Some(xrc::open_xrcd);
    verbs.close_xrcd = Some(xrc::close_xrcd);
    verbs.open_qp = Some(qp::open_qp);
}

/// A file of no content, whose only use is that it can be recognised.
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

pub(crate) fn identity_of(fd: c_int) -> Result<Identity, Errno> {
    Identity::of(fd).ok_or_else(errno::last)
}

/// # Safety
///
/// As for [`verbs_device`].
unsafe fn open(c_device: *mut ibv_device) -> Result<*mut ibv_context, Errno> {
    // SAFETY: the caller's promise.
    let known = unsafe { verbs_device(c_device) }.ok_or(libc::EINVAL)?;
    let device = Device::open(&known.netdev().name).map_err(|error| errors::of_open(&error))?;
    async_event::make_blocking(&device)?;
    let (command, identity) = new_identity()?;
    let shared = Arc::new(Shared {
        device,
        objects: Mutex::default(),
        identity,
        birth: Birth::now(),
    });
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|other| other.strong_count() > 0);
    open.push(Arc::downgrade(&shared));
    drop(open);
    Ok(Context::open(shared, command, c_device))
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
    let context = unsafe { Box::from_raw(base_of(pointer)) };
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
    let name = shared.device.netdev().name.clone();
    let c_device = crate::device::find(&name).ok_or(libc::ENODEV)?;
    // SAFETY: the program gives the descriptor away, as the man page says.
    let command = unsafe { OwnedFd::from_raw_fd(fd) };
    Ok(Context::open(shared, command, c_device))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_import_device(cmd_fd: c_int) -> *mut ibv_context {
    errno::pointer(import(cmd_fd))
}
