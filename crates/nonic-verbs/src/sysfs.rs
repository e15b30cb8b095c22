//! The two file helpers that old programs use.

use crate::object::argument;
use libc::{c_char, c_int, size_t};
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

#[unsafe(no_mangle)]
extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
}

/// Reads a file's first bytes, without the line end. Answers how many, or −1.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_read_sysfs_file(
    directory: *const c_char,
    file: *const c_char,
    buffer: *mut c_char,
    size: size_t,
) -> c_int {
    // SAFETY: the program passes strings, or NULL.
    let present = unsafe { argument(directory).is_ok() && argument(file).is_ok() };
    if !present || buffer.is_null() || size == 0 {
        return -1;
    }
    // SAFETY: not NULL, so they are strings.
    let (directory, file) = unsafe { (CStr::from_ptr(directory), CStr::from_ptr(file)) };
    let path = Path::new(OsStr::from_bytes(directory.to_bytes())).join(OsStr::from_bytes(file.to_bytes()));
    let Ok(mut content) = std::fs::read(path) else {
        return -1;
    };
    content.truncate(size - 1);
    if content.last() == Some(&b'\n') {
        content.pop();
    }
    content.push(0);
    // SAFETY: the buffer has `size` bytes, and the content with its end no more than that.
    unsafe { std::ptr::copy_nonoverlapping(content.as_ptr(), buffer.cast::<u8>(), content.len()) };
    (content.len() - 1) as c_int
}
