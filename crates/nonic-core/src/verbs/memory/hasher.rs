//! A hasher for tables of numbers that were drawn at random.

use std::hash::Hasher;

/// For numbers that we drew at random, keys and QPNs: hashing them again would only cost time.
#[derive(Default)]
pub struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 << 8) | u64::from(*byte);
        }
    }

    fn write_u32(&mut self, value: u32) {
        // The table takes its tag from the high bits and its bucket from the low ones: fill both.
        self.0 = u64::from(value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
