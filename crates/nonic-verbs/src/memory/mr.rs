//! Registering memory.
//!
//! Read first: [`Mr`] and [`register`].

use super::region::{Null, OnDemand, probe};
use crate::errors;
use crate::object::{Object, argument, next_handle, object, reclaim};
use crate::objects::{ExportedMr, reserve};
use crate::pd::Pd;
use crate::refusal::ANSWER;
use libc::{c_int, c_void, size_t};
use nonic_abi::errno::{Errno, refused};
use nonic_abi::verbs::*;
use nonic_core::{Access, KeyError, KeySpec, Region};
use nonic_engine::memory::RawRegion;
use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

/// A memory region.
#[repr(C)]
pub(crate) struct Mr {
    c: UnsafeCell<ibv_mr>,
    /// What it was last registered as.
    spec: Mutex<KeySpec>,
    /// What goes with it: the device memory it shows.
    keeps: Option<Box<dyn std::any::Any>>,
}

// SAFETY: `repr(C)`, and the C structure is first.
unsafe impl Object for Mr {
    type C = ibv_mr;
}

/// Flags that have a meaning, here or as a hint.
const KNOWN_ACCESS: u32 = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_MW_BIND
    | IBV_ACCESS_ZERO_BASED
    | IBV_ACCESS_ON_DEMAND
    | IBV_ACCESS_HUGETLB
    | IBV_ACCESS_FLUSH_GLOBAL
    | IBV_ACCESS_FLUSH_PERSISTENT
    | IBV_ACCESS_OPTIONAL_RANGE;

/// The rights in force, if the combination is allowed.
pub(super) fn rights(access: u32) -> Result<Access, Errno> {
    if access & !KNOWN_ACCESS != 0 {
        return Err(refused(
            libc::EINVAL,
            format!("access {access:#x} has bits that are not offered"),
            "set bits of enum ibv_access_flags that ibv_reg_mr documents",
        ));
    }
    let writes_remotely = access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) != 0;
    if writes_remotely && access & IBV_ACCESS_LOCAL_WRITE == 0 {
        return Err(errors::of_key(KeyError::InvalidRights));
    }
    Ok(Access::from_bits_truncate(access))
}

impl Mr {
    /// Registers `spec` and makes the program's view of it.
    pub(super) fn new(
        pd: &Pd,
        spec: KeySpec,
        addr: *mut c_void,
        keeps: Option<Box<dyn std::any::Any>>,
    ) -> Result<Mr, Errno> {
        let device = &pd.shared.device;
        reserve(&mut pd.shared.objects().mrs)?;
        let key = device.register(spec.clone()).map_err(errors::of_key)?.value();
        let handle = next_handle();
        let length = spec.length as size_t;
        pd.shared.objects().mrs.insert(handle, ExportedMr { length, key });
        pd.users.join();
        let c = ibv_mr {
            context: pd.c_context(),
            pd: pd.as_c(),
            addr,
            length,
            handle,
            lkey: key,
            rkey: key,
        };
        Ok(Mr {
            c: UnsafeCell::new(c),
            spec: Mutex::new(spec),
            keeps,
        })
    }

    /// What the program sees, as it is now.
    fn view(&self) -> &ibv_mr {
        // SAFETY: written only by verbs that the program may not call at once with others for one region.
        unsafe { &*self.c.get() }
    }

    /// The key, local and remote.
    pub(crate) fn key(&self) -> u32 {
        self.view().lkey
    }
}

/// The memory at an address, as the NIC will access it.
fn region(addr: *mut c_void, length: size_t, access: u32) -> Result<Arc<dyn Region>, Errno> {
    let start = addr.expose_provenance();
    if access & IBV_ACCESS_ON_DEMAND != 0 {
        return Ok(Arc::new(OnDemand { start, len: length }));
    }
    let write = access & (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND) != 0;
    probe(start, length, write)?;
    let start = NonNull::new(addr.cast::<u8>())
        .ok_or_else(|| refused(libc::EFAULT, "addr is NULL", "pass memory that is mapped"))?;
    // SAFETY: it is the program's memory, and programs synchronise with the NIC through completions. One that takes it
    // away before it deregisters it gets errors, or, if it maps something of its own there, bytes in that.
    Ok(Arc::new(unsafe { RawRegion::guarded(start, length) }))
}

