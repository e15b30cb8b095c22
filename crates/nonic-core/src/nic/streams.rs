//! iWARP queue pairs of a NIC: moves the bytes of their streams in and out, and reports what to do with the streams.
//!
//! The calls for a stream, and when each answer may change:
//! - [`Nic::stream_attach`], [`Nic::stream_received`], [`Nic::stream_written`], [`Nic::stream_closed`],
//!   [`Nic::handle_timeout`] and whatever is done to the queue pair itself may lead to [events](StreamEvent);
//!   [`Nic::poll_stream_event`] yields them until `None`.
//! - [`Nic::poll_stream_transmit`] yields bytes until it has none. A SEND or WRITE completes when
//!   [`Nic::stream_written`] says that TCP has taken its last byte.

use super::{CreateError, Nic, QpInit, resources};
use crate::iwarp::{
    AttachError, IwarpQueuePair, Signals, StreamClosed, StreamEvent, StreamGather, StreamParams,
    StreamReading,
};
use crate::qp::{AttributeMask, ModifyError, Named, QpAttributes, QpState};
use crate::queue_pair::PostError;
use crate::record::QpEvent;
use crate::resources::NicResources;
use crate::room::has_room;
use crate::time::Time;
use crate::timer::{Timer, Token};
use crate::verbs::event::Event;
use crate::verbs::memory::KeyHasher;
use crate::verbs::work::{RecvRequest, SendRequest};
use nonic_wire::{Qpn, Service};
use slab::Slab;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;

/// The iWARP queue pairs of a NIC. They share the numbers of the others, and nothing else with them.
#[derive(Debug, Default)]
pub(super) struct Streams {
    qps: Slab<IwarpQueuePair>,
    by_qpn: HashMap<u32, usize, BuildHasherDefault<KeyHasher>>,
    events: VecDeque<StreamEvent>,
    /// Those that wait, or have waited, for a receive.
    waiting: Vec<usize>,
}

impl Streams {
    pub(super) fn len(&self) -> usize {
        self.qps.len()
    }

    pub(super) fn has(&self, qpn: u32) -> bool {
        self.by_qpn.contains_key(&qpn)
    }

    pub(super) fn find(&self, qpn: Qpn) -> Option<&IwarpQueuePair> {
        self.slot(qpn).map(|slot| &self.qps[slot])
    }

    /// The slots there are, used or not.
    pub(super) fn slots(&self) -> usize {
        self.qps.capacity()
    }

    pub(super) fn get(&self, slot: usize) -> Option<&IwarpQueuePair> {
        self.qps.get(slot)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &IwarpQueuePair> {
        self.qps.iter().map(|(_, qp)| qp)
    }

    /// Whether there is memory for one more.
    fn reserve(&mut self) -> bool {
        let growth = match self.qps.len() == self.qps.capacity() {
            true => 2 * self.qps.capacity() * (size_of::<IwarpQueuePair>() + size_of::<usize>()),
            false => 0,
        };
        self.by_qpn.try_reserve(1).is_ok() && has_room(growth)
    }

    fn slot(&self, qpn: Qpn) -> Option<usize> {
        self.by_qpn.get(&qpn.value()).copied()
    }
}

impl Nic {
    /// Creates an iWARP queue pair: of service RC, in INIT, as verbs of RNICs have it. Its peer may do to memory what
    /// [`Nic::modify_qp`] permits.
    pub fn create_iwarp_qp(&mut self, init: QpInit) -> Result<Qpn, CreateError> {
        if init.service != Service::Rc {
            return Err(CreateError::Unsupported);
        }
        init.check(&self.config)?;
        let qpn = self.draw_qpn()?;
        if !self.streams.reserve() {
            return Err(CreateError::NoMemory);
        }
        self.generation = self.generation.wrapping_add(1);
        let common = init.into_common(qpn, QpState::Init);
        let qp = IwarpQueuePair::new(common, self.config.iwarp, self.generation);
        let slot = self.streams.qps.insert(qp);
        self.streams.by_qpn.insert(qpn.value(), slot);
        self.numbers.take(qpn);
        Ok(qpn)
    }

