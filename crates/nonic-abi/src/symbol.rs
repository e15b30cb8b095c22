//! A function of another library, found by its name when it is first called.

use libc::c_void;
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Stands for "looked for, and not there".
static ABSENT: u8 = 0;

/// A name, and where it was found.
#[derive(Debug)]
pub struct Symbol {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Symbol {
    /// Of this name.
    pub const fn new(name: &'static CStr) -> Self {
        Symbol {
            name,
            address: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Its address in the libraries that come after the one that asks.
    pub fn find_next(&self) -> Option<*mut c_void> {
        // SAFETY: that is no library that could have been unloaded.
        unsafe { self.find(libc::RTLD_NEXT) }
    }

    /// Its address in a library that `dlopen` gave. Always asked with the same one.
    ///
    /// # Safety
    ///
    /// The library is loaded.
    pub unsafe fn find(&self, library: *mut c_void) -> Option<*mut c_void> {
        let absent = (&raw const ABSENT).cast_mut().cast();
        let mut address = self.address.load(Ordering::Relaxed);
        if address.is_null() {
            // SAFETY: the name ends with a zero, and the caller's promise.
            address = unsafe { libc::dlsym(library, self.name.as_ptr()) };
            if address.is_null() {
                address = absent;
            }
            self.address.store(address, Ordering::Relaxed);
        }
        (address != absent).then_some(address)
    }
}
