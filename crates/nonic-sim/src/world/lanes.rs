//! Plans lanes: which seeds have them. Then most goes through records instead of packets. Direct access needs them.
//!
//! All of it is drawn from a generator of its own: what else a seed means does not depend on it.

use super::lane_terms::LaneTerms;
use super::plan::Plan;
use nonic_netem::Prng;

impl Plan {
    /// Gives the plan of a seed lanes, if it has any.
    pub(super) fn plan_lanes(&mut self, seed: u64) {
        let mut prng = Prng::new(seed ^ 0x6c_616e_6573_0000);
        self.scenario.lanes = LaneTerms::draw(&mut prng, self.scenario.direct.is_some());
        let Some(terms) = self.scenario.lanes else {
            return;
        };
        let piece = terms.piece as usize;
        for cell in &mut self.model.cells {
            cell.mtu = cell.mtu.min(piece);
        }
        for program in &mut self.model.programs {
            program.piece = program.piece.min(piece);
            program.packet = program.packet.min(piece);
        }
    }
}
