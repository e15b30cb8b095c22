//! A function that is found by its name when it is first called.

use libc::c_void;
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Stands for "looked for, and not there".
static ABSENT: u8 = 0;

/// A name, and where it was found.
pub(crate) struct Symbol {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Symbol {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Symbol {
            name,
            address: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Its address in a library that `dlopen` gave, or `RTLD_NEXT`. Always asked with the same one.
    pub(crate) fn find(&self, library: *mut c_void) -> Option<*mut c_void> {
        let absent = (&raw const ABSENT).cast_mut().cast();
        let mut address = self.address.load(Ordering::Relaxed);
        if address.is_null() {
            // SAFETY: the name ends with a zero, and the library is loaded.
            address = unsafe { libc::dlsym(library, self.name.as_ptr()) };
            if address.is_null() {
                address = absent;
            }
            self.address.store(address, Ordering::Relaxed);
        }
        (address != absent).then_some(address)
    }
}

/// `functions! { LIBRARY; fn name = c"symbol"(argument: type) -> type; … }`: each becomes a function that calls the one of
/// that symbol in the library. All of them answer −1 for failure; so does a function that is not there (`ENOSYS`).
macro_rules! functions {
    ($library:expr; $($(#[$meta:meta])* fn $name:ident = $symbol:literal($($argument:ident: $type:ty),*) -> $answer:ty;)*) => { $(
        $(#[$meta])*
        pub(crate) unsafe fn $name($($argument: $type),*) -> $answer {
            static SYMBOL: $crate::symbol::Symbol = $crate::symbol::Symbol::new($symbol);
            let Some(address) = SYMBOL.find($library) else {
                return ::nonic_abi::errno::fail(libc::ENOSYS);
            };
            // SAFETY: that is the signature the function of this name has.
            let function: unsafe extern "C" fn($($type),*) -> $answer = unsafe { std::mem::transmute(address) };
            // SAFETY: the caller keeps to the contract of that function.
            unsafe { function($($argument),*) }
        }
    )* };
}
pub(crate) use functions;

/// `typed!(name in library)`: the function of that name, looked for once, as the type that `nonic-abi` has for it. The name
/// is that of the symbol and of the type, so the two cannot be mixed up.
macro_rules! typed {
    ($name:ident in $library:expr) => {{
        const NAME: &std::ffi::CStr =
            match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name of Rust's has no zero in it"),
            };
        static SYMBOL: $crate::symbol::Symbol = $crate::symbol::Symbol::new(NAME);
        SYMBOL.find($library).map(|address| {
            // SAFETY: the library that exports it is compiled against the same type.
            unsafe { std::mem::transmute::<*mut libc::c_void, $name>(address) }
        })
    }};
}
pub(crate) use typed;
