//! `stat` and its kin: what a file is, and whether it may be read.
//!
//! A structure of 64-bit systems is the kernel's own, so one function serves the names with and without `64`.

use crate::next;
use crate::redirect::{Path, fail, is_character_device, looked_at, redirect};
use libc::{AT_FDCWD, AT_SYMLINK_NOFOLLOW, c_char, c_int, c_uint, c_void, size_t, ssize_t};

/// What every C library can do for `stat`.
unsafe fn kernel_stat(directory: c_int, path: *const c_char, buffer: *mut c_void, flags: c_int) -> c_int {
    // SAFETY: the caller keeps to the contract of `fstatat`.
    unsafe { libc::syscall(libc::SYS_newfstatat, directory, path, buffer, flags) as c_int }
}

/// Calls with the path to use, and without `AT_SYMLINK_NOFOLLOW` where programs must not see a link.
unsafe fn with_flags(
    path: *const c_char,
    flags: c_int,
    call: impl Fn(*const c_char, c_int) -> c_int,
) -> c_int {
    // SAFETY: the caller's path.
    unsafe {
        looked_at(path, |found| match found {
            Path::Use(path) => call(path, flags),
            Path::Ours(room) => {
                let hidden = if is_character_device(room) {
                    AT_SYMLINK_NOFOLLOW
                } else {
                    0
                };
                call(room.path_with_zero().as_ptr().cast(), flags & !hidden)
            }
            Path::TooLong => fail(libc::ENAMETOOLONG),
        })
    }
}

unsafe fn do_stat(path: *const c_char, buffer: *mut c_void) -> c_int {
    // SAFETY: the caller keeps to the contract of `stat`.
    unsafe {
        redirect(path, -1, |path| match next::stat() {
            Some(next) => next(path, buffer),
            None => kernel_stat(AT_FDCWD, path, buffer, 0),
        })
    }
}

unsafe fn do_lstat(path: *const c_char, buffer: *mut c_void) -> c_int {
    // SAFETY: the caller keeps to the contract of `lstat`.
    unsafe {
        with_flags(path, AT_SYMLINK_NOFOLLOW, |path, flags| match next::lstat() {
            Some(next) if flags != 0 => next(path, buffer),
            _ => kernel_stat(AT_FDCWD, path, buffer, flags),
        })
    }
}

unsafe fn do_fstatat(directory: c_int, path: *const c_char, buffer: *mut c_void, flags: c_int) -> c_int {
    // SAFETY: the caller keeps to the contract of `fstatat`.
    unsafe {
        with_flags(path, flags, |path, flags| match next::fstatat() {
            Some(next) => next(directory, path, buffer, flags),
            None => kernel_stat(directory, path, buffer, flags),
        })
    }
}

