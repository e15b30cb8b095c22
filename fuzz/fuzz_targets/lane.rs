//! See [`nonic_fuzz::lane`] for what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nonic_fuzz::lane::rings(bytes));
