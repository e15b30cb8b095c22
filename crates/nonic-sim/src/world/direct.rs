//! Plans direct access: which seeds have it, and queue pairs that do not permit everything, so that a path around the
//! responder shows.
//!
//! All of it is drawn from a generator of its own: what else a seed means does not depend on it.

use super::direct_terms::DirectTerms;
use super::model::Mark;
use super::plan::Plan;
use crate::program::request::{Bad, Expect, Kind};
use nonic_core::{Access, Service, Status};
use nonic_netem::Prng;

impl Plan {
    /// Adds direct access to the plan of a seed, if it has any.
    pub(super) fn plan_direct(&mut self, seed: u64) {
        let mut prng = Prng::new(seed ^ 0x64_6972_6563_7400);
        self.scenario.direct = DirectTerms::draw(&mut prng);
        let Some(direct) = self.scenario.direct else {
            return;
        };
        for cell in &mut self.model.cells {
            cell.mtu = cell.mtu.min(direct.piece as usize);
        }
        for program in &mut self.model.programs {
            program.piece = program.piece.min(direct.piece as usize);
        }
        for number in 0..self.qps.len() {
            // A queue pair that posts one burst after another always has packets under way.
            if prng.percent(50) {
                self.model.programs[number].pace_ns = prng.pick(&[30_000, 300_000]);
            }
            if prng.percent(8) {
                let right = prng.pick(&[Access::REMOTE_WRITE, Access::REMOTE_READ, Access::REMOTE_ATOMIC]);
                self.withhold(number, right);
            }
        }
        let ends = |mark: &Mark| matches!(mark, Mark::Destroy(_) | Mark::ToError(_) | Mark::Drain(_));
        if !self.timeline.iter().any(|(_, mark)| ends(mark)) && prng.percent(40) {
            let victim = prng.index(self.qps.len());
            let mark = prng.pick(&[Mark::ToError(victim), Mark::Drain(victim), Mark::Drain(victim)]);
            self.timeline.push((prng.below(300_000), mark));
        }
    }

    /// A queue pair does not permit what its peer will ask for: the first such request is refused.
    fn withhold(&mut self, number: usize, right: Access) {
        let qp = &self.qps[number];
        let (Service::Rc, None, Some(peer)) = (qp.service, qp.half, self.model.programs[number].peer) else {
            return;
        };
        let mut ops = self.model.programs[peer].ops.iter_mut();
        // One that fails by itself ends the connection before.
        let first = ops.find(|op| matches!(op.expect, Expect::Local(_)) || needs(op.kind) == Some(right));
        if let Some(refused) = first.filter(|op| !matches!(op.expect, Expect::Local(_))) {
            refused.expect = Expect::Refused(Status::RemoteInvalidRequest);
        }
        self.qps[number].withheld = right;
    }
}

/// The right that a queue pair must give for a request.
fn needs(kind: Kind) -> Option<Access> {
    match kind {
        Kind::Write { .. }
        | Kind::Bad(
            Bad::WriteUnknownKey | Bad::WriteImmediateUnknownKey | Bad::WriteOutOfBounds | Bad::WriteReadOnly,
        ) => Some(Access::REMOTE_WRITE),
        Kind::ReadPool { .. }
        | Kind::ReadCell { .. }
        | Kind::Bad(Bad::ReadUnknownKey | Bad::ReadOutOfBounds) => Some(Access::REMOTE_READ),
        Kind::Atomic { .. } | Kind::Bad(Bad::AtomicWithoutRight | Bad::AtomicUnaligned) => {
            Some(Access::REMOTE_ATOMIC)
        }
        _ => None,
    }
}
