//! The traffic workload of a seed and its checkers.
//!
//! A [`World`] is a fabric, a plan of what every queue pair does on it, and a model of what must come of it. The model and
//! its checkers are [`crate::program`]; here is what RoCE adds to them: packets that get lost, and services that need not
//! repeat them.
//!
//! Read first: `model` (the data), `plan` and `ops` (how it is drawn), then the reasons that RoCE has for what happens:
//! `completions`, `arrivals`, `finish`.

mod arrivals;
mod bad;
mod carrier;
mod completions;
mod datagrams;
mod direct;
mod direct_terms;
mod draw;
mod events;
mod finish;
mod lane_terms;
mod lanes;
mod model;
mod ops;
mod patience;
mod placement;
mod plan;
mod post;
mod recorder;
mod scenario;
mod setup;

use crate::capture::Capture;
use crate::direct::SharedHost;
use crate::fabric::{Fabric, Step};
use crate::forger::Forger;
use crate::lanes::LaneHost;
use crate::program::Check;
use crate::program::model::Model;
use model::{Cq, Host, Life, Mark, Qp};
use nonic_core::{QpAttributes, QpState};
use nonic_netem::Prng;
use plan::Plan;
use recorder::Recorder;
use scenario::Scenario;
use std::collections::{BTreeMap, HashMap};

/// More steps than any run needs.
const MAX_STEPS: u64 = 3_000_000;
/// More virtual time than any run needs: everything completes in bounded time.
const MAX_TIME_NS: u64 = 600_000_000_000;

/// A run.
pub(crate) struct World {
    pub(crate) fabric: Fabric<Mark>,
    /// What makes NICs reach each other's memory, if they do.
    pub(crate) shared_host: Option<SharedHost>,
    scenario: Scenario,
    prng: Prng,
    hosts: Vec<Host>,
    /// The host that is up at each station.
    current: Vec<usize>,
    /// What the programs posted, and what must come of it.
    pub(crate) model: Model,
    cqs: Vec<Cq>,
    qps: Vec<Qp>,
    by_qpn: HashMap<(usize, u32), usize>,
    datagrams_seen: BTreeMap<(usize, usize, usize), u32>,
    /// Queue pairs whose receives were flushed in the NIC's turn being looked at.
    flushed: Vec<usize>,
    pub(crate) retries_exceeded: u64,
    pub(crate) steps: u64,
    narrating: bool,
    recorder: Option<Recorder>,
}

impl World {
    /// The world of a seed, at time zero.
    pub(crate) fn draw(seed: u64) -> Self {
        let mut prng = Prng::new(seed);
        let mut plan = Plan::draw(&mut prng);
        plan.plan_direct(seed);
        plan.plan_lanes(seed);
        plan.plan_patience(seed);
        let mut world = World::new(plan, prng);
        let mut forging = Prng::new(seed ^ 0x66_6f72_6765_7200);
        if forging.percent(20) {
            world.fabric.set_forger(Forger::new(forging.next_u64()));
        }
        world
    }

    fn new(plan: Plan, mut prng: Prng) -> Self {
        let mut config = plan.scenario.fabric;
        let direct = plan.scenario.direct;
        if let Some(direct) = direct {
            config.direct_pause_ns = direct.pause_ns;
        }
        let mut fabric = Fabric::new(config, prng.next_u64());
        if let Some(lanes) = plan.scenario.lanes {
            let host = LaneHost::new(lanes.profile, Prng::new(lanes.seed));
            fabric.set_lanes(host, lanes.look_ns);
        }
        let mut world = World {
            fabric,
            shared_host: direct.map(|direct| SharedHost::new(direct.profile, Prng::new(direct.seed))),
            scenario: plan.scenario,
            prng,
            hosts: plan.hosts,
            current: Vec::new(),
            model: plan.model,
            cqs: plan.cqs,
            qps: plan.qps,
            by_qpn: HashMap::new(),
            datagrams_seen: BTreeMap::new(),
            flushed: Vec::new(),
            retries_exceeded: 0,
            steps: 0,
            narrating: false,
            recorder: None,
        };
        for (at_ns, mark) in plan.timeline {
            world.fabric.mark(at_ns, mark);
        }
        world
    }

    /// Records the run's packets.
    pub(crate) fn capture(&mut self, capture: Capture) {
        self.fabric.set_capture(capture);
    }