    /// Whether a queue pair is one of iWARP.
    pub fn is_iwarp(&self, qpn: Qpn) -> bool {
        self.streams.has(qpn.value())
    }

    /// Connects a queue pair: start-up has agreed on a stream. A responder attaches before its Reply is sent.
    pub fn stream_attach(&mut self, now: Time, qpn: Qpn, params: &StreamParams) -> Result<(), AttachError> {
        let slot = self.streams.slot(qpn).ok_or(AttachError::NoSuchQp)?;
        let sink = self.entropy.next_u32().max(1);
        let attached = self.with_stream(now, slot, |qp, resources| qp.attach(resources, params, sink));
        self.touch_stream(slot);
        attached
    }

    /// Takes bytes that arrived on the stream, however they are cut, and returns whether to read on. After
    /// [`StreamEvent::Receive`], call it with new bytes or none.
    pub fn stream_received(&mut self, now: Time, qpn: Qpn, bytes: &[u8]) -> StreamReading {
        let Some(slot) = self.streams.slot(qpn) else {
            return StreamReading::Closed;
        };
        self.counters.rx_bytes += bytes.len() as u64;
        self.streams.qps[slot].common.traffic.received(0, bytes.len());
        self.with_stream(now, slot, |qp, resources| qp.receive(resources, bytes));
        self.touch_stream(slot);
        self.streams.qps[slot].reading()
    }

    /// Whether the stream is to be read.
    pub fn stream_reading(&self, qpn: Qpn) -> StreamReading {
        self.streams
            .find(qpn)
            .map_or(StreamReading::Closed, IwarpQueuePair::reading)
    }

    /// Writes whole FPDUs to the start of `out`, each of at most `mss` bytes, as many as there are and fit; returns how
    /// many bytes. The caller must send them on the stream, in this order. Zero if there is nothing to send, or no room
    /// for the next FPDU: [`Nic::stream_buffer_len`] is always enough.
    pub fn poll_stream_transmit(&mut self, now: Time, qpn: Qpn, mss: usize, out: &mut [u8]) -> usize {
        let Some(slot) = self.streams.slot(qpn) else {
            return 0;
        };
        let nic = &mut *self;
        let mut resources = resources!(nic, now);
        let qp = &mut nic.streams.qps[slot];
        let length = qp.transmit_to_buffer(&mut resources, mss, out);
        self.transmitted(slot, length);
        length
    }

    /// The same without copying payload: for streams without CRCs and markers, see [`Nic::can_gather_stream`]. Returns
    /// how many bytes were added to `gather`.
    pub fn gather_stream(&mut self, now: Time, qpn: Qpn, mss: usize, gather: &mut dyn StreamGather) -> usize {
        let Some(slot) = self.streams.slot(qpn) else {
            return 0;
        };
        let nic = &mut *self;
        let mut resources = resources!(nic, now);
        let qp = &mut nic.streams.qps[slot];
        let length = match qp.gathers() {
            true => qp.transmit_gathered(&mut resources, mss, gather),
            false => 0,
        };
        self.transmitted(slot, length);
        length
    }

    /// Whether payload of the stream may be sent from where it is: nothing has to be computed from it.
    pub fn can_gather_stream(&self, qpn: Qpn) -> bool {
        self.streams.find(qpn).is_some_and(IwarpQueuePair::gathers)
    }

    /// Whether there may be more to send than was yielded so far. If not, [`StreamEvent::Transmit`] comes again when there is.
    pub fn has_stream_output(&self, qpn: Qpn) -> bool {
        self.streams.find(qpn).is_some_and(|qp| qp.listed)
    }

    /// The length of a buffer in which the longest FPDU fits.
    pub const fn stream_buffer_len() -> usize {
        // The longest ULPDU with its frame, and markers in it.
        68 << 10
    }

    fn transmitted(&mut self, slot: usize, length: usize) {
        self.counters.tx_bytes += length as u64;
        let qp = &mut self.streams.qps[slot];
        qp.common.traffic.sent(0, length);
        qp.listed = length > 0 && qp.has_output();
        self.collect_signals(slot);
        self.schedule_stream_timer(slot);
    }

