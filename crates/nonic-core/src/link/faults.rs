//! Faults: a decorator round a link that loses, repeats, delays and damages packets.
//!
//! [`FaultInjector::apply`] turns one train into the trains that really reach the link, each with the extra
//! time it takes. It knows nothing of protocols, decides per packet and counts what it did, so that a
//! checker can tell a failure it caused from one it did not. Partitions are the fabric's: they concern
//! pairs of NICs, not packets.

use super::{Prng, Train};

/// How much of what. Rates are in packets per million.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// Packets lost one by one.
    pub loss_ppm: u32,
    /// How often a burst of losses begins…
    pub burst_begin_ppm: u32,
    /// …and how often, once in it, a packet ends it. All packets of a burst are lost.
    pub burst_end_ppm: u32,
    /// Packets that arrive twice.
    pub duplicate_ppm: u32,
    /// Packets that are held up, so that others overtake them.
    pub reorder_ppm: u32,
    /// For up to how long duplicates and reordered packets are held up.
    pub hold_ns: u64,
    /// Packets with one to three bits flipped.
    pub corrupt_ppm: u32,
    /// How much longer every packet takes, in order.
    pub delay_ns: u64,
}

impl Faults {
    /// Whether there are any.
    pub fn is_none(&self) -> bool {
        self.loss_ppm == 0
            && self.burst_begin_ppm == 0
            && self.duplicate_ppm == 0
            && self.reorder_ppm == 0
            && self.corrupt_ppm == 0
            && self.delay_ns == 0
    }
}

/// What an injector did so far, in packets.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[expect(missing_docs, reason = "the names say it")]
pub struct FaultCounts {
    pub lost: u64,
    pub duplicated: u64,
    pub reordered: u64,
    pub corrupted: u64,
}

impl FaultCounts {
    /// Packets that did not arrive as they were sent.
    pub fn disturbed(&self) -> u64 {
        self.lost + self.reordered + self.corrupted
    }
}

/// The decorator.
#[derive(Clone, Debug)]
pub struct FaultInjector {
    faults: Faults,
    prng: Prng,
    in_burst: bool,
    counts: FaultCounts,
}

/// What becomes of one packet.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Fate {
    Pass,
    Lose,
    Duplicate,
    Reorder,
    Corrupt,
}

impl FaultInjector {
    /// An injector that draws from `prng`.
    pub fn new(faults: Faults, prng: Prng) -> Self {
        FaultInjector {
            faults,
            prng,
            in_burst: false,
            counts: FaultCounts::default(),
        }
    }

    /// What it did so far.
    pub fn counts(&self) -> FaultCounts {
        self.counts
    }

