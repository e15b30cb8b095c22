//! The connection workload: hosts connect, refuse, disconnect, lose patience and die while the network loses,
//! duplicates, reorders and damages their messages.
//!
//! Read [`Connections`] first, then `plan` (what a seed means), then `check` (what must hold):
//! - a request reaches a program at most once in its life, and is answered by the connection it became;
//! - one side is established only with what the other side offered, and the passive side only after the active one;
//! - no program is told of an end without a cause; in a quiet network only the programs cause ends;
//! - a side that believes in a connection the other side has given up learns so when it uses or ends it;
//! - every connection ends once, and when all have, no identifier, timer or table entry is left.
//!
//! The connections carry no data: the queue pairs are numbers here. [`crate::world`] tests what happens on them.

mod check;
mod gateway;
mod plan;
mod program;

use crate::capture::Capture;
use crate::fabric::{Fabric, Step};
use gateway::Gateway;
use nonic_core::Time;
use nonic_core::cm::ConnectionId;
use nonic_netem::Faults;
use nonic_netem::Prng;
use nonic_wire::cm::{PortSpace, ServiceId};
use plan::{CALM_NS, Plan};
use std::collections::BTreeMap;

type Check = Result<(), String>;

pub(super) const SERVED: ServiceId = ServiceId::from_port(PortSpace::Tcp, 18_515);
pub(super) const DATAGRAMS: ServiceId = ServiceId::from_port(PortSpace::Udp, 18_515);
pub(super) const NOBODY: ServiceId = ServiceId::from_port(PortSpace::Tcp, 9);
/// A run that takes more steps than this does not end.
const MANY_STEPS: u64 = 2_000_000;

/// A fabric of connection managers and the model of what they should do.
pub(crate) struct Connections {
    pub(crate) fabric: Fabric<Mark>,
    pub(crate) steps: u64,
    plan: Plan,
    hosts: Vec<Host>,
    attempts: Vec<Attempt>,
    pub(crate) tally: Tally,
    prng: Prng,
    narrating: bool,
    /// Everything was given up: what comes now are ends.
    ending: bool,
}

/// What came of the attempts.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) attempts: u64,
    pub(crate) established: u64,
    pub(crate) refused: u64,
    pub(crate) unreachable: u64,
}

struct Host {
    gateway: Gateway,
    /// Lives so far.
    life: u32,
    next_qpn: u32,
    /// The program's sides, by name: which attempt, and which side of it.
    sides: BTreeMap<ConnectionId, Side>,
    timer_at: Option<Time>,
}

/// One side of an attempt, as its program knows it.
#[derive(Copy, Clone, Debug)]
struct Side {
    attempt: usize,
    active: bool,
    qpn: u32,
    established: bool,
    disconnected: bool,
}

/// What is known of an attempt from above.
#[derive(Clone, Debug, Default)]
struct Attempt {
    begun: bool,
    qpn: u32,
    /// In which lives of the passive host the request was seen.
    seen: Vec<u32>,
    /// Queue pairs the passive program offered.
    offered: Vec<u32>,
    /// The one the active program took.
    taken: Option<u32>,
    passive_rejected: bool,
    active_rejected: bool,
    /// A program ended it, or was told of its end.
    ended: bool,
    /// One of its hosts died.
    orphaned: bool,
    passive_established: u32,
}

/// What happens at a certain time.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Mark {
    Timer(usize),
    Connect(usize),
    PassiveDecides {
        host: usize,
        life: u32,
        id: ConnectionId,
    },
    ActiveDecides {
        host: usize,
        life: u32,
        id: ConnectionId,
    },
    Impatient(usize, u32, ConnectionId),
    End {
        host: usize,
        life: u32,
        id: ConnectionId,
    },
    Crash(usize, bool),
    Calm,
    Settled,
}

impl Connections {
    pub(crate) fn draw(seed: u64) -> Self {
        let plan = Plan::draw(seed);
        let mut fabric = Fabric::new(plan.fabric, seed);
        let mut prng = Prng::new(!seed);
        let hosts = (0..plan.hosts)
            .map(|number| {
                let (nic, mut gateway) = Gateway::build(number, prng.next_u64(), plan.cm.clone());
                gateway.station = fabric.add(nic, &[gateway.ip]);
                Host {
                    gateway,
                    life: 0,
                    next_qpn: 2,
                    sides: BTreeMap::new(),
                    timer_at: None,
                }
            })
            .collect();
        let attempts = vec![Attempt::default(); plan.intentions.len()];
        Connections {
            fabric,
            steps: 0,
            plan,
            hosts,
            attempts,
            tally: Tally::default(),
            prng,
            narrating: false,
            ending: false,
        }
    }

    pub(crate) fn narrate(&mut self, narrating: bool) {
        self.narrating = narrating;
        self.fabric.set_narrating(narrating);
    }

