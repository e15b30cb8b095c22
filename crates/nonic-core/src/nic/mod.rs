//! The NIC: a value that its caller feeds with datagrams, work requests and the time, and asks what to transmit, what
//! completed and when to wake it.
//!
//! The vocabulary, and when each answer may change:
//! - [`Nic::handle_datagram`], [`Nic::handle_timeout`], [`Nic::post_send`], [`Nic::send_management`],
//!   [`Nic::modify_qp`], [`Nic::destroy_qp`] (other queue pairs may use its share of the window) and [`Nic::fail`] may
//!   change every answer below. So may the calls for lanes and streams, which come further down. Nothing else does, except
//!   [`Nic::poll_transmit`] itself, and [`Nic::publish`] if a completion queue overflows.
//! - [`Nic::poll_transmit`] yields packets until it returns `None`. It also writes records for peers on this host
//!   ([`Nic::set_lanes`]), and executes requests in their memory ([`Nic::set_direct`]), a part at a time: if
//!   [`Nic::ready_queue_pairs`] is not zero after `None`, there are more of them. Call it again soon, after [`Nic::publish`] and
//!   whatever else is due.
//! - [`Nic::publish`] makes completions visible. Call it *after* everything that `poll_transmit` yielded is on the
//!   wire: then a peer never waits for an acknowledgement of something this program has already seen completed, even if
//!   the process ends in the next instant.
//! - [`Nic::poll_event`] yields events until `None`, [`Nic::poll_management`] what arrived at queue pair 1.
//! - [`Nic::poll_timeout`] says when to call [`Nic::handle_timeout`] next. It may be early, never late.
//!
//! Processes of this host may have lanes in place of packets: [`Nic::set_lanes`], [`Nic::handle_record`],
//! [`Nic::handle_answers`] and [`Nic::lane_ended`].
//!
//! iWARP queue pairs have streams instead of packets: [`Nic::create_iwarp_qp`], [`Nic::stream_attach`] and the calls
//! beside them.
//!
//! A `Nic` is one shard: a whole pipeline with its own queue pairs and timers. Shards of one device share a
//! [`KeyTable`], completion queues and shared receive queues (all behind `Arc`), nothing else.

mod config;
mod departed;
mod modify;
mod numbers;
mod qp1;
mod queue_pairs;
mod receive;
mod recorded;
mod records;
mod streams;
mod transmit;
mod turns;
mod views;
mod xrc;

pub use config::{CreateError, NicConfig, QpInit};
pub use numbers::QPNS_PER_BLOCK;
pub use qp1::ManagementError;
pub use receive::Arrival;
pub use transmit::{MAX_BATCH_LEN, MAX_BATCH_PACKETS, Transmit};

use crate::counters::Counters;
use crate::direct::DirectAccess;
use crate::entropy::Entropy;
use crate::iwarp::StreamEvent;
use crate::queue_pair::{PostError, QpAttributes, QpContext, QpState};
use crate::record::QpEvent;
use crate::resources::{Endpoint, NicResources};
use crate::roce::departure::Departure;
use crate::roce::qp1::Qp1;
use crate::roce::queue_pair::RoceQueuePair;
use crate::shortage::Shortage;
use crate::time::Time;
use crate::timer::{Timer, TimerWheel, Token};
use crate::verbs::cq::{CompletionQueue, CqId};
use crate::verbs::event::Event;
use crate::verbs::memory::{Key, KeyError, KeySpec, KeyTable, PdId, WindowKind};
use crate::verbs::work::{RecvRequest, SendRequest};
use departed::Departed;
use nonic_wire::{Psn, Qpn, Service};
use numbers::Numbers;
use queue_pairs::{QueuePair, QueuePairs, Transport};
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use streams::StreamEvents;

/// A software NIC.
pub struct Nic {
    config: NicConfig,
    /// What its queue pairs share.
    resources: NicResources,
    entropy: Box<dyn Entropy>,
    /// How many packets a batch may have, by the address it leaves from.
    batch_limits: Vec<usize>,
    numbers: Numbers,
    departed: Departed,
    qps: QueuePairs,
    groups: HashMap<IpAddr, Vec<Qpn>>,
    qp1: Qp1,
    /// The senders that may have something to send.
    ready: VecDeque<ReadySender>,
    /// Senders that had their turn without a packet, or found no room, in the current call of [`Nic::poll_transmit`].
    worked: VecDeque<ReadySender>,
    timers: TimerWheel,
    /// What is to be done with the streams of iWARP queue pairs.
    streams: StreamEvents,
    /// Queue pairs that found a lane full, by their slots. Answers make room.
    blocked: Vec<usize>,
    /// Its link is gone.
    failed: bool,
}

