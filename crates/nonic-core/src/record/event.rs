//! The recorded events of a queue pair, with the numbers that an explanation needs.

use crate::queue_pair::QpState;
use crate::time::Time;
use crate::verbs::memory::{Access, Key, KeyError};
use crate::verbs::work::{CompletionOpcode, SendOp, Status};
use nonic_wire::iwarp::TerminateCode;
use nonic_wire::{NakCode, Operation, Psn};
use std::fmt;

/// An event and when it was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recorded {
    /// When; of several equal ones, when the last was.
    pub at: Time,
    /// How often in a row.
    pub times: u32,
    /// What happened.
    pub event: QpEvent,
}

/// Something out of the ordinary, or a change of state.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum QpEvent {
    /// The queue pair went to this state.
    Moved(QpState),
    /// A message of the peer found no receive. With a reliable service the peer was asked to come again.
    NoReceive,
    /// The peer had no receive, and asked us to come again.
    PeerNotReady {
        /// How often we may still try; `None` for any number of times.
        retries_left: Option<u8>,
    },
    /// The peer reported that this packet is missing: everything from there on is sent again.
    PeerMissesPacket(Psn),
    /// The peer waits for a packet that it was never sent.
    PeerExpectsOther {
        /// What it waits for, if it says so.
        expected: Option<Psn>,
        /// What was to be sent first.
        first: Psn,
    },
    /// Nothing was heard for longer than answers take: what is under way counts as lost.
    Silence,
    /// The peer did not answer within the timeout of the queue pair.
    TimedOut {
        /// How often the timeout may still pass.
        retries_left: u8,
        /// Whether it has ever answered.
        answered: bool,
    },
    /// The peer refused a request.
    PeerRefused(NakCode),
    /// The peer's host says that its queue pair was destroyed.
    PeerGone,
    /// The peer ended an iWARP stream.
    PeerTerminated(TerminateCode),
    /// We ended an iWARP stream.
    Terminated(TerminateCode),
    /// An iWARP stream ended, and no Terminate says why.
    StreamLost(StreamLoss),
    /// A request of the peer was refused.
    Refused(Box<RefusedRequest>),
    /// A request of the peer was dropped, and the service has no way to tell it.
    Dropped(RequestKind, RefusalReason),
    /// A key of this side does not permit what a work request needs.
    LocalFault(Box<LocalFault>),
    /// A work request of this side ended with an error that is its own. Those that are flushed are not written down.
    Failed(Box<FailedRequest>),
    /// The completion queue was full: a completion is lost.
    QueueOverflow,
    /// The device has failed.
    DeviceFailed,
}

/// How an iWARP stream ended without a Terminate.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum StreamLoss {
    /// The peer closed it.
    PeerClosed,
    /// The TCP connection broke, or ended in the middle of an FPDU.
    Broken,
    /// The message that the initiator promised did not come.
    NotReady,
}

/// What a peer asked for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub enum RequestKind {
    Send,
    Write,
    Read,
    Atomic,
    AtomicWrite,
    Flush,
    Other,
}

impl RequestKind {
    pub(crate) fn of(operation: Operation) -> Self {
        match operation {
            Operation::ReadRequest => RequestKind::Read,
            Operation::AtomicWrite => RequestKind::AtomicWrite,
            Operation::Flush => RequestKind::Flush,
            operation if operation.is_send() => RequestKind::Send,
            operation if operation.is_write() => RequestKind::Write,
            operation if operation.is_atomic() => RequestKind::Atomic,
            _ => RequestKind::Other,
        }
    }

    /// Whether it names memory of this side.
    pub(crate) fn names_memory(self) -> bool {
        !matches!(self, RequestKind::Send | RequestKind::Other)
    }
}

impl fmt::Display for RequestKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RequestKind::Send => "SEND",
            RequestKind::Write => "WRITE",
            RequestKind::Read => "READ",
            RequestKind::Atomic => "atomic",
            RequestKind::AtomicWrite => "ATOMIC_WRITE",
            RequestKind::Flush => "FLUSH",
            RequestKind::Other => "request",
        })
    }
}

