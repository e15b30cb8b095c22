//! The NIC: a value that its caller feeds with datagrams, work requests and the time, and asks what to transmit, what
//! completed and when to wake it.
//!
//! The vocabulary, and when each answer may change:
//! - [`Nic::handle_datagram`], [`Nic::handle_timeout`], [`Nic::post_send`], [`Nic::send_management`],
//!   [`Nic::modify_qp`], [`Nic::destroy_qp`] (other queue pairs may use its share of the window) and [`Nic::fail`] may
//!   change every answer below. Nothing else does, except [`Nic::poll_transmit`] itself, and [`Nic::publish`] if a
//!   completion queue overflows.
//! - [`Nic::poll_transmit`] yields packets until it returns `None`. It also executes requests to peers on this host
//!   without packets ([`Nic::set_direct`]), a part at a time: if [`Nic::ready_queue_pairs`] is not zero after `None`,
//!   there are more of them. Call it again soon, after [`Nic::publish`] and whatever else is due.
//! - [`Nic::publish`] makes completions visible. Call it *after* everything that `poll_transmit` yielded is on the
//!   wire: then a peer never waits for an acknowledgement of something this program has already seen completed, even if
//!   the process ends in the next instant.
//! - [`Nic::poll_event`] yields events until `None`, [`Nic::poll_management`] what arrived at queue pair 1.
//! - [`Nic::poll_timeout`] says when to call [`Nic::handle_timeout`] next. It may be early, never late.
//!
//! iWARP queue pairs have streams instead of packets: [`Nic::create_iwarp_qp`], [`Nic::stream_attach`] and the calls
//! beside them.
//!
//! A `Nic` is one shard: a whole pipeline with its own queue pairs and timers. Shards of one device share a
//! [`KeyTable`] and completion queues (both behind `Arc`), nothing else.

mod config;
mod departed;
mod modify;
mod numbers;
mod qp1;
mod receive;
mod recorded;
mod streams;
mod transmit;
mod turns;
mod views;
mod xrc;

pub use config::{CreateError, NicConfig, QpInit};
pub use qp1::ManagementError;
pub use receive::Arrival;
pub use transmit::{MAX_BATCH_LEN, MAX_BATCH_PACKETS, Outlet, Room, Transmit};

use crate::counters::Counters;
use crate::direct::DirectAccess;
use crate::entropy::Entropy;
use crate::iwarp::IwarpQueuePair;
use crate::link::Shortage;
use crate::qp::{QpAttributes, QpState};
use crate::queue_pair::{PostError, QueuePair};
use crate::record::{QpEvent, Recorder};
use crate::resources::{Endpoint, NicResources, Pending};
use crate::roce::departure::Departure;
use crate::roce::qp1::Qp1;
use crate::roce::rc::ReorderMemory;
use crate::roce::window::PeerTable;
use crate::roce::xrc::XrcTable;
use crate::room::has_room;
use crate::time::Time;
use crate::timer::{Timer, TimerWheel, Token};
use crate::verbs::cq::{CompletionQueue, CqId, Published};
use crate::verbs::event::Event;
use crate::verbs::memory::{Key, KeyError, KeyHasher, KeySpec, KeyTable, PdId, WindowKind};
use crate::verbs::work::{RecvRequest, SendRequest};
use departed::Departed;
use nonic_wire::{Psn, Qpn, Service};
use numbers::Numbers;
use slab::Slab;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::net::IpAddr;
use std::sync::Arc;
use streams::Streams;

