//! What a queue pair's code may touch besides the queue pair itself: the rest of the NIC, but for what says which queue pair is next.

use crate::counters::Counters;
use crate::direct::DirectAccess;
use crate::lanes::Lanes;
use crate::outbox::Outbox;
use crate::record::{FailedRequest, QpEvent, Recorder};
use crate::roce::rc::ReorderMemory;
use crate::roce::window::PeerTable;
use crate::roce::xrc::XrcTable;
use crate::shortage::Shortage;
use crate::time::Time;
use crate::verbs::cq::CompletionQueue;
use crate::verbs::event::Event;
use crate::verbs::memory::Keys;
use crate::verbs::rq::{ReceiveQueue, Receives, RecvWqe, SrqId};
use crate::verbs::work::{Completion, Status};
use nonic_wire::Qpn;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

/// Everything a queue pair's code may touch besides the queue pair itself. [`NicConfig`](crate::NicConfig) makes it.
pub(crate) struct NicResources {
    /// When the call was made that is under way.
    pub(crate) now: Time,
    pub(crate) keys: Keys,
    pub(crate) outbox: Outbox,
    pub(crate) events: VecDeque<Event>,
    pub(crate) counters: Counters,
    pub(crate) peers: PeerTable,
    /// Room for packets that come out of order.
    pub(crate) reorder: ReorderMemory,
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) xrc: XrcTable,
    /// Where what is out of the ordinary is written down.
    pub(crate) recorder: Recorder,
    /// The way into the memory of peers on this host, if there is one.
    pub(crate) direct: Option<Box<dyn DirectAccess>>,
    /// The lanes to processes of this host, if there are any.
    pub(crate) lanes: Option<Box<dyn Lanes>>,
    /// Bytes of payload in a record.
    pub(crate) record_piece: u32,
    /// The most bytes that direct access moves at once.
    pub(crate) direct_piece: u32,
    /// A request of so many bytes is worth waiting for that.
    pub(crate) direct_worth: u32,
    /// The bytes of a SEND of so many are fetched by its receiver.
    pub(crate) pull_worth: u32,
    /// A fault on request: some receives are treated as missing although they are posted.
    pub(crate) missing_receives: Option<Shortage>,
}

impl NicResources {
    /// For a call that was made at this time.
    #[inline]
    pub(crate) fn at(&mut self, now: Time) -> &mut Self {
        self.now = now;
        self
    }

    /// Writes down what happened to a queue pair.
    #[cold]
    pub(crate) fn record(&mut self, qpn: Qpn, event: QpEvent) {
        self.recorder.record(self.now, qpn, event);
    }

    /// Takes the next receive of a queue pair, reporting an SRQ's limit.
    #[inline]
    pub(crate) fn take_recv(&mut self, rq: &Receives) -> Option<RecvWqe> {
        self.receive(rq.srq_id(), || rq.take())
    }

    /// The same for an SRQ.
    pub(crate) fn take_shared_recv(&mut self, rq: &ReceiveQueue) -> Option<RecvWqe> {
        self.receive(Some(rq.id()), || rq.take())
    }

    #[inline]
    fn receive(
        &mut self,
        srq: Option<SrqId>,
        take: impl FnOnce() -> Option<(RecvWqe, bool)>,
    ) -> Option<RecvWqe> {
        let missing = self.missing_receives.as_mut();
        if missing.is_some_and(|missing| missing.strikes()) {
            return None;
        }
        let (wqe, below_limit) = take()?;
        if let (true, Some(srq)) = (below_limit, srq) {
            self.events.push_back(Event::SrqLimit(srq));
        }
        Some(wqe)
    }

    /// Reports the end of a receive.
    #[inline]
    pub(crate) fn complete_recv(&mut self, cq: &Arc<CompletionQueue>, received: Received) {
        let failed = received.completion.status != Status::Success;
        if failed {
            self.record_failed_recv(&received.completion);
        }
        let wakes = received.solicited || failed;
        self.outbox.add(cq, received.completion, wakes);
    }

    #[cold]
    fn record_failed_recv(&mut self, completion: &Completion) {
        if completion.status == Status::Flushed {
            return;
        }
        let failed = FailedRequest {
            wr_id: completion.wr_id,
            opcode: completion.opcode,
            status: completion.status,
            length: u64::from(completion.byte_len),
            remote: None,
        };
        self.record(completion.qpn, QpEvent::Failed(Box::new(failed)));
    }
}

/// One of the NIC's own addresses.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// The address: an entry of the GID table.
    pub ip: IpAddr,
    /// The UDP port packets leave from.
    pub port: u16,
}

/// A receive about to be reported.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) completion: Completion,
    pub(crate) solicited: bool,
}
