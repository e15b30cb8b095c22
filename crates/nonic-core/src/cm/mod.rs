//! The connection manager: connects the queue pairs of two programs that know only an address and a port.
//!
//! A [`Cm`] is a plain value, like [`Nic`](crate::Nic): the caller feeds it messages, calls and the time, and asks it
//! what to transmit, what happened and when to wake it. It speaks the InfiniBand connection manager's protocol (REQ,
//! REP, RTU; DREQ, DREP; SIDR for datagrams). It owns no queue pair and modifies none: its events carry what is needed
//! to do so.
//!
//! Read first: [`CmState`] and the table in `state` (the whole protocol on one page), then [`Cm`], then
//! [`CmEvent`].
//!
//! ```text
//!   active                                passive
//!   connect ───────── REQ ──────────────▶ Request ─▶ program: queue pair to RTR, RTS
//!   Response ◀──────── REP ────────────── accept
//!   program: queue pair to RTR, RTS
//!   establish ─────── RTU ──────────────▶ Established
//!      …                                     …
//!   disconnect ────── DREQ ─────────────▶ Disconnected (DREP is sent at once)
//!   Disconnected ◀──── DREP ─────────────
//!   TimewaitExit                          TimewaitExit
//! ```
//!
//! # Carrying the messages
//! A message is a management datagram of 256 bytes that travels as a UD SEND from queue pair 1 to queue pair 1
//! with the queue key [`GSI_QKEY`](nonic_wire::mad::GSI_QKEY). Queue pair 1 is the NIC's own; [`Cm::exchange`] carries
//! messages between the two, in the engine as in the simulator. An engine that shares an address between processes
//! looks at [`Message::receiver_id`](nonic_wire::cm::Message::receiver_id) and
//! [`Message::service_id`](nonic_wire::cm::Message::service_id) to find the process a message is for;
//! [`CmConfig::id_block`] makes the former enough.
//!
//! # Choices
//! - The manager answers a DREQ at once, without waiting for the program: a peer must not wait for a program that is
//!   busy or gone.
//! - If the peer repeats its REQ or REP because the program is slow, the manager asks it for time (MRA) on its own.
//! - A final answer (REJ, SIDR_REP) is remembered for a while, so that a repeated request gets the same answer instead
//!   of reaching the program a second time.
//! - A REP or RTU for an unknown connection is answered with a REJ, so that its sender need not wait for a timeout.
//! - A REQ from a queue pair that is connected here is refused, and ends nothing: anyone at the peer's address can send
//!   one. The peer is asked whether it still has the older connection, which ends if it says no.
//! - A host that refuses messages is given up soon, within a second: it is up, but no process there holds the port. The
//!   program is told if the host refused two messages or more.
//! - Only a few requests to disconnect are under way to each address at a time, lest they overrun its socket.
//! - A full backlog drops requests silently: the peer repeats them, as it would a TCP SYN.
//!
//! No message can panic, hang or grow memory without bound: every table has a limit in [`CmConfig`], every wait
//! an end, and everything that arrives is checked against the identifiers, addresses and transaction it claims.

mod arrive;
mod carry;
mod config;
mod connection;
mod event;
mod execute;
mod listeners;
mod pace;
mod params;
mod refusing;
mod repetition;
mod request;
mod state;
mod unreachable;
mod views;

pub use crate::roce::qp1::Route;
pub use config::{CmConfig, CmCounters, CmUsage};
pub use event::{CmEvent, ConnectRequest, ConnectResponse, Disconnect, SidrRequest, SidrResponse};
pub use params::{
    AcceptParams, AnswerParams, CmError, ConnectParams, ConnectionId, ListenerId, RejectParams, ResolveParams,
};
pub use state::{CmNotice, CmReply, CmState, CmTransition, Input, cm_transition};
pub use views::{ConnectionView, ListenerView};

use crate::entropy::Entropy;
use crate::roce::qp1::ManagementDatagram;
use crate::time::Time;
use connection::{Connection, Role, behind_header, fit, info, req};
use listeners::Listeners;
use nonic_wire::cm::{CmMad, Message, ServiceId, SidrRep, SidrReq};
use nonic_wire::{Qpn, Service};
use pace::Pace;
use refusing::RefusingHosts;
use repetition::Repetition;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