/// A software NIC.
pub struct Nic {
    config: NicConfig,
    keys: Arc<KeyTable>,
    entropy: Box<dyn Entropy>,
    endpoints: Vec<Endpoint>,
    /// How many packets a batch may have, by the address it leaves from.
    batch_limits: Vec<usize>,
    numbers: Numbers,
    departed: Departed,
    qps: Slab<QueuePair>,
    by_qpn: HashMap<u32, usize, BuildHasherDefault<KeyHasher>>,
    groups: HashMap<IpAddr, Vec<Qpn>>,
    qp1: Qp1,
    /// The senders that may have something to send.
    ready: VecDeque<Sender>,
    /// Senders that had their turn without a packet, or found no room, in the current call of [`Nic::poll_transmit`].
    worked: VecDeque<Sender>,
    timers: TimerWheel,
    outbox: Vec<Pending>,
    events: VecDeque<Event>,
    counters: Counters,
    peers: PeerTable,
    reorder: ReorderMemory,
    xrc: XrcTable,
    recorder: Recorder,
    /// iWARP queue pairs, which have streams instead of packets.
    streams: Streams,
    /// The way into the memory of peers on this host.
    direct: Option<Box<dyn DirectAccess>>,
    /// A fault on request: some receives are treated as missing although they are posted.
    missing_receives: Option<Shortage>,
    generation: u32,
    /// Its link is gone.
    failed: bool,
}

/// A sender that waits for its turn.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Sender {
    /// A queue pair, by its slot.
    QueuePair(usize),
    /// Queue pair 1.
    Qp1,
    /// Destroyed queue pairs.
    Departed,
}

/// Splits the NIC so that one queue pair can be worked on with everything else at hand.
macro_rules! resources {
    ($nic:ident, $now:expr) => {
        NicResources {
            now: $now,
            keys: &$nic.keys,
            outbox: &mut $nic.outbox,
            events: &mut $nic.events,
            counters: &mut $nic.counters,
            peers: &mut $nic.peers,
            reorder: &mut $nic.reorder,
            endpoints: &$nic.endpoints,
            xrc: &$nic.xrc,
            recorder: &mut $nic.recorder,
            direct: $nic.direct.as_deref_mut(),
            direct_piece: $nic.config.direct_piece,
            direct_worth: $nic.config.direct_worth,
            missing_receives: $nic.missing_receives.as_mut(),
        }
    };
}
pub(crate) use resources;

impl Nic {
    /// A NIC without addresses and queue pairs.
    pub fn new(config: NicConfig, keys: Arc<KeyTable>, entropy: Box<dyn Entropy>) -> Self {
        Nic {
            reorder: ReorderMemory::new(config.reorder),
            config,
            keys,
            entropy,
            endpoints: Vec::new(),
            batch_limits: Vec::new(),
            numbers: Numbers::default(),
            departed: Departed::default(),
            qps: Slab::new(),
            by_qpn: HashMap::default(),
            groups: HashMap::new(),
            qp1: Qp1::default(),
            ready: VecDeque::new(),
            worked: VecDeque::new(),
            timers: TimerWheel::new(),
            outbox: Vec::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
            peers: PeerTable::default(),
            xrc: XrcTable::default(),
            recorder: Recorder::default(),
            streams: Streams::default(),
            direct: None,
            missing_receives: None,
            generation: 0,
            failed: false,
        }
    }

    /// Its configuration.
    pub fn config(&self) -> &NicConfig {
        &self.config
    }

    /// Adds one of the NIC's addresses; its index in the GID table.
    pub fn add_endpoint(&mut self, endpoint: Endpoint) -> u8 {
        self.endpoints.push(endpoint);
        self.batch_limits.push(usize::MAX);
        (self.endpoints.len() - 1) as u8
    }

    /// The NIC's addresses, by index.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// Gives the NIC 4096 queue pair numbers: those whose upper 12 bits are `block`. A NIC that was given
    /// none uses the whole range.
    pub fn add_qpn_block(&mut self, block: u16) {
        self.numbers.add_block(block);
    }

    /// Takes back a block of numbers that no queue pair needs any more. There may be one after a queue pair was
    /// destroyed.
    pub fn take_spare_qpn_block(&mut self) -> Option<u16> {
        self.numbers.give_back(self.queue_pairs())
    }

    /// The memory keys, shared with the other shards of the device.
    pub fn keys(&self) -> &Arc<KeyTable> {
        &self.keys
    }

    /// Gives the NIC access to the memory of peers on this host. Publishes its queue pairs there, existing ones
    /// included. The caller publishes the keys ([`KeyTable::publish_to`]).
    pub fn set_direct(&mut self, direct: Box<dyn DirectAccess>) {
        let nic = &mut *self;
        nic.direct = Some(direct);
        let mut resources = resources!(nic, Time::ZERO);
        for (_, qp) in &mut nic.qps {
            qp.publish_anew(&mut resources);
        }
    }

