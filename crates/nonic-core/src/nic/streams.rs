//! iWARP queue pairs of a NIC: moves the bytes of their streams in and out, and reports what to do with the streams.
//!
//! The calls for a stream, and when each answer may change:
//! - [`Nic::stream_attach`], [`Nic::stream_received`], [`Nic::stream_written`], [`Nic::stream_closed`],
//!   [`Nic::handle_timeout`] and whatever is done to the queue pair itself may lead to [events](StreamEvent);
//!   [`Nic::poll_stream_event`] yields them until `None`.
//! - [`Nic::poll_stream_transmit`] yields bytes until it has none. A SEND or WRITE completes when
//!   [`Nic::stream_written`] says that TCP has taken its last byte.

use super::queue_pairs::{QueuePair, Transport};
use super::{CreateError, Nic, QpInit};
use crate::iwarp::{
    AttachError, IwarpQueuePair, Signals, StreamClosed, StreamEvent, StreamGather, StreamParams,
    StreamReading,
};
use crate::queue_pair::{AttributeMask, ModifyError, Named, QpAttributes, QpState};
use crate::resources::NicResources;
use crate::time::Time;
use nonic_wire::{Qpn, Service};
use std::collections::VecDeque;

/// What is to be done with the streams of iWARP queue pairs.
#[derive(Debug, Default)]
pub(super) struct StreamEvents {
    pub(super) events: VecDeque<StreamEvent>,
    /// Slots of queue pairs that wait, or have waited, for a receive of a shared queue.
    waiting: Vec<usize>,
}

impl StreamEvents {
    /// A queue pair was destroyed. That its connection is over has to be known all the same: the program may wait for that, and its
    /// stream is open.
    pub(super) fn forget(&mut self, slot: usize, qpn: Qpn, qp: &IwarpQueuePair) {
        let left = &qp.signals;
        if qp.waits {
            self.waiting.retain(|waiting| *waiting != slot);
        }
        self.events.retain(|event| {
            event.qpn() != qpn || matches!(event, StreamEvent::Disconnected(..) | StreamEvent::Close(_))
        });
        self.push(
            qpn,
            &Signals {
                disconnected: left.disconnected,
                close: left.close,
                ..Signals::default()
            },
        );
    }

    fn push(&mut self, qpn: Qpn, signals: &Signals) {
        let events = [
            signals.established.then_some(StreamEvent::Established(qpn)),
            signals.receive.then_some(StreamEvent::Receive(qpn)),
            signals
                .disconnected
                .map(|end| StreamEvent::Disconnected(qpn, end)),
            signals.finish.then_some(StreamEvent::Finish(qpn)),
            signals.close.then_some(StreamEvent::Close(qpn)),
        ];
        self.events.extend(events.into_iter().flatten());
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
        let common = init.into_common(qpn, QpState::Init);
        let qp = IwarpQueuePair::new(common, self.config.iwarp);
        Ok(self.insert_qp(qpn, Transport::Iwarp(qp)))
    }

    /// Whether a queue pair is one of iWARP.
    pub fn is_iwarp(&self, qpn: Qpn) -> bool {
        self.find_iwarp(qpn).is_some()
    }

    /// Connects a queue pair: start-up has agreed on a stream. A responder attaches before its Reply is sent.
    pub fn stream_attach(&mut self, now: Time, qpn: Qpn, params: &StreamParams) -> Result<(), AttachError> {
        let slot = self.stream_slot(qpn).ok_or(AttachError::NoSuchQp)?;
        let sink = self.entropy.next_u32().max(1);
        let attached = self.with_stream(now, slot, |qp, resources| qp.attach(resources, params, sink));
        self.touch(slot);
        attached
    }

    /// Takes bytes that arrived on the stream, however they are cut, and returns whether to read on. After
    /// [`StreamEvent::Receive`], call it with new bytes or none.
    pub fn stream_received(&mut self, now: Time, qpn: Qpn, bytes: &[u8]) -> StreamReading {
        let Some(slot) = self.stream_slot(qpn) else {
            return StreamReading::Closed;
        };
        self.resources.counters.rx_bytes += bytes.len() as u64;
        self.qps.iwarp_mut(slot).common.traffic.received(0, bytes.len());
        self.with_stream(now, slot, |qp, resources| qp.receive(resources, bytes));
        self.touch(slot);
        self.qps.iwarp(slot).reading()
    }

    /// Whether the stream is to be read.
    pub fn stream_reading(&self, qpn: Qpn) -> StreamReading {
        self.find_iwarp(qpn)
            .map_or(StreamReading::Closed, IwarpQueuePair::reading)
    }

    /// Writes whole FPDUs to the start of `out`, each of at most `mss` bytes, as many as there are and fit; returns how
    /// many bytes. The caller must send them on the stream, in this order. Zero if there is nothing to send, or no room
    /// for the next FPDU: [`Nic::stream_buffer_len`] is always enough.
    pub fn poll_stream_transmit(&mut self, now: Time, qpn: Qpn, mss: usize, out: &mut [u8]) -> usize {
        let Some(slot) = self.stream_slot(qpn) else {
            return 0;
        };
        let nic = &mut *self;
        let resources = nic.resources.at(now);
        let qp = nic.qps.iwarp_mut(slot);
        let length = qp.transmit_to_buffer(resources, mss, out);
        self.transmitted(slot, length);
        length
    }