/// The connection manager.
pub struct Cm {
    config: CmConfig,
    entropy: Box<dyn Entropy>,
    /// By local identifier.
    connections: HashMap<u32, Connection>,
    /// Requests by what their sender called them, to recognise a repeated one.
    by_remote: HashMap<RemoteId, u32>,
    /// Connections by the peer's queue pair: a queue pair has one at a time.
    by_qpn: HashMap<(IpAddr, Qpn), u32>,
    listeners: Listeners,
    timers: BTreeSet<(Time, u32)>,
    /// Requests that wait for an answer, by the peer's address.
    unanswered: BTreeSet<(IpAddr, u32)>,
    refusing: RefusingHosts,
    pace: Pace,
    outbox: VecDeque<ManagementDatagram>,
    events: VecDeque<CmEvent>,
    /// Connections in the state `Answered`.
    lingering: usize,
    /// Connections that wait for their program.
    pending: usize,
    counters: CmCounters,
}

/// What a peer calls a connection, or a question about a datagram service.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
struct RemoteId {
    ip: IpAddr,
    id: u32,
    datagram: bool,
}

impl Cm {
    /// A connection manager without connections. Identifiers and transactions come from `entropy`.
    pub fn new(config: CmConfig, entropy: Box<dyn Entropy>) -> Self {
        Cm {
            config,
            entropy,
            connections: HashMap::new(),
            by_remote: HashMap::new(),
            by_qpn: HashMap::new(),
            listeners: Listeners::default(),
            timers: BTreeSet::new(),
            unanswered: BTreeSet::new(),
            refusing: RefusingHosts::default(),
            pace: Pace::default(),
            outbox: VecDeque::new(),
            events: VecDeque::new(),
            lingering: 0,
            pending: 0,
            counters: CmCounters::default(),
        }
    }

    /// Its limits and habits.
    pub fn config(&self) -> &CmConfig {
        &self.config
    }

    /// Takes requests for a service: at one address, at all addresses of a family (the unspecified one), or at
    /// every address. At most `backlog` wait for the program at a time.
    pub fn listen(
        &mut self,
        service_id: ServiceId,
        address: Option<IpAddr>,
        backlog: usize,
    ) -> Result<ListenerId, CmError> {
        if self.listeners.len() >= self.config.max_listeners {
            return Err(CmError::Limit);
        }
        self.listeners.add(service_id, address, backlog)
    }

    /// Takes no more requests. Requests that the program was told of stay with it.
    pub fn unlisten(&mut self, listener: ListenerId) -> bool {
        self.listeners.remove(listener)
    }

    /// Asks for a connection. [`CmEvent::Response`] or a refusal follows.
    pub fn connect(&mut self, now: Time, params: &ConnectParams<'_>) -> Result<ConnectionId, CmError> {
        let local_id = self.fresh_id()?;
        let message = req(local_id, &self.config, params)?;
        let mut connection = self.connection(now, CmState::ReqSent, Role::Active, params.route, local_id);
        connection.service = params.service;
        connection.service_id = params.service_id;
        connection.local_qpn = params.qpn;
        connection.timewait = self.config.timewait(params.ack_timeout.exponent());
        if let Some(patience) = params.patience {
            let retries = self.config.retries_within(patience);
            (connection.max_retries, connection.retries_left) = (retries, retries);
            connection.unserved_grace = connection.unserved_grace.min(patience);
        }
        self.start(now, connection, message);
        Ok(ConnectionId(local_id))
    }

    /// Accepts a request. [`CmEvent::Established`] follows, or the event that says why not.
    pub fn accept(&mut self, now: Time, id: ConnectionId, params: &AcceptParams<'_>) -> Result<(), CmError> {
        let connection = self.checked(id, Input::Accept)?;
        let message = connection.rep(&self.config, params)?;
        let key = (connection.route.remote, connection.remote_qpn);
        self.by_qpn.insert(key, id.0);
        if let Some(connection) = self.connections.get_mut(&id.0) {
            connection.local_qpn = params.qpn;
        }
        self.call(now, id, Input::Accept, Some(message))
    }

    /// Rejects a request, or a response. No event follows.
    pub fn reject(&mut self, now: Time, id: ConnectionId, params: &RejectParams<'_>) -> Result<(), CmError> {
        let message = self.checked(id, Input::Reject)?.rej_with(params)?;
        self.call(now, id, Input::Reject, Some(message))
    }

    /// Active, after a response: the queue pair is in RTS, and the peer is told so. Passive, after accepting: data
    /// arrived, so the peer is ready although its RTU is missing.
    pub fn establish(&mut self, now: Time, id: ConnectionId, private_data: &[u8]) -> Result<(), CmError> {
        let message = Message::Rtu(self.checked(id, Input::Establish)?.rtu(private_data)?);
        self.call(now, id, Input::Establish, Some(message))
    }