/// A sender that waits for its turn.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum ReadySender {
    /// A queue pair, by its slot.
    QueuePair(usize),
    /// Queue pair 1.
    Qp1,
    /// Destroyed queue pairs.
    Departed,
}

impl Nic {
    /// A NIC without addresses and queue pairs.
    pub fn new(config: NicConfig, keys: Arc<KeyTable>, entropy: Box<dyn Entropy>) -> Self {
        Nic {
            resources: config.resources(keys),
            config,
            entropy,
            batch_limits: Vec::new(),
            numbers: Numbers::default(),
            departed: Departed::default(),
            qps: QueuePairs::default(),
            groups: HashMap::new(),
            qp1: Qp1::default(),
            ready: VecDeque::new(),
            worked: VecDeque::new(),
            timers: TimerWheel::new(),
            streams: StreamEvents::default(),
            blocked: Vec::new(),
            failed: false,
        }
    }

    /// Its configuration.
    pub fn config(&self) -> &NicConfig {
        &self.config
    }

    /// Adds one of the NIC's addresses; its index in the GID table.
    pub fn add_endpoint(&mut self, endpoint: Endpoint) -> u8 {
        self.resources.endpoints.push(endpoint);
        self.batch_limits.push(usize::MAX);
        (self.resources.endpoints.len() - 1) as u8
    }