    /// The same without copying payload: for streams without CRCs and markers, see [`Nic::can_gather_stream`]. Returns
    /// how many bytes were added to `gather`.
    pub fn gather_stream(&mut self, now: Time, qpn: Qpn, mss: usize, gather: &mut dyn StreamGather) -> usize {
        let Some(slot) = self.stream_slot(qpn) else {
            return 0;
        };
        let nic = &mut *self;
        let resources = nic.resources.at(now);
        let qp = nic.qps.iwarp_mut(slot);
        let length = match qp.gathers() {
            true => qp.transmit_gathered(resources, mss, gather),
            false => 0,
        };
        self.transmitted(slot, length);
        length
    }

    /// Whether payload of the stream may be sent from where it is: nothing has to be computed from it.
    pub fn can_gather_stream(&self, qpn: Qpn) -> bool {
        self.find_iwarp(qpn).is_some_and(IwarpQueuePair::gathers)
    }

    /// Whether there may be more to send than was yielded so far. If not, [`StreamEvent::Transmit`] comes again when there is.
    pub fn has_stream_output(&self, qpn: Qpn) -> bool {
        self.find_iwarp(qpn).is_some_and(|qp| qp.listed)
    }

    /// The length of a buffer in which the longest FPDU fits.
    pub const fn stream_buffer_len() -> usize {
        // The longest ULPDU with its frame, and markers in it.
        68 << 10
    }

    fn transmitted(&mut self, slot: usize, length: usize) {
        self.resources.counters.tx_bytes += length as u64;
        let qp = self.qps.iwarp_mut(slot);
        qp.common.traffic.sent(0, length);
        qp.listed = length > 0 && qp.has_output();
        self.collect_signals(slot);
        self.schedule_timers(slot);
    }

    /// TCP has taken so many more bytes of what [`Nic::poll_stream_transmit`] yielded.
    pub fn stream_written(&mut self, now: Time, qpn: Qpn, bytes: usize) {
        if let Some(slot) = self.stream_slot(qpn) {
            self.with_stream(now, slot, |qp, resources| qp.written(resources, bytes as u64));
            self.touch(slot);
        }
    }

    /// The stream has come to its end.
    pub fn stream_closed(&mut self, now: Time, qpn: Qpn, closed: StreamClosed) {
        if let Some(slot) = self.stream_slot(qpn) {
            self.with_stream(now, slot, |qp, resources| qp.closed(resources, closed));
            self.touch(slot);
        }
    }

    /// Receives were posted to shared queues: [signals](StreamEvent::Receive) streams that wait for one. Receives
    /// posted to a queue pair's own queue are noticed without this call.
    pub fn wake_blocked_streams(&mut self) {
        for slot in std::mem::take(&mut self.streams.waiting) {
            let qp = self.qps.iwarp_mut(slot);
            qp.waits = false;
            qp.wake_blocked();
            self.collect_signals(slot);
        }
    }

    /// Whether something is to be done with a stream.
    pub fn has_stream_events(&self) -> bool {
        !self.streams.events.is_empty()
    }

    /// Whether a stream waits for a receive of a shared queue: a caller that posts to a shared queue then calls
    /// [`Nic::wake_blocked_streams`].
    pub fn has_blocked_streams(&self) -> bool {
        !self.streams.waiting.is_empty()
    }

    /// What is to be done with a stream next.
    pub fn poll_stream_event(&mut self) -> Option<StreamEvent> {
        self.streams.events.pop_front()
    }

    pub(super) fn modify_stream_qp(
        &mut self,
        now: Time,
        slot: usize,
        set: &QpAttributes,
    ) -> Result<(), ModifyError> {
        if set.port.is_some_and(|port| port != 1) {
            return Err(ModifyError::Invalid(Named(AttributeMask::PORT)));
        }
        let modified = self.with_stream(now, slot, |qp, resources| qp.modify(resources, set));
        self.touch(slot);
        modified
    }

    /// Where an iWARP queue pair is.
    fn stream_slot(&self, qpn: Qpn) -> Option<usize> {
        let slot = self.qps.slot(qpn)?;
        self.qps[slot].as_iwarp().map(|_| slot)
    }

    fn find_iwarp(&self, qpn: Qpn) -> Option<&IwarpQueuePair> {
        self.qps.find(qpn).and_then(QueuePair::as_iwarp)
    }

    fn with_stream<T>(
        &mut self,
        now: Time,
        slot: usize,
        work: impl FnOnce(&mut IwarpQueuePair, &mut NicResources) -> T,
    ) -> T {
        let nic = &mut *self;
        let resources = nic.resources.at(now);
        work(nic.qps.iwarp_mut(slot), resources)
    }

    /// What the stream of a queue pair is to be told becomes events. Queue pairs of RoCE have none.
    pub(super) fn collect_signals(&mut self, slot: usize) {
        let Transport::Iwarp(qp) = &mut self.qps[slot].transport else {
            return;
        };
        let shares = qp.common.rq.srq_id().is_some();
        if shares && !qp.waits && qp.reading() == StreamReading::Blocked {
            qp.waits = true;
            self.streams.waiting.push(slot);
        }
        if qp.signals != Signals::default() {
            let signals = std::mem::take(&mut qp.signals);
            self.streams.push(qp.common.qpn, &signals);
        }
    }
}
