//! The lanes of a run, drawn from its seed.

use crate::lanes::LaneProfile;
use nonic_netem::Prng;

/// The lanes of a run.
#[derive(Copy, Clone, Debug)]
pub(crate) struct LaneTerms {
    pub(crate) profile: LaneProfile,
    /// Bytes of payload in a record: a power of two, so that records, packets and pieces have common borders.
    pub(crate) piece: u32,
    /// How long a process may not look at its lanes, at most.
    pub(crate) look_ns: u64,
    pub(crate) seed: u64,
}

impl LaneTerms {
    /// For a third of all seeds, and those that cannot do without.
    pub(super) fn draw(prng: &mut Prng, needed: bool) -> Option<Self> {
        if !prng.percent(33) && !needed {
            return None;
        }
        Some(LaneTerms {
            profile: LaneProfile {
                reach_percent: prng.pick(&[100, 100, 60]),
                room: prng.pick(&[1, 3, 16, 256]),
                late_percent: prng.pick(&[0, 0, 50]),
            },
            piece: prng.pick(&[64, 256, 1024, 4096]),
            look_ns: prng.pick(&[0, 500, 5_000]),
            seed: prng.next_u64(),
        })
    }
}
