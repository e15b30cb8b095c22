//! See [`nonic_fuzz::nic::packets`] for what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nonic_fuzz::nic::packets(bytes));