    /// Changes what it does from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
        self.in_burst = false;
    }

    /// Passes `train` on to `deliver` in one or more pieces, each with an extra delay in nanoseconds.
    pub fn apply(&mut self, train: Train, mut deliver: impl FnMut(u64, Train)) {
        if self.faults.is_none() {
            return deliver(0, train);
        }
        let delay_ns = self.faults.delay_ns;
        let mut deliver = |extra_ns: u64, train| deliver(delay_ns.saturating_add(extra_ns), train);
        let packets = train.len();
        // Packets that pass stay together: `start` is the first one not yet passed on.
        let mut start = 0;
        for index in 0..packets {
            let fate = self.fate();
            if fate == Fate::Pass {
                continue;
            }
            let kept = if fate == Fate::Duplicate { index + 1 } else { index };
            if start < kept {
                deliver(0, train.slice(start, kept - start));
            }
            start = index + 1;
            let hold_ns = self.prng.below(self.faults.hold_ns.saturating_add(1));
            match fate {
                Fate::Duplicate | Fate::Reorder => deliver(hold_ns, train.slice(index, 1)),
                Fate::Corrupt => {
                    let mut damaged = train.slice(index, 1);
                    self.damage(&mut damaged.bytes);
                    deliver(0, damaged);
                }
                Fate::Pass | Fate::Lose => {}
            }
        }
        if start == 0 {
            deliver(0, train);
        } else if start < packets {
            deliver(0, train.slice(start, packets - start));
        }
    }

    fn fate(&mut self) -> Fate {
        let faults = self.faults;
        if self.in_burst {
            self.in_burst = !self.prng.ppm(faults.burst_end_ppm);
        } else {
            self.in_burst = self.prng.ppm(faults.burst_begin_ppm);
        }
        let counts = &mut self.counts;
        let (fate, count) = if self.in_burst || self.prng.ppm(faults.loss_ppm) {
            (Fate::Lose, &mut counts.lost)
        } else if self.prng.ppm(faults.duplicate_ppm) {
            (Fate::Duplicate, &mut counts.duplicated)
        } else if self.prng.ppm(faults.reorder_ppm) {
            (Fate::Reorder, &mut counts.reordered)
        } else if self.prng.ppm(faults.corrupt_ppm) {
            (Fate::Corrupt, &mut counts.corrupted)
        } else {
            return Fate::Pass;
        };
        *count += 1;
        fate
    }

    /// Flips one to three different bits: few enough for the ICRC to notice without fail, at any length a
    /// packet can have.
    fn damage(&mut self, packet: &mut [u8]) {
        let bits = packet.len() as u64 * 8;
        let first = self.prng.below(bits);
        for distinct in 0..self.prng.range(1, 3) {
            let bit = ((first + distinct * (bits / 3)) % bits) as usize;
            packet[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A train whose packets are 8 bytes of their own number.
    fn train(packets: u8) -> Train {
        Train {
            src: "10.0.0.1:4791".parse().unwrap(),
            dst: "10.0.0.2".parse().unwrap(),
            stride: 8,
            first_id: 0,
            bytes: (0..packets).flat_map(|number| [number; 8]).collect(),
        }
    }

    /// What comes out: (delay, first Identification, numbers of the packets).
    fn through(faults: Faults, seed: u64, packets: u8) -> (Vec<(u64, u16, Vec<u8>)>, FaultCounts) {
        let mut injector = FaultInjector::new(faults, Prng::new(seed));
        let mut out = Vec::new();
        injector.apply(train(packets), |delay, piece| {
            let numbers = piece.packets().map(|packet| packet[0]).collect();
            out.push((delay, piece.first_id, numbers));
        });
        (out, injector.counts())
    }

    fn numbers(out: &[(u64, u16, Vec<u8>)]) -> Vec<u8> {
        out.iter().flat_map(|(_, _, numbers)| numbers.clone()).collect()
    }

    #[test]
    fn without_faults_a_train_passes_whole() {
        let (out, counts) = through(Faults::default(), 1, 5);
        assert_eq!(out, [(0, 0, vec![0, 1, 2, 3, 4])]);
        assert_eq!(counts, FaultCounts::default());
    }

    #[test]
    fn lost_packets_leave_pieces_that_keep_their_identification() {
        let lossy = Faults {
            loss_ppm: 300_000,
            ..Faults::default()
        };
        let (out, counts) = through(lossy, 7, 40);
        assert_eq!(numbers(&out).len() as u64 + counts.lost, 40);
        assert!(counts.lost > 3 && out.len() > 1);
        for (_, first_id, numbers) in &out {
            assert_eq!(u16::from(numbers[0]), *first_id);
            assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1));
        }
    }

    #[test]
    fn a_burst_loses_neighbours() {
        let bursty = Faults {
            burst_begin_ppm: 50_000,
            burst_end_ppm: 200_000,
            ..Faults::default()
        };
        let (out, counts) = through(bursty, 3, 200);
        let survivors = numbers(&out);
        assert_eq!(survivors.len() as u64 + counts.lost, 200);
        let gaps = survivors.windows(2).filter(|pair| pair[1] > pair[0] + 1).count() as u64;
        assert!(
            gaps > 0 && counts.lost > 2 * gaps,
            "{} lost in {gaps} gaps",
            counts.lost
        );
    }

    #[test]
    fn duplicates_come_twice_and_reordered_packets_late() {
        let twice = Faults {
            duplicate_ppm: 1_000_000,
            hold_ns: 100,
            ..Faults::default()
        };
        let (out, counts) = through(twice, 1, 3);
        assert_eq!(numbers(&out), [0, 0, 1, 1, 2, 2]);
        assert_eq!(counts.duplicated, 3);
        let late = Faults {
            reorder_ppm: 1_000_000,
            hold_ns: 1000,
            ..Faults::default()
        };
        let (out, counts) = through(late, 1, 3);
        assert_eq!(counts.reordered, 3);
        assert!(out.iter().any(|(delay, _, _)| *delay > 0));
    }

    #[test]
    fn everything_is_delayed_alike() {
        let late = Faults {
            delay_ns: 500,
            ..Faults::default()
        };
        let (out, counts) = through(late, 1, 3);
        assert_eq!(out, [(500, 0, vec![0, 1, 2])]);
        assert_eq!(counts, FaultCounts::default());
    }

    #[test]
    fn corruption_flips_one_to_three_bits() {
        let damaging = Faults {
            corrupt_ppm: 1_000_000,
            ..Faults::default()
        };
        let mut injector = FaultInjector::new(damaging, Prng::new(5));
        for _ in 0..100 {
            injector.apply(train(1), |_, piece| {
                let flipped: u32 = piece.bytes.iter().map(|byte| byte.count_ones()).sum();
                assert!((1..=3).contains(&flipped));
            });
        }
        assert_eq!(injector.counts().corrupted, 100);
    }
}
