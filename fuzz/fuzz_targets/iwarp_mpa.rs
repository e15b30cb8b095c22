//! See [`nonic_fuzz::iwarp::mpa`] for what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nonic_fuzz::iwarp::mpa(bytes));