    pub(crate) fn capture(&mut self, capture: Capture) {
        self.fabric.set_capture(capture);
    }

    /// Runs to the end and checks everything on the way.
    pub(crate) fn run(&mut self) -> Check {
        for host in 0..self.hosts.len() {
            self.listen(host)?;
        }
        for (index, intention) in self.plan.intentions.iter().enumerate() {
            self.fabric.mark(intention.at_ns, Mark::Connect(index));
        }
        for (at_ns, host, afresh) in self.plan.crashes.clone() {
            self.fabric.mark(at_ns, Mark::Crash(host, afresh));
        }
        self.fabric.mark(CALM_NS, Mark::Calm);
        while let Some(step) = self.fabric.step() {
            self.steps += 1;
            if self.steps > MANY_STEPS {
                return Err("it does not end".into());
            }
            match step {
                Step::Driven(station) => {
                    self.hosts[station].gateway.exchange(&mut self.fabric);
                    self.attend(station)?;
                }
                Step::Mark(mark) => self.reach(mark)?,
            }
        }
        self.check_nothing_is_left()
    }

    fn listen(&mut self, host: usize) -> Check {
        let (backlog, cm) = (self.plan.backlog, &mut self.hosts[host].gateway.cm);
        for service in [SERVED, DATAGRAMS] {
            cm.listen(service, None, backlog)
                .map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn reach(&mut self, mark: Mark) -> Check {
        if self.narrating {
            eprintln!("{:>12} {mark:?}", self.fabric.now().as_ns());
        }
        let now = self.fabric.now();
        match mark {
            Mark::Timer(host) => {
                if self.hosts[host].timer_at.is_some_and(|at| at <= now) {
                    self.hosts[host].timer_at = None;
                    self.hosts[host].gateway.cm.handle_timeout(now);
                    self.attend(host)?;
                }
            }
            Mark::Connect(index) => self.connect(index)?,
            Mark::PassiveDecides { host, life, id } => self.passive_decides(host, life, id)?,
            Mark::ActiveDecides { host, life, id } => self.active_decides(host, life, id)?,
            Mark::Impatient(host, life, id) => self.lose_patience(host, life, id)?,
            Mark::End { host, life, id } => self.end(host, life, id)?,
            Mark::Crash(host, afresh) => self.crash(host, afresh)?,
            Mark::Calm => {
                for station in 0..self.fabric.len() {
                    self.fabric.set_faults(station, Faults::default());
                }
                // Longer than the longest exchange: thinking, asking for time, every retry.
                self.fabric.mark(4 * CALM_NS, Mark::Settled);
            }
            Mark::Settled => self.settle()?,
        }
        Ok(())
    }

    /// Reports events to the programs of a host, sends its messages, and sets its alarm.
    fn attend(&mut self, host: usize) -> Check {
        while let Some(event) = self.hosts[host].gateway.cm.poll_event() {
            if self.narrating {
                eprintln!("{:>12} host {host} {event:?}", self.fabric.now().as_ns());
            }
            self.told(host, event)?;
        }
        let Host {
            gateway, timer_at, ..
        } = &mut self.hosts[host];
        gateway.exchange(&mut self.fabric);
        if let Some(at) = gateway.cm.poll_timeout() {
            if timer_at.is_none_or(|scheduled| scheduled > at) {
                *timer_at = Some(at);
                let delay = at.since(self.fabric.now());
                self.fabric.mark(delay.as_nanos() as u64, Mark::Timer(host));
            }
        }
        Ok(())
    }

    /// A host dies, and another begins at its address. Its peers are not told.
    fn crash(&mut self, number: usize, afresh: bool) -> Check {
        let (nic, mut gateway) = Gateway::build(number, self.prng.next_u64(), self.plan.cm.clone());
        gateway.station = number;
        self.fabric.replace(number, nic);
        let host = &mut self.hosts[number];
        host.gateway = gateway;
        host.life += 1;
        host.timer_at = None;
        if afresh {
            host.next_qpn = 2;
        }
        for side in std::mem::take(&mut host.sides).into_values() {
            self.attempts[side.attempt].orphaned = true;
        }
        for (attempt, intention) in self.attempts.iter_mut().zip(&self.plan.intentions) {
            // What it has not heard of yet may have been on its way to it.
            if attempt.begun && (intention.to == number || intention.from == number) {
                attempt.orphaned = true;
            }
        }
        self.listen(number)
    }

    /// The network is calm and every host has had time: what is connected is compared, and then ended.
    fn settle(&mut self) -> Check {
        self.check_both_sides()?;
        self.ending = true;
        for host in 0..self.hosts.len() {
            let ids: Vec<ConnectionId> = self.hosts[host].sides.keys().copied().collect();
            for id in ids {
                self.finish(host, id)?;
            }
            self.attend(host)?;
        }
        Ok(())
    }
}
