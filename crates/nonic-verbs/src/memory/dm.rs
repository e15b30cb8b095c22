//! Device memory: pages of this process that only the NIC and two copy functions reach.

use super::mr::{Mr, rights};
use crate::context::{Shared, context};
use crate::limits::MAX_DEVICE_MEMORY;
use crate::object::{Object, Users, argument, next_handle, object, reclaim};
use crate::objects::ExportedDm;
use crate::pd::Pd;
use crate::refusal::ANSWER;
use libc::{c_int, c_uint, c_void, size_t};
use nonic_abi::errno::{Errno, refused};
use nonic_abi::verbs::*;
use nonic_core::{KeySpec, Region};
use nonic_engine::memory::Pages;
use std::cell::UnsafeCell;
use std::sync::Arc;

/// A piece of device memory.
#[repr(C)]
pub(crate) struct Dm {
    c: UnsafeCell<ibv_dm>,
    shared: Arc<Shared>,
    pages: Arc<Pages>,
    length: usize,
    handle: u32,
    imported: bool,
    users: Arc<Users>,
}

// SAFETY: `repr(C)`, and the C structure is first.
unsafe impl Object for Dm {
    type C = ibv_dm;
}

impl Dm {
    fn new(shared: &Arc<Shared>, c_context: *mut ibv_context, exported: ExportedDm, handle: u32) -> Self {
        let c = ibv_dm {
            context: c_context,
            memcpy_to_dm: Some(memcpy_to_dm),
            memcpy_from_dm: Some(memcpy_from_dm),
            comp_mask: 1,
            handle,
        };
        Dm {
            c: UnsafeCell::new(c),
            shared: Arc::clone(shared),
            pages: exported.pages,
            length: exported.length,
            handle,
            imported: false,
            users: Arc::default(),
        }
    }
}

pub(crate) unsafe extern "C" fn alloc_dm(
    c_context: *mut ibv_context,
    attr: *mut ibv_alloc_dm_attr,
) -> *mut ibv_dm {
    // SAFETY: the program passes an open context and its structure.
    let (context, attr) = unsafe { (context(c_context), argument(attr)) };
    ANSWER.pointer(
        "ibv_alloc_dm",
        context.and_then(|context| {
            let attr = attr?;
            if attr.comp_mask != 0 || attr.length == 0 || attr.log_align_req > 12 {
                return Err(refused(
                    libc::EINVAL,
                    format!(
                        "attr.comp_mask is {:#x}, length {}, log_align_req {}",
                        attr.comp_mask, attr.length, attr.log_align_req
                    ),
                    "comp_mask is 0, length at least 1, log_align_req at most 12",
                ));
            }
            if attr.length > MAX_DEVICE_MEMORY {
                return Err(refused(
                    libc::ENOMEM,
                    format!(
                        "attr.length is {}, the device has {MAX_DEVICE_MEMORY} bytes",
                        attr.length
                    ),
                    "ask for no more than ibv_query_device_ex says (max_dm_size)",
                ));
            }
            let pages = Pages::new(attr.length).map_err(|_| {
                refused(
                    libc::ENOMEM,
                    "no memory of that length could be mapped",
                    "free memory, or raise the limit of the process or its container",
                )
            })?;
            if context.shared.device.is_mapped_by_peers() {
                // SAFETY: nothing else knows of them yet. If it fails, peers have other ways.
                let _ = unsafe { pages.share() };
            }
            let exported = ExportedDm {
                pages: Arc::new(pages),
                length: attr.length,
            };
            let handle = next_handle();
            context.shared.objects().dms.insert(handle, exported.clone());
            Ok(Dm::new(&context.shared, c_context, exported, handle).leak())
        }),
    )
}

