//! See [`nonic_fuzz::cm`] for what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nonic_fuzz::cm::messages(bytes));
