//! What happened, in numbers. Plain fields; the engine adds them up over shards and exports them.

/// Counters of one NIC.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Counters {
    pub tx_packets: u64,
    pub tx_bytes: u64,
    pub rx_packets: u64,
    pub rx_bytes: u64,
    /// Dropped because the ICRC was wrong.
    pub rx_icrc_errors: u64,
    /// Accepted after solving for an IPv4 Identification the socket does not show.
    pub rx_identification_solved: u64,
    /// Dropped because no header could be made of it.
    pub rx_malformed: u64,
    /// Dropped because no queue pair of that number, state, service or peer takes it.
    pub rx_unclaimed: u64,
    /// Dropped because it is of another partition.
    pub rx_pkey_violations: u64,
    /// Datagrams with a wrong Q_Key.
    pub rx_qkey_violations: u64,
    /// Requests seen before.
    pub rx_duplicates: u64,
    /// Requests that came after a gap.
    pub rx_out_of_sequence: u64,
    /// Datagrams and unreliable messages dropped for want of a receive, or because of a gap.
    pub rx_dropped: u64,
    pub naks_sent: u64,
    pub naks_received: u64,
    pub rnr_naks_sent: u64,
    pub rnr_naks_received: u64,
    /// Acknowledgement timeouts.
    pub timeouts: u64,
    /// Packets sent again.
    pub retransmitted_packets: u64,
    /// Completions published.
    pub completions: u64,
}
