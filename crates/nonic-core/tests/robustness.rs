//! No input from the network, and no order of calls, can make the NIC or the connection manager panic, hang, pile up memory, touch
//! memory it was not given or lose a completion. The checks are the fuzzer's; here they run for every build.

use crate::fuzz::cm;
use crate::fuzz::nic;
use crate::fuzz::streams;
use nonic_core::{Entropy, SeededEntropy};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_script_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..4000)) {
        nic::packets(&bytes);
    }

    #[test]
    fn any_script_is_survived_by_the_connection_manager(bytes in prop::collection::vec(any::<u8>(), 0..4000)) {
        cm::messages(&bytes);
    }

    #[test]
    fn any_script_is_survived_by_a_stream(bytes in prop::collection::vec(any::<u8>(), 0..4000)) {
        streams::script(&bytes);
    }
}

/// Thousands of steps on one NIC, for what only shows after a while.
#[test]
fn long_storms_are_survived() {
    for seed in 0..20 {
        let mut entropy = SeededEntropy::new(seed);
        let script: Vec<u8> = (0..40_000)
            .flat_map(|_| {
                let word = entropy.next_u32();
                // Small numbers are more often meaningful than large ones.
                let mask = if word & 1 == 0 { 0xffff_ffff } else { 0x0703_070f };
                (entropy.next_u32() & mask).to_ne_bytes()
            })
            .collect();
        nic::run(&script, usize::MAX);
    }
}

#[test]
fn long_storms_are_survived_by_the_connection_manager() {
    for seed in 0..40 {
        let mut entropy = SeededEntropy::new(seed);
        let script: Vec<u8> = (0..20_000)
            .flat_map(|_| entropy.next_u32().to_ne_bytes())
            .collect();
        cm::run(&script, usize::MAX);
    }
}

#[test]
fn long_storms_are_survived_by_streams() {
    for seed in 0..200 {
        let mut entropy = SeededEntropy::new(seed);
        let script: Vec<u8> = (0..5_000)
            .flat_map(|_| {
                let word = entropy.next_u32();
                // Small numbers are more often meaningful than large ones.
                let mask = if word & 1 == 0 { 0xffff_ffff } else { 0x0703_070f };
                (entropy.next_u32() & mask).to_ne_bytes()
            })
            .collect();
        streams::run(&script, usize::MAX);
    }
}