    /// Ends a connection. [`CmEvent::Disconnected`] follows, unless it was reported already.
    pub fn disconnect(&mut self, now: Time, id: ConnectionId, private_data: &[u8]) -> Result<(), CmError> {
        let message = Message::Dreq(self.checked(id, Input::Disconnect)?.dreq(private_data)?);
        self.call(now, id, Input::Disconnect, Some(message))
    }

    /// Gives a connection up in whatever state it is. The peer is sent what the protocol requires; the program gets no
    /// more events of it.
    pub fn abandon(&mut self, now: Time, id: ConnectionId) -> Result<(), CmError> {
        self.checked(id, Input::Abandon)?;
        if let Some(connection) = self.connections.get_mut(&id.0) {
            connection.orphan = true;
        }
        self.events.retain(|event| event.connection() != id);
        self.call(now, id, Input::Abandon, None)
    }

    /// Gives every connection up, as [`Cm::abandon`] does, because the program is about to end: nothing can be sent
    /// later, so all messages go out now.
    pub fn abandon_all(&mut self, now: Time) {
        self.pace.hurry();
        let ids: Vec<u32> = self.connections.keys().copied().collect();
        for id in ids {
            // What cannot be abandoned was abandoned before.
            let _ = self.abandon(now, ConnectionId(id));
            self.release(now, id);
        }
    }

    /// How many peers have been asked to disconnect and have not answered.
    pub fn unanswered_goodbyes(&self) -> usize {
        self.leaving().count()
    }

    /// Repeats these requests now, before they are due: a program that ends will not be there later.
    pub fn repeat_goodbyes(&mut self, now: Time) {
        let ids: Vec<u32> = self.leaving().collect();
        for id in ids {
            self.apply(now, id, Input::Timeout, None, None);
        }
    }

    fn leaving(&self) -> impl Iterator<Item = u32> {
        let leaving = |connection: &&Connection| connection.state == CmState::DreqSent;
        let connections = self.connections.values().filter(leaving);
        connections.map(|connection| connection.local_id)
    }

    /// The host at this address says that its process that gave its connections such identifiers has ended. The
    /// connections end as if the process had disconnected them itself.
    pub fn peer_gone(&mut self, now: Time, address: IpAddr, is_its: impl Fn(u32) -> bool) {
        let of_the_dead = |connection: &&Connection| {
            connection.route.remote == address && connection.remote_id != 0 && is_its(connection.remote_id)
        };
        let connections = self.connections.values().filter(of_the_dead);
        let ids: Vec<u32> = connections.map(|connection| connection.local_id).collect();
        for id in ids {
            self.apply(now, id, Input::Gone, None, None);
        }
    }

    /// Asks for a datagram service. [`CmEvent::SidrResponse`] or [`CmEvent::Unreachable`] follows.
    pub fn resolve(&mut self, now: Time, params: &ResolveParams<'_>) -> Result<ConnectionId, CmError> {
        let local_id = self.fresh_id()?;
        let message = Message::SidrReq(SidrReq {
            request_id: local_id,
            pkey: 0xffff,
            service_id: params.service_id,
            private_data: behind_header(params.ip, params.private_data)?,
        });
        let mut connection = self.connection(now, CmState::SidrReqSent, Role::Active, params.route, local_id);
        connection.datagram = true;
        connection.service = Service::Ud;
        connection.service_id = params.service_id;
        self.start(now, connection, message);
        Ok(ConnectionId(local_id))
    }

    /// Answers a request for a datagram service. No event follows.
    pub fn answer(&mut self, now: Time, id: ConnectionId, params: &AnswerParams<'_>) -> Result<(), CmError> {
        let connection = self.checked(id, Input::Answer)?;
        let (info, info_len) = info(params.info)?;
        let message = Message::SidrRep(SidrRep {
            request_id: connection.remote_id,
            status: params.status,
            info_len,
            qpn: params.qpn,
            service_id: connection.service_id,
            qkey: params.qkey,
            info,
            private_data: fit(params.private_data)?,
        });
        self.call(now, id, Input::Answer, Some(message))
    }

    /// A datagram arrived at queue pair 1.
    pub fn handle_mad(&mut self, now: Time, route: Route, mad: &[u8]) {
        self.counters.received += 1;
        match CmMad::parse(mad) {
            Ok(mad) => {
                self.refusing.answered(route.remote);
                self.arrive(now, route, &mad);
            }
            Err(_) => self.counters.malformed += 1,
        }
    }

