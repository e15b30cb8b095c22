//! The model of a run: hosts, queues, what was posted and what is expected of it.
//!
//! Everything here is plain data, drawn by the planner before the run and updated by the checkers during it. Indices
//! into the vectors of [`super::World`] take the place of references.

use super::content::{Content, Pieces};
use nonic_core::{
    Access, Arm, CompletionQueue, PathMtu, PdId, Psn, Qpn, ReceiveQueue, RnrTimer, SendFlags, Service, Status,
};
use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

/// One life of a NIC: a station has a second one after a crash.
pub(crate) struct Host {
    pub(crate) station: usize,
    pub(crate) ip: IpAddr,
    pub(crate) seed: u64,
    pub(crate) up: bool,
    pub(crate) crashed: bool,
    pub(crate) pd: Option<PdId>,
    /// The key of the pool: local and remote reading.
    pub(crate) pool_key: u32,
    /// Keys that were registered and given to no peer.
    pub(crate) secret_keys: usize,
    /// The arena with its words for atomics.
    pub(crate) commons: usize,
    pub(crate) cqs: Vec<usize>,
    pub(crate) srqs: Vec<usize>,
}

/// A completion queue.
pub(crate) struct Cq {
    pub(crate) capacity: usize,
    /// Made too small on purpose.
    pub(crate) may_overflow: bool,
    pub(crate) overflowed: bool,
    /// How the program arms it, if it waits for notifications.
    pub(crate) arming: Option<Arm>,
    pub(crate) queue: Option<Arc<CompletionQueue>>,
}

/// A shared receive queue.
pub(crate) struct Srq {
    pub(crate) host: usize,
    pub(crate) arena: usize,
    pub(crate) depth: usize,
    pub(crate) limit: usize,
    pub(crate) armed: bool,
    /// Receives taken from it when last looked.
    pub(crate) taken: usize,
    pub(crate) receives: Vec<Receive>,
    pub(crate) next: usize,
    /// Posted and not completed.
    pub(crate) waiting: BTreeSet<usize>,
    /// It was full: more can be posted when one completes.
    pub(crate) blocked: bool,
    pub(crate) queue: Option<Arc<ReceiveQueue>>,
}

/// A receive, planned.
#[derive(Clone)]
pub(crate) struct Receive {
    pub(crate) buffer: Pieces,
    /// Too short for its message on purpose.
    pub(crate) short: bool,
    pub(crate) done: bool,
}

/// Memory under a key of its own, that may be taken away.
pub(crate) struct Export {
    pub(crate) arena: usize,
    pub(crate) offset: usize,
    pub(crate) length: u32,
    /// Only this queue pair may use it: it is a memory window.
    pub(crate) bound_to: Option<usize>,
    /// Whether a request of the queue pair binds the window; otherwise it is bound from the start.
    pub(crate) bound_later: bool,
    /// Whether the request that binds it succeeded.
    pub(crate) bound: bool,
    pub(crate) key: u32,
    /// It will be revoked at a time of its own.
    pub(crate) revocable: bool,
    pub(crate) revoked_ns: Option<u64>,
    pub(crate) cells: Vec<usize>,
}

/// A range that one queue pair writes, once or several times over.
pub(crate) struct Cell {
    pub(crate) arena: usize,
    pub(crate) offset: usize,
    pub(crate) length: u32,
    pub(crate) export: Option<usize>,
    /// The content at first and after each WRITE, in order.
    pub(crate) versions: Vec<Content>,
    /// The version of the latest WRITE posted.
    pub(crate) posted: usize,
    /// The latest version known to be there.
    pub(crate) known: usize,
    pub(crate) mtu: usize,
    /// Its bytes when its key was revoked: they stay.
    pub(crate) frozen: Option<Vec<u8>>,
}

impl Cell {
    /// A cell that was not written yet. What is written to it arrives in pieces of `mtu`.
    pub(crate) fn new(place: (usize, usize), export: Option<usize>, initial: Content, mtu: usize) -> Self {
        Cell {
            arena: place.0,
            offset: place.1,
            length: initial.length(),
            export,
            versions: vec![initial],
            posted: 0,
            known: 0,
            mtu,
            frozen: None,
        }
    }
}

