//! `glob`, which reads folders behind our back unless it is told which functions to use.

use crate::next::{self, Glob, OnError};
use crate::redirect::{fail, tree};
use crate::stat::{exported, lstat, stat};
use libc::{DIR, c_char, c_int, c_void};
use nonic_sysfs::paths;
use std::ffi::CStr;

/// The program, or we, say by which functions folders are read.
const GLOB_ALTDIRFUNC: c_int = 1 << 9;

unsafe extern "C" fn close_folder(folder: *mut c_void) {
    // SAFETY: `glob` passes what it got from `open_folder`.
    unsafe { libc::closedir(folder.cast::<DIR>()) };
}

unsafe extern "C" fn read_folder(folder: *mut c_void) -> *mut c_void {
    // SAFETY: as above.
    unsafe { libc::readdir(folder.cast::<DIR>()) }.cast()
}

unsafe extern "C-unwind" fn open_folder(path: *const c_char) -> *mut c_void {
    // SAFETY: `glob` passes a path.
    unsafe { crate::calls::opendir(path) }.cast()
}

exported! {
    fn glob(pattern: *const c_char, flags: c_int, on_error: OnError, found: *mut Glob) -> c_int {
        let Some(next) = next::glob() else {
            return fail(libc::ENOSYS);
        };
        let is_ours = !pattern.is_null() && paths::is_candidate(CStr::from_ptr(pattern).to_bytes());
        if !is_ours || flags & GLOB_ALTDIRFUNC != 0 || tree().is_none() {
            return next(pattern, flags, on_error, found);
        }
        (*found).closedir = Some(close_folder);
        (*found).readdir = Some(read_folder);
        (*found).opendir = Some(open_folder);
        (*found).lstat = Some(lstat);
        (*found).stat = Some(stat);
        let answer = next(pattern, flags | GLOB_ALTDIRFUNC, on_error, found);
        (*found).flags &= !GLOB_ALTDIRFUNC;
        answer
    }
    fn glob64(pattern: *const c_char, flags: c_int, on_error: OnError, found: *mut Glob) -> c_int {
        glob(pattern, flags, on_error, found)
    }
}