    /// Registers memory under a fresh key.
    pub fn register(&mut self, spec: KeySpec) -> Result<Arc<Key>, KeyError> {
        self.keys.register(spec, &mut *self.entropy)
    }

    /// Allocates a memory window; its first key.
    pub fn alloc_window(&mut self, pd: PdId, kind: WindowKind) -> Result<u32, KeyError> {
        self.keys.alloc_window(pd, kind, &mut *self.entropy)
    }

    /// Treats some posted receives as missing, so that peers get RNR NAKs: a fault, to see how programs cope.
    pub fn hide_receives(&mut self, some: Shortage) {
        self.missing_receives = Some(some);
    }

    /// How many receives it has hidden.
    pub fn hidden_receives(&self) -> u64 {
        self.missing_receives.as_ref().map_or(0, Shortage::struck)
    }

    /// A starting PSN that no peer can guess.
    pub fn random_psn(&mut self) -> Psn {
        Psn::new(self.entropy.next_u32())
    }

    /// Creates a queue pair in RESET.
    pub fn create_qp(&mut self, init: QpInit) -> Result<Qpn, CreateError> {
        init.check(&self.config)?;
        let qpn = self.draw_qpn()?;
        self.reserve_qp()?;
        Ok(self.insert_qp(qpn, init))
    }

    /// A number for a queue pair of any transport.
    fn draw_qpn(&mut self) -> Result<Qpn, CreateError> {
        let taken = |value| self.by_qpn.contains_key(&value) || self.streams.has(value);
        let count = self.by_qpn.len() + self.streams.len();
        let drawn = self.numbers.draw(&mut *self.entropy, count, taken);
        drawn.ok_or(CreateError::NoQpn)
    }

    /// How many queue pairs there are.
    fn queue_pairs(&self) -> usize {
        self.by_qpn.len() + self.streams.len()
    }

    /// Creates a queue pair in RESET under a number the caller chose, whether or not it lies in the NIC's
    /// blocks: one that a replayed capture dictates. Queue pair 1 is the NIC's own.
    pub fn create_qp_with(&mut self, qpn: Qpn, init: QpInit) -> Result<Qpn, CreateError> {
        init.check(&self.config)?;
        let taken = self.by_qpn.contains_key(&qpn.value()) || self.streams.has(qpn.value());
        if matches!(qpn, Qpn::GSI | Qpn::MULTICAST) || taken {
            return Err(CreateError::QpnInUse);
        }
        Ok(self.insert_qp(qpn, init))
    }

    /// Makes sure that one more queue pair does not fail for want of memory.
    fn reserve_qp(&mut self) -> Result<(), CreateError> {
        // A full slab doubles.
        let growth = match self.qps.len() == self.qps.capacity() {
            true => 2 * self.qps.capacity() * (size_of::<QueuePair>() + size_of::<usize>()),
            false => 0,
        };
        let table = self.by_qpn.try_reserve(1);
        match has_room(growth) && table.is_ok() {
            true => Ok(()),
            false => Err(CreateError::NoMemory),
        }
    }

    fn insert_qp(&mut self, qpn: Qpn, init: QpInit) -> Qpn {
        let context = init.into_context(qpn, &self.config);
        self.generation = self.generation.wrapping_add(1);
        let slot = self.qps.insert(QueuePair::new(context, self.generation));
        self.by_qpn.insert(qpn.value(), slot);
        self.numbers.take(qpn);
        self.departed.forget(qpn);
        qpn
    }

    /// Destroys a queue pair; its outstanding requests end without completions. Returns whether it existed.
    pub fn destroy_qp(&mut self, now: Time, qpn: Qpn) -> bool {
        let Some(slot) = self.by_qpn.remove(&qpn.value()) else {
            return self.destroy_stream_qp(now, qpn);
        };
        let nic = &mut *self;
        let departure = nic.qps[slot].depart(&mut resources!(nic, now));
        self.let_number_rest(now, qpn, departure);
        self.reset_qp(now, slot);
        self.recorder.forget(qpn);
        let qp = self.qps.remove(slot);
        self.ready.retain(|ready| *ready != Sender::QueuePair(slot));
        // Receives that an XRC target took belong to their SRQs and are reported all the same.
        if qp.roce.domain.is_none() {
            self.outbox.retain(|pending| pending.completion.qpn != qpn);
            qp.roce.common.send_cq.purge(qpn);
            qp.roce.common.recv_cq.purge(qpn);
        }
        for members in self.groups.values_mut() {
            members.retain(|member| *member != qpn);
        }
        self.groups.retain(|_, members| !members.is_empty());
        true
    }

