//! What queue pairs of every service have in common: identity, attributes in force, and how their work
//! requests complete.

use super::attributes::{AckTimeout, Path, PathMtu, QpAttributes, RnrTimer};
use super::state::QpState;
use crate::counters::Counters;
use crate::cq::CompletionQueue;
use crate::event::Event;
use crate::memory::{Access, KeyTable, PdId};
use crate::peer::{Peer, PeerId, PeerTable};
use crate::rq::{ReceiveQueue, RecvWqe};
use crate::time::Time;
use crate::work::{Completion, CompletionOpcode, SendFlags, SendOp, Status};
use crate::wqe::SendWqe;
use crate::xrc::{XrcDomain, XrcTable};
use nonic_wire::{Bth, Flow, Opcode, Operation, Psn, Qpn, Service};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

/// Queue sizes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct QpCapacity {
    /// Send-queue requests outstanding.
    pub max_send_wr: u32,
    /// Receives outstanding; ignored with an SRQ.
    pub max_recv_wr: u32,
    /// Gather elements of a send.
    pub max_send_sge: u32,
    /// Scatter elements of a receive.
    pub max_recv_sge: u32,
    /// Bytes of inline data.
    pub max_inline_data: u32,
}

impl Default for QpCapacity {
    fn default() -> Self {
        QpCapacity {
            max_send_wr: 128,
            max_recv_wr: 128,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline_data: 512,
        }
    }
}

/// Everything a queue pair's code may touch besides the queue pair itself.
pub(crate) struct Context<'a> {
    pub(crate) now: Time,
    pub(crate) keys: &'a KeyTable,
    pub(crate) outbox: &'a mut Vec<Pending>,
    pub(crate) events: &'a mut VecDeque<Event>,
    pub(crate) counters: &'a mut Counters,
    pub(crate) peers: &'a mut PeerTable,
    pub(crate) endpoints: &'a [Endpoint],
    pub(crate) xrc: &'a XrcTable,
}

impl Context<'_> {
    /// Takes the next receive of a queue, reporting an SRQ's limit.
    pub(crate) fn take_recv(&mut self, rq: &ReceiveQueue) -> Option<RecvWqe> {
        let (wqe, below_limit) = rq.take()?;
        if let (true, Some(srq)) = (below_limit, rq.srq_id()) {
            self.events.push_back(Event::SrqLimit(srq));
        }
        Some(wqe)
    }

    /// Reports the end of a receive.
    pub(crate) fn complete_recv(&mut self, cq: &Arc<CompletionQueue>, received: Received) {
        let wakes = received.solicited || received.completion.status != Status::Success;
        self.outbox.push(Pending {
            cq: Arc::clone(cq),
            completion: received.completion,
            wakes,
        });
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

/// A completion that waits for the packets it depends on to leave.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) cq: Arc<CompletionQueue>,
    pub(crate) completion: Completion,
    pub(crate) wakes: bool,
}

/// The part every service shares.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) qpn: Qpn,
    pub(crate) service: Service,
    /// For an XRC target: whose SRQs it serves.
    pub(crate) domain: Option<XrcDomain>,
    pub(crate) state: QpState,
    pub(crate) pd: PdId,
    pub(crate) send_cq: Arc<CompletionQueue>,
    pub(crate) recv_cq: Arc<CompletionQueue>,
    pub(crate) rq: Arc<ReceiveQueue>,
    pub(crate) capacity: QpCapacity,
    pub(crate) signal_all: bool,
    pub(crate) access: Access,
    pub(crate) qkey: u32,
    pub(crate) path: Option<Path>,
    /// Addresses of our packets to the peer; meaningful once `path` is set.
    pub(crate) flow: Flow,
    pub(crate) peer: Option<PeerId>,
    pub(crate) mtu: u32,
    pub(crate) dest_qpn: Qpn,
    pub(crate) timeout: AckTimeout,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) min_rnr_timer: RnrTimer,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) sq_psn: Psn,
    pub(crate) rq_psn: Psn,
    /// Whether the peer was heard while still in RTR.
    pub(crate) heard: bool,
}

impl Common {
    /// Whether it is the half of an XRC connection that only sends.
    pub(crate) fn is_initiator(&self) -> bool {
        self.service == Service::Xrc && self.domain.is_none()
    }

    /// A base transport header to the connected peer.
    pub(crate) fn bth(&self, operation: Operation, psn: Psn) -> Bth {
        let opcode = Opcode::new(self.service, operation).expect("the service offers what was posted");
        Bth::new(opcode, self.dest_qpn, psn)
    }