    /// The NIC's addresses, by index.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.resources.endpoints
    }

    /// Gives the NIC 4096 queue pair numbers: those whose upper 12 bits are `block`. A NIC that was given
    /// none uses the whole range.
    pub fn add_qpn_block(&mut self, block: u16) {
        self.numbers.add_block(block);
    }

    /// Takes back a block of numbers that no queue pair needs any more. There may be one after a queue pair was
    /// destroyed.
    pub fn take_spare_qpn_block(&mut self) -> Option<u16> {
        self.numbers.give_back(self.qps.len())
    }

    /// The memory keys, shared with the other shards of the device.
    pub fn keys(&self) -> &Arc<KeyTable> {
        &self.resources.keys
    }

    /// Has no key at hand any more. Who revokes keys calls this, or their memory stays for as long as the NIC does not use others.
    pub fn let_go_of_keys(&mut self) {
        self.resources.keys.let_go();
    }

    /// Gives the NIC access to the memory of peers on this host. Publishes its queue pairs there, existing ones
    /// included. The caller publishes the keys ([`KeyTable::publish_to`]).
    pub fn set_direct(&mut self, direct: Box<dyn DirectAccess>) {
        let nic = &mut *self;
        nic.resources.direct = Some(direct);
        let resources = nic.resources.at(Time::ZERO);
        for (_, qp) in nic.qps.iter_mut() {
            if let Transport::Roce(qp) = &mut qp.transport {
                qp.publish_anew(resources);
            }
        }
    }

    /// Registers memory under a fresh key.
    pub fn register(&mut self, spec: KeySpec) -> Result<Arc<Key>, KeyError> {
        self.resources.keys.register(spec, &mut *self.entropy)
    }

    /// Allocates a memory window; its first key.
    pub fn alloc_window(&mut self, pd: PdId, kind: WindowKind) -> Result<u32, KeyError> {
        self.resources.keys.alloc_window(pd, kind, &mut *self.entropy)
    }

    /// Treats some posted receives as missing, so that peers get RNR NAKs: a fault, to see how programs cope.
    pub fn hide_receives(&mut self, some: Shortage) {
        self.resources.missing_receives = Some(some);
    }

    /// How many receives it has hidden.
    pub fn hidden_receives(&self) -> u64 {
        self.resources
            .missing_receives
            .as_ref()
            .map_or(0, Shortage::struck)
    }

    /// A starting PSN that no peer can guess.
    pub fn random_psn(&mut self) -> Psn {
        Psn::new(self.entropy.next_u32())
    }

    /// Creates a queue pair in RESET.
    pub fn create_qp(&mut self, init: QpInit) -> Result<Qpn, CreateError> {
        init.check(&self.config)?;
        let qpn = self.draw_qpn()?;
        let context = init.into_context(qpn, &self.config);
        Ok(self.insert_qp(qpn, Transport::Roce(RoceQueuePair::new(context))))
    }

    /// A number for a queue pair of any transport, and memory for it.
    fn draw_qpn(&mut self) -> Result<Qpn, CreateError> {
        let taken = |value| self.qps.contains(value);
        let drawn = self.numbers.draw(&mut *self.entropy, self.qps.len(), taken);
        let qpn = drawn.ok_or(CreateError::NoQpn)?;
        match self.qps.reserve() {
            true => Ok(qpn),
            false => Err(CreateError::NoMemory),
        }
    }

    /// Creates a queue pair in RESET under a number the caller chose, whether or not it lies in the NIC's
    /// blocks: one that a replayed capture dictates. Queue pair 1 is the NIC's own.
    pub fn create_qp_with(&mut self, qpn: Qpn, init: QpInit) -> Result<Qpn, CreateError> {
        init.check(&self.config)?;
        if matches!(qpn, Qpn::GSI | Qpn::MULTICAST) || self.qps.contains(qpn.value()) {
            return Err(CreateError::QpnInUse);
        }
        let context = init.into_context(qpn, &self.config);
        Ok(self.insert_qp(qpn, Transport::Roce(RoceQueuePair::new(context))))
    }

    fn insert_qp(&mut self, qpn: Qpn, transport: Transport) -> Qpn {
        self.qps.insert(qpn, transport);
        self.numbers.take(qpn);
        self.departed.forget(qpn);
        qpn
    }

    /// Destroys a queue pair; its outstanding requests end without completions. Returns whether it existed.
    pub fn destroy_qp(&mut self, now: Time, qpn: Qpn) -> bool {
        let Some(slot) = self.qps.slot(qpn) else {
            return false;
        };
        let nic = &mut *self;
        let departure = match &mut nic.qps[slot].transport {
            Transport::Roce(qp) => qp.depart(nic.resources.at(now)),
            Transport::Iwarp(_) => None,
        };
        self.let_number_rest(now, qpn, departure);
        self.reset_qp(now, slot);
        self.resources.recorder.forget(qpn);
        match self.qps.remove(qpn).map(|qp| qp.transport) {
            Some(Transport::Roce(qp)) => {
                self.ready.retain(|ready| *ready != ReadySender::QueuePair(slot));
                self.blocked.retain(|blocked| *blocked != slot);
                self.leave_groups(qpn);
                // Receives that an XRC target took belong to their SRQs and are reported all the same.
                if qp.roce.domain.is_none() {
                    self.forget_completions(&qp.roce.common);
                }
            }
            Some(Transport::Iwarp(qp)) => {
                self.forget_completions(&qp.common);
                self.streams.forget(slot, qpn, &qp);
            }
            None => {}
        }
        if self.qps.len() == 0 {
            // Deadlines that moved or were met have left theirs in the wheel. A process without queue pairs has nothing to wake for.
            self.timers.retain(|token| token.timer == Timer::Window);
        }
        true
    }

    /// Completions of a destroyed queue pair are not reported.
    fn forget_completions(&mut self, common: &QpContext) {
        self.resources.outbox.forget(common.qpn);
        common.send_cq.purge(common.qpn);
        common.recv_cq.purge(common.qpn);
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
        match &mut nic.qps[slot].transport {
            Transport::Roce(qp) => qp.reset(nic.resources.at(now)),
            Transport::Iwarp(qp) => qp.reset(),
        }
        if let Some(peer) = peer {
            self.wake_waiting(peer);
        }
    }

    /// A queue pair's state.
    pub fn qp_state(&self, qpn: Qpn) -> Option<QpState> {
        self.qps.find(qpn).map(|qp| qp.common().state)
    }

    /// A queue pair's attributes as they stand.
    pub fn query_qp(&self, qpn: Qpn) -> Option<QpAttributes> {
        self.qps.find(qpn).map(QueuePair::attributes)
    }

    /// How many more send requests a queue pair takes at this moment.
    pub fn send_room(&self, qpn: Qpn) -> Option<usize> {
        let qp = self.qps.find(qpn)?;
        let room = qp.common().capacity.max_send_wr as usize;
        Some(room.saturating_sub(qp.send_queue_len()))
    }

    /// Queues a send request.
    pub fn post_send(&mut self, now: Time, qpn: Qpn, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.post_of_list(now, qpn, request, false)
    }

    /// Queues a send request of a list. If there is `more`, the caller posts that next, or lets the NIC send: requests that are executed
    /// in a peer's memory wait for each other and are executed together.
    pub fn post_of_list(
        &mut self,
        now: Time,
        qpn: Qpn,
        request: &SendRequest<'_>,
        more: bool,
    ) -> Result<(), PostError> {
        if self.failed {
            return Err(PostError::DeviceFailed);
        }
        let slot = self.qps.slot(qpn).ok_or(PostError::NoSuchQp)?;
        let nic = &mut *self;
        let resources = nic.resources.at(now);
        nic.qps[slot].post_send(resources, request, more)?;
        self.make_ready(slot);
        self.set_wanted_timer(slot);
        Ok(())
    }

    /// Queues a receive on a queue pair's own receive queue.
    pub fn post_recv(&mut self, qpn: Qpn, request: &RecvRequest<'_>) -> Result<(), PostError> {
        if self.failed {
            return Err(PostError::DeviceFailed);
        }
        let slot = self.qps.slot(qpn).ok_or(PostError::NoSuchQp)?;
        let nic = &mut *self;
        let resources = nic.resources.at(Time::ZERO);
        let posted = nic.qps[slot].post_recv(resources, request);
        self.collect_signals(slot);
        posted
    }

    /// Adds a datagram queue pair to a multicast group. Returns whether it exists and is one.
    pub fn attach_multicast(&mut self, qpn: Qpn, group: IpAddr) -> bool {
        let datagram = self
            .qps
            .find(qpn)
            .is_some_and(|qp| qp.common().service == Service::Ud);
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

    fn leave_groups(&mut self, qpn: Qpn) {
        for members in self.groups.values_mut() {
            members.retain(|member| *member != qpn);
        }
        self.groups.retain(|_, members| !members.is_empty());
    }

    /// Whether any queue pair is a member of a group.
    pub fn has_multicast(&self, group: IpAddr) -> bool {
        self.groups.contains_key(&group)
    }

    /// Makes completions visible in their queues. Call it when everything to transmit is on the wire.
    pub fn publish(&mut self) {
        // An overflow flushes queue pairs, which queues more: at most once each, so this ends.
        let mut done = 0;
        while let Some((cq, published)) = self.resources.outbox.publish(&mut done) {
            if published.notify {
                self.resources.events.push_back(Event::Completion(cq.id()));
            }
            if published.overflow {
                let cq = Arc::clone(cq);
                self.cq_overflowed(&cq);
            }
        }
        self.resources.counters.completions += done as u64;
        self.resources.outbox.clear();
    }

    /// A completion was lost: every queue pair that completes to this queue is in error from now on.
    fn cq_overflowed(&mut self, cq: &Arc<CompletionQueue>) {
        let id: CqId = cq.id();
        self.resources.events.push_back(Event::CqError(id));
        let domains = self.resources.xrc.domains_of(cq);
        let reports_there = |qp: &QueuePair| {
            let common = qp.common();
            let domain = qp.as_roce().and_then(|qp| qp.roce.domain);
            Arc::ptr_eq(&common.send_cq, cq)
                || Arc::ptr_eq(&common.recv_cq, cq)
                || domain.is_some_and(|domain| domains.contains(&domain))
        };
        let told = |qpn| Some(Event::QpFatal(qpn));
        self.fail_queue_pairs(Time::ZERO, &QpEvent::QueueOverflow, reports_there, told);
    }

    /// Queue pairs for which `affected` holds go to the error state, and the program is `told` of each.
    fn fail_queue_pairs(
        &mut self,
        now: Time,
        cause: &QpEvent,
        affected: impl Fn(&QueuePair) -> bool,
        told: impl Fn(Qpn) -> Option<Event>,
    ) {
        let nic = &mut *self;
        let resources = nic.resources.at(now);
        let mut failed = Vec::new();
        for (slot, qp) in nic.qps.iter_mut() {
            let qpn = qp.common().qpn;
            if qp.common().state != QpState::Error && affected(qp) {
                resources.events.extend(told(qpn));
                resources.record(qpn, cause.clone());
                qp.enter_error(resources);
                failed.push(slot);
            }
        }
        failed.into_iter().for_each(|slot| self.touch(slot));
    }

    /// Whether the peer of a reliable queue pair owes an answer to something that is under way: an arrival or a timer will
    /// come, whatever the program does.
    pub fn awaits_answer(&self, qpn: Qpn) -> bool {
        self.qps.find(qpn).is_some_and(QueuePair::awaits_answer)
    }

    /// Whether a queue pair's WRITEs and READs are executed by this NIC, in the memory of its peer.
    pub fn executes_by_itself(&self, qpn: Qpn) -> bool {
        self.qps.find(qpn).is_some_and(QueuePair::executes_by_itself)
    }

    /// Whether completions wait for [`Nic::publish`].
    pub fn has_unpublished(&self) -> bool {
        !self.resources.outbox.is_empty()
    }

    /// Whether [`Nic::publish`], or what the embedder does after it, has anything to tell the program.
    #[inline]
    pub fn has_news(&self) -> bool {
        !self.resources.outbox.is_empty() || !self.resources.events.is_empty() || self.has_recorded()
    }

    /// The next thing the program should hear of.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.resources.events.pop_front()
    }

    /// When to call [`Nic::handle_timeout`] next.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.timers.next()
    }

    /// Whether [`Nic::poll_timeout`] may be sooner than it was when this was asked last.
    #[inline]
    pub fn take_sooner_timeout(&mut self) -> bool {
        self.timers.take_sooner()
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
            let nic = &mut *self;
            let Some(qp) = nic.qps.owner(&token) else {
                continue;
            };
            if qp.is_due(now, token.timer) {
                qp.handle_timeout(nic.resources.at(now));
            }
            self.touch(token.slot as usize);
        }
    }

    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.resources.counters
    }

    /// How many queue pairs, queue pair 1 among them, wait for their turn in [`Nic::poll_transmit`]. If any do after it
    /// returned `None`, they have more to do without packets.
    pub fn ready_queue_pairs(&self) -> usize {
        self.ready.len()
    }

    /// What the NIC still holds, for leak checks.
    pub fn usage(&self) -> Usage {
        Usage {
            queue_pairs: self.qps.len(),
            send_requests: self.qps.iter().map(QueuePair::send_queue_len).sum(),
            timers: self.timers.len(),
            peers: self.resources.peers.len(),
            in_flight_bytes: self.resources.peers.in_flight(),
            reordered_bytes: self.resources.reorder.used(),
            unpublished: self.resources.outbox.len(),
            management_datagrams: self.qp1.len(),
        }
    }

    /// The NIC's link is gone. Every queue pair goes to the error state, so that threads that wait for a completion get
    /// one, and nothing more can be posted.
    pub fn fail(&mut self, now: Time) {
        if std::mem::replace(&mut self.failed, true) {
            return;
        }
        self.resources.events.push_back(Event::DeviceFatal);
        let in_use = |qp: &QueuePair| qp.common().state != QpState::Reset;
        self.fail_queue_pairs(now, &QpEvent::DeviceFailed, in_use, |_| None);
        self.qp1.clear();
    }

    /// Whether [`Nic::fail`] was called.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// Something about the queue pair changed: it may have something to send, and timers.
    fn touch(&mut self, slot: usize) {
        self.collect_signals(slot);
        self.make_ready(slot);
        self.schedule_timers(slot);
        if let Some(peer) = self.qps[slot].as_roce().and_then(|qp| qp.roce.peer) {
            self.wake_waiting(peer);
        }
    }

    /// What it has to send is asked for.
    fn make_ready(&mut self, slot: usize) {
        match &mut self.qps[slot].transport {
            Transport::Roce(qp) if !qp.ready && qp.has_to_send() => {
                qp.ready = true;
                self.ready.push_back(ReadySender::QueuePair(slot));
            }
            Transport::Iwarp(qp) if !qp.listed && qp.has_output() => {
                qp.listed = true;
                self.streams
                    .events
                    .push_back(StreamEvent::Transmit(qp.common.qpn));
            }
            _ => {}
        }
    }

    fn schedule_timers(&mut self, slot: usize) {
        let timers = &mut self.timers;
        self.qps[slot].schedule_timers(slot, |at, token| timers.schedule(at, token));
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
