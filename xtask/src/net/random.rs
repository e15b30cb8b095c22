//! Numbers that look random and are the same for the same seed.

/// A stream of numbers (SplitMix64, by Steele, Lea and Flood).
#[derive(Clone, Debug)]
pub(super) struct Random {
    state: u64,
}

impl Random {
    /// The stream of a seed; different purposes have different streams.
    pub(super) fn new(seed: u64, purpose: u64) -> Self {
        let mut random = Self {
            state: seed ^ purpose.wrapping_mul(0xd134_2543_de82_ef95),
        };
        random.word();
        random
    }

    pub(super) fn word(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From zero to one, without the one.
    pub(super) fn part(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Whether something of this probability happens. A number is drawn in any case, so that changing one probability
    /// does not change what else happens.
    pub(super) fn happens(&mut self, probability: f64) -> bool {
        self.part() < probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_and_purposes_differ() {
        let words = |seed, purpose| {
            let mut random = Random::new(seed, purpose);
            [random.word(), random.word(), random.word()]
        };
        assert_eq!(words(1, 1), words(1, 1));
        assert_ne!(words(1, 1), words(2, 1));
        assert_ne!(words(1, 1), words(1, 2));
    }

    #[test]
    fn what_is_to_happen_once_in_ten_does() {
        let mut random = Random::new(7, 0);
        let count = (0..100_000).filter(|_| random.happens(0.1)).count();
        assert!((9_700..10_300).contains(&count), "{count}");
        assert!((0..1000).all(|_| !random.happens(0.0) && random.happens(1.0)));
    }
}