    /// TCP has taken so many more bytes of what [`Nic::poll_stream_transmit`] yielded.
    pub fn stream_written(&mut self, now: Time, qpn: Qpn, bytes: usize) {
        if let Some(slot) = self.streams.slot(qpn) {
            self.with_stream(now, slot, |qp, resources| qp.written(resources, bytes as u64));
            self.touch_stream(slot);
        }
    }

    /// The stream has come to its end.
    pub fn stream_closed(&mut self, now: Time, qpn: Qpn, closed: StreamClosed) {
        if let Some(slot) = self.streams.slot(qpn) {
            self.with_stream(now, slot, |qp, resources| qp.closed(resources, closed));
            self.touch_stream(slot);
        }
    }

    /// Receives were posted to shared queues: [signals](StreamEvent::Receive) streams that wait for one. Receives
    /// posted to a queue pair's own queue are noticed without this call.
    pub fn wake_blocked_streams(&mut self) {
        for slot in std::mem::take(&mut self.streams.waiting) {
            let Some(qp) = self.streams.qps.get_mut(slot).filter(|qp| qp.waits) else {
                continue;
            };
            qp.waits = false;
            qp.wake_blocked();
            self.collect_signals(slot);
        }
    }

    /// Whether something is to be done with a stream.
    pub fn has_stream_events(&self) -> bool {
        !self.streams.events.is_empty()
    }

    /// Whether a stream waits for a receive: a caller that posts to a shared queue then calls
    /// [`Nic::wake_blocked_streams`].
    pub fn has_blocked_streams(&self) -> bool {
        !self.streams.waiting.is_empty()
    }

    /// What is to be done with a stream next.
    pub fn poll_stream_event(&mut self) -> Option<StreamEvent> {
        self.streams.events.pop_front()
    }

    pub(super) fn destroy_stream_qp(&mut self, now: Time, qpn: Qpn) -> bool {
        let Some(slot) = self.streams.by_qpn.remove(&qpn.value()) else {
            return false;
        };
        self.let_number_rest(now, qpn, None);
        self.recorder.forget(qpn);
        let mut qp = self.streams.qps.remove(slot);
        qp.reset();
        self.outbox.retain(|pending| pending.completion.qpn != qpn);
        qp.common.send_cq.purge(qpn);
        qp.common.recv_cq.purge(qpn);
        // The end of the stream is still reported: the program may wait for it, and the stream is open.
        self.streams.events.retain(|event| {
            event.qpn() != qpn || matches!(event, StreamEvent::Disconnected(..) | StreamEvent::Close(_))
        });
        if let Some(end) = qp.signals.disconnected {
            self.streams.events.push_back(StreamEvent::Disconnected(qpn, end));
        }
        if qp.signals.close {
            self.streams.events.push_back(StreamEvent::Close(qpn));
        }
        true
    }

    pub(super) fn modify_stream_qp(
        &mut self,
        now: Time,
        qpn: Qpn,
        set: &QpAttributes,
    ) -> Result<(), ModifyError> {
        let slot = self.streams.slot(qpn).ok_or(ModifyError::NoSuchQp)?;
        if set.port.is_some_and(|port| port != 1) {
            return Err(ModifyError::Invalid(Named(AttributeMask::PORT)));
        }
        let modified = self.with_stream(now, slot, |qp, resources| qp.modify(resources, set));
        self.touch_stream(slot);
        modified
    }

    pub(super) fn post_stream_send(
        &mut self,
        now: Time,
        qpn: Qpn,
        request: &SendRequest<'_>,
    ) -> Result<(), PostError> {
        let slot = self.streams.slot(qpn).ok_or(PostError::NoSuchQp)?;
        let posted = self.with_stream(now, slot, |qp, resources| qp.post_send(resources, request));
        self.list_stream(slot);
        posted
    }