    /// Lets a destroyed queue pair's number rest. As long as it does, its peer is answered, if there is something to
    /// say.
    fn let_number_rest(&mut self, now: Time, qpn: Qpn, departure: Option<Departure>) {
        self.numbers.retire(now, qpn);
        self.departed.note(qpn, departure);
        self.end_rests(now);
    }

    /// Numbers that have rested may be drawn again.
    fn end_rests(&mut self, now: Time) {
        while let Some(number) = self.numbers.rested(now) {
            self.departed.forget(Qpn::new(number));
        }
    }

    /// No more numbers are to be had: those that rest may be drawn again at once.
    pub fn cut_rests_short(&mut self) {
        self.end_rests(Time::from_ns(u64::MAX));
    }

    /// Back to RESET. Other queue pairs that wait for the window to the same peer may take its share.
    fn reset_qp(&mut self, now: Time, slot: usize) {
        let peer = self.leave_line(slot);
        let nic = &mut *self;
        let mut resources = resources!(nic, now);
        nic.qps[slot].reset(&mut resources);
        if let Some(peer) = peer {
            self.wake_waiting(peer);
        }
    }

    /// A queue pair's state.
    pub fn qp_state(&self, qpn: Qpn) -> Option<QpState> {
        match self.slot(qpn) {
            Some(slot) => Some(self.qps[slot].roce.common.state),
            None => self.streams.find(qpn).map(|qp| qp.common.state),
        }
    }

    /// A queue pair's attributes as they stand.
    pub fn query_qp(&self, qpn: Qpn) -> Option<QpAttributes> {
        match self.slot(qpn) {
            Some(slot) => Some(self.qps[slot].attributes()),
            None => self.streams.find(qpn).map(IwarpQueuePair::attributes),
        }
    }

    /// How many more send requests a queue pair takes at this moment.
    pub fn send_room(&self, qpn: Qpn) -> Option<usize> {
        let (common, queued) = match self.slot(qpn) {
            Some(slot) => (&self.qps[slot].roce.common, self.qps[slot].send_queue_len()),
            None => self
                .streams
                .find(qpn)
                .map(|qp| (&qp.common, qp.send_queue_len()))?,
        };
        Some((common.capacity.max_send_wr as usize).saturating_sub(queued))
    }

    /// Queues a send request.
    pub fn post_send(&mut self, now: Time, qpn: Qpn, request: &SendRequest<'_>) -> Result<(), PostError> {
        if self.failed {
            return Err(PostError::DeviceFailed);
        }
        let Some(slot) = self.slot(qpn) else {
            return self.post_stream_send(now, qpn, request);
        };
        let nic = &mut *self;
        let mut resources = resources!(nic, now);
        nic.qps[slot].post_send(&mut resources, request)?;
        self.make_ready(slot);
        Ok(())
    }

    /// Queues a receive on a queue pair's own receive queue.
    pub fn post_recv(&mut self, qpn: Qpn, request: &RecvRequest<'_>) -> Result<(), PostError> {
        if self.failed {
            return Err(PostError::DeviceFailed);
        }
        let Some(slot) = self.slot(qpn) else {
            return self.post_stream_recv(qpn, request);
        };
        let nic = &mut *self;
        let mut resources = resources!(nic, Time::ZERO);
        nic.qps[slot].post_recv(&mut resources, request)
    }

    /// Adds a datagram queue pair to a multicast group. Returns whether it exists and is one.
    pub fn attach_multicast(&mut self, qpn: Qpn, group: IpAddr) -> bool {
        let datagram = self
            .slot(qpn)
            .is_some_and(|slot| self.qps[slot].roce.common.service == Service::Ud);
        if !datagram || !group.is_multicast() {
            return false;
        }
        let members = self.groups.entry(group).or_default();
        if !members.contains(&qpn) {
            members.push(qpn);
        }
        true
    }