/// Why a request of the peer was not executed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RefusalReason {
    /// The queue pair does not permit requests of this kind.
    Operation,
    /// Its length is above that of the longest message, or not what was announced.
    Length,
    /// The address of a word is not a multiple of eight.
    Alignment,
    /// A memory key does not permit it.
    Key(KeyError),
    /// The memory under the key is gone.
    MemoryGone,
    /// A packet is not as long as the path MTU of this side has it.
    PacketLength {
        /// Bytes of payload that it had.
        payload: u32,
        /// The path MTU of this side.
        mtu: u32,
    },
    /// The packets of a message are mixed with those of another, or it lacks its beginning.
    Sequence,
    /// More READs and atomics at a time than `max_dest_rd_atomic`.
    TooManyFetches(u8),
    /// It names a shared receive queue that is not there.
    NoSharedReceiveQueue,
    /// The message is longer than the receive it was for.
    ReceiveTooShort {
        /// Bytes of the message that had come.
        message: u32,
        /// Bytes that the receive had room for.
        receive: u32,
    },
    /// A key of the receive does not permit to write there.
    ReceiveKey,
    /// No receive is posted.
    NoReceive,
    /// The Q_Key is not the queue pair's.
    Qkey,
    /// It makes no sense for another reason.
    Malformed,
}

/// A request of the peer that was refused.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RefusedRequest {
    /// What it asked for.
    pub kind: RequestKind,
    /// Why it was refused.
    pub reason: RefusalReason,
    /// The address it named; like the next two 0 if it named no memory.
    pub va: u64,
    /// How many bytes.
    pub length: u64,
    /// With which key.
    pub rkey: u32,
    /// What was registered under that key.
    pub key: Option<KeyExtent>,
    /// Number of the protection domain that the key must belong to.
    pub domain: u32,
    /// What the queue pair permits its peer.
    pub permitted: Access,
}

/// What is registered under a key.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct KeyExtent {
    /// The first address.
    pub iova: u64,
    /// How many bytes.
    pub length: u64,
    /// What it permits.
    pub access: Access,
    /// Number of the protection domain it belongs to.
    pub pd: u32,
}

impl KeyExtent {
    pub(crate) fn of(key: &Key) -> Self {
        KeyExtent {
            iova: key.iova(),
            length: key.length(),
            access: key.access(),
            pd: key.pd().value(),
        }
    }
}

/// A key of this side that does not permit what a work request needs.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LocalFault {
    /// The key that was named.
    pub lkey: u32,
    /// The address that was named.
    pub addr: u64,
    /// How many bytes.
    pub length: u64,
    /// What is wrong with it.
    pub error: KeyError,
    /// What is registered under the key.
    pub key: Option<KeyExtent>,
}

/// A work request of this side that failed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FailedRequest {
    /// The program's number for it.
    pub wr_id: u64,
    /// What it was.
    pub opcode: CompletionOpcode,
    /// How it ended.
    pub status: Status,
    /// How many bytes it was about.
    pub length: u64,
    /// The memory of the peer that it named: address and key.
    pub remote: Option<(u64, u32)>,
}

impl FailedRequest {
    /// What a send-queue request names of the peer.
    pub(crate) fn remote_of(op: SendOp) -> Option<(u64, u32)> {
        match op {
            SendOp::Write(remote)
            | SendOp::WriteWithImmediate(remote, _)
            | SendOp::Read(remote)
            | SendOp::AtomicWrite(remote)
            | SendOp::CompareSwap { remote, .. }
            | SendOp::FetchAdd { remote, .. } => Some((remote.va, remote.rkey)),
            SendOp::Flush(flush) => Some((flush.remote.va, flush.remote.rkey)),
            _ => None,
        }
    }
}
