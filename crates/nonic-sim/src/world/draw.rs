//! Draws a workload from a seed.

use super::model::{Half, Mark, Terms};
use super::plan::Plan;
use super::scenario::Scenario;
use super::{datagrams, ops};
use crate::program::model::Receive;
use nonic_core::{PathMtu, SendFlags, Service};
use nonic_netem::Prng;

impl Plan {
    pub(crate) fn draw(prng: &mut Prng) -> Self {
        let scenario = Scenario::draw(prng);
        let mut plan = Plan::empty(scenario);
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

    /// Plans the death of a host and the birth of its successor; returns both and when.
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
        if service == Service::Rc && self.model.programs[first + 1].srq.is_some() && prng.percent(40) {
            self.extend_pair(first);
        }
        ops::plan_pair(self, first, prng);
        self.timeline.push((start_ns, Mark::Start(first)));
    }

    /// Makes a pair the two halves of an extended reliable connection.
    fn extend_pair(&mut self, first: usize) {
        let initiator = &mut self.qps[first];
        initiator.half = Some(Half::Initiator);
        self.model.programs[first].srq = None;
        initiator.recv_cq = initiator.send_cq;
        let target = &mut self.qps[first + 1];
        target.half = Some(Half::Target);
        target.send_cq = target.recv_cq;
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
        for program in &mut self.model.programs {
            if let Some(last) = program.ops.last_mut() {
                last.flags |= SendFlags::SIGNALED;
            }
        }
        for (number, srq) in self.model.srqs.iter_mut().enumerate() {
            let extra = prng.below(4) as usize;
            let longest = srq.receives.iter().map(|receive| receive.buffer.length()).max();
            // Which message a shared receive gets is not known beforehand: all are as long as the longest.
            let count = srq.receives.len() + if longest.is_some() { extra } else { 0 };
            let arena = &mut self.model.arenas[srq.arena];
            srq.receives = (0..count)
                .map(|_| Receive::new(arena.allocate_pieces(longest.unwrap_or(0), 4, prng)))
                .collect();
            self.timeline
                .push((prng.below(3_000), Mark::SharedReceive(number)));
        }
        for (number, cq) in self.cqs.iter_mut().enumerate() {
            let pairs = || self.qps.iter().zip(&self.model.programs);
            let senders = pairs().filter(|(qp, _)| qp.send_cq == number);
            let sends: usize = senders.map(|(_, program)| program.send_depth as usize + 16).sum();
            let receivers = pairs().filter(|(qp, _)| qp.recv_cq == number);
            let receives: usize = receivers
                .map(|(_, program)| match program.srq {
                    Some(srq) => self.model.srqs[srq].depth + 16,
                    None => program.recv_depth as usize + 16,
                })
                .sum();
            cq.capacity = if cq.may_overflow { 2 } else { sends + receives };
        }
    }

    fn plan_actions(&mut self, prng: &mut Prng) {
        let some_time = |prng: &mut Prng| prng.below(100_000) + prng.below(2) * prng.below(2_000_000);
        for (number, export) in self.model.exports.iter().enumerate() {
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
}
