//! What RoCE hosts and queue pairs have besides what their programs posted: stations, lives, terms of connections.
//!
//! Everything here is plain data, drawn by the planner before the run and updated by the checkers during it. Indices
//! into the vectors of [`super::World`] and of its [`crate::program::model::Model`] take the place of references.

use nonic_core::{Access, Arm, CompletionQueue, PathMtu, PdId, Psn, RnrTimer, Service};
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

/// The two halves of an extended reliable connection. In all else they behave like RC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Half {
    Initiator,
    Target,
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

/// What a queue pair has besides its [`crate::program::model::Program`], which has the same number.
pub(crate) struct Qp {
    pub(crate) service: Service,
    pub(crate) terms: Terms,
    pub(crate) psn: Psn,
    pub(crate) qkey: u32,
    pub(crate) in_group: bool,
    pub(crate) send_cq: usize,
    pub(crate) recv_cq: usize,
    /// Which half of an extended reliable connection it is, if it is one.
    pub(crate) half: Option<Half>,
    /// A target's SRQ, as its peer names it.
    pub(crate) srq_number: u32,
    pub(crate) life: Life,
    /// Something the peer posted, or a receive of ours, may make the responder refuse and fail.
    pub(crate) may_be_refused: bool,
    /// A right that its peer will miss.
    pub(crate) withheld: Access,
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