    /// The next message to send. There may be one after any call that takes the time.
    pub fn poll_transmit(&mut self) -> Option<ManagementDatagram> {
        self.outbox.pop_front()
    }

    /// The next thing to tell the program. There may be one after any call that takes the time.
    pub fn poll_event(&mut self) -> Option<CmEvent> {
        self.events.pop_front()
    }

    /// Whether [`Cm::poll_transmit`] or [`Cm::poll_event`] has something to say.
    pub fn has_output(&self) -> bool {
        !self.outbox.is_empty() || !self.events.is_empty()
    }

    /// When to call [`Cm::handle_timeout`]. Changes with any call that takes the time.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        let later = self.timers.split_off(&(now + Duration::from_nanos(1), 0));
        // Each is looked at once: what it schedules is in the future.
        let due = std::mem::replace(&mut self.timers, later);
        for (_, id) in due {
            self.expire(now, id);
        }
    }

    /// Where a connection stands; `None` once it is forgotten.
    pub fn state(&self, id: ConnectionId) -> Option<CmState> {
        self.connections.get(&id.0).map(|connection| connection.state)
    }

    /// What happened so far.
    pub fn counters(&self) -> &CmCounters {
        &self.counters
    }

    /// Whether there is a connection to this queue pair of a peer, or was one lately: its end is reported by a message
    /// of its own.
    pub fn knows_peer(&self, address: IpAddr, qpn: Qpn) -> bool {
        self.by_qpn.contains_key(&(address, qpn))
    }

    /// What there is at the moment.
    pub fn usage(&self) -> CmUsage {
        CmUsage {
            connections: self.connections.len(),
            lingering: self.lingering,
            remote_ids: self.by_remote.len(),
            remote_qpns: self.by_qpn.len(),
            timers: self.timers.len(),
            unanswered: self.unanswered.len(),
            listeners: self.listeners.len(),
            pending: self.pending,
            queued: self.outbox.len(),
        }
    }

    /// The connection, if it can take this input now.
    fn checked(&self, id: ConnectionId, input: Input) -> Result<&Connection, CmError> {
        let connection = self
            .connections
            .get(&id.0)
            .filter(|connection| !connection.orphan);
        let connection = connection.ok_or(CmError::NoSuchConnection)?;
        match cm_transition(connection.state, input) {
            Some(_) => Ok(connection),
            None => Err(CmError::State(connection.state)),
        }
    }

    fn call(
        &mut self,
        now: Time,
        id: ConnectionId,
        input: Input,
        given: Option<Message>,
    ) -> Result<(), CmError> {
        if self.apply(now, id.0, input, None, given) {
            Ok(())
        } else {
            Err(CmError::NoSuchConnection)
        }
    }

    /// An identifier that is unused and that no peer could have guessed.
    fn fresh_id(&mut self) -> Result<u32, CmError> {
        const ATTEMPTS: usize = 64;
        if self.connections.len() >= self.config.max_connections {
            return Err(CmError::Limit);
        }
        for _ in 0..ATTEMPTS {
            let drawn = self.entropy.next_u32();
            let id = match self.config.id_block {
                Some(block) => u32::from(block) << 20 | drawn & 0xf_ffff,
                None => drawn,
            };
            if id != 0 && !self.connections.contains_key(&id) {
                return Ok(id);
            }
        }
        Err(CmError::Limit)
    }

    fn fresh_transaction(&mut self) -> u64 {
        u64::from(self.entropy.next_u32()) << 32 | u64::from(self.entropy.next_u32())
    }

    fn connection(&self, now: Time, state: CmState, role: Role, route: Route, local_id: u32) -> Connection {
        Connection {
            state,
            role,
            route,
            local_id,
            remote_id: 0,
            transaction_id: 0,
            service_id: ServiceId::default(),
            service: Service::Rc,
            local_qpn: Qpn::default(),
            remote_qpn: Qpn::default(),
            listener: None,
            datagram: false,
            orphan: false,
            last: None,
            questioned_at: None,
            held: false,
            patience: self.config.patience(self.config.response_timeout),
            max_retries: self.config.max_cm_retries,
            retries_left: self.config.max_cm_retries,
            unserved_grace: self.config.unserved_grace,
            unserved_until: None,
            repetition: Repetition::new(now),
            refused_retries_left: None,
            timewait: self.config.timewait_min,
            deadline: None,
        }
    }
}

impl std::fmt::Debug for Cm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cm")
            .field("usage", &self.usage())
            .finish_non_exhaustive()
    }
}
