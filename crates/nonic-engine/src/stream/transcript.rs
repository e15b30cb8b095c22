//! The transcript of a connection, as segments of TCP: `NONIC_PCAP`.
//!
//! The kernel does not show its segments. What it took, or gave, with one call is written as one segment, or several if it
//! is long, with numbers that begin at zero; acknowledgements that carry nothing, and what TCP had to send again, are not
//! seen. For those there is tcpdump, for users who may run it.

use crate::capture::Capture;
use nonic_wire::pcap::{Direction, TcpSegment};
use std::net::SocketAddr;
use std::sync::Arc;

/// Bytes in a segment, at most.
const LONGEST: usize = 32 * 1024;

/// The transcript of one connection.
pub(super) struct Transcript {
    capture: Arc<Capture>,
    local: SocketAddr,
    remote: SocketAddr,
    /// Where the two directions are.
    sent: u32,
    received: u32,
}

impl Transcript {
    /// Of a connection that is asked for, by us or by the peer; of which nothing has been written yet.
    pub(super) fn new(capture: &Arc<Capture>, local: SocketAddr, remote: SocketAddr) -> Self {
        capture.sends_from(local);
        Transcript {
            capture: Arc::clone(capture),
            local,
            remote,
            sent: 0,
            received: 0,
        }
    }

    /// It is there, and we have asked for it.
    pub(super) fn connected(&mut self) {
        self.open([Direction::Outbound, Direction::Inbound]);
    }

    /// It is there, and the peer has asked for it; one of the same file has written that.
    pub(super) fn accepted(&mut self) {
        match self.capture.is_written_by(self.remote) {
            true => (self.sent, self.received) = (1, 1),
            false => self.open([Direction::Inbound, Direction::Outbound]),
        }
    }

    /// Writes the three segments that open it; the directions of the first, and the second.
    fn open(&mut self, [first, second]: [Direction; 2]) {
        self.write(first, true, false, &[]);
        self.write(second, true, false, &[]);
        self.write(first, false, false, &[]);
    }

    /// The kernel took these bytes.
    pub(super) fn sent(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(LONGEST) {
            self.write(Direction::Outbound, false, false, piece);
        }
    }

    /// The kernel gave these bytes.
    pub(super) fn received(&mut self, bytes: &[u8]) {
        if self.capture.is_written_by(self.remote) {
            self.received = self.received.wrapping_add(bytes.len() as u32);
            return;
        }
        for piece in bytes.chunks(LONGEST) {
            self.write(Direction::Inbound, false, false, piece);
        }
    }

    /// Nothing more is sent.
    pub(super) fn finished(&mut self) {
        self.write(Direction::Outbound, false, true, &[]);
    }

    fn write(&mut self, direction: Direction, syn: bool, fin: bool, payload: &[u8]) {
        let (src, dst, sequence, acknowledged) = match direction {
            Direction::Outbound => (self.local, self.remote, &mut self.sent, self.received),
            Direction::Inbound => (self.remote, self.local, &mut self.received, self.sent),
        };
        let segment = TcpSegment {
            src,
            dst,
            sequence: *sequence,
            // The first segment of all has nothing to acknowledge.
            acknowledged: (!syn || acknowledged > 0).then_some(acknowledged),
            syn,
            fin,
            rst: false,
            payload,
        };
        *sequence = sequence.wrapping_add(payload.len() as u32 + u32::from(syn) + u32::from(fin));
        self.capture.write_segment(direction, &segment);
    }
}

impl std::fmt::Debug for Transcript {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Transcript({} to {})", self.local, self.remote)
    }
}
