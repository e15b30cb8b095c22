//! See [`nonic_fuzz::streams::script`] for what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nonic_fuzz::streams::script(bytes));