    /// Removes a queue pair from a group. Returns whether it was a member.
    pub fn detach_multicast(&mut self, qpn: Qpn, group: IpAddr) -> bool {
        let Some(members) = self.groups.get_mut(&group) else {
            return false;
        };
        let before = members.len();
        members.retain(|member| *member != qpn);
        let removed = members.len() < before;
        if members.is_empty() {
            self.groups.remove(&group);
        }
        removed
    }

    /// Whether any queue pair is a member of a group.
    pub fn has_multicast(&self, group: IpAddr) -> bool {
        self.groups.contains_key(&group)
    }

    /// Makes completions visible in their queues. Call it when everything to transmit is on the wire.
    pub fn publish(&mut self) {
        // An overflow flushes queue pairs, which queues more: at most once each, so this ends.
        while !self.outbox.is_empty() {
            let mut outbox = std::mem::take(&mut self.outbox);
            for Pending {
                cq,
                completion,
                wakes,
            } in outbox.drain(..)
            {
                self.counters.completions += 1;
                match cq.publish(completion, wakes) {
                    Published::Quiet | Published::Dead => {}
                    Published::Notify => self.events.push_back(Event::Completion(cq.id())),
                    Published::Overflow => self.cq_overflowed(&cq),
                }
            }
            if self.outbox.is_empty() {
                // Nothing came meanwhile: keep the allocation.
                self.outbox = outbox;
                return;
            }
        }
    }

    /// A completion was lost: every queue pair that completes to this queue is in error from now on.
    fn cq_overflowed(&mut self, cq: &Arc<CompletionQueue>) {
        let id: CqId = cq.id();
        self.events.push_back(Event::CqError(id));
        let domains = self.xrc.domains_of(cq);
        let nic = &mut *self;
        let mut resources = resources!(nic, Time::ZERO);
        let mut failed = Vec::new();
        for (slot, qp) in &mut nic.qps {
            let reports_there =
                Arc::ptr_eq(&qp.roce.common.send_cq, cq) || Arc::ptr_eq(&qp.roce.common.recv_cq, cq);
            if reports_there || qp.roce.domain.is_some_and(|domain| domains.contains(&domain)) {
                resources.events.push_back(Event::QpFatal(qp.roce.common.qpn));
                resources.record(qp.roce.common.qpn, QpEvent::QueueOverflow);
                qp.enter_error(&mut resources);
                failed.push(slot);
            }
        }
        failed.into_iter().for_each(|slot| self.touch(slot));
        self.fail_streams(Time::ZERO, &QpEvent::QueueOverflow, |qp| {
            Arc::ptr_eq(&qp.common.send_cq, cq) || Arc::ptr_eq(&qp.common.recv_cq, cq)
        });
    }

    /// Whether the peer of a reliable queue pair owes an answer to something that is under way: an arrival or a timer will
    /// come, whatever the program does.
    pub fn awaits_answer(&self, qpn: Qpn) -> bool {
        match self.slot(qpn) {
            Some(slot) => self.qps[slot].awaits_answer(),
            None => self.streams.find(qpn).is_some_and(IwarpQueuePair::awaits_answer),
        }
    }

    /// Whether completions wait for [`Nic::publish`].
    pub fn has_unpublished(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// The next thing the program should hear of.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When to call [`Nic::handle_timeout`] next.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.timers.next()
    }

