//! Payloads that can be checked: bytes that follow from a number.
//!
//! Two different numbers give different bytes at (almost) every place, so a message that lands in the wrong
//! buffer, twice, or with a hole is seen, not only a flipped bit.

/// Fills `bytes` with the payload of number `seed`.
pub(crate) fn fill(seed: u64, bytes: &mut [u8]) {
    let mut state = start(seed);
    let mut words = bytes.chunks_exact_mut(8);
    for word in &mut words {
        word.copy_from_slice(&next(&mut state).to_le_bytes());
    }
    let rest = words.into_remainder();
    let length = rest.len();
    rest.copy_from_slice(&next(&mut state).to_le_bytes()[..length]);
}

/// Whether `bytes` are the payload of number `seed`.
pub(crate) fn matches(seed: u64, bytes: &[u8]) -> bool {
    let mut state = start(seed);
    let words = bytes.chunks_exact(8);
    let rest = words.remainder();
    let mut difference = 0;
    for word in words {
        let word: [u8; 8] = word.try_into().expect("chunks of eight");
        difference |= u64::from_le_bytes(word) ^ next(&mut state);
    }
    difference == 0 && rest == &next(&mut state).to_le_bytes()[..rest.len()]
}

/// A number's place in the sequence, scattered so that neighbours have nothing in common.
fn start(seed: u64) -> u64 {
    (seed.wrapping_add(1)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// SplitMix64's step and finish.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x2545_f491_4f6c_dd1d);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_matches_its_own_number_only() {
        for length in [1, 7, 8, 9, 64, 1000] {
            let mut bytes = vec![0; length];
            fill(5, &mut bytes);
            assert!(matches(5, &bytes), "{length}");
            assert!(!matches(6, &bytes), "{length}");
            let last = length - 1;
            bytes[last] ^= 1;
            assert!(!matches(5, &bytes), "{length}");
        }
    }

    #[test]
    fn a_shifted_payload_does_not_match() {
        // Consecutive numbers must not be the same sequence shifted by a word.
        let mut bytes = vec![0; 64];
        fill(5, &mut bytes);
        assert!(!matches(6, &bytes[8..]));
        assert!(!matches(4, &bytes[8..]));
    }
}
