//! The iWARP workload: hosts connect over byte streams that are cut, slowed, stalled, damaged, broken off or ended at
//! any byte, while programs post late, close early, revoke keys and die.
//!
//! Read [`Streams`] first, then `draw` (what a seed means) and `pipe` (what a stream does), then [`crate::program`] and the
//! reasons that iWARP has for what happens, `completions`, `arrivals` and `judge`. What must hold:
//! - every request and every receive completes once, in order, with the bytes where they belong;
//! - a message arrives once, in order, behind every WRITE that was posted before it;
//! - a stream ends once, for a cause that came before, and both sides are told matching reasons;
//! - nothing is written before it may be, nothing follows a Terminate, no more READs are under way than was agreed on;
//! - everything ends, and memory holds what it should and nothing else.
//!
//! There are no packets here: [`pipe`] stands for TCP, and RoCE is tested in [`crate::world`].

mod arrivals;
mod attend;
mod carrier;
mod completions;
mod draw;
mod finish;
mod judge;
mod model;
mod observer;
mod pipe;
mod post;
mod program;
mod setup;
mod socket;
mod start;
mod strike;

use crate::program::Check;
use crate::program::model::Model;
use model::{Connection, Host, Mark, Phase, Side};
use nonic_core::Time;
use nonic_core::iwarp::IwarpConfig;
use nonic_netem::Prng;
use nonic_netem::Schedule;
use observer::Observer;
use pipe::Pipe;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a message may wait for a receive.
const GRACES_NS: [u64; 3] = [400_000, 5_000_000, 1_000_000_000];
/// A run that takes more steps than this does not end.
const MANY_STEPS: u64 = 3_000_000;
/// A connection that is not done by then, counted from its beginning, will never be.
const PATIENCE_NS: u64 = 40_000_000_000;

/// Hosts, their connections, and the model of what they should do.
pub(crate) struct Streams {
    schedule: Schedule<Mark>,
    prng: Prng,
    config: IwarpConfig,
    hosts: Vec<Host>,
    connections: Vec<Connection>,
    sides: Vec<Side>,
    pipes: Vec<Pipe>,
    observers: Vec<Option<Observer>>,
    /// What the programs posted, and what must come of it.
    model: Model,
    by_qpn: BTreeMap<(usize, u32), usize>,
    buffer: Vec<u8>,
    /// A digest of everything that was written, and when.
    trace: u64,
    steps: u64,
    /// Writes that a stream took something of.
    frames: u64,
    narrating: bool,
}

impl Streams {
    pub(crate) fn narrate(&mut self, narrating: bool) {
        self.narrating = narrating;
    }

    pub(crate) fn report(&self, seed: u64) -> crate::Report {
        crate::Report {
            seed,
            trace_hash: self.trace,
            virtual_ns: self.model.now_ns,
            steps: self.steps,
            packets: self.frames,
            operations: self.model.operations,
            completions: self.model.completions,
            failures: self.model.failures,
            ..crate::Report::default()
        }
    }

    /// Runs to the end and checks everything on the way.
    pub(crate) fn run(&mut self) -> Check {
        self.set_up()?;
        while let Some((at_ns, mark)) = self.schedule.pop() {
            self.model.now_ns = at_ns;
            self.steps += 1;
            if self.steps > MANY_STEPS {
                return Err("it does not end".into());
            }
            self.reach(mark)?;
        }
        self.check_the_end()
    }

    fn now(&self) -> Time {
        Time::ZERO + Duration::from_nanos(self.model.now_ns)
    }

    fn mark(&mut self, delay_ns: u64, mark: Mark) {
        self.mark_at(self.model.now_ns + delay_ns, mark);
    }

    /// Has something happen at this time, or now if that is past.
    fn mark_at(&mut self, at_ns: u64, mark: Mark) {
        self.schedule.push(at_ns.max(self.model.now_ns), mark);
    }

    fn tell(&self, what: impl FnOnce() -> String) {
        if self.narrating {
            eprintln!("{:>12} {}", self.model.now_ns, what());
        }
    }

    fn reach(&mut self, mark: Mark) -> Check {
        match mark {
            Mark::Connect(connection) => self.connect(connection),
            Mark::Connected(connection) => self.connected(connection),
            Mark::Arrive(pipe) => self.arrive(pipe),
            Mark::Turn(side) => {
                if self.sides[side].turn_at_ns != Some(self.model.now_ns) {
                    return Ok(());
                }
                self.sides[side].turn_at_ns = None;
                self.turn(side)
            }
            Mark::Break(side) => {
                self.sides[side].broken = true;
                if self.prng.percent(50) {
                    self.pipes[side ^ 1].discard();
                }
                self.turn_in(side, 0);
                Ok(())
            }
            Mark::Wake(host) => {
                if self.hosts[host].wake_at_ns != Some(self.model.now_ns) || !self.hosts[host].up {
                    return Ok(());
                }
                self.hosts[host].wake_at_ns = None;
                self.attend(host)
            }
            Mark::StartupTimer(side) => {
                let now = self.now();
                if let Phase::Starting(startup) = &mut self.sides[side].phase {
                    startup.handle_timeout(now);
                    self.go_on_starting(side)?;
                }
                Ok(())
            }
            Mark::Decide(side) => self.decide(side),
            Mark::Post(side) => self.post_some(side),
            Mark::Receive(side) => self.post_receives(side),
            Mark::SharedReceive(srq) => self.post_shared_receives(srq),
            Mark::Strike(connection) => {
                self.tell(|| format!("strike {:?}", self.connections[connection].trouble));
                self.strike(connection)
            }
            Mark::Look(connection) => self.look(connection),
        }
    }

    /// Has a side look at its socket.
    fn turn_in(&mut self, side: usize, delay_ns: u64) {
        let at_ns = self.model.now_ns + delay_ns;
        let scheduled = &mut self.sides[side].turn_at_ns;
        if scheduled.is_none_or(|scheduled| scheduled > at_ns) {
            *scheduled = Some(at_ns);
            self.mark_at(at_ns, Mark::Turn(side));
        }
    }

    /// Whether what a side is told may be wrong, because the stream was damaged and neither side can know.
    fn is_blind(&self, side: usize) -> bool {
        self.model.programs[side].damaged
    }
}
