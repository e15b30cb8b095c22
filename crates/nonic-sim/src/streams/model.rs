//! The model of hosts, connections and their two sides.
//!
//! Side `2 * c` asked for connection `c`, side `2 * c + 1` was asked; pipe `s` carries what side `s` writes, and the program
//! of side `s` is number `s` of the [`crate::program::model::Model`], which has its requests, receives and memory.

use nonic_core::iwarp::startup::{Startup, StartupConfig};
use nonic_core::iwarp::{StreamEnd, StreamParams};
use nonic_core::{Arm, CompletionQueue, Nic, PdId};
use nonic_wire::iwarp::TerminateCode;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A NIC and the program that uses it.
pub(super) struct Host {
    pub(super) nic: Nic,
    pub(super) pd: PdId,
    /// The key of the pool: local and remote reading.
    pub(super) pool_key: u32,
    pub(super) up: bool,
    pub(super) wake_at_ns: Option<u64>,
    /// How often the waiter of each completion queue was woken since it last looked.
    pub(super) notified: BTreeMap<u32, usize>,
}

/// A connection.
pub(super) struct Connection {
    pub(super) configs: [StartupConfig; 2],
    /// READs that each side answers, and has under way.
    pub(super) depths: [(u16, u16); 2],
    pub(super) private_data: [Vec<u8>; 2],
    pub(super) trouble: Trouble,
    pub(super) connect_at_ns: u64,
    pub(super) strike_after_ns: u64,
    pub(super) decide_after_ns: u64,
    /// Which sides close at the end.
    pub(super) closers: [bool; 2],
    pub(super) causes: Vec<Cause>,
    pub(super) closing: bool,
    pub(super) given_up: bool,
    pub(super) done: bool,
    pub(super) looked: u64,
}

/// What goes wrong with a connection, if anything does.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Trouble {
    Quiet,
    /// A program closes with work under way, perhaps both do.
    Close {
        side: usize,
        both: bool,
    },
    Abort {
        side: usize,
    },
    Terminate {
        side: usize,
    },
    Destroy {
        side: usize,
    },
    /// The stream ends for the reader of this pipe, where it likes.
    Cut {
        reset: bool,
    },
    Flip,
    Kill {
        host: usize,
    },
    /// One receive comes late by so much.
    Starve {
        side: usize,
        receive: usize,
        for_ns: u64,
    },
    Revoke {
        export: usize,
    },
    /// A request, or a receive, that must fail.
    Planned,
    Refused,
    Unanswered,
    Reject,
    SlowAccept,
    GivesUp,
}

/// Why a stream may end from now on.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Cause {
    /// The program of this side closed.
    Closed(usize),
    /// Or aborted.
    Aborted(usize),
    /// This side has reason to terminate, with this code.
    Fault(usize, TerminateCode),
    /// Anything may be missing from now on, or anything else happen to the stream.
    Stream,
    /// This side's queue pair or host is gone.
    Gone(usize),
}

/// Where the socket of a side stands.
pub(super) enum Phase {
    /// There is none yet.
    Planned,
    Starting(Box<Startup>),
    Attached,
    Closed,
}

/// One side of a connection: its socket, and how its queue pair stands.
pub(super) struct Side {
    pub(super) send_cq: Arc<CompletionQueue>,
    pub(super) recv_cq: Arc<CompletionQueue>,
    /// How the program arms the two, if it waits for notifications.
    pub(super) arming: [Option<Arm>; 2],
    /// Whether payload is gathered where it is, if that is possible.
    pub(super) gathers: bool,
    /// Whether the socket is read even while a message waits for a receive.
    pub(super) reads_ahead: bool,
    pub(super) mss: usize,

    pub(super) phase: Phase,
    pub(super) unsent: Vec<u8>,
    /// How many of those are the queue pair's.
    pub(super) counted: usize,
    pub(super) wants_to_send: bool,
    /// The connection is known to be broken.
    pub(super) broken: bool,
    pub(super) told_end: bool,
    pub(super) finished: bool,
    pub(super) turn_at_ns: Option<u64>,
    pub(super) params: Option<StreamParams>,
    pub(super) attached_ns: u64,
    /// Bytes of start-up written, and read: the stream begins behind them.
    pub(super) startup_written: u64,
    pub(super) startup_read: u64,
    pub(super) answered: u64,
    /// Since when a message waits for a receive, and how many came before it.
    pub(super) blocked: Option<(u64, usize)>,

    pub(super) established: bool,
    pub(super) ended: Option<(StreamEnd, u64)>,
    /// The queue pair wants nothing more of the stream.
    pub(super) closed: bool,
    /// The queue pair was destroyed, or went with its NIC.
    pub(super) gone: bool,
    /// The program has asked for the end and posts nothing more.
    pub(super) leaving: bool,
    pub(super) posts_after_end: u32,
    /// How long to wait before trying a full queue again: requests, receives.
    pub(super) backoff_ns: [u64; 2],
}

impl Side {
    /// Whether there is a stream under its queue pair.
    pub(super) fn is_attached(&self) -> bool {
        matches!(self.phase, Phase::Attached)
    }
}

/// What happens at a certain time.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Mark {
    Connect(usize),
    /// TCP has connected.
    Connected(usize),
    /// Something written by this side arrives.
    Arrive(usize),
    /// A side looks at its socket.
    Turn(usize),
    /// It is told that its connection broke.
    Break(usize),
    Wake(usize),
    StartupTimer(usize),
    Decide(usize),
    Post(usize),
    Receive(usize),
    SharedReceive(usize),
    Strike(usize),
    /// Is this connection done?
    Look(usize),
}
