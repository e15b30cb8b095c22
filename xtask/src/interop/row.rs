//! A row that was run: at which MTU, and with what result.

use super::case::{Case, Direction, Family, Opposite};
use super::counters::Tally;

/// MTUs of the wire: the usual one and, where packets are our own, one for RDMA's largest.
pub(super) fn mtus(opposite: Opposite) -> &'static [u32] {
    match opposite {
        Opposite::Rxe => &[1500, 4200],
        Opposite::Siw => &[1500],
    }
}

/// The result of a cell.
#[derive(Clone, Debug)]
pub(super) enum Cell {
    Passed,
    /// It passed when it was run again: the guest had broken down, as said here.
    PassedAgain(String),
    /// All work was done, but siw's client took its very last SEND for failed.
    PassedButForTheEnd,
    Failed(String),
    /// The row makes no sense here.
    Empty,
}

/// One row at one MTU. Cells: nonic asks (IPv4, IPv6), nonic serves (IPv4, IPv6).
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) case: Case,
    pub(super) mtu: u32,
    pub(super) cells: [Cell; 4],
    pub(super) tally: Tally,
}

impl Row {
    /// What the counters show without a cause.
    pub(super) fn complaint(&self) -> Option<String> {
        let complaint = self.tally.complaint(self.case.wire())?;
        Some(format!("{} at MTU {}: {complaint}", self.case.name(), self.mtu))
    }
}

pub(super) const COLUMNS: [(Direction, Family); 4] = [
    (Direction::NonicAsks, Family::Ipv4),
    (Direction::NonicAsks, Family::Ipv6),
    (Direction::NonicServes, Family::Ipv4),
    (Direction::NonicServes, Family::Ipv6),
];
