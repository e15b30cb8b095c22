//! How the NICs of a run reach each other's memory, drawn from its seed.

use crate::direct::DirectProfile;
use nonic_netem::Prng;

/// How the NICs of a run reach each other's memory.
#[derive(Copy, Clone, Debug)]
pub(crate) struct DirectTerms {
    pub(crate) profile: DirectProfile,
    /// The most bytes moved at once: a power of two, so that pieces and packets have common borders.
    pub(crate) piece: u32,
    /// From so many bytes on, a request waits until it can be executed this way.
    pub(crate) worth: u32,
    /// From so many bytes on, the receiver of a SEND fetches them.
    pub(crate) pull_worth: u32,
    /// The longest pause between two pieces.
    pub(crate) pause_ns: u64,
    pub(crate) seed: u64,
}

impl DirectTerms {
    /// For a third of all seeds.
    pub(super) fn draw(prng: &mut Prng) -> Option<Self> {
        if !prng.percent(33) {
            return None;
        }
        let mut terms = DirectTerms {
            profile: DirectProfile {
                reach_percent: prng.pick(&[100, 100, 60]),
                refuse_percent: prng.pick(&[0, 0, 4, 25]),
            },
            piece: prng.pick(&[64, 256, 1024, 4096, 1 << 20]),
            worth: prng.pick(&[1, 2_000, u32::MAX]),
            pull_worth: u32::MAX,
            pause_ns: prng.pick(&[200, 2_000, 20_000]),
            seed: prng.next_u64(),
        };
        // Not drawn, so that what is drawn after it stays as it was.
        terms.pull_worth = [1, 500, u32::MAX][(terms.seed % 3) as usize];
        Some(terms)
    }
}
