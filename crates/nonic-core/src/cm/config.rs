//! The connection manager's configuration, usage and counters.

use crate::queue_pair::AckTimeout;
use std::time::Duration;

/// Limits and habits. Times that go over the wire are exponents: 4.096 µs × 2^n.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CmConfig {
    /// Names the adapter in messages.
    pub ca_guid: u64,
    /// The upper 12 bits of every local identifier: the process's block of queue pair numbers. Processes that share an
    /// address tell by it which of them a message is for. `None` leaves them random.
    pub id_block: Option<u16>,
    /// How long either side may take to answer (exponent).
    pub response_timeout: u8,
    /// How often a message is repeated before the peer is given up.
    pub max_cm_retries: u8,
    /// How often, besides, it is sent again before the first answer is overdue: a lost message should not cost seconds.
    pub early_repeats: u8,
    /// How long to wait for the first of these; each that follows takes twice as long.
    pub early_pause: Duration,
    /// How long a request is repeated to a peer without a listener at that port, from its first refusal on, before the
    /// program is told. Some programs agree to connect and only then begin to listen; with a slower stack the other
    /// side never noticed.
    pub unserved_grace: Duration,
    /// How long to wait before asking once more.
    pub unserved_pause: Duration,
    /// How often a message is repeated to a host that refuses messages before no process is assumed to be left there:
    /// long enough for another of its processes to take over the port of a process that ended.
    pub max_refused_retries: u8,
    /// The same for requests to connect: the program that will listen may be about to start. Where other processes hold
    /// the port already, it has as long (`unserved_grace`).
    pub max_refused_requests: u8,
    /// How long to wait before each of these.
    pub refused_pause: Duration,
    /// For how long after a refusal new requests to that host are repeated after `refused_pause` from the start: hosts
    /// refuse once in a while, not every message (Linux about one in a second).
    pub refused_memory: Duration,
    /// How long a packet may be under way (exponent).
    pub packet_lifetime: u8,
    /// How much time an MRA asks for (exponent).
    pub service_timeout: u8,
    /// No exponent a peer names is taken for more than this.
    pub max_timeout: u8,
    /// The least time a finished connection is remembered; more if acknowledgements may take longer.
    pub timewait_min: Duration,
    /// The least time a final answer (REJ, SIDR_REP) is remembered; more if the peer may repeat its request for longer.
    pub linger: Duration,
    /// Connections at a time, finished ones that are remembered included.
    pub max_connections: usize,
    /// Final answers remembered at a time.
    pub max_lingering: usize,
    /// Listeners.
    pub max_listeners: usize,
    /// Answers to the network that wait to be sent; more are dropped, and asked for again.
    pub max_queued_answers: usize,
    /// With so many events waiting to be taken, requests are dropped as with a full backlog.
    pub max_queued_events: usize,
}

impl Default for CmConfig {
    /// As Linux has it, except where Linux waits for seconds without need.
    fn default() -> Self {
        CmConfig {
            ca_guid: 0,
            id_block: None,
            response_timeout: 20,
            max_cm_retries: 15,
            early_repeats: 3,
            early_pause: Duration::from_millis(250),
            unserved_grace: Duration::ZERO,
            unserved_pause: Duration::from_millis(10),
            max_refused_retries: 7,
            max_refused_requests: 14,
            refused_pause: Duration::from_millis(50),
            refused_memory: Duration::from_secs(5),
            packet_lifetime: 14,
            service_timeout: 24,
            max_timeout: 24,
            timewait_min: Duration::from_millis(250),
            linger: Duration::from_secs(1),
            max_connections: 1 << 20,
            max_lingering: 1 << 14,
            max_listeners: 1 << 16,
            max_queued_answers: 4096,
            max_queued_events: 1 << 16,
        }
    }
}

impl CmConfig {
    /// An exponent as a time, limited.
    pub(super) fn time(&self, exponent: u8) -> Duration {
        let exponent = exponent.min(self.max_timeout).clamp(1, 31);
        AckTimeout::from_exponent(exponent)
            .and_then(AckTimeout::duration)
            .unwrap_or(Duration::MAX)
    }

    /// How long to wait for the answer of a peer that may take `exponent`.
    pub(super) fn patience(&self, exponent: u8) -> Duration {
        self.time(exponent) + 2 * self.time(self.packet_lifetime)
    }

    /// How often a message is repeated to a peer that is given up after about `patience`.
    pub(super) fn retries_within(&self, patience: Duration) -> u8 {
        let once = self.patience(self.response_timeout).as_nanos().max(1);
        let times = patience.as_nanos().div_ceil(once).saturating_sub(1);
        u8::try_from(times).unwrap_or(u8::MAX).min(self.max_cm_retries)
    }

    /// How long a connection whose acknowledgements may take `exponent` is remembered.
    pub(super) fn timewait(&self, exponent: u8) -> Duration {
        self.time(exponent).max(self.timewait_min)
    }
}

/// What the connection manager holds at one moment.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct CmUsage {
    /// Connections in any state, and services being resolved.
    pub connections: usize,
    /// Of these, those kept only to repeat a final answer.
    pub lingering: usize,
    /// Peers' identifiers known.
    pub remote_ids: usize,
    /// Peers' queue pairs known.
    pub remote_qpns: usize,
    /// Timers running.
    pub timers: usize,
    /// Requests to connect, disconnect or resolve that wait for an answer.
    pub unanswered: usize,
    /// Listeners.
    pub listeners: usize,
    /// Requests that wait for their program.
    pub pending: usize,
    /// Messages waiting to be sent.
    pub queued: usize,
}

/// What the connection manager counted so far.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct CmCounters {
    /// Datagrams that arrived.
    pub received: u64,
    /// Of these, not messages of the connection manager.
    pub malformed: u64,
    /// Messages that meant nothing in the state they found.
    pub ignored: u64,
    /// Messages for connections that are not known.
    pub unknown: u64,
    /// Requests dropped because a backlog was full.
    pub backlog_full: u64,
    /// Requests refused without asking the program.
    pub refused: u64,
    /// Messages sent.
    pub sent: u64,
    /// Of these, repeated for want of an answer.
    pub retries: u64,
    /// Answers dropped because too many waited already.
    pub dropped: u64,
}