    /// Prints what happens on standard error.
    pub(crate) fn narrate(&mut self, narrate: bool) {
        self.narrating = narrate;
        self.fabric.set_narrating(narrate);
        if narrate {
            for line in self.introduction() {
                eprintln!("{line}");
            }
        }
    }

    fn tell(&self, what: impl FnOnce() -> String) {
        if self.narrating {
            eprintln!("{:>12} {}", self.fabric.now().as_ns(), what());
        }
    }

    /// Runs to the end and checks everything.
    pub(crate) fn run(&mut self) -> Check {
        for station in 0..self.scenario.stations {
            let nic = self.new_nic(station);
            self.fabric.add(nic, &[self.scenario.ip(station)]);
            self.current.push(station);
            self.bring_up(station)?;
        }
        self.model.predict_words();
        while let Some(step) = self.fabric.step() {
            self.steps += 1;
            self.model.now_ns = self.fabric.now().as_ns();
            if self.steps > MAX_STEPS || self.fabric.now().as_ns() > MAX_TIME_NS {
                return Err(format!(
                    "no end after {} steps: {}",
                    self.steps,
                    self.unfinished()
                ));
            }
            match step {
                Step::Driven(station) => self.after_drive(station)?,
                Step::Mark(mark) => self.act(mark)?,
            }
        }
        self.finish()
    }

    fn unfinished(&self) -> String {
        let programs = self.model.programs.iter().enumerate();
        let stuck = programs.filter(|(_, program)| !program.outstanding.is_empty());
        let list: Vec<String> = stuck
            .map(|(number, program)| format!("QP {number} has {} outstanding", program.outstanding.len()))
            .collect();
        list.join(", ")
    }

    fn act(&mut self, mark: Mark) -> Check {
        let left_ns = self.pause_left_ns(mark);
        if left_ns > 0 {
            self.fabric.mark(left_ns, mark);
            return Ok(());
        }
        self.tell(|| format!("{mark:?}"));
        self.note_mark(mark);
        match mark {
            Mark::Start(qp) => self.start(qp),
            Mark::Post(qp) => self.post_some(qp),
            Mark::Receive(qp) => self.post_receives(qp),
            Mark::SharedReceive(srq) => self.post_shared(srq),
            Mark::Revoke(export) => self.revoke(export),
            Mark::Destroy(qp) => self.destroy(qp),
            Mark::ToError(qp) => self.move_to(qp, QpState::Error, Life::Error),
            Mark::Drain(qp) => self.drain(qp),
            Mark::Undrain(qp) => self.undrain(qp),
            Mark::Recover(qp) => self.recover(qp),
            Mark::Crash { old, new } => self.crash(old, new),
            Mark::Partition { a, b, duration_ns } => {
                self.fabric.partition(a, b, duration_ns);
                Ok(())
            }
            Mark::Pause { station, duration_ns } => {
                self.fabric.pause(station, duration_ns);
                Ok(())
            }
            Mark::Garbage { station } => {
                self.throw_garbage(station);
                Ok(())
            }
        }
    }

    fn revoke(&mut self, export: usize) -> Check {
        let (arena, key) = (self.model.exports[export].arena, self.model.exports[export].key);
        let host = self.model.arenas[arena].host;
        if key == 0 || self.hosts[host].crashed || self.model.exports[export].revoked_ns.is_some() {
            return Ok(());
        }
        let station = self.hosts[host].station;
        if !self.fabric.nic(station).keys().revoke(key) {
            return Err(format!("export {export} was revoked by nobody"));
        }
        self.model.revoked(export);
        if self.prng.percent(50) {
            // The same memory under a new key that no peer knows: the old one must stay dead.
            self.register_export(export)?;
            self.hosts[host].secret_keys += 1;
        }
        Ok(())
    }

    fn destroy(&mut self, number: usize) -> Check {
        if matches!(self.qps[number].life, Life::Gone | Life::Planned) {
            return Ok(());
        }
        let station = self.hosts[self.model.programs[number].host].station;
        let (now, qpn) = (self.fabric.now(), self.model.programs[number].qpn);
        if self.prng.percent(50) {
            // Everything is flushed, and the completions must go with the queue pair before anyone sees them.
            let to_error = QpAttributes {
                state: Some(QpState::Error),
                ..QpAttributes::default()
            };
            let modified = self.fabric.nic_mut(station).modify_qp(now, qpn, &to_error);
            modified.map_err(|error| format!("QP {number}: cannot go to ERR: {error}"))?;
        }
        if !self.fabric.nic_mut(station).destroy_qp(now, qpn) {
            return Err(format!("QP {number} was gone before it was destroyed"));
        }
        self.forget(number);
        self.fabric.kick(station);
        Ok(())
    }

