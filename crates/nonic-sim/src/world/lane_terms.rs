//! Plans lanes: which seeds have them. Then reliable connections go through records instead of packets.
//!
//! All of it is drawn from a generator of its own: what else a seed means does not depend on it.

use super::plan::Plan;
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

impl Plan {
    /// Gives the plan of a seed lanes, if it has any: a third of them.
    pub(super) fn plan_lanes(&mut self, seed: u64) {
        let mut prng = Prng::new(seed ^ 0x6c_616e_6573_0000);
        if !prng.percent(33) {
            return;
        }
        let terms = LaneTerms {
            profile: LaneProfile {
                reach_percent: prng.pick(&[100, 100, 60]),
                room: prng.pick(&[1, 3, 16, 256]),
                late_percent: prng.pick(&[0, 0, 50]),
            },
            piece: prng.pick(&[64, 256, 1024, 4096]),
            look_ns: prng.pick(&[0, 500, 5_000]),
            seed: prng.next_u64(),
        };
        for cell in &mut self.model.cells {
            cell.mtu = cell.mtu.min(terms.piece as usize);
        }
        for program in &mut self.model.programs {
            program.piece = program.piece.min(terms.piece as usize);
            program.packet = program.packet.min(terms.piece as usize);
        }
        self.scenario.lanes = Some(terms);
    }
}