/// Defines functions that C programs call.
macro_rules! exported {
    ($($(#[$meta:meta])* fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty $body:block)*) => { $(
        $(#[$meta])*
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $answer {
            // SAFETY: the program keeps to the contract of the function of this name, and so do we.
            unsafe { $body }
        }
    )* };
}
pub(crate) use exported;

exported! {
    fn stat(path: *const c_char, buffer: *mut c_void) -> c_int {
        do_stat(path, buffer)
    }
    fn stat64(path: *const c_char, buffer: *mut c_void) -> c_int {
        do_stat(path, buffer)
    }
    fn lstat(path: *const c_char, buffer: *mut c_void) -> c_int {
        do_lstat(path, buffer)
    }
    fn lstat64(path: *const c_char, buffer: *mut c_void) -> c_int {
        do_lstat(path, buffer)
    }
    fn fstatat(directory: c_int, path: *const c_char, buffer: *mut c_void, flags: c_int) -> c_int {
        do_fstatat(directory, path, buffer, flags)
    }
    fn fstatat64(directory: c_int, path: *const c_char, buffer: *mut c_void, flags: c_int) -> c_int {
        do_fstatat(directory, path, buffer, flags)
    }
    /// What programs call that were built with a C library before 2.33.
    fn __xstat(version: c_int, path: *const c_char, buffer: *mut c_void) -> c_int {
        redirect(path, -1, |path| match next::xstat() {
            Some(next) => next(version, path, buffer),
            None => kernel_stat(AT_FDCWD, path, buffer, 0),
        })
    }
    fn __xstat64(version: c_int, path: *const c_char, buffer: *mut c_void) -> c_int {
        __xstat(version, path, buffer)
    }
    fn __lxstat(version: c_int, path: *const c_char, buffer: *mut c_void) -> c_int {
        with_flags(path, AT_SYMLINK_NOFOLLOW, |path, flags| match next::lxstat() {
            Some(next) if flags != 0 => next(version, path, buffer),
            _ => kernel_stat(AT_FDCWD, path, buffer, flags),
        })
    }
    fn __lxstat64(version: c_int, path: *const c_char, buffer: *mut c_void) -> c_int {
        __lxstat(version, path, buffer)
    }
    fn __fxstatat(version: c_int, directory: c_int, path: *const c_char, buffer: *mut c_void, flags: c_int) -> c_int {
        with_flags(path, flags, |path, flags| match next::fxstatat() {
            Some(next) => next(version, directory, path, buffer, flags),
            None => kernel_stat(directory, path, buffer, flags),
        })
    }
    fn __fxstatat64(version: c_int, directory: c_int, path: *const c_char, buffer: *mut c_void, flags: c_int) -> c_int {
        __fxstatat(version, directory, path, buffer, flags)
    }
    fn statx(directory: c_int, path: *const c_char, flags: c_int, mask: c_uint, buffer: *mut c_void) -> c_int {
        with_flags(path, flags, |path, flags| match next::statx() {
            Some(next) => next(directory, path, flags, mask, buffer),
            None => libc::syscall(libc::SYS_statx, directory, path, flags, mask, buffer) as c_int,
        })
    }
    fn access(path: *const c_char, mode: c_int) -> c_int {
        redirect(path, -1, |path| match next::access() {
            Some(next) => next(path, mode),
            None => fail(libc::ENOSYS),
        })
    }
    fn eaccess(path: *const c_char, mode: c_int) -> c_int {
        redirect(path, -1, |path| match next::eaccess() {
            Some(next) => next(path, mode),
            None => fail(libc::ENOSYS),
        })
    }
    fn euidaccess(path: *const c_char, mode: c_int) -> c_int {
        eaccess(path, mode)
    }
    fn faccessat(directory: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
        redirect(path, -1, |path| match next::faccessat() {
            Some(next) => next(directory, path, mode, flags),
            None => fail(libc::ENOSYS),
        })
    }
    /// `ls -l` asks whether there is more to a file than its mode says.
    fn getxattr(path: *const c_char, name: *const c_char, value: *mut c_void, size: size_t) -> ssize_t {
        redirect(path, -1, |path| match next::getxattr() {
            Some(next) => next(path, name, value, size),
            None => fail(libc::ENOSYS) as ssize_t,
        })
    }
    fn lgetxattr(path: *const c_char, name: *const c_char, value: *mut c_void, size: size_t) -> ssize_t {
        redirect(path, -1, |path| match next::lgetxattr() {
            Some(next) => next(path, name, value, size),
            None => fail(libc::ENOSYS) as ssize_t,
        })
    }
    fn listxattr(path: *const c_char, list: *mut c_char, size: size_t) -> ssize_t {
        redirect(path, -1, |path| match next::listxattr() {
            Some(next) => next(path, list, size),
            None => fail(libc::ENOSYS) as ssize_t,
        })
    }
    fn llistxattr(path: *const c_char, list: *mut c_char, size: size_t) -> ssize_t {
        redirect(path, -1, |path| match next::llistxattr() {
            Some(next) => next(path, list, size),
            None => fail(libc::ENOSYS) as ssize_t,
        })
    }
}