    pub(crate) fn peer<'a>(&self, context: &'a mut Context<'_>) -> Option<&'a mut Peer> {
        self.peer.map(|id| context.peers.peer(id))
    }

    /// The attributes in force.
    pub(crate) fn attributes(&self) -> QpAttributes {
        QpAttributes {
            state: Some(self.state),
            access: Some(self.access),
            pkey_index: Some(0),
            port: Some(1),
            qkey: Some(self.qkey),
            path: self.path,
            path_mtu: PathMtu::from_bytes(self.mtu),
            timeout: Some(self.timeout),
            retry_count: Some(self.retry_count),
            rnr_retry: Some(self.rnr_retry),
            rq_psn: Some(self.rq_psn),
            max_rd_atomic: Some(self.max_rd_atomic),
            min_rnr_timer: Some(self.min_rnr_timer),
            sq_psn: Some(self.sq_psn),
            max_dest_rd_atomic: Some(self.max_dest_rd_atomic),
            dest_qpn: Some(self.dest_qpn),
        }
    }

    /// Carries out a request that concerns this NIC alone.
    pub(crate) fn run_local(&self, context: &Context<'_>, op: SendOp) -> Result<(), Status> {
        let keys = context.keys;
        match op {
            SendOp::LocalInvalidate(rkey) => keys
                .invalidate(rkey, self.pd, self.qpn)
                .map_err(|_| Status::LocalQpOperation),
            SendOp::BindWindow(bind) => keys
                .bind_window(&bind, self.pd, self.qpn)
                .map_err(|_| Status::WindowBind),
            _ => Ok(()),
        }
    }

    /// Ends a send-queue request.
    pub(crate) fn complete_send(&self, context: &mut Context<'_>, wqe: &SendWqe, status: Status) {
        let signaled = self.signal_all || wqe.flags.contains(SendFlags::SIGNALED);
        if status == Status::Success && !signaled {
            return;
        }
        let byte_len = match wqe.op {
            SendOp::Read(_) => wqe.length,
            op if op.is_atomic() => 8,
            _ => 0,
        };
        let completion = self.completion(wqe.wr_id, status, wqe.op.completion_opcode(), byte_len);
        context.outbox.push(Pending {
            cq: Arc::clone(&self.send_cq),
            completion,
            wakes: status != Status::Success,
        });
    }

    /// Ends a receive.
    pub(crate) fn complete_recv(&self, context: &mut Context<'_>, received: Received) {
        context.complete_recv(&self.recv_cq, received);
    }

    /// A receive's completion, to be refined by the caller.
    pub(crate) fn received(&self, wqe: &RecvWqe, status: Status, byte_len: u32) -> Received {
        let completion = self.completion(wqe.wr_id, status, CompletionOpcode::Recv, byte_len);
        Received {
            completion,
            solicited: false,
        }
    }

    /// Takes the next receive, reporting the SRQ's limit.
    pub(crate) fn take_recv(&self, context: &mut Context<'_>) -> Option<RecvWqe> {
        context.take_recv(&self.rq)
    }

    fn completion(&self, wr_id: u64, status: Status, opcode: CompletionOpcode, byte_len: u32) -> Completion {
        Completion {
            wr_id,
            status,
            opcode,
            byte_len,
            immediate: None,
            invalidated_rkey: None,
            qpn: self.qpn,
            src_qp: Qpn::new(0),
            grh: false,
            ipv4: false,
        }
    }
}

/// A receive about to be reported.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) completion: Completion,
    pub(crate) solicited: bool,
}

/// What came of asking a queue pair for one packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Emit {
    /// A packet of this length was written, ICRC still missing.
    Packet(usize),
    /// There is one, but it does not fit behind the ones already in the batch.
    NotInBatch,
    /// Nothing to send until something happens.
    Idle,
    /// There is something, but the window to the peer has no room for this many bytes.
    Window(u32),
    /// There is something of this many bytes, but others wait for the window and it has its fair share.
    FairShare(u32),
    /// The queue pair failed: flush it.
    Failed,
}

/// What a packet must satisfy to join a batch.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Batch {
    /// Length limit: that of the batch's first packet.
    pub(crate) max_len: usize,
    /// Whether the batch is still empty.
    pub(crate) empty: bool,
    /// Whether the queue pair stood in line for the window and it is its turn.
    pub(crate) in_turn: bool,
    /// Where the batch goes (meaningless while it is empty); connected services always go the same way.
    pub(crate) flow: Flow,
    pub(crate) dest_qpn: Qpn,
}
