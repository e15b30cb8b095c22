//! Checks of the connection managers: what must hold once the network is calm, and at the end.

use super::{Check, Connections};
use nonic_core::cm::{CmState, CmUsage};
use std::collections::BTreeMap;

impl Connections {
    /// A connection that one side holds is held by the other, or the other has said goodbye.
    pub(super) fn check_both_sides(&self) -> Check {
        let mut held: BTreeMap<usize, [bool; 2]> = BTreeMap::new();
        for host in &self.hosts {
            for (id, side) in &host.sides {
                let holds = host.gateway.cm.state(*id) == Some(CmState::Established);
                if holds != (side.established && !side.disconnected) {
                    return Err(format!(
                        "attempt {}: the program was not told of its state",
                        side.attempt
                    ));
                }
                held.entry(side.attempt).or_default()[usize::from(side.active)] |= holds;
            }
        }
        for (index, [passive, active]) in held {
            let attempt = &self.attempts[index];
            let excused = attempt.ended || attempt.orphaned;
            if passive != active && !excused {
                return Err(format!(
                    "attempt {index}: only one side is connected, and nobody ended it: {attempt:?}"
                ));
            }
        }
        if self.plan.is_quiet() {
            self.check_programs_had_their_way()?;
        }
        Ok(())
    }

    /// In a quiet network every attempt ends as its programs intended.
    fn check_programs_had_their_way(&self) -> Check {
        for (index, attempt) in self.attempts.iter().enumerate() {
            let intention = self.plan.intentions[index];
            let connects = !intention.nobody && !intention.datagram && !attempt.ended;
            if connects && attempt.passive_established != 1 {
                return Err(format!("attempt {index} came to nothing: {attempt:?}"));
            }
        }
        Ok(())
    }

    /// Every connection has ended; no identifier, timer or table entry is left.
    pub(super) fn check_nothing_is_left(&self) -> Check {
        for (number, host) in self.hosts.iter().enumerate() {
            if let Some((id, side)) = host.sides.first_key_value() {
                return Err(format!("host {number} never heard the end of {id:?}: {side:?}"));
            }
            let usage = host.gateway.cm.usage();
            let expected = CmUsage {
                listeners: 2,
                ..CmUsage::default()
            };
            if usage != expected {
                return Err(format!("host {number} leaks: {usage:?}"));
            }
        }
        Ok(())
    }
}
