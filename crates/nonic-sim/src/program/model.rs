//! The model of a run: memory, queues, what was posted and what is known to have come of it.
//!
//! Everything here is plain data, drawn by a planner before the run and updated by the checkers during it. Indices
//! into the vectors of [`Model`] take the place of references. The model knows no wire: what carries the requests of a
//! program shows only in its [`Promise`].

use super::content::{Arena, Content, Pieces};
use super::request::{Change, Op};
use nonic_core::{Qpn, ReceiveQueue, SendFlags, Status};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// What all programs of a run posted, and the memory that they posted it about.
#[derive(Default)]
pub(crate) struct Model {
    pub(crate) arenas: Vec<Arena>,
    pub(crate) exports: Vec<Export>,
    pub(crate) cells: Vec<Cell>,
    pub(crate) words: Vec<Word>,
    pub(crate) srqs: Vec<Srq>,
    pub(crate) programs: Vec<Program>,
    /// The time of what is being looked at.
    pub(crate) now_ns: u64,
    /// Requests posted.
    pub(crate) operations: u64,
    /// Requests that succeeded, and receives that completed.
    pub(crate) completions: u64,
    /// Requests that failed.
    pub(crate) failures: u64,
}

/// What the success of a request says about the peer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Promise {
    /// RC and XRC: the peer has done it, and everything before it.
    Done,
    /// iWARP: the stream has taken it. Only the answer to a READ or atomic says that the peer has done everything before it.
    Written,
    /// UC and UD: nothing.
    Nothing,
}

/// A program that uses one queue pair.
pub(crate) struct Program {
    pub(crate) host: usize,
    pub(crate) peer: Option<usize>,
    pub(crate) promise: Promise,
    pub(crate) qpn: Qpn,
    pub(crate) srq: Option<usize>,
    pub(crate) arena: usize,
    pub(crate) exports: Vec<usize>,
    /// The key that its host has for the pool.
    pub(crate) pool_key: u32,
    /// A message appears in its receive in pieces of so many bytes.
    pub(crate) packet: usize,
    /// What a READ brings appears in pieces of so many bytes.
    pub(crate) piece: usize,
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
    /// The first failure of the send queue.
    pub(crate) failed: Option<Status>,

    pub(crate) receives: Vec<Receive>,
    pub(crate) next_receive: usize,
    pub(crate) waiting: VecDeque<usize>,
    /// How many of the peer's messages arrived, or were passed (UC).
    pub(crate) received: usize,

    /// When its queue pair ended, or its NIC died: nothing that is asked of it later succeeds.
    pub(crate) ended_ns: Option<u64>,
    /// Completions of its were lost with a queue that overflowed.
    pub(crate) blind: bool,
    /// The wire changed bytes and no one can know: what it is told and what is in its memory may be wrong.
    pub(crate) damaged: bool,
}

impl Program {
    /// A program of `host` that has nothing to do yet, with a queue pair to be made.
    pub(crate) fn new(host: usize, peer: Option<usize>, promise: Promise, arena: usize) -> Self {
        Program {
            host,
            peer,
            promise,
            qpn: Qpn::new(0),
            srq: None,
            arena,
            exports: Vec::new(),
            pool_key: 0,
            packet: 1,
            piece: 1,
            signal_all: false,
            send_depth: 1,
            recv_depth: 1,
            pace_ns: 0,
            recv_pace_ns: 0,
            ops: Vec::new(),
            next_op: 0,
            outstanding: VecDeque::new(),
            messages: Vec::new(),
            writes_seen: 0,
            failed: None,
            receives: Vec::new(),
            next_receive: 0,
            waiting: VecDeque::new(),
            received: 0,
            ended_ns: None,
            blind: false,
            damaged: false,
        }
    }

    pub(crate) fn signaled(&self, op: usize) -> bool {
        self.signal_all || self.ops[op].flags.contains(SendFlags::SIGNALED)
    }
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
    /// How long its program waits before it posts more.
    pub(crate) pause_ns: u64,
    pub(crate) queue: Option<Arc<ReceiveQueue>>,
}

impl Srq {
    /// A queue of `host`, to be made, with its buffers in `arena`.
    pub(crate) fn new(host: usize, arena: usize, depth: usize, limit: usize) -> Self {
        Srq {
            host,
            arena,
            depth,
            limit,
            armed: false,
            taken: 0,
            receives: Vec::new(),
            next: 0,
            waiting: BTreeSet::new(),
            blocked: false,
            pause_ns: 0,
            queue: None,
        }
    }
}

/// A receive, planned.
#[derive(Clone)]
pub(crate) struct Receive {
    pub(crate) buffer: Pieces,
    /// Too short for its message on purpose.
    pub(crate) short: bool,
    pub(crate) done: bool,
}

impl Receive {
    pub(crate) fn new(buffer: Pieces) -> Self {
        Receive {
            buffer,
            short: false,
            done: false,
        }
    }
}

/// A receive that completed.
pub(crate) struct Taken {
    pub(crate) arena: usize,
    pub(crate) buffer: Pieces,
    /// Too short for its message on purpose.
    pub(crate) short: bool,
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

impl Export {
    /// A part of `arena`, to be registered before the run and never revoked by its program.
    pub(crate) fn new(arena: usize, offset: usize, length: u32) -> Self {
        Export {
            arena,
            offset,
            length,
            bound_to: None,
            bound_later: false,
            bound: false,
            key: 0,
            revocable: false,
            revoked_ns: None,
            cells: Vec::new(),
        }
    }
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

impl Word {
    pub(crate) fn new(arena: usize, offset: usize, private: bool) -> Self {
        Word {
            arena,
            offset,
            private,
            predicted: 0,
            history: Vec::new(),
        }
    }
}

/// An atomic on a word.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Atomic {
    pub(crate) qp: usize,
    pub(crate) change: Change,
    pub(crate) original: Option<u64>,
}
