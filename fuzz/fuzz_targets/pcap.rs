//! See [`nonic_fuzz::wire::pcap`] for what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nonic_fuzz::wire::pcap(bytes));