    pub(super) fn post_stream_recv(&mut self, qpn: Qpn, request: &RecvRequest<'_>) -> Result<(), PostError> {
        let slot = self.streams.slot(qpn).ok_or(PostError::NoSuchQp)?;
        let posted = self.with_stream(Time::ZERO, slot, |qp, resources| qp.post_recv(resources, request));
        self.collect_signals(slot);
        posted
    }

    /// Puts those for which `affected` holds in the error state; they cannot tell their peers.
    pub(super) fn fail_streams(
        &mut self,
        now: Time,
        cause: &QpEvent,
        affected: impl Fn(&IwarpQueuePair) -> bool,
    ) {
        let slots: Vec<usize> = self.streams.qps.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            let qp = &self.streams.qps[slot];
            if !affected(qp) || matches!(qp.common.state, QpState::Reset | QpState::Error) {
                continue;
            }
            let qpn = qp.common.qpn;
            self.recorder.record(now, qpn, cause.clone());
            self.events.push_back(Event::QpFatal(qpn));
            let error = QpAttributes {
                state: Some(QpState::Error),
                ..QpAttributes::default()
            };
            let failed = self.with_stream(now, slot, |qp, resources| qp.modify(resources, &error));
            debug_assert!(failed.is_ok(), "every state leads to the error state");
            self.touch_stream(slot);
        }
    }

    pub(super) fn handle_stream_timer(&mut self, now: Time, token: Token) {
        let slot = token.slot as usize;
        let qp = self.streams.qps.get_mut(slot);
        let Some(qp) = qp.filter(|qp| qp.generation == token.generation) else {
            return;
        };
        // An entry may be left over from a deadline that moved.
        if qp.scheduled.is_some_and(|at| at <= now) {
            qp.scheduled = None;
        }
        if qp.deadline().is_some_and(|at| at <= now) {
            self.with_stream(now, slot, |qp, resources| qp.handle_timeout(resources));
        }
        self.touch_stream(slot);
    }

    fn with_stream<T>(
        &mut self,
        now: Time,
        slot: usize,
        work: impl FnOnce(&mut IwarpQueuePair, &mut NicResources<'_>) -> T,
    ) -> T {
        let nic = &mut *self;
        let mut resources = resources!(nic, now);
        work(&mut nic.streams.qps[slot], &mut resources)
    }

    /// Something about the queue pair changed.
    fn touch_stream(&mut self, slot: usize) {
        self.collect_signals(slot);
        self.list_stream(slot);
        self.schedule_stream_timer(slot);
    }

    fn list_stream(&mut self, slot: usize) {
        let qp = &mut self.streams.qps[slot];
        if !qp.listed && qp.has_output() {
            qp.listed = true;
            self.streams
                .events
                .push_back(StreamEvent::Transmit(qp.common.qpn));
        }
    }

    fn collect_signals(&mut self, slot: usize) {
        let qp = &mut self.streams.qps[slot];
        if !qp.waits && qp.reading() == StreamReading::Blocked {
            qp.waits = true;
            self.streams.waiting.push(slot);
        }
        let qpn = qp.common.qpn;
        if qp.signals == Signals::default() {
            return;
        }
        let signals = std::mem::take(&mut qp.signals);
        if signals == Signals::default() {
            return;
        }
        let events = [
            signals.established.then_some(StreamEvent::Established(qpn)),
            signals.receive.then_some(StreamEvent::Receive(qpn)),
            signals
                .disconnected
                .map(|end| StreamEvent::Disconnected(qpn, end)),
            signals.finish.then_some(StreamEvent::Finish(qpn)),
            signals.close.then_some(StreamEvent::Close(qpn)),
        ];
        self.streams.events.extend(events.into_iter().flatten());
    }

    fn schedule_stream_timer(&mut self, slot: usize) {
        let qp = &mut self.streams.qps[slot];
        let Some(at) = qp.deadline() else { return };
        if qp.scheduled.is_none_or(|earliest| at < earliest) {
            qp.scheduled = Some(at);
            let token = Token {
                slot: slot as u32,
                generation: qp.generation,
                timer: Timer::Stream,
            };
            self.timers.schedule(at, token);
        }
    }
}
