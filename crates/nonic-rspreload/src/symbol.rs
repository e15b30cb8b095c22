//! A function that is found by its name when it is first called.

pub(crate) use nonic_abi::symbol::Symbol;

/// `functions! { LIBRARY; fn name = c"symbol"(argument: type) -> type; … }`: each becomes a function that calls the one of
/// that symbol in the library. All of them answer −1 for failure; so does a function that is not there (`ENOSYS`).
macro_rules! functions {
    ($library:expr; $($(#[$meta:meta])* fn $name:ident = $symbol:literal($($argument:ident: $type:ty),*) -> $answer:ty;)*) => { $(
        $(#[$meta])*
        pub(crate) unsafe fn $name($($argument: $type),*) -> $answer {
            static SYMBOL: $crate::symbol::Symbol = $crate::symbol::Symbol::new($symbol);
            // SAFETY: the library was loaded, and stays.
            let Some(address) = (unsafe { SYMBOL.find($library) }) else {
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
        // SAFETY: the library was loaded, and stays.
        let found = unsafe { SYMBOL.find($library) };
        found.map(|address| {
            // SAFETY: the library that exports it is compiled against the same type.
            unsafe { std::mem::transmute::<*mut libc::c_void, $name>(address) }
        })
    }};
}
pub(crate) use typed;
