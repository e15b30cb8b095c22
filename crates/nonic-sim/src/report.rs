//! The report of a run.

use nonic_netem::FaultCounts;

/// What a run did. Two runs of one seed give equal reports.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// A digest of every packet and the time it was sent.
    pub trace_hash: u64,
    /// How long it took in virtual time.
    pub virtual_ns: u64,
    /// Steps of the fabric.
    pub steps: u64,
    /// Packets sent.
    pub packets: u64,
    /// Work requests posted to send queues; connections asked for.
    pub operations: u64,
    /// Successful completions checked; connections established.
    pub completions: u64,
    /// Work requests that failed, as they should or may; connections refused or given up.
    pub failures: u64,
    /// Of these, for want of an answer.
    pub retries_exceeded: u64,
    /// Requests executed in the memory of a peer, without packets.
    pub direct: u64,
    /// Records executed that came through lanes.
    pub records: u64,
    /// What the links did to packets.
    pub faults: FaultCounts,
}
