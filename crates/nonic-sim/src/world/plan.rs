//! From a seed to a workload: hosts, queues, connections and everything they will do.

use super::World;
use super::content::Arena;
use super::model::{Cell, Cq, Export, Half, Host, Life, Mark, Qp, Receive, Srq, Terms, Word};
use super::scenario::Scenario;
use super::{datagrams, ops};
use nonic_core::link::Prng;
use nonic_core::{Arm, PathMtu, Psn, Qpn, RnrTimer, SendFlags, Service};
use std::collections::{BTreeSet, VecDeque};

/// A plan, as it grows.
pub(crate) struct Plan {
    pub(crate) scenario: Scenario,
    pub(crate) hosts: Vec<Host>,
    pub(crate) arenas: Vec<Arena>,
    pub(crate) exports: Vec<Export>,
    pub(crate) cells: Vec<Cell>,
    pub(crate) words: Vec<Word>,
    pub(crate) cqs: Vec<Cq>,
    pub(crate) srqs: Vec<Srq>,
    pub(crate) qps: Vec<Qp>,
    /// What happens when.
    pub(crate) timeline: Vec<(u64, Mark)>,
    /// Words of each host.
    pub(crate) words_of: Vec<Vec<usize>>,
}

impl Plan {
    pub(crate) fn draw(prng: &mut Prng) -> Self {
        let scenario = Scenario::draw(prng);
        let mut plan = Plan {
            scenario,
            hosts: Vec::new(),
            arenas: Vec::new(),
            exports: Vec::new(),
            cells: Vec::new(),
            words: Vec::new(),
            cqs: Vec::new(),
            srqs: Vec::new(),
            qps: Vec::new(),
            timeline: Vec::new(),
            words_of: Vec::new(),
        };
        for station in 0..plan.scenario.stations {
            plan.add_host(station, prng);
        }
        let crash = prng.percent(8).then(|| plan.plan_crash(prng));
        plan.plan_pairs(crash, prng);
        if prng.percent(30) {
            plan.plan_datagrams(prng);
        }
        plan.finish_queues(prng);
        plan.plan_actions(prng);
        plan
    }

