//! Per-queue-pair traffic counters, to find the busy one among many.
//!
//! They are plain integers in structures that are touched for every batch anyway. Errors are counted where they are
//! noticed, by the requester ([`crate::roce::rc`]) and by the responder's replies.

/// Packets and bytes of a queue pair since it was made; a stream of iWARP has bytes only.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[expect(missing_docs, reason = "most names say it")]
pub struct Traffic {
    pub tx_packets: u64,
    pub tx_bytes: u64,
    pub rx_packets: u64,
    pub rx_bytes: u64,
    /// Bytes that this side moved in the memory of a peer on this host, without packets.
    pub direct_bytes: u64,
}

impl Traffic {
    /// A batch was sent.
    #[inline]
    pub(crate) fn sent(&mut self, packets: usize, bytes: usize) {
        self.tx_packets += packets as u64;
        self.tx_bytes += bytes as u64;
    }

    /// So many packets came.
    #[inline]
    pub(crate) fn received(&mut self, packets: usize, bytes: usize) {
        self.rx_packets += packets as u64;
        self.rx_bytes += bytes as u64;
    }
}

/// What went wrong on a reliable connection, since it was last connected.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[expect(missing_docs, reason = "most names say it")]
pub struct Troubles {
    /// Acknowledgement timeouts.
    pub timeouts: u32,
    pub retransmitted_packets: u32,
    pub naks_sent: u32,
    pub naks_received: u32,
    pub rnr_naks_sent: u32,
    pub rnr_naks_received: u32,
}
