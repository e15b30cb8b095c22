//! The source of unguessable numbers.
//!
//! The core draws no randomness of its own: keys, QPNs and starting PSNs come from an [`Entropy`] that the caller
//! supplies. The engine supplies the kernel's generator; the simulator a seeded one, so that a run can be repeated.

use nonic_netem::mix;

/// A source of numbers that peers must not be able to guess.
pub trait Entropy: Send {
    /// The next 32 bits.
    fn next_u32(&mut self) -> u32;
}

/// A small seeded generator (SplitMix64) for tests and simulation. **Not** unguessable.
#[derive(Clone, Debug)]
pub struct SeededEntropy(u64);

impl SeededEntropy {
    /// A generator whose output is a function of `seed` alone.
    pub const fn new(seed: u64) -> Self {
        SeededEntropy(seed)
    }
}

impl Entropy for SeededEntropy {
    fn next_u32(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        (mix(self.0) >> 32) as u32
    }
}
