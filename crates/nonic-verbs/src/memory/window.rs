//! Memory windows: allocating, binding those of type 1, freeing.
//!
//! A window of type 2 is bound by a work request that the program posts itself (`post`, `extended`); what it
//! asks for is translated here for all three ways.

use crate::context::Shared;
use crate::errors;
use crate::object::{Object, argument, next_handle, object, reclaim};
use crate::pd::Pd;
use crate::qp::Qp;
use crate::refusal::ANSWER;
use libc::c_int;
use nonic_abi::errno::{Errno, refused};
use nonic_abi::verbs::*;
use nonic_core::{Access, Data, SendFlags, SendOp, SendRequest, WindowBind, WindowKind};
use std::cell::UnsafeCell;
use std::sync::Arc;

/// A memory window.
#[repr(C)]
struct Mw {
    c: UnsafeCell<ibv_mw>,
    shared: Arc<Shared>,
}

// SAFETY: `repr(C)`, and the C structure is first.
unsafe impl Object for Mw {
    type C = ibv_mw;
}

pub(crate) unsafe extern "C" fn alloc_mw(c_pd: *mut ibv_pd, mw_type: c_int) -> *mut ibv_mw {
    // SAFETY: the program passes a live domain.
    let pd = unsafe { object::<Pd>(c_pd) };
    ANSWER.pointer(
        "ibv_alloc_mw",
        pd.and_then(|pd| {
            let kind = match mw_type {
                IBV_MW_TYPE_1 => WindowKind::Type1,
                IBV_MW_TYPE_2 => WindowKind::Type2,
                _ => {
                    return Err(refused(
                        libc::EINVAL,
                        format!("type {mw_type} is unknown"),
                        "use IBV_MW_TYPE_1 or IBV_MW_TYPE_2",
                    ));
                }
            };
            let rkey = pd.shared.device.alloc_window(pd.id, kind);
            let rkey = rkey.map_err(|_| {
                refused(
                    libc::ENOMEM,
                    "the device has no key left",
                    "deallocate windows and regions that are not used any more",
                )
            })?;
            pd.users.join();
            let c = ibv_mw {
                context: pd.c_context(),
                pd: c_pd,
                rkey,
                handle: next_handle(),
                mw_type,
            };
            let mw = Mw {
                c: UnsafeCell::new(c),
                shared: Arc::clone(&pd.shared),
            };
            Ok(mw.leak())
        }),
    )
}

pub(crate) unsafe extern "C" fn dealloc_mw(c_mw: *mut ibv_mw) -> c_int {
    // SAFETY: the program passes a live window.
    let mw = unsafe { object::<Mw>(c_mw) };
    ANSWER.code(
        "ibv_dealloc_mw",
        mw.and_then(|mw| {
            if mw.shared.is_elsewhere() {
                return Ok(());
            }
            // SAFETY: the program uses the window in no other call meanwhile; a window keeps its domain from being
            // destroyed.
            let (rkey, pd) = unsafe { ((*c_mw).rkey, object::<Pd>((*c_mw).pd)?) };
            mw.shared.device.free_window(rkey);
            pd.users.leave();
            // SAFETY: the program does not use it again.
            drop(unsafe { reclaim::<Mw>(c_mw) });
            Ok(())
        }),
    )
}

/// What a binding asks for. Which window and region it concerns are looked up when its turn comes.
///
/// # Safety
///
/// The window is NULL or live, and so is the region.
pub(crate) unsafe fn binding(
    mw: *mut ibv_mw,
    rkey: u32,
    info: &ibv_mw_bind_info,
) -> Result<WindowBind, Errno> {
    // SAFETY: the caller's promise.
    let (mw, mr) = unsafe { (argument(mw)?, argument(info.mr).ok()) };
    // Only a window that is being unbound needs no region.
    let lkey = match mr {
        Some(mr) => mr.lkey,
        None if info.length == 0 => 0,
        None => {
            return Err(refused(
                libc::EINVAL,
                "bind_info.mr is NULL and length is not 0",
                "pass the region to bind the window to, or length 0 to unbind it",
            ));
        }
    };
    Ok(WindowBind {
        window: mw.rkey,
        rkey,
        lkey,
        va: info.addr,
        length: info.length,
        access: Access::from_bits_truncate(info.mw_access_flags),
    })
}

/// The next key of a window: the lower eight bits are the program's to count.
fn next_rkey(rkey: u32) -> u32 {
    (rkey & !0xff) | (rkey.wrapping_add(1) & 0xff)
}

/// # Safety
///
/// The pointers are what the program passed.
unsafe fn bind(c_qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let (qp, bind, view) = unsafe { (object::<Qp>(c_qp)?, argument(bind)?, argument(mw)?) };
    let rkey = next_rkey(view.rkey);
    // SAFETY: the caller's promise.
    let wanted = unsafe { binding(mw, rkey, &bind.bind_info) }?;
    let sges = [];
    let request = SendRequest {
        wr_id: bind.wr_id,
        op: SendOp::BindWindow(wanted),
        data: Data::Sges(&sges),
        flags: SendFlags::from_bits_truncate(bind.send_flags),
        destination: None,
    };
    qp.device.post_send(qp.qpn, &request).map_err(errors::of_post)?;
    // SAFETY: the program binds one window from one thread at a time.
    unsafe { (*mw).rkey = rkey };
    Ok(())
}

pub(crate) unsafe extern "C" fn bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, info: *mut ibv_mw_bind) -> c_int {
    // SAFETY: the program passes live objects and its structure.
    ANSWER.code("ibv_bind_mw", unsafe { bind(qp, mw, info) })
}

#[cfg(test)]
mod tests {
    use super::next_rkey;

    #[test]
    fn the_next_key_of_a_window_stays_the_windows() {
        assert_eq!(next_rkey(0x1234_5600), 0x1234_5601);
        assert_eq!(next_rkey(0x1234_56ff), 0x1234_5600);
        assert_eq!(next_rkey(u32::MAX), 0xffff_ff00);
    }
}
