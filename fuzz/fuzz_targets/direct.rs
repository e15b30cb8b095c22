//! See [`nonic_fuzz::direct`] for what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nonic_fuzz::direct::tables(bytes));