    /// A queue pair is gone, and whatever it had outstanding with it.
    fn forget(&mut self, number: usize) {
        self.qps[number].life = Life::Gone;
        self.model.note_ended(number);
        let program = &mut self.model.programs[number];
        program.outstanding.clear();
        program.waiting.clear();
    }

    fn move_to(&mut self, number: usize, state: QpState, life: Life) -> Check {
        if !self.qps[number].works() {
            return Ok(());
        }
        let station = self.hosts[self.model.programs[number].host].station;
        let set = QpAttributes {
            state: Some(state),
            ..QpAttributes::default()
        };
        let (now, qpn) = (self.fabric.now(), self.model.programs[number].qpn);
        let core_state = self.fabric.nic(station).qp_state(qpn);
        if core_state == Some(QpState::Error) && self.error_is_explained(number) {
            // It failed already; the completions that say so are still to be seen.
            return Ok(());
        }
        let modified = self.fabric.nic_mut(station).modify_qp(now, qpn, &set);
        modified.map_err(|error| format!("QP {number}: cannot go to {state}: {error}"))?;
        self.qps[number].life = life;
        if life == Life::Error {
            self.model.programs[number].ended_ns = Some(now.as_ns());
        }
        self.fabric.kick(station);
        Ok(())
    }

    fn drain(&mut self, number: usize) -> Check {
        if self.qps[number].life != Life::Alive {
            return Ok(());
        }
        let station = self.hosts[self.model.programs[number].host].station;
        if self.fabric.nic(station).qp_state(self.model.programs[number].qpn) == Some(QpState::Sqe) {
            return Ok(());
        }
        self.move_to(number, QpState::Sqd, Life::Draining)
    }

    fn undrain(&mut self, number: usize) -> Check {
        if self.qps[number].life != Life::Drained {
            return Ok(());
        }
        self.move_to(number, QpState::Rts, Life::Alive)
    }

    /// A failed unreliable send queue is used again.
    fn recover(&mut self, number: usize) -> Check {
        if self.qps[number].life != Life::SendError {
            return Ok(());
        }
        // What was posted meanwhile is flushed, and that must be seen before.
        let station = self.hosts[self.model.programs[number].host].station;
        self.fabric.drive(station);
        self.after_drive(station)?;
        self.move_to(number, QpState::Rts, Life::Alive)?;
        if self.qps[number].life == Life::Alive {
            self.model.programs[number].failed = None;
            self.qps[number].posts_after_failure = 0;
            self.fabric.mark(100, Mark::Post(number));
        }
        Ok(())
    }

    /// A NIC dies, right after a turn; another takes its place.
    fn crash(&mut self, old: usize, new: usize) -> Check {
        let station = self.hosts[old].station;
        let nic = self.new_nic(new);
        drop(self.fabric.replace(station, nic));
        self.hosts[old].crashed = true;
        self.hosts[old].up = false;
        for number in 0..self.qps.len() {
            if self.model.programs[number].host == old {
                self.forget(number);
            }
        }
        for cell in 0..self.model.cells.len() {
            if self.model.arenas[self.model.cells[cell].arena].host == old {
                self.model.freeze(cell);
            }
        }
        self.current[station] = new;
        self.bring_up(new)
    }

    fn throw_garbage(&mut self, station: usize) {
        for _ in 0..self.prng.range(1, 20) {
            let length = self.prng.below(200) as usize;
            let bytes: Vec<u8> = (0..length).map(|_| self.prng.next_u32() as u8).collect();
            let arrival = nonic_core::Arrival {
                src: std::net::SocketAddr::new(self.scenario.ip(0), 4791),
                dst: self.scenario.ip(station),
                stride: self.prng.range(1, 300) as usize,
                congested: false,
            };
            let now = self.fabric.now();
            self.fabric
                .nic_mut(station)
                .handle_datagram(now, &arrival, &bytes);
        }
        self.fabric.kick(station);
    }
}