/// # Safety
///
/// The pointers are what the program passed.
unsafe fn register(
    c_pd: *mut ibv_pd,
    addr: *mut c_void,
    length: size_t,
    iova: u64,
    access: u32,
) -> Result<*mut ibv_mr, Errno> {
    // SAFETY: the caller's promise.
    let pd = unsafe { object::<Pd>(c_pd) }?;
    let rights = rights(access)?;
    // Without an address and for all of it: whatever the program maps, now or later.
    let implicit = addr.is_null() && length == size_t::MAX;
    if implicit && access & IBV_ACCESS_ON_DEMAND == 0 {
        return Err(refused(
            libc::EINVAL,
            "addr NULL with length SIZE_MAX is for IBV_ACCESS_ON_DEMAND alone",
            "set that bit, or pass the range to be registered",
        ));
    }
    let spec = KeySpec {
        pd: pd.id,
        region: region(addr, length, access)?,
        offset: 0,
        length: length as u64,
        iova,
        access: rights,
        bound_qp: None,
        invalidatable: false,
    };
    Mr::new(pd, spec, addr, None).map(Object::leak)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: size_t,
    access: c_int,
) -> *mut ibv_mr {
    let access = access as u32;
    let iova = if access & IBV_ACCESS_ZERO_BASED == 0 {
        addr.addr() as u64
    } else {
        0
    };
    // SAFETY: the program passes a live domain.
    ANSWER.pointer("ibv_reg_mr", unsafe { register(pd, addr, length, iova, access) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: size_t,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the program passes a live domain.
    ANSWER.pointer("ibv_reg_mr_iova", unsafe {
        register(pd, addr, length, iova, access as u32)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: size_t,
    iova: u64,
    access: libc::c_uint,
) -> *mut ibv_mr {
    // The header's macro calls this with the address as iova, zero-based or not.
    let same = access & IBV_ACCESS_ZERO_BASED != 0 && iova == addr.addr() as u64;
    let iova = if same { 0 } else { iova };
    // SAFETY: the program passes a live domain.
    ANSWER.pointer("ibv_reg_mr_iova2", unsafe {
        register(pd, addr, length, iova, access)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_dmabuf_mr(
    _pd: *mut ibv_pd,
    _offset: u64,
    _length: size_t,
    _iova: u64,
    _fd: c_int,
    _access: c_int,
) -> *mut ibv_mr {
    let what = "memory of other devices (dma-buf) is not offered: there is no device that could read it";
    let errno = refused(
        libc::EOPNOTSUPP,
        what,
        "register memory of the process with ibv_reg_mr",
    );
    ANSWER.pointer("ibv_reg_dmabuf_mr", Err(errno))
}

/// # Safety
///
/// The pointer is what the program passed.
unsafe fn deregister(c_mr: *mut ibv_mr) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let mr = unsafe { object::<Mr>(c_mr) }?;
    // SAFETY: a region keeps its domain from being destroyed.
    let pd = unsafe { object::<Pd>(mr.view().pd) }?;
    if pd.shared.is_elsewhere() {
        return Ok(());
    }
    pd.shared
        .device
        .revoke_unbound(mr.key())
        .map_err(errors::of_key)?;
    pd.shared.objects().mrs.remove(&mr.view().handle);
    pd.users.leave();
    // SAFETY: the program does not use it again.
    let mut mr = unsafe { reclaim::<Mr>(c_mr) };
    drop(mr.keeps.take());
    Ok(())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: the program passes a live region.
    ANSWER.code("ibv_dereg_mr", unsafe { deregister(mr) })
}

/// # Safety
///
/// The pointers are what the program passed.
unsafe fn reregister(
    c_mr: *mut ibv_mr,
    flags: c_int,
    c_pd: *mut ibv_pd,
    addr: *mut c_void,
    length: size_t,
    access: u32,
) -> Result<(), (c_int, Errno)> {
    let input = |errno| (IBV_REREG_MR_ERR_INPUT, errno);
    let known = IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
    if flags & !known != 0 || flags == 0 {
        return Err(input(refused(
            libc::EINVAL,
            format!("flags {flags:#x} has unknown bits, or none"),
            "set IBV_REREG_MR_CHANGE_TRANSLATION, _PD or _ACCESS",
        )));
    }
    // SAFETY: the caller's promise.
    let mr = unsafe { object::<Mr>(c_mr) }.map_err(input)?;
    // SAFETY: a region keeps its domain from being destroyed.
    let old_pd = unsafe { object::<Pd>(mr.view().pd) }.map_err(input)?;
    let mut stored = mr.spec.lock().unwrap_or_else(PoisonError::into_inner);
    let mut spec = stored.clone();
    let mut pd = old_pd;
    if flags & IBV_REREG_MR_CHANGE_PD != 0 {
        // SAFETY: the program passes a live domain.
        pd = unsafe { object::<Pd>(c_pd) }.map_err(input)?;
        spec.pd = pd.id;
    }
    if flags & IBV_REREG_MR_CHANGE_ACCESS != 0 {
        spec.access = rights(access).map_err(input)?;
    }
    if flags & IBV_REREG_MR_CHANGE_TRANSLATION != 0 {
        if addr.is_null() || length == 0 {
            return Err(input(refused(
                libc::EINVAL,
                "addr is NULL or length 0",
                "pass the range to be registered",
            )));
        }
        spec.region = region(addr, length, spec.access.bits()).map_err(input)?;
        spec.length = length as u64;
        spec.iova = addr.addr() as u64;
    }
    let command = |errno| (IBV_REREG_MR_ERR_CMD, errno);
    let device = &old_pd.shared.device;
    device
        .revoke_unbound(mr.key())
        .map_err(|error| input(errors::of_key(error)))?;
    let registered = device.keys().register_as(mr.key(), spec.clone());
    if !matches!(registered, Ok(Some(_))) {
        return Err(command(refused(
            libc::ENOMEM,
            "the device has no key left",
            "deregister regions that are not used any more",
        )));
    }
    old_pd.users.leave();
    pd.users.join();
    *stored = spec;
    // SAFETY: the program uses the region in no other call meanwhile.
    let c = unsafe { &mut *mr.c.get() };
    c.pd = pd.as_c();
    c.context = pd.c_context();
    if flags & IBV_REREG_MR_CHANGE_TRANSLATION != 0 {
        c.addr = addr;
        c.length = length;
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: size_t,
    access: c_int,
) -> c_int {
    // SAFETY: the program passes live objects.
    match unsafe { reregister(mr, flags, pd, addr, length, access as u32) } {
        Ok(()) => 0,
        Err((code, errno)) => {
            ANSWER.tell("ibv_rereg_mr", &errno);
            code
        }
    }
}

pub(crate) unsafe extern "C" fn alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr {
    // SAFETY: the program passes a live domain.
    let pd = unsafe { object::<Pd>(pd) };
    ANSWER.pointer(
        "ibv_alloc_null_mr",
        pd.and_then(|pd| {
            let spec = KeySpec {
                pd: pd.id,
                region: Arc::new(Null),
                offset: 0,
                length: u64::MAX,
                iova: 0,
                access: Access::LOCAL_WRITE,
                bound_qp: None,
                invalidatable: false,
            };
            Mr::new(pd, spec, std::ptr::null_mut(), None).map(Object::leak)
        }),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_import_mr(c_pd: *mut ibv_pd, handle: u32) -> *mut ibv_mr {
    // SAFETY: the program passes a live domain.
    let pd = unsafe { object::<Pd>(c_pd) };
    ANSWER.pointer(
        "ibv_import_mr",
        pd.and_then(|pd| {
            let found = *pd.shared.objects().mrs.get(&handle).ok_or_else(|| {
                refused(
                    libc::EINVAL,
                    format!("mr_handle {handle} names no region of this device"),
                    "pass the handle of an ibv_mr of a context that shares this cmd_fd",
                )
            })?;
            let c = ibv_mr {
                context: pd.c_context(),
                pd: c_pd,
                addr: std::ptr::null_mut(),
                length: found.length,
                handle,
                lkey: found.key,
                rkey: found.key,
            };
            Ok(Box::into_raw(Box::new(c)))
        }),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_unimport_mr(mr: *mut ibv_mr) {
    if !mr.is_null() {
        // SAFETY: the program passes what `ibv_import_mr` gave it.
        drop(unsafe { Box::from_raw(mr) });
    }
}

/// Faults in what the program says it will use. A hint, but one that answers for its arguments.
pub(crate) unsafe extern "C" fn advise_mr(
    c_pd: *mut ibv_pd,
    advice: c_int,
    flags: u32,
    sges: *mut ibv_sge,
    count: u32,
) -> c_int {
    let known = matches!(
        advice,
        IBV_ADVISE_MR_ADVICE_PREFETCH
            | IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE
            | IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT
    );
    if !known {
        let what = format!("advice {advice} is not offered");
        let errno = refused(libc::EOPNOTSUPP, what, "use one of IBV_ADVISE_MR_ADVICE_PREFETCH");
        return ANSWER.code("ibv_advise_mr", Err(errno));
    }
    if flags & !IBV_ADVISE_MR_FLAG_FLUSH != 0 || count == 0 {
        let what = format!("flags is {flags:#x} and num_sge {count}");
        let next = "set no flag but IBV_ADVISE_MR_FLAG_FLUSH, and num_sge to at least 1";
        return ANSWER.code("ibv_advise_mr", Err(refused(libc::EINVAL, what, next)));
    }
    // SAFETY: the program passes a live domain and an array of `count` elements.
    let sges = unsafe { argument(sges).map(|first| std::slice::from_raw_parts(first, count as usize)) };
    // SAFETY: the program passes a live domain.
    let pd = unsafe { object::<Pd>(c_pd) };
    ANSWER.code(
        "ibv_advise_mr",
        pd.and_then(|pd| {
            for sge in sges? {
                prefetch(pd, sge, advice)?;
            }
            Ok(())
        }),
    )
}

fn prefetch(pd: &Pd, sge: &ibv_sge, advice: c_int) -> Result<(), Errno> {
    let keys = pd.shared.device.keys();
    let key = keys.find(sge.lkey, pd.id, nonic_core::Qpn::new(0)).map_err(|_| {
        refused(
            libc::ENOENT,
            format!(
                "sg_list has lkey {:#x}, which is no key of this protection domain",
                sge.lkey
            ),
            "pass the lkey of a region of the same protection domain",
        )
    })?;
    let write = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
    let needed = if write {
        Access::LOCAL_WRITE
    } else {
        Access::empty()
    };
    key.check(sge.addr, u64::from(sge.length), needed)
        .map_err(|error| match error {
            nonic_core::KeyError::Rights => refused(
                libc::EPERM,
                format!("the region of lkey {:#x} is not writable", sge.lkey),
                "register it with IBV_ACCESS_LOCAL_WRITE, or prefetch for reading",
            ),
            _ => refused(
                libc::EFAULT,
                format!(
                    "sg_list has a range that is out of bounds of lkey {:#x}",
                    sge.lkey
                ),
                "check address and length",
            ),
        })?;
    if advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT {
        probe(sge.addr as usize, sge.length as usize, write)?;
    }
    Ok(())
}
