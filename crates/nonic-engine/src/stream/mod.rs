//! The TCP connections of an iWARP device.
//!
//! [`Streams`] stands beside the links of a shard, not behind them: a stream has a connection to each peer, partial writes
//! and an end. It opens and accepts connections, negotiates with the peer ([`Startup`]), attaches queue pairs, and moves
//! bytes between their sockets and the NIC. It reports what becomes of connections as events of the connection manager
//! ([`CmEvent`]), so that programs are served as on RoCE.
//!
//! It has no thread and never waits: the thread that holds the shard lock calls it. It keeps no send queue but the rest of
//! a batch that the kernel had no room for, one for each connection. It reads what a peer sends only if the queue pair
//! takes it, so that TCP slows the peer of a slow program down.

mod backlog;
mod calls;
mod connection;
mod events;
mod gather;
mod readiness;
mod silent;
mod socket;
mod starting;
#[cfg(all(test, not(loom)))]
mod tests;
mod transcript;
mod transfer;
mod views;

use crate::capture::Capture;
use crate::link::LinkCounters;
use crate::netdev::LocalAddress;
use crate::os::poller::Poller;
use connection::{Connection, Phase};
use gather::Gather;
use nonic_core::cm::{CmEvent, ConnectionId, ListenerId};
use nonic_core::iwarp::startup::StartupConfig;
use nonic_core::{Nic, Qpn, Time};
use nonic_wire::cm::ServiceId;
use readiness::{Edge, Readiness};
use silent::Silent;
use slab::Slab;
use socket::ListeningSocket;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
pub(crate) use views::StreamView;

/// Bytes read with one system call, and written with one, at most.
const READ_SIZE: usize = 256 * 1024;
const WRITE_SIZE: usize = 256 * 1024;
/// Connections that get their turn in one call, so that a flood cannot keep a caller.
const TURNS_PER_CALL: usize = 64;
/// What sockets are registered as: connections by their slot, listening sockets above this.
const LISTENERS: u64 = 1 << 32;

/// The connections and listeners of a device.
#[derive(Debug)]
pub(crate) struct Streams {
    /// The device's addresses, by GID index.
    addresses: Vec<LocalAddress>,
    config: StartupConfig,
    readiness: Readiness,
    edges: Vec<Edge>,
    connections: Slab<Connection>,
    by_id: HashMap<ConnectionId, usize>,
    by_qpn: HashMap<Qpn, usize>,
    listeners: HashMap<ListenerId, Listener>,
    /// Peers that have not asked for anything yet.
    silent: Silent,
    listening: Slab<(ListenerId, ListeningSocket)>,
    next_id: u32,
    next_listener: u64,
    /// The connections with something to do, in the order of their turns.
    line: VecDeque<usize>,
    /// The connection that was read from last.
    hot: Option<usize>,
    /// How many are in start-up, or wait for TCP: a timeout may end these.
    starting: usize,
    /// Nothing ends before this.
    deadline: Option<Time>,
    /// There were no descriptors for connections that wait, or too many of them for one call: accept is tried again at this
    /// time.
    accept_again: Option<Time>,
    events: VecDeque<CmEvent>,
    input: Box<[u8]>,
    output: Box<[u8]>,
    gather: Gather,
    counters: LinkCounters,
    capture: Option<Arc<Capture>>,
}

/// A listener of the program's.
#[derive(Debug)]
struct Listener {
    service_id: ServiceId,
    /// Requests that the program may have to decide about at a time, and has.
    backlog: usize,
    waiting: usize,
    /// Connections whose request waits for a place in the backlog, oldest first.
    held: VecDeque<usize>,
    sockets: Vec<usize>,
}

impl Streams {
    /// No connections yet, on a device with these addresses. They wake threads that sleep on the poller. What they carry is
    /// written to the capture, if there is one.
    pub(crate) fn new(
        addresses: Vec<LocalAddress>,
        config: StartupConfig,
        poller: &Poller,
        capture: Option<Arc<Capture>>,
    ) -> io::Result<Self> {
        let readiness = Readiness::new()?;
        poller.watch(&readiness)?;
        Ok(Streams {
            addresses,
            config,
            readiness,
            edges: Vec::new(),
            connections: Slab::new(),
            by_id: HashMap::new(),
            by_qpn: HashMap::new(),
            listeners: HashMap::new(),
            silent: Silent::new(),
            listening: Slab::new(),
            next_id: 1,
            next_listener: 1,
            line: VecDeque::new(),
            hot: None,
            starting: 0,
            deadline: None,
            accept_again: None,
            events: VecDeque::new(),
            input: vec![0; READ_SIZE].into(),
            output: vec![0; WRITE_SIZE].into(),
            gather: Gather::default(),
            counters: LinkCounters::default(),
            capture,
        })
    }

    /// Looks for what sockets have, and deals with it. Whether there was anything.
    pub(crate) fn receive(&mut self, now: Time, nic: &mut Nic) -> bool {
        let mut worked = false;
        loop {
            let more = self.readiness.take(&mut self.edges).unwrap_or(false);
            let mut edges = std::mem::take(&mut self.edges);
            worked |= !edges.is_empty();
            for edge in edges.drain(..) {
                self.note(now, nic, edge);
            }
            self.edges = edges;
            if !more {
                break;
            }
        }
        self.serve_line(now, nic) | worked
    }

