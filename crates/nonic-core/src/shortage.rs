//! Faults of the NIC itself rather than of the network: resources that it lacks now and then.

use nonic_netem::Prng;

/// Denies some of what it is asked for: at random, or every n-th time.
#[derive(Clone, Debug)]
pub struct Shortage {
    frequency: Frequency,
    prng: Prng,
    asked: u64,
    struck: u64,
}

/// How often.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Frequency {
    /// So many of a million.
    Ppm(u32),
    /// Each so-manieth; 0 is none.
    Every(u64),
}

impl Shortage {
    /// One that draws from `prng`.
    pub fn new(frequency: Frequency, prng: Prng) -> Self {
        Shortage {
            frequency,
            prng,
            asked: 0,
            struck: 0,
        }
    }

    /// Something is asked for. Returns whether to deny it.
    pub fn strikes(&mut self) -> bool {
        self.asked += 1;
        let strikes = match self.frequency {
            Frequency::Ppm(ppm) => self.prng.ppm(ppm),
            Frequency::Every(0) => false,
            Frequency::Every(every) => self.asked % every == 0,
        };
        self.struck += u64::from(strikes);
        strikes
    }

    /// How often it denied something.
    pub fn struck(&self) -> u64 {
        self.struck
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strikes(frequency: Frequency, seed: u64) -> Vec<bool> {
        let mut shortage = Shortage::new(frequency, Prng::new(seed));
        let strikes: Vec<bool> = (0..10_000).map(|_| shortage.strikes()).collect();
        assert_eq!(
            strikes.iter().filter(|strikes| **strikes).count() as u64,
            shortage.struck()
        );
        strikes
    }

    #[test]
    fn it_strikes_as_often_as_it_should_and_the_same_for_a_seed() {
        let random = strikes(Frequency::Ppm(100_000), 1);
        let count = random.iter().filter(|strikes| **strikes).count();
        assert!((900..1100).contains(&count), "{count}");
        assert_eq!(random, strikes(Frequency::Ppm(100_000), 1));
        assert_ne!(random, strikes(Frequency::Ppm(100_000), 2));
        let third = strikes(Frequency::Every(3), 1);
        assert!(
            third
                .iter()
                .enumerate()
                .all(|(index, strikes)| *strikes == (index % 3 == 2))
        );
        assert!(!strikes(Frequency::Every(0), 1).contains(&true));
    }
}
