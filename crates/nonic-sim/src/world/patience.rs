//! Programs with a long timeout on networks that reorder and lose much: every loss must be detected and repaired
//! without the timeout, which is for peers that are gone. A NIC that only loses time shows here, and nowhere else.
//!
//! All of it is drawn from a generator of its own: what else a seed means does not depend on it.

use super::model::{Life, Mark};
use super::plan::Plan;
use super::{Check, World};
use nonic_core::{Service, WindowConfig};
use nonic_netem::{Faults, Prng};

/// Which seeds: two of so many.
const ONE_IN: u64 = 5;

/// Nine seconds. A peer that answers nothing is asked at least seven times in these, and no exchange is lost as often.
const TIMEOUT_EXPONENT: u8 = 21;

impl Plan {
    /// Makes the programs of a seed patient, if they are.
    pub(super) fn plan_patience(&mut self, seed: u64) {
        if !matches!(seed % ONE_IN, 2 | 3) {
            return;
        }
        let mut prng = Prng::new(seed ^ 0x70_6174_6965_6e74);
        self.scenario.patient = true;
        let faults = draw_faults(self.scenario.lenient_icrc, &mut prng);
        (self.scenario.fabric.faults, self.scenario.calm) = (faults, faults.is_none());
        if prng.percent(40) {
            // Most READs take several requests then.
            self.scenario.window = WindowConfig {
                initial: 4 << 10,
                max: 4 << 10,
            };
        }
        for qp in &mut self.qps {
            (qp.terms.timeout_exponent, qp.terms.retry_count) = (TIMEOUT_EXPONENT, 7);
        }
        if prng.percent(30) {
            let mark = Mark::Pause {
                station: prng.index(self.scenario.stations),
                duration_ns: prng.pick(&[200_000, 3_000_000, 40_000_000]),
            };
            self.timeline.push((prng.below(500_000), mark));
        }
    }
}

impl World {
    /// No queue pair whose peer lives has waited for a whole timeout.
    pub(super) fn check_patience(&self) -> Check {
        if !self.scenario.patient {
            return Ok(());
        }
        for station in 0..self.scenario.stations {
            let timeouts = self.fabric.nic(station).counters().timeouts;
            if timeouts > 0 && self.all_sound(station) {
                return Err(format!(
                    "NIC {station} found out {timeouts} losses by the program's timeout"
                ));
            }
        }
        Ok(())
    }

    /// How long a program that is to do something is stopped yet: its host is.
    pub(super) fn pause_left_ns(&self, mark: Mark) -> u64 {
        let host = match mark {
            Mark::Post(qp) | Mark::Receive(qp) => self.model.programs[qp].host,
            Mark::SharedReceive(srq) => self.model.srqs[srq].host,
            _ => return 0,
        };
        self.fabric.pause_left_ns(self.hosts[host].station)
    }

    /// Whether nothing happened to the connections of a NIC that excuses silence.
    fn all_sound(&self, station: usize) -> bool {
        let sound = |number: usize| {
            let (qp, program) = (&self.qps[number], &self.model.programs[number]);
            let lives = matches!(qp.life, Life::Alive | Life::Draining | Life::Drained);
            lives && program.failed.is_none() && !self.hosts[program.host].crashed
        };
        let programs = self.model.programs.iter().enumerate();
        programs
            .filter(|(_, program)| self.hosts[program.host].station == station)
            .filter(|(number, _)| self.qps[*number].service == Service::Rc)
            .all(|(number, program)| sound(number) && program.peer.is_none_or(sound))
    }
}

/// Networks that spread packets over several paths, some of which lose a few.
fn draw_faults(lenient_icrc: bool, prng: &mut Prng) -> Faults {
    let reorder_ppm = prng.pick(&[0, 5_000, 50_000, 300_000, 600_000]);
    let loss_ppm = match prng.below(5) {
        0 => 0,
        1 | 2 => prng.range(500, 5_000) as u32,
        _ => prng.range(5_000, 20_000) as u32,
    };
    let damaged = prng.range(500, 20_000) as u32;
    Faults {
        reorder_ppm,
        loss_ppm,
        duplicate_ppm: prng.pick(&[0, 0, 30_000]),
        hold_ns: prng.pick(&[2_000, 20_000, 200_000, 3_000_000]),
        corrupt_ppm: if lenient_icrc || prng.percent(80) {
            0
        } else {
            damaged
        },
        ..Faults::default()
    }
}