/// An 8-byte word for atomics.
pub(crate) struct Word {
    pub(crate) arena: usize,
    pub(crate) offset: usize,
    /// Used by one queue pair only, so its value can be predicted.
    pub(crate) private: bool,
    pub(crate) predicted: u64,
    /// Every atomic posted: by which queue pair, what, and what it returned.
    pub(crate) history: Vec<Atomic>,
}

/// An atomic on a word.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Atomic {
    pub(crate) qp: usize,
    pub(crate) change: Change,
    pub(crate) original: Option<u64>,
}

/// What an atomic does.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    Add(u64),
    Swap { compare: u64, swap: u64 },
}

impl Change {
    pub(crate) fn apply(self, value: u64) -> u64 {
        match self {
            Change::Add(add) => value.wrapping_add(add),
            Change::Swap { compare, swap } if compare == value => swap,
            Change::Swap { .. } => value,
        }
    }
}

/// A request for a send queue, planned.
pub(crate) struct Op {
    pub(crate) kind: Kind,
    pub(crate) length: u32,
    pub(crate) source: Source,
    pub(crate) flags: SendFlags,
    pub(crate) expect: Expect,
    pub(crate) posted_ns: u64,
    pub(crate) outcome: Option<Status>,
    /// A WRITE whose bytes were seen in place.
    pub(crate) verified: bool,
}

impl Op {
    pub(crate) fn new(kind: Kind, length: u32, source: Source, flags: SendFlags, expect: Expect) -> Self {
        Op {
            kind,
            length,
            source,
            flags,
            expect,
            posted_ns: 0,
            outcome: None,
            verified: false,
        }
    }
}

/// What a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Send {
        immediate: Option<u32>,
    },
    /// Revokes the peer's export.
    SendInvalidate {
        export: usize,
    },
    Write {
        cell: usize,
        version: usize,
        how: Writing,
    },
    /// Has the peer flush a cell.
    Flush {
        cell: usize,
    },
    /// From the peer's pool, at this offset.
    ReadPool {
        offset: u32,
    },
    ReadCell {
        cell: usize,
        version: usize,
    },
    /// `guess` picks what a compare-and-swap compares with.
    Atomic {
        word: usize,
        change: Change,
        guess: bool,
        entry: usize,
    },
    /// Binds an own window.
    BindWindow {
        export: usize,
    },
    LocalInvalidate {
        export: usize,
    },
    Datagram {
        to: Target,
        immediate: Option<u32>,
        wrong_qkey: bool,
    },
    Bad(Bad),
}

/// The two halves of an extended reliable connection. In all else they behave like RC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Half {
    Initiator,
    Target,
}

/// The kinds of WRITE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Writing {
    Plain,
    WithImmediate(u32),
    Atomic,
}

/// Where a datagram goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    Qp(usize),
    Group,
}

/// Requests that must fail, and touch nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bad {
    WriteUnknownKey,
    WriteImmediateUnknownKey,
    WriteOutOfBounds,
    WriteReadOnly,
    ReadUnknownKey,
    ReadOutOfBounds,
    AtomicWithoutRight,
    AtomicUnaligned,
    SendInvalidateUnknownKey,
    LocalUnknownKey,
    LocalOutOfBounds,
    ReadIntoReadOnly,
    LocalInvalidateForbidden,
}

/// How a request should end, if nothing else goes wrong before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Expect {
    Success,
    /// The peer refuses it.
    Refused(Status),
    /// It fails at home.
    Local(Status),
}

/// Where the bytes of a request are, or go.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// Sent from the pool.
    Pool(Content),
    /// Sent from the pool, copied when posted.
    Inline(Content),
    /// Sent from where an earlier READ of the same queue pair puts this content.
    Fetched(Pieces, Content),
    /// Where fetched bytes go: pieces of the queue pair's arena; and what they should be.
    Target(Pieces, Content),
}

impl Source {
    pub(crate) fn content(&self) -> &Content {
        match self {
            Source::Pool(content)
            | Source::Inline(content)
            | Source::Fetched(_, content)
            | Source::Target(_, content) => content,
        }
    }
}

/// Where a queue pair stands.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Life {
    Planned,
    Alive,
    /// Asked to drain, not yet drained.
    Draining,
    Drained,
    /// The send queue failed, receiving goes on (UC, UD).
    SendError,
    Error,
    /// Destroyed, or gone with its NIC.
    Gone,
    /// A completion queue of its overflowed: its completions cannot be judged any more.
    Overflowed,
}

