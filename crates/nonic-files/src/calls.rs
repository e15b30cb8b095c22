//! The functions that open files and folders, and those that read a file once more.
//!
//! `open` and `openat` take a mode only if they make a file, as further arguments of C do. It is in the register where a
//! third argument of a fixed number of them would be; without a mode, what happens to be there is passed on and ignored.

use crate::counters;
use crate::next::{self, Compare, Filter};
use crate::redirect::{fail, redirect};
use crate::stat::exported;
use libc::{DIR, FILE, c_char, c_int, c_void, dirent, mode_t, off_t, size_t, ssize_t};

/// Opens a file, which may be a counter.
unsafe fn opened(path: *const c_char, open: impl Fn(*const c_char) -> c_int) -> c_int {
    // SAFETY: the caller's path.
    unsafe {
        let fd = redirect(path, -1, open);
        counters::refreshed(path, fd)
    }
}

/// Opens a stream, likewise.
unsafe fn stream(path: *const c_char, open: impl Fn(*const c_char) -> *mut FILE) -> *mut FILE {
    // SAFETY: the caller's path.
    unsafe {
        let stream = redirect(path, std::ptr::null_mut(), open);
        counters::refreshed_stream(path, stream)
    }
}

exported! {
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        opened(path, |path| next::open().map_or_else(|| fail(libc::ENOSYS), |next| next(path, flags, mode)))
    }
    fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        open(path, flags | libc::O_LARGEFILE, mode)
    }
    fn __open_2(path: *const c_char, flags: c_int) -> c_int {
        opened(path, |path| next::open_2().map_or_else(|| fail(libc::ENOSYS), |next| next(path, flags)))
    }
    fn __open64_2(path: *const c_char, flags: c_int) -> c_int {
        __open_2(path, flags | libc::O_LARGEFILE)
    }
    fn openat(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        opened(path, |path| next::openat().map_or_else(|| fail(libc::ENOSYS), |next| next(directory, path, flags, mode)))
    }
    fn openat64(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        openat(directory, path, flags | libc::O_LARGEFILE, mode)
    }
    fn __openat_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int {
        opened(path, |path| next::openat_2().map_or_else(|| fail(libc::ENOSYS), |next| next(directory, path, flags)))
    }
    fn __openat64_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int {
        __openat_2(directory, path, flags | libc::O_LARGEFILE)
    }
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
        stream(path, |path| next::fopen().map_or(std::ptr::null_mut(), |next| next(path, mode)))
    }
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE {
        fopen(path, mode)
    }
    fn freopen(path: *const c_char, mode: *const c_char, old: *mut FILE) -> *mut FILE {
        redirect(path, std::ptr::null_mut(), |path| {
            next::freopen().map_or(std::ptr::null_mut(), |next| next(path, mode, old))
        })
    }
    fn freopen64(path: *const c_char, mode: *const c_char, old: *mut FILE) -> *mut FILE {
        freopen(path, mode, old)
    }
    fn read(fd: c_int, buffer: *mut c_void, length: size_t) -> ssize_t {
        counters::reread(fd);
        next::read().map_or_else(|| fail(libc::ENOSYS) as ssize_t, |next| next(fd, buffer, length))
    }
    fn __read_chk(fd: c_int, buffer: *mut c_void, length: size_t, room: size_t) -> ssize_t {
        counters::reread(fd);
        next::read_checked().map_or_else(|| fail(libc::ENOSYS) as ssize_t, |next| next(fd, buffer, length, room))
    }
    fn pread(fd: c_int, buffer: *mut c_void, length: size_t, offset: off_t) -> ssize_t {
        counters::reread(fd);
        next::pread().map_or_else(|| fail(libc::ENOSYS) as ssize_t, |next| next(fd, buffer, length, offset))
    }
    fn pread64(fd: c_int, buffer: *mut c_void, length: size_t, offset: off_t) -> ssize_t {
        pread(fd, buffer, length, offset)
    }
    fn __pread_chk(fd: c_int, buffer: *mut c_void, length: size_t, offset: off_t, room: size_t) -> ssize_t {
        counters::reread(fd);
        next::pread_checked().map_or_else(|| fail(libc::ENOSYS) as ssize_t, |next| next(fd, buffer, length, offset, room))
    }
    fn __pread64_chk(fd: c_int, buffer: *mut c_void, length: size_t, offset: off_t, room: size_t) -> ssize_t {
        __pread_chk(fd, buffer, length, offset, room)
    }
    fn opendir(path: *const c_char) -> *mut DIR {
        redirect(path, std::ptr::null_mut(), |path| {
            next::opendir().map_or(std::ptr::null_mut(), |next| next(path))
        })
    }
    fn scandir(path: *const c_char, list: *mut *mut *mut dirent, filter: Filter, compare: Compare) -> c_int {
        redirect(path, -1, |path| {
            next::scandir().map_or_else(|| fail(libc::ENOSYS), |next| next(path, list, filter, compare))
        })
    }
    fn scandir64(path: *const c_char, list: *mut *mut *mut dirent, filter: Filter, compare: Compare) -> c_int {
        scandir(path, list, filter, compare)
    }
    fn scandirat(directory: c_int, path: *const c_char, list: *mut *mut *mut dirent, filter: Filter, compare: Compare) -> c_int {
        redirect(path, -1, |path| {
            next::scandirat().map_or_else(|| fail(libc::ENOSYS), |next| next(directory, path, list, filter, compare))
        })
    }
    fn scandirat64(directory: c_int, path: *const c_char, list: *mut *mut *mut dirent, filter: Filter, compare: Compare) -> c_int {
        scandirat(directory, path, list, filter, compare)
    }
    fn chdir(path: *const c_char) -> c_int {
        redirect(path, -1, |path| next::chdir().map_or_else(|| fail(libc::ENOSYS), |next| next(path)))
    }
}