pub(crate) unsafe extern "C" fn free_dm(dm: *mut ibv_dm) -> c_int {
    // SAFETY: the program passes live device memory.
    let dm_object = unsafe { object::<Dm>(dm) };
    ANSWER.code(
        "ibv_free_dm",
        dm_object.and_then(|object| {
            object.users.none()?;
            if !object.imported {
                object.shared.objects().dms.remove(&object.handle);
            }
            // SAFETY: the program does not use it again.
            drop(unsafe { reclaim::<Dm>(dm) });
            Ok(())
        }),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_import_dm(c_context: *mut ibv_context, handle: u32) -> *mut ibv_dm {
    // SAFETY: the program passes an open context.
    let context = unsafe { context(c_context) };
    ANSWER.pointer(
        "ibv_import_dm",
        context.and_then(|context| {
            let found = context.shared.objects().dms.get(&handle).cloned();
            let mut dm = Dm::new(
                &context.shared,
                c_context,
                found.ok_or_else(|| {
                    refused(
                        libc::EINVAL,
                        format!("dm_handle {handle} names no device memory of this device"),
                        "pass the handle of an ibv_dm of a context that shares this cmd_fd",
                    )
                })?,
                handle,
            );
            dm.imported = true;
            Ok(dm.leak())
        }),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_unimport_dm(dm: *mut ibv_dm) {
    if !dm.is_null() {
        // SAFETY: the program passes imported device memory and does not use it again.
        drop(unsafe { reclaim::<Dm>(dm) });
    }
}

pub(crate) unsafe extern "C" fn reg_dm_mr(
    pd: *mut ibv_pd,
    dm: *mut ibv_dm,
    offset: u64,
    length: size_t,
    access: c_uint,
) -> *mut ibv_mr {
    // SAFETY: the program passes live objects.
    let (pd, dm) = unsafe { (object::<Pd>(pd), object::<Dm>(dm)) };
    ANSWER.pointer(
        "ibv_reg_dm_mr",
        pd.and_then(|pd| {
            let dm = dm?;
            // There is no address that could be meant otherwise.
            if access & IBV_ACCESS_ZERO_BASED == 0 || access & IBV_ACCESS_ON_DEMAND != 0 {
                return Err(refused(
                    libc::EINVAL,
                    format!("access is {access:#x}"),
                    "set IBV_ACCESS_ZERO_BASED and not IBV_ACCESS_ON_DEMAND: device memory has no address",
                ));
            }
            let offset = dm.inside(offset, length)?;
            let spec = KeySpec {
                pd: pd.id,
                region: Arc::clone(&dm.pages) as Arc<dyn Region>,
                offset,
                length: length as u64,
                iova: 0,
                access: rights(access)?,
                bound_qp: None,
                invalidatable: false,
            };
            let keeps = Box::new(Lease::new(dm));
            Mr::new(pd, spec, std::ptr::null_mut(), Some(keeps)).map(Object::leak)
        }),
    )
}

impl Dm {
    /// The offset as an index, if the range lies within.
    fn inside(&self, offset: u64, length: size_t) -> Result<usize, Errno> {
        let offset = usize::try_from(offset).map_err(|_| {
            refused(
                libc::EINVAL,
                "the offset is out of bounds of the device memory",
                "check offset and length",
            )
        })?;
        match offset.checked_add(length) {
            Some(end) if end <= self.length => Ok(offset),
            _ => Err(refused(
                libc::EINVAL,
                format!(
                    "offset {offset} and length {length} end behind the device memory, which has {} bytes",
                    self.length
                ),
                "check offset and length",
            )),
        }
    }
}

impl Dm {
    /// The same for the copy functions, which move whole words of four bytes, as on devices.
    fn words(&self, offset: u64, length: size_t) -> Result<usize, Errno> {
        let offset = self.inside(offset, length)?;
        if offset % 4 == 0 && length % 4 == 0 {
            Ok(offset)
        } else {
            Err(refused(
                libc::EINVAL,
                format!("offset {offset} or length {length} is no multiple of 4"),
                "copy whole words of 4 bytes",
            ))
        }
    }
}

/// A registration's hold on device memory.
struct Lease(Arc<Users>);

impl Lease {
    fn new(dm: &Dm) -> Self {
        dm.users.join();
        Lease(Arc::clone(&dm.users))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// The word-wise copies of the engine are used for both directions, because peers may access the memory too.
unsafe extern "C" fn memcpy_to_dm(
    dm: *mut ibv_dm,
    offset: u64,
    from: *const c_void,
    length: size_t,
) -> c_int {
    // SAFETY: the program passes live device memory.
    let dm = unsafe { object::<Dm>(dm) };
    ANSWER.code(
        "ibv_memcpy_to_dm",
        dm.and_then(|dm| {
            let offset = dm.words(offset, length)?;
            // SAFETY: the program's buffer has `length` bytes that no thread writes during the call.
            let data = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), length) };
            dm.pages.write(offset, data).map_err(|_| {
                refused(
                    libc::EFAULT,
                    "the device memory cannot be written",
                    "allocate it again",
                )
            })
        }),
    )
}

unsafe extern "C" fn memcpy_from_dm(to: *mut c_void, dm: *mut ibv_dm, offset: u64, length: size_t) -> c_int {
    // SAFETY: the program passes live device memory.
    let dm = unsafe { object::<Dm>(dm) };
    ANSWER.code(
        "ibv_memcpy_from_dm",
        dm.and_then(|dm| {
            let offset = dm.words(offset, length)?;
            // SAFETY: the program's buffer has `length` bytes for us to write.
            let out = unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), length) };
            dm.pages.read(offset, out).map_err(|_| {
                refused(
                    libc::EFAULT,
                    "the device memory cannot be read",
                    "allocate it again",
                )
            })
        }),
    )
}