    fn add_host(&mut self, station: usize, prng: &mut Prng) -> usize {
        let host = self.hosts.len();
        let commons = self.add_arena(host, prng);
        let words = (0..prng.range(1, 4)).map(|index| {
            let offset = self.arenas[commons].allocate_word();
            self.words.push(Word {
                arena: commons,
                offset,
                private: index % 2 == 1,
                predicted: 0,
                history: Vec::new(),
            });
            self.words.len() - 1
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
        self.arenas.push(Arena::plan(host, prng));
        self.arenas.len() - 1
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
        self.srqs.push(Srq {
            host,
            arena,
            depth: prng.range(1, 40) as usize,
            limit: prng.below(8) as usize,
            armed: false,
            taken: 0,
            receives: Vec::new(),
            next: 0,
            waiting: BTreeSet::new(),
            blocked: false,
            queue: None,
        });
        self.srqs.len() - 1
    }

    /// Plans the death of a host and the birth of its successor; answers both and when.
    fn plan_crash(&mut self, prng: &mut Prng) -> (usize, usize, u64) {
        let old = prng.index(self.hosts.len());
        let station = self.hosts[old].station;
        let new = self.add_host(station, prng);
        let at_ns = prng.below(200_000) + prng.below(2) * prng.below(3_000_000);
        self.timeline.push((at_ns, Mark::Crash { old, new }));
        (old, new, at_ns)
    }

    fn plan_pairs(&mut self, crash: Option<(usize, usize, u64)>, prng: &mut Prng) {
        let first_lives = self.scenario.stations;
        let pairs = match prng.below(10) {
            0..=4 => 1,
            5..=7 => 2,
            _ => prng.range(3, 5),
        };
        for _ in 0..pairs {
            let a = prng.index(first_lives);
            let mut b = prng.index(first_lives);
            if a == b && !prng.percent(5) {
                b = (a + 1) % first_lives;
            }
            let start_ns = prng.below(2) * prng.below(50_000);
            self.plan_pair(a, b, start_ns, prng);
        }
        if let Some((old, new, at_ns)) = crash {
            let peer = (self.hosts[old].station + 1) % first_lives;
            self.plan_pair(peer, new, at_ns + 1 + prng.below(100_000), prng);
        }
    }

    fn plan_pair(&mut self, a: usize, b: usize, start_ns: u64, prng: &mut Prng) {
        let service = if prng.percent(78) {
            Service::Rc
        } else {
            Service::Uc
        };
        let terms = self.draw_terms(prng);
        let first = self.qps.len();
        for (host, peer) in [(a, first + 1), (b, first)] {
            self.add_qp(host, service, Some(peer), terms, prng);
        }
        if service == Service::Rc && self.qps[first + 1].srq.is_some() && prng.percent(40) {
            self.extend_pair(first);
        }
        ops::plan_pair(self, first, prng);
        self.timeline.push((start_ns, Mark::Start(first)));
    }

    /// Makes a pair the two halves of an extended reliable connection.
    fn extend_pair(&mut self, first: usize) {
        let initiator = &mut self.qps[first];
        initiator.half = Some(Half::Initiator);
        initiator.srq = None;
        initiator.recv_cq = initiator.send_cq;
        let target = &mut self.qps[first + 1];
        target.half = Some(Half::Target);
        target.send_cq = target.recv_cq;
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
        // Repeated datagrams take receives nobody planned for, so they get none of a connection's.
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
        self.qps.push(Qp {
            host,
            service,
            peer,
            terms,
            psn: Psn::new(psn),
            qkey: 0x1234_5678,
            in_group: false,
            qpn: Qpn::new(0),
            send_cq,
            recv_cq,
            srq,
            half: None,
            srq_number: 0,
            arena,
            exports: Vec::new(),
            signal_all: prng.percent(15),
            send_depth: prng.pick(&[1, 2, 3, 8, 16, 64, 64]),
            recv_depth: prng.pick(&[1, 2, 4, 16, 64]),
            pace_ns,
            recv_pace_ns,
            ops: Vec::new(),
            next_op: 0,
            outstanding: VecDeque::new(),
            messages: Vec::new(),
            writes_seen: 0,
            receives: Vec::new(),
            next_receive: 0,
            waiting: VecDeque::new(),
            received: 0,
            life: Life::Planned,
            blind: false,
            may_be_refused: false,
            failed: None,
            disturbed_at_success: 0,
            posts_after_failure: 0,
            backoff_ns: 0,
            receives_blocked: false,
        });
        self.qps.len() - 1
    }

    fn serves_connections(&self, srq: usize) -> bool {
        self.qps
            .iter()
            .any(|qp| qp.srq == Some(srq) && qp.service != Service::Ud)
    }

    fn plan_datagrams(&mut self, prng: &mut Prng) {
        let count = prng.range(2, 4) as usize;
        let terms = Terms {
            mtu: PathMtu::Mtu4096,
            ..self.draw_terms(prng)
        };
        let stations = self.scenario.stations;
        let members: Vec<usize> = (0..count)
            .map(|index| self.add_qp(index % stations, Service::Ud, None, terms, prng))
            .collect();
        datagrams::plan_datagrams(self, &members, prng);
        for member in members {
            self.timeline.push((0, Mark::Start(member)));
        }
    }

    /// Sizes what is shared, now that its users are known, and signals each queue's last request.
    fn finish_queues(&mut self, prng: &mut Prng) {
        for qp in &mut self.qps {
            if let Some(last) = qp.ops.last_mut() {
                last.flags |= SendFlags::SIGNALED;
            }
        }
        for (number, srq) in self.srqs.iter_mut().enumerate() {
            let extra = prng.below(4) as usize;
            let longest = srq.receives.iter().map(|receive| receive.buffer.length()).max();
            // Which message a shared receive gets is not known beforehand: all are as long as the longest.
            let count = srq.receives.len() + if longest.is_some() { extra } else { 0 };
            let arena = &mut self.arenas[srq.arena];
            srq.receives = (0..count)
                .map(|_| Receive {
                    buffer: arena.allocate_pieces(longest.unwrap_or(0), 4, prng),
                    short: false,
                    done: false,
                })
                .collect();
            self.timeline
                .push((prng.below(3_000), Mark::SharedReceive(number)));
        }
        for (number, cq) in self.cqs.iter_mut().enumerate() {
            let senders = self.qps.iter().filter(|qp| qp.send_cq == number);
            let sends: usize = senders.map(|qp| qp.send_depth as usize + 16).sum();
            let receivers = self.qps.iter().filter(|qp| qp.recv_cq == number);
            let receives: usize = receivers
                .map(|qp| match qp.srq {
                    Some(srq) => self.srqs[srq].depth + 16,
                    None => qp.recv_depth as usize + 16,
                })
                .sum();
            cq.capacity = if cq.may_overflow { 2 } else { sends + receives };
        }
    }

    fn plan_actions(&mut self, prng: &mut Prng) {
        let some_time = |prng: &mut Prng| prng.below(100_000) + prng.below(2) * prng.below(2_000_000);
        for (number, export) in self.exports.iter().enumerate() {
            if export.revocable {
                self.timeline.push((some_time(prng), Mark::Revoke(number)));
            }
        }
        let qps = self.qps.len();
        let victim = prng.index(qps);
        match prng.below(100) {
            // What a target received stays visible after its end, which the checkers do not expect.
            0..=3 if self.qps[victim].half == Some(Half::Target) => {}
            0..=3 => self.timeline.push((some_time(prng), Mark::Destroy(victim))),
            4..=7 => self.timeline.push((some_time(prng), Mark::ToError(victim))),
            8..=15 => self.timeline.push((some_time(prng), Mark::Drain(victim))),
            16..=20 => {
                let (a, b) = (
                    prng.index(self.scenario.stations),
                    prng.index(self.scenario.stations),
                );
                let duration_ns = prng.below(2 * (4096 << self.qps[victim].terms.timeout_exponent));
                let mark = Mark::Partition { a, b, duration_ns };
                self.timeline.push((some_time(prng), mark));
            }
            21..=23 => {
                let station = prng.index(self.scenario.stations);
                self.timeline.push((some_time(prng), Mark::Garbage { station }));
            }
            _ => {}
        }
    }

    /// Turns the plan into a world at time zero.
    pub(crate) fn build(self, prng: Prng) -> World {
        World::new(self, prng)
    }
}
