//! Protection domains, parent domains and thread domains.

use crate::context::{Shared, context};
use crate::object::{Object, Users, argument, next_handle, object, reclaim};
use crate::objects::reserve;
use crate::refusal::ANSWER;
use libc::{c_int, c_void};
use nonic_abi::errno::{Errno, refused};
use nonic_abi::verbs::*;
use nonic_core::PdId;
use std::cell::UnsafeCell;
use std::sync::Arc;

/// A protection domain.
#[repr(C)]
pub(crate) struct Pd {
    c: UnsafeCell<ibv_pd>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) id: PdId,
    pub(crate) users: Users,
    parent: Option<Parent>,
    imported: bool,
}

// SAFETY: `repr(C)`, and the C structure is first.
unsafe impl Object for Pd {
    type C = ibv_pd;
}

/// What makes a domain a parent domain: a protection domain seen through a thread domain and allocators.
struct Parent {
    pd: *mut ibv_pd,
    td: *mut ibv_td,
    allocators: Option<Allocators>,
}

/// The program's own allocator, for what objects of the domain need.
#[derive(Copy, Clone)]
pub(crate) struct Allocators {
    alloc: parent_domain_alloc,
    free: parent_domain_free,
    context: *mut c_void,
}

impl Pd {
    fn new(shared: &Arc<Shared>, c_context: *mut ibv_context, id: PdId, handle: u32) -> Self {
        let c = ibv_pd {
            context: c_context,
            handle,
        };
        Pd {
            c: UnsafeCell::new(c),
            shared: Arc::clone(shared),
            id,
            users: Users::default(),
            parent: None,
            imported: false,
        }
    }

    /// The context the program made it from.
    pub(crate) fn c_context(&self) -> *mut ibv_context {
        // SAFETY: set when the domain was made, and never again.
        unsafe { (*self.c.get()).context }
    }

    fn handle(&self) -> u32 {
        // SAFETY: set when the domain was made, and never again.
        unsafe { (*self.c.get()).handle }
    }

    /// The allocator the program wants used.
    pub(crate) fn allocators(&self) -> Option<Allocators> {
        self.parent.as_ref().and_then(|parent| parent.allocators)
    }
}

/// A piece of the program's own memory, held for an object of a parent domain.
pub(crate) struct Buffer {
    pd: *mut ibv_pd,
    allocators: Allocators,
    memory: *mut c_void,
    resource: u64,
}