/// How a connection is set up.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) mtu: PathMtu,
    pub(crate) timeout_exponent: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) rnr_timer: RnrTimer,
    pub(crate) max_rd_atomic: u8,
}

/// A queue pair.
pub(crate) struct Qp {
    pub(crate) host: usize,
    pub(crate) service: Service,
    pub(crate) peer: Option<usize>,
    pub(crate) terms: Terms,
    pub(crate) psn: Psn,
    pub(crate) qkey: u32,
    pub(crate) in_group: bool,
    pub(crate) qpn: Qpn,
    pub(crate) send_cq: usize,
    pub(crate) recv_cq: usize,
    pub(crate) srq: Option<usize>,
    /// Which half of an extended reliable connection it is, if it is one.
    pub(crate) half: Option<Half>,
    /// A target's SRQ, as its peer names it.
    pub(crate) srq_number: u32,
    pub(crate) arena: usize,
    pub(crate) exports: Vec<usize>,
    pub(crate) signal_all: bool,
    pub(crate) send_depth: u32,
    pub(crate) recv_depth: u32,
    pub(crate) pace_ns: u64,
    pub(crate) recv_pace_ns: u64,

    pub(crate) ops: Vec<Op>,
    pub(crate) next_op: usize,
    /// Posted, completion not yet seen or implied.
    pub(crate) outstanding: VecDeque<usize>,
    /// Requests that consume a receive of the peer, in the order posted.
    pub(crate) messages: Vec<usize>,
    /// WRITEs below this index were seen in place.
    pub(crate) writes_seen: usize,

    pub(crate) receives: Vec<Receive>,
    pub(crate) next_receive: usize,
    pub(crate) waiting: VecDeque<usize>,
    /// How many of the peer's messages arrived (RC), or were passed (UC).
    pub(crate) received: usize,

    pub(crate) life: Life,
    /// Completions of its were lost with a queue that overflowed.
    pub(crate) blind: bool,
    /// Something the peer posted, or a receive of ours, may make the responder refuse and fail.
    pub(crate) may_be_refused: bool,
    /// A right that its peer will miss.
    pub(crate) withheld: Access,
    /// When its program ended it, or its NIC died: nothing that is asked of it later succeeds.
    pub(crate) ended_ns: Option<u64>,
    /// The first failure of the send queue.
    pub(crate) failed: Option<Status>,
    /// Packets disturbed on the way to and from the peer when a request was last seen to succeed.
    pub(crate) disturbed_at_success: u64,
    /// Posts after the failure was seen.
    pub(crate) posts_after_failure: u32,
    /// How long to wait before trying a full send queue again.
    pub(crate) backoff_ns: u64,
    /// The receive queue was full: more can be posted when one completes.
    pub(crate) receives_blocked: bool,
}

impl Qp {
    /// Whether packets of its peer are answered and its own work goes on.
    pub(crate) fn works(&self) -> bool {
        matches!(
            self.life,
            Life::Alive | Life::Draining | Life::Drained | Life::SendError
        )
    }

    pub(crate) fn signaled(&self, op: usize) -> bool {
        self.signal_all || self.ops[op].flags.contains(SendFlags::SIGNALED)
    }

    /// Whether a request takes one of the peer's receives.
    pub(crate) fn is_message(kind: Kind) -> bool {
        matches!(
            kind,
            Kind::Send { .. }
                | Kind::SendInvalidate { .. }
                | Kind::Write {
                    how: Writing::WithImmediate(_),
                    ..
                }
                | Kind::Bad(Bad::SendInvalidateUnknownKey)
        )
    }
}

/// Something the workload does at a time of its own choosing.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Mark {
    /// Connects the pair of queue pairs that begins with this one, or starts a datagram one.
    Start(usize),
    Post(usize),
    Receive(usize),
    SharedReceive(usize),
    Revoke(usize),
    Destroy(usize),
    ToError(usize),
    Drain(usize),
    Undrain(usize),
    /// Brings a failed unreliable send queue back.
    Recover(usize),
    /// The first NIC's life ends, the second's begins.
    Crash {
        old: usize,
        new: usize,
    },
    Partition {
        a: usize,
        b: usize,
        duration_ns: u64,
    },
    /// A NIC gets no processor for a while.
    Pause {
        station: usize,
        duration_ns: u64,
    },
    Garbage {
        station: usize,
    },
}
