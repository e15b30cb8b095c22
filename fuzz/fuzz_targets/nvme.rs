//! See [`nonic_fuzz::nvme::capsules`] for what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nonic_fuzz::nvme::capsules(bytes));
