//! See [`nonic_fuzz::registry::decode`] for what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nonic_fuzz::registry::decode(bytes));
