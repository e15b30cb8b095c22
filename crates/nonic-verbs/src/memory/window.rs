//! Memory windows.
//!
//! Not offered yet: the core does not bind them.

use crate::abi::*;
use crate::errno;
use libc::c_int;

pub(crate) unsafe extern "C" fn alloc_mw(_pd: *mut ibv_pd, mw_type: c_int) -> *mut ibv_mw {
    errno::pointer(Err(match mw_type {
        IBV_MW_TYPE_1 | IBV_MW_TYPE_2 => libc::EOPNOTSUPP,
        _ => libc::EINVAL,
    }))
}

pub(crate) unsafe extern "C" fn bind_mw(
    _qp: *mut ibv_qp,
    _mw: *mut ibv_mw,
    _bind: *mut ibv_mw_bind,
) -> c_int {
    libc::EOPNOTSUPP
}

pub(crate) unsafe extern "C" fn dealloc_mw(_mw: *mut ibv_mw) -> c_int {
    libc::EOPNOTSUPP
}
