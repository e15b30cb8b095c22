//! Calls that answer with a path (`readlink`, `realpath` and their kin): the answer must not name the folder where the
//! files really are.

use crate::next;
use crate::redirect::{Path, is_character_device, looked_at, tree};
use crate::stat::exported;
use libc::{c_char, c_int, size_t, ssize_t};
use nonic_sysfs::paths::{self, Room};
use std::ffi::CStr;

/// Cuts the folder off a path that the C library answered with, in its place. NULL stays NULL.
unsafe fn without_tree(answer: *mut c_char) -> *mut c_char {
    let Some(tree) = tree().filter(|_| !answer.is_null()) else {
        return answer;
    };
    // SAFETY: the C library's answer ends with a zero.
    let bytes = unsafe { CStr::from_ptr(answer) }.to_bytes_with_nul();
    if let Some(seen) = paths::seen(tree, bytes) {
        // SAFETY: it is a part of the answer, which is memory of the program's or its to free.
        unsafe { std::ptr::copy(seen.as_ptr(), answer.cast(), seen.len()) };
    }
    answer
}

/// `readlink` of a path in the tree: a device is no link to programs.
unsafe fn link_of(path: *const c_char, call: impl Fn(*const c_char) -> ssize_t) -> ssize_t {
    let fail = |errno| crate::redirect::fail(errno) as ssize_t;
    // SAFETY: the caller's path.
    unsafe {
        looked_at(path, |found| match found {
            Path::Use(path) => call(path),
            Path::Ours(room) => {
                let answer = call(room.path_with_zero().as_ptr().cast());
                if answer >= 0 && is_character_device(room) {
                    fail(libc::EINVAL)
                } else {
                    answer
                }
            }
            Path::TooLong => fail(libc::ENAMETOOLONG),
        })
    }
}

/// `realpath`: of a device in the tree it is its own path.
unsafe fn real_path(path: *const c_char, call: impl Fn(*const c_char) -> *mut c_char) -> *mut c_char {
    // SAFETY: the caller's path; what `call` answers is the C library's answer.
    unsafe {
        looked_at(path, |found| match found {
            Path::Use(path) => call(path),
            Path::Ours(room) => {
                let answer = call(room.path_with_zero().as_ptr().cast());
                if is_character_device(room) {
                    device_path(room, answer)
                } else {
                    without_tree(answer)
                }
            }
            Path::TooLong => {
                crate::redirect::fail(libc::ENAMETOOLONG);
                std::ptr::null_mut()
            }
        })
    }
}

/// The path of a device instead of that of what it is a link to. `realpath` allots as much as the longest path needs if it
/// is to allot, and the program must have as much.
unsafe fn device_path(room: &Room, answer: *mut c_char) -> *mut c_char {
    if !answer.is_null() {
        let seen = room.seen();
        // SAFETY: see above.
        unsafe {
            std::ptr::copy_nonoverlapping(seen.as_ptr(), answer.cast(), seen.len());
            *answer.add(seen.len()) = 0;
        }
    }
    answer
}

/// `realpath` into the program's memory, or into memory that it will free.
unsafe fn resolve(path: *const c_char, resolved: *mut c_char) -> *mut c_char {
    let Some(next) = next::realpath() else {
        crate::redirect::fail(libc::ENOSYS);
        return std::ptr::null_mut();
    };
    // SAFETY: the caller keeps to the contract of `realpath`.
    unsafe {
        real_path(path, |path| {
            if !resolved.is_null() {
                return next(path, resolved);
            }
            // The C library's own allotment is as long as its answer, and ours may be longer.
            let room = libc::malloc(paths::PATH_MAX).cast::<c_char>();
            let answer = if room.is_null() { room } else { next(path, room) };
            if answer.is_null() {
                let errno = *libc::__errno_location();
                libc::free(room.cast());
                *libc::__errno_location() = errno;
            }
            answer
        })
    }
}

exported! {
    fn readlink(path: *const c_char, buffer: *mut c_char, size: size_t) -> ssize_t {
        link_of(path, |path| next::readlink().map_or(-1, |next| next(path, buffer, size)))
    }
    fn __readlink_chk(path: *const c_char, buffer: *mut c_char, size: size_t, room: size_t) -> ssize_t {
        link_of(path, |path| next::readlink_checked().map_or(-1, |next| next(path, buffer, size, room)))
    }
    fn readlinkat(directory: c_int, path: *const c_char, buffer: *mut c_char, size: size_t) -> ssize_t {
        link_of(path, |path| next::readlinkat().map_or(-1, |next| next(directory, path, buffer, size)))
    }
    fn __readlinkat_chk(directory: c_int, path: *const c_char, buffer: *mut c_char, size: size_t, room: size_t) -> ssize_t {
        link_of(path, |path| next::readlinkat_checked().map_or(-1, |next| next(directory, path, buffer, size, room)))
    }
    fn realpath(path: *const c_char, resolved: *mut c_char) -> *mut c_char {
        resolve(path, resolved)
    }
    fn __realpath_chk(path: *const c_char, resolved: *mut c_char, room: size_t) -> *mut c_char {
        real_path(path, |path| next::realpath_checked().map_or(std::ptr::null_mut(), |next| next(path, resolved, room)))
    }
    fn canonicalize_file_name(path: *const c_char) -> *mut c_char {
        resolve(path, std::ptr::null_mut())
    }
    fn getcwd(buffer: *mut c_char, size: size_t) -> *mut c_char {
        without_tree(next::getcwd().map_or(std::ptr::null_mut(), |next| next(buffer, size)))
    }
    fn __getcwd_chk(buffer: *mut c_char, size: size_t, room: size_t) -> *mut c_char {
        without_tree(next::getcwd_checked().map_or(std::ptr::null_mut(), |next| next(buffer, size, room)))
    }
}
