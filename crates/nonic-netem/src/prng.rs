//! A deterministic random number generator: xoshiro256++, seeded through SplitMix64.
//!
//! It is written here and must never change: a seed must name the same run of the simulator, or the same faults of a
//! link. It is not cryptographic: keys and starting PSNs come from the core's `Entropy`.

/// A seeded generator.
#[derive(Clone, Debug)]
pub struct Prng {
    state: [u64; 4],
}

impl Prng {
    /// The generator of `seed`.
    pub fn new(seed: u64) -> Self {
        let mut word = seed;
        let state = std::array::from_fn(|_| {
            word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(word)
        });
        Prng { state }
    }

    /// The next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// The next 32 bits.
    pub fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }

    /// A number below `limit`; zero if `limit` is zero.
    #[inline]
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(limit)) >> 64) as u64
    }

    /// An index below `len`.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// A number from `low` to `high`, both included.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// Whether something happens that happens `percent` times in a hundred.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Whether something happens that happens `ppm` times in a million. Draws nothing if that is never.
    #[inline]
    pub fn ppm(&mut self, ppm: u32) -> bool {
        ppm != 0 && self.below(1_000_000) < u64::from(ppm)
    }

    /// One of `items`, which must not be empty.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.index(items.len())]
    }

    /// A generator of its own, so that one user's draws do not shift another's.
    pub fn fork(&mut self) -> Prng {
        Prng::new(self.next_u64())
    }
}

/// SplitMix64's finisher: a well-mixed function of one word.
#[inline]
pub fn mix(word: u64) -> u64 {
    let z = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_of_a_seed_never_changes() {
        let mut prng = Prng::new(42);
        let drawn: Vec<u64> = (0..4).map(|_| prng.next_u64()).collect();
        assert_eq!(
            drawn,
            [
                0xd076_4d4f_4476_689f,
                0x519e_4174_576f_3791,
                0xfbe0_7cfb_0c24_ed8c,
                0xb37d_9f60_0cd8_35b8
            ]
        );
    }

    #[test]
    fn numbers_stay_in_their_range() {
        let mut prng = Prng::new(1);
        for _ in 0..1000 {
            assert!(prng.below(7) < 7);
            assert!((3..=5).contains(&prng.range(3, 5)));
        }
        assert!(!prng.ppm(0));
        assert!(prng.ppm(1_000_000));
    }

    #[test]
    fn what_is_to_happen_once_in_ten_does() {
        let mut prng = Prng::new(7);
        let count = (0..100_000).filter(|_| prng.ppm(100_000)).count();
        assert!((9_700..10_300).contains(&count), "{count}");
    }

    #[test]
    fn a_seed_decides_and_forks_differ() {
        let words = |mut prng: Prng| [prng.next_u64(), prng.next_u64(), prng.next_u64()];
        assert_eq!(words(Prng::new(1)), words(Prng::new(1)));
        assert_ne!(words(Prng::new(1)), words(Prng::new(2)));
        let mut parent = Prng::new(1);
        assert_ne!(words(parent.fork()), words(parent.fork()));
    }
}