impl Buffer {
    /// Asks the domain's allocator, if it has one, for `size` bytes. What it says to use its own is fine.
    pub(crate) fn new(pd: &Pd, size: usize, resource: u64) -> Result<Option<Self>, Errno> {
        const PAGE: usize = 4096;
        let Some(allocators) = pd.allocators() else {
            return Ok(None);
        };
        // SAFETY: the program's function, called as the man page says.
        let memory = unsafe { (allocators.alloc)(pd.as_c(), allocators.context, size, PAGE, resource) };
        // All ones says: use the default.
        if memory.addr() == usize::MAX {
            return Ok(None);
        }
        if memory.is_null() {
            return Err(refused(
                libc::ENOMEM,
                "the alloc function of the parent domain returned NULL",
                "return memory from it, or IBV_ALLOCATOR_USE_DEFAULT",
            ));
        }
        Ok(Some(Buffer {
            pd: pd.as_c(),
            allocators,
            memory,
            resource,
        }))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the program's function, for what its partner gave us; the domain outlives its objects.
        unsafe { (self.allocators.free)(self.pd, self.allocators.context, self.memory, self.resource) };
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_alloc_pd(c_context: *mut ibv_context) -> *mut ibv_pd {
    // SAFETY: the program passes an open context.
    let context = unsafe { context(c_context) };
    ANSWER.pointer(
        "ibv_alloc_pd",
        context.and_then(|context| {
            reserve(&mut context.shared.objects().pds)?;
            let id = context.device().alloc_pd();
            let handle = next_handle();
            context.shared.objects().pds.insert(handle, id);
            Ok(Pd::new(&context.shared, c_context, id, handle).leak())
        }),
    )
}

/// # Safety
///
/// As for [`object`].
unsafe fn dealloc(c_pd: *mut ibv_pd) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let pd = unsafe { object::<Pd>(c_pd) }?;
    if pd.shared.is_elsewhere() {
        return Ok(());
    }
    pd.users.none()?;
    // SAFETY: the caller's promise; nothing needs it any more.
    let pd = unsafe { reclaim::<Pd>(c_pd) };
    match &pd.parent {
        Some(parent) => {
            // SAFETY: a parent domain keeps both from being destroyed.
            unsafe {
                object::<Pd>(parent.pd)?.users.leave();
                if !parent.td.is_null() {
                    object::<Td>(parent.td)?.users.leave();
                }
            }
        }
        None if !pd.imported => {
            pd.shared.objects().pds.remove(&pd.handle());
        }
        None => {}
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: the program passes a live domain.
    ANSWER.code("ibv_dealloc_pd", unsafe { dealloc(pd) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_import_pd(c_context: *mut ibv_context, handle: u32) -> *mut ibv_pd {
    // SAFETY: the program passes an open context.
    let context = unsafe { context(c_context) };
    ANSWER.pointer(
        "ibv_import_pd",
        context.and_then(|context| {
            let id = *context.shared.objects().pds.get(&handle).ok_or_else(|| {
                refused(
                    libc::EINVAL,
                    format!("pd_handle {handle} names no protection domain of this device"),
                    "pass the handle of an ibv_pd of a context that shares this cmd_fd",
                )
            })?;
            let mut pd = Pd::new(&context.shared, c_context, id, handle);
            pd.imported = true;
            Ok(pd.leak())
        }),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_unimport_pd(pd: *mut ibv_pd) {
    if !pd.is_null() {
        // SAFETY: the program passes an imported domain.
        drop(unsafe { reclaim::<Pd>(pd) });
    }
}

/// A thread domain: a promise of the program that one thread at a time uses the objects. Nothing here needs it.
#[repr(C)]
struct Td {
    c: UnsafeCell<ibv_td>,
    users: Users,
}

// SAFETY: `repr(C)`, and the C structure is first.
unsafe impl Object for Td {
    type C = ibv_td;
}

pub(crate) unsafe extern "C" fn alloc_td(
    c_context: *mut ibv_context,
    attr: *mut ibv_td_init_attr,
) -> *mut ibv_td {
    // SAFETY: the program passes an open context and its structure.
    let (context, attr) = unsafe { (context(c_context), argument(attr)) };
    ANSWER.pointer(
        "ibv_alloc_td",
        context.and_then(|_| {
            if attr?.comp_mask != 0 {
                return Err(refused(libc::EINVAL, "attr.comp_mask is not 0", "set it to 0"));
            }
            let td = Td {
                c: UnsafeCell::new(ibv_td { context: c_context }),
                users: Users::default(),
            };
            Ok(td.leak())
        }),
    )
}

pub(crate) unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    // SAFETY: the program passes a live domain.
    let free = unsafe { object::<Td>(td) }.and_then(|td| td.users.none());
    ANSWER.code(
        "ibv_dealloc_td",
        free.map(|()| {
            // SAFETY: nothing needs it any more.
            drop(unsafe { reclaim::<Td>(td) });
        }),
    )
}

pub(crate) unsafe extern "C" fn alloc_parent_domain(
    c_context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    // SAFETY: the program passes an open context and its structure.
    ANSWER.pointer("ibv_alloc_parent_domain", unsafe {
        parent_domain(c_context, attr)
    })
}

/// # Safety
///
/// The pointers are what the program passed.
unsafe fn parent_domain(
    c_context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> Result<*mut ibv_pd, Errno> {
    // SAFETY: the caller's promise.
    let (context, attr) = unsafe { (context(c_context)?, argument(attr)?) };
    // The last allows the use of memory that an encrypted guest does not protect. A device that does not need such memory
    // uses what it always does.
    let known = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS
        | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT
        | IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC;
    if attr.comp_mask & !known != 0 {
        return Err(refused(
            libc::EINVAL,
            "attr has bits in comp_mask that are not offered",
            "clear the bits; docs/differences.md says what is offered",
        ));
    }
    // SAFETY: the program passes live domains.
    let pd = unsafe { object::<Pd>(attr.pd) }?;
    if pd.parent.is_some() {
        return Err(refused(
            libc::EINVAL,
            "attr.pd is a parent domain itself",
            "pass a protection domain of ibv_alloc_pd",
        ));
    }
    let allocators = match (
        attr.comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS,
        attr.alloc,
        attr.free,
    ) {
        (0, _, _) => None,
        (_, Some(alloc), Some(free)) => Some(Allocators {
            alloc,
            free,
            context: match attr.comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT {
                0 => std::ptr::null_mut(),
                _ => attr.pd_context,
            },
        }),
        _ => {
            return Err(refused(
                libc::EINVAL,
                "attr.alloc or attr.free is NULL",
                "set both, or leave IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS out of comp_mask",
            ));
        }
    };
    if !attr.td.is_null() {
        // SAFETY: the program passes a live domain.
        unsafe { object::<Td>(attr.td) }?.users.join();
    }
    pd.users.join();
    let mut domain = Pd::new(&context.shared, c_context, pd.id, pd.handle());
    domain.parent = Some(Parent {
        pd: attr.pd,
        td: attr.td,
        allocators,
    });
    Ok(domain.leak())
}
