//! A workload: hosts, queues, connections and everything they will do. How one is drawn from a seed is in `draw`.

use super::model::{Cq, Host, Life, Mark, Qp, Terms};
use super::scenario::Scenario;
use crate::program::content::Arena;
use crate::program::model::{Model, Program, Promise, Srq, Word};
use nonic_core::{Access, Arm, PathMtu, Psn, RnrTimer, Service};
use nonic_netem::Prng;

/// A plan, as it grows.
pub(crate) struct Plan {
    pub(crate) scenario: Scenario,
    pub(crate) hosts: Vec<Host>,
    pub(crate) model: Model,
    pub(crate) cqs: Vec<Cq>,
    pub(crate) qps: Vec<Qp>,
    /// What happens when.
    pub(crate) timeline: Vec<(u64, Mark)>,
    /// Words of each host.
    pub(crate) words_of: Vec<Vec<usize>>,
}

impl Plan {
    pub(super) fn empty(scenario: Scenario) -> Self {
        Plan {
            scenario,
            hosts: Vec::new(),
            model: Model::default(),
            cqs: Vec::new(),
            qps: Vec::new(),
            timeline: Vec::new(),
            words_of: Vec::new(),
        }
    }

    pub(super) fn add_host(&mut self, station: usize, prng: &mut Prng) -> usize {
        let host = self.hosts.len();
        let commons = self.add_arena(host, prng);
        let words = (0..prng.range(1, 4)).map(|index| {
            let offset = self.model.arenas[commons].allocate_word();
            self.model.words.push(Word::new(commons, offset, index % 2 == 1));
            self.model.words.len() - 1
        });
        let words: Vec<usize> = words.collect();
        self.words_of.push(words);
        let cqs = (0..prng.range(1, 3)).map(|_| self.add_cq(prng)).collect();
        let srqs = if prng.percent(25) {
            vec![self.add_srq(host, prng)]
        } else {
            Vec::new()
        };
        self.hosts.push(Host {
            station,
            ip: self.scenario.ip(station),
            seed: prng.next_u64(),
            up: false,
            crashed: false,
            pd: None,
            pool_key: 0,
            secret_keys: 0,
            commons,
            cqs,
            srqs,
        });
        host
    }

    pub(crate) fn add_arena(&mut self, host: usize, prng: &mut Prng) -> usize {
        self.model.arenas.push(Arena::plan(host, prng));
        self.model.arenas.len() - 1
    }

    fn add_cq(&mut self, prng: &mut Prng) -> usize {
        let arming = match prng.below(10) {
            0 | 1 => Some(Arm::Next),
            2 => Some(Arm::Solicited),
            _ => None,
        };
        self.cqs.push(Cq {
            capacity: 0,
            may_overflow: prng.below(100) < 1,
            overflowed: false,
            arming,
            queue: None,
        });
        self.cqs.len() - 1
    }

    fn add_srq(&mut self, host: usize, prng: &mut Prng) -> usize {
        let arena = self.add_arena(host, prng);
        let (depth, limit) = (prng.range(1, 40) as usize, prng.below(8) as usize);
        self.model.srqs.push(Srq::new(host, arena, depth, limit));
        self.model.srqs.len() - 1
    }

    pub(super) fn draw_terms(&self, prng: &mut Prng) -> Terms {
        use PathMtu::{Mtu256, Mtu512, Mtu1024, Mtu2048, Mtu4096};
        let patient = self.scenario.calm && prng.percent(30);
        let retry_count = if patient { prng.below(8) as u8 } else { 7 };
        // Too short a timeout repeats in vain, which must do no harm as long as all retries together
        // outlast a round trip.
        let factor = if patient { 4 } else { prng.pick(&[1, 2, 4, 8]) };
        let wanted_ns = self.scenario.worst_round_trip_ns() * factor / 2 + 50_000;
        let timeout_exponent = (1..31).find(|e| 4096u64 << e >= wanted_ns).unwrap_or(30);
        let rnr_code = if prng.percent(2) {
            0
        } else {
            prng.range(1, 14) as u8
        };
        Terms {
            mtu: prng.pick(&[Mtu256, Mtu256, Mtu512, Mtu1024, Mtu1024, Mtu2048, Mtu4096]),
            timeout_exponent,
            retry_count,
            rnr_retry: if prng.percent(85) { 7 } else { prng.below(7) as u8 },
            rnr_timer: RnrTimer::from_code(rnr_code).expect("below 32"),
            max_rd_atomic: prng.pick(&[1, 1, 2, 3, 4, 8, 16]),
        }
    }

    pub(super) fn add_qp(
        &mut self,
        host: usize,
        service: Service,
        peer: Option<usize>,
        terms: Terms,
        prng: &mut Prng,
    ) -> usize {
        let arena = self.add_arena(host, prng);
        let send_cq = prng.pick(&self.hosts[host].cqs);
        let recv_cq = prng.pick(&self.hosts[host].cqs);
        let srqs = &self.hosts[host].srqs;
        let wanted = (!srqs.is_empty() && prng.percent(60)).then(|| prng.pick(srqs));
        // Repeated datagrams take receives that were not planned for, so they get none of a connection's.
        let srq = wanted.filter(|srq| service != Service::Ud || !self.serves_connections(*srq));
        let pace_ns = prng.pick(&[0, 0, 500, 5_000, 30_000]);
        let late = prng.percent(25);
        let recv_pace_ns = if late {
            prng.pick(&[50_000, 400_000])
        } else {
            prng.pick(&[0, 2_000])
        };
        let psn = match prng.below(4) {
            0 => 0xff_ffff - prng.below(64) as u32,
            1 => 0x7f_ffff - prng.below(32) as u32,
            _ => prng.next_u32(),
        };
        let promise = match service {
            Service::Rc => Promise::Done,
            _ => Promise::Nothing,
        };
        let packet = terms.mtu.bytes() as usize;
        self.model.programs.push(Program {
            srq,
            packet,
            piece: packet,
            signal_all: prng.percent(15),
            send_depth: prng.pick(&[1, 2, 3, 8, 16, 64, 64]),
            recv_depth: prng.pick(&[1, 2, 4, 16, 64]),
            pace_ns,
            recv_pace_ns,
            ..Program::new(host, peer, promise, arena)
        });
        self.qps.push(Qp {
            service,
            terms,
            psn: Psn::new(psn),
            qkey: 0x1234_5678,
            in_group: false,
            send_cq,
            recv_cq,
            half: None,
            srq_number: 0,
            life: Life::Planned,
            may_be_refused: false,
            withheld: Access::empty(),
            disturbed_at_success: 0,
            posts_after_failure: 0,
            backoff_ns: 0,
            receives_blocked: false,
        });
        self.qps.len() - 1
    }

    fn serves_connections(&self, srq: usize) -> bool {
        let pairs = self.qps.iter().zip(&self.model.programs);
        pairs
            .filter(|(qp, _)| qp.service != Service::Ud)
            .any(|(_, program)| program.srq == Some(srq))
    }
}