    /// Reads from the connection that was busy last; nothing else. Whether something came.
    pub(crate) fn glance(&mut self, clock: impl FnOnce() -> Time, nic: &mut Nic) -> Option<Time> {
        let slot = self.hot?;
        let Some(connection) = self.connections.get_mut(slot) else {
            self.hot = None;
            return None;
        };
        let Phase::Attached(qpn) = connection.phase else {
            return None;
        };
        self.read_attached(clock, nic, slot, qpn)
    }

    /// A socket has reported an edge: its connection, or listener, has something to do.
    fn note(&mut self, now: Time, nic: &mut Nic, edge: Edge) {
        if let Some(listening) = edge.token.checked_sub(LISTENERS) {
            self.take_connections(now, nic, listening as usize);
            return;
        }
        let slot = edge.token as usize;
        // One that was just closed may have been reported before.
        let Some(connection) = self.connections.get_mut(slot) else {
            return;
        };
        connection.readable |= edge.readable;
        connection.writable |= edge.writable;
        connection.hung_up |= edge.hung_up;
        self.stand_in_line(slot);
    }

    /// A connection has come to its next phase.
    fn enter(&mut self, slot: usize, phase: Phase) -> Phase {
        let connection = &mut self.connections[slot];
        let was = connection.is_starting();
        let before = std::mem::replace(&mut connection.phase, phase);
        match (was, connection.is_starting()) {
            (false, true) => self.starting += 1,
            (true, false) => {
                self.starting -= 1;
                connection.deadline = None;
            }
            _ => {}
        }
        before
    }

    fn stand_in_line(&mut self, slot: usize) {
        if let Some(connection) = self.connections.get_mut(slot) {
            if !std::mem::replace(&mut connection.in_line, true) {
                self.line.push_back(slot);
            }
        }
    }

    /// Gives the connections in line their turns. Whether anything was done.
    fn serve_line(&mut self, now: Time, nic: &mut Nic) -> bool {
        let mut worked = false;
        for _ in 0..self.line.len().min(TURNS_PER_CALL) {
            let Some(slot) = self.line.pop_front() else { break };
            let Some(connection) = self.connections.get_mut(slot) else {
                continue;
            };
            connection.in_line = false;
            worked = true;
            self.serve(now, nic, slot);
            if self
                .connections
                .get(slot)
                .is_some_and(Connection::has_something_to_do)
            {
                self.stand_in_line(slot);
            }
        }
        worked
    }

    /// Whether there is something to do though no descriptor says so.
    pub(crate) fn is_behind(&self) -> bool {
        !self.line.is_empty()
    }

    /// Whether there are events to report.
    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// The next event.
    pub(crate) fn poll_event(&mut self) -> Option<CmEvent> {
        self.events.pop_front()
    }

    /// When [`Streams::handle_timeout`] is due.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        [self.deadline, self.accept_again].into_iter().flatten().min()
    }

    /// A connection is given up at this time, unless it has come further by then.
    fn set_deadline(&mut self, slot: usize, deadline: Option<Time>) {
        self.connections[slot].deadline = deadline;
        self.deadline = [self.deadline, deadline].into_iter().flatten().min();
    }

    /// Gives up what has taken too long.
    pub(crate) fn handle_timeout(&mut self, now: Time, nic: &mut Nic) {
        if self.accept_again.is_some_and(|at| at <= now) {
            self.accept_again = None;
            let places: Vec<usize> = self.listening.iter().map(|(place, _)| place).collect();
            places
                .into_iter()
                .for_each(|place| self.take_connections(now, nic, place));
        }
        if self.deadline.is_none_or(|at| at > now) {
            return;
        }
        let connections = self.connections.iter();
        let due: Vec<usize> = connections
            .filter(|(_, connection)| connection.deadline.is_some_and(|at| at <= now))
            .map(|(slot, _)| slot)
            .collect();
        self.end_due(now, nic, due);
        let connections = self.connections.iter();
        self.deadline = connections
            .filter_map(|(_, connection)| connection.deadline)
            .min();
    }

    fn end_due(&mut self, now: Time, nic: &mut Nic, due: Vec<usize>) {
        for slot in due {
            if self.connections[slot]
                .held_until()
                .is_some_and(|until| until <= now)
            {
                self.refuse(slot);
                continue;
            }
            match &mut self.connections[slot].phase {
                Phase::Starting { startup, .. } => {
                    startup.handle_timeout(now);
                    self.go_on_starting(now, nic, slot);
                }
                Phase::Refused(ask) => {
                    let ask = ask.clone();
                    let deadline = ask.give_up_at;
                    if let Err(error) = self.connect_again(slot, ask, deadline) {
                        self.unreachable(slot, &error);
                    }
                }
                _ => self.unreachable(slot, &io::ErrorKind::TimedOut.into()),
            }
        }
    }

    /// Flushes the capture, so that other processes see it.
    pub(crate) fn sync(&self) {
        if let Some(capture) = &self.capture {
            capture.flush();
        }
    }

    /// What was done with sockets.
    pub(crate) fn counters(&self) -> LinkCounters {
        self.counters
    }

    /// Whether the program has closed a descriptor of ours.
    pub(crate) fn has_lost_descriptor(&self) -> bool {
        self.readiness.is_lost()
            || self
                .connections
                .iter()
                .any(|(_, connection)| connection.socket.is_lost())
    }
}