    /// Runs the timers that are due.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.timers.next().is_none_or(|next| next > now) {
            return;
        }
        let mut due: Vec<Token> = Vec::new();
        self.timers.expire(now, |token| due.push(token));
        for token in due {
            if token.timer == Timer::Window {
                self.handle_window_timer(now, token);
                continue;
            }
            if token.timer == Timer::Stream {
                self.handle_stream_timer(now, token);
                continue;
            }
            let slot = token.slot as usize;
            let current = self
                .qps
                .get(slot)
                .is_some_and(|qp| qp.generation == token.generation);
            if !current {
                continue;
            }
            let nic = &mut *self;
            let mut resources = resources!(nic, now);
            let qp = &mut nic.qps[slot];
            let scheduled = &mut qp.scheduled[token.timer as usize];
            // A later entry than the earliest may be left over from a deadline that moved forward.
            if scheduled.is_some_and(|at| at <= now) {
                *scheduled = None;
            }
            if qp.deadline(token.timer).is_some_and(|at| at <= now) {
                qp.handle_timeout(&mut resources);
            }
            self.touch(slot);
        }
    }

    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// How many queue pairs, queue pair 1 among them, wait for their turn in [`Nic::poll_transmit`]. If any do after it
    /// returned `None`, they have more to do without packets.
    pub fn ready_queue_pairs(&self) -> usize {
        self.ready.len()
    }

    /// What the NIC still holds, for leak checks.
    pub fn usage(&self) -> Usage {
        Usage {
            queue_pairs: self.queue_pairs(),
            send_requests: self
                .qps
                .iter()
                .map(|(_, qp)| qp.send_queue_len())
                .chain(self.streams.iter().map(IwarpQueuePair::send_queue_len))
                .sum(),
            timers: self.timers.len(),
            peers: self.peers.len(),
            in_flight_bytes: self.peers.in_flight(),
            reordered_bytes: self.reorder.used(),
            unpublished: self.outbox.len(),
            management_datagrams: self.qp1.len(),
        }
    }

    /// The NIC's link is gone. Every queue pair goes to the error state, so that threads that wait for a completion get
    /// one, and nothing more can be posted.
    pub fn fail(&mut self, now: Time) {
        if std::mem::replace(&mut self.failed, true) {
            return;
        }
        self.events.push_back(Event::DeviceFatal);
        let nic = &mut *self;
        let mut resources = resources!(nic, now);
        let mut failed = Vec::new();
        for (slot, qp) in &mut nic.qps {
            if qp.roce.common.state != QpState::Reset {
                resources.record(qp.roce.common.qpn, QpEvent::DeviceFailed);
                qp.enter_error(&mut resources);
                failed.push(slot);
            }
        }
        failed.into_iter().for_each(|slot| self.touch(slot));
        self.fail_streams(now, &QpEvent::DeviceFailed, |_| true);
        self.qp1.clear();
    }

    /// Whether [`Nic::fail`] was called.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    fn slot(&self, qpn: Qpn) -> Option<usize> {
        self.by_qpn.get(&qpn.value()).copied()
    }

    /// Something about the queue pair changed: it may have packets to send, and timers.
    fn touch(&mut self, slot: usize) {
        self.make_ready(slot);
        self.schedule_timers(slot);
        if let Some(peer) = self.qps[slot].roce.peer {
            self.wake_waiting(peer);
        }
    }

    fn make_ready(&mut self, slot: usize) {
        let qp = &mut self.qps[slot];
        if !qp.ready && qp.has_to_send() {
            qp.ready = true;
            self.ready.push_back(Sender::QueuePair(slot));
        }
    }

    fn schedule_timers(&mut self, slot: usize) {
        let qp = &mut self.qps[slot];
        for timer in Timer::ALL {
            let Some(at) = qp.deadline(timer) else { continue };
            let scheduled = &mut qp.scheduled[timer as usize];
            if scheduled.is_none_or(|earliest| at < earliest) {
                *scheduled = Some(at);
                self.timers.schedule(
                    at,
                    Token {
                        slot: slot as u32,
                        generation: qp.generation,
                        timer,
                    },
                );
            }
        }
    }
}

/// What a NIC holds at a moment.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Usage {
    pub queue_pairs: usize,
    pub send_requests: usize,
    pub timers: usize,
    pub peers: usize,
    pub in_flight_bytes: u64,
    pub reordered_bytes: usize,
    pub unpublished: usize,
    pub management_datagrams: usize,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.queue_pairs += other.queue_pairs;
        self.send_requests += other.send_requests;
        self.timers += other.timers;
        self.peers += other.peers;
        self.in_flight_bytes += other.in_flight_bytes;
        self.reordered_bytes += other.reordered_bytes;
        self.unpublished += other.unpublished;
        self.management_datagrams += other.management_datagrams;
    }
}
