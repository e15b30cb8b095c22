//! Caller detection: which code called this library.
//!
//! The unwinder tells. It takes about a microsecond, so only calls ask that are rare anyway.

use libc::{c_int, c_void};

/// The first code on the stack for which this is false, if there is any: where it goes on when what it called returns.
pub(crate) fn beyond<F: Fn(*const c_void) -> bool>(is_ours: F) -> Option<*const c_void> {
    let mut search = Search { is_ours, found: None };
    // SAFETY: `look` is called with a frame and with this search, which nothing else uses meanwhile.
    unsafe { _Unwind_Backtrace(look::<F>, (&raw mut search).cast()) };
    search.found
}

struct Search<F> {
    is_ours: F,
    found: Option<*const c_void>,
}

/// Looks at a frame.
extern "C" fn look<F: Fn(*const c_void) -> bool>(frame: *mut c_void, search: *mut c_void) -> c_int {
    // SAFETY: as `beyond` passed it.
    let search = unsafe { &mut *search.cast::<Search<F>>() };
    // SAFETY: the unwinder's own frame.
    let code = unsafe { _Unwind_GetIP(frame) } as *const c_void;
    if (search.is_ours)(code) {
        return NEXT_FRAME;
    }
    search.found = Some(code);
    STOP
}

/// `_URC_NO_REASON` and `_URC_NORMAL_STOP` of `<unwind.h>`.
const NEXT_FRAME: c_int = 0;
const STOP: c_int = 4;

// Of libgcc, which the standard library links.
unsafe extern "C" {
    fn _Unwind_Backtrace(
        look: extern "C" fn(frame: *mut c_void, search: *mut c_void) -> c_int,
        search: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(frame: *mut c_void) -> usize;
}
