//! The transfer of bytes between the sockets of connected queue pairs and the NIC.

use super::Streams;
use super::connection::Phase;
use super::gather::MemoryGone;
use super::socket::Read;
use nonic_core::iwarp::{StreamClosed, StreamReading};
use nonic_core::{Nic, Qpn, Time};
use std::io;

/// A batch of so many bytes is better sent from where its payload is, if it is like the one before.
const BULKY: usize = 8 * 1024;
/// Reads in a row from one connection.
const READS_PER_TURN: usize = 4;
/// Batches in a row to one connection.
const WRITES_PER_TURN: usize = 4;

impl Streams {
    /// A connection's turn.
    pub(super) fn serve(&mut self, now: Time, nic: &mut Nic, slot: usize) {
        match &self.connections[slot].phase {
            Phase::Connecting(_) => self.go_on_connecting(now, slot),
            Phase::Starting { .. } => self.read_starting(now, nic, slot),
            Phase::Attached(qpn) => {
                let qpn = *qpn;
                self.write_attached(now, nic, slot, qpn);
                for _ in 0..READS_PER_TURN {
                    let readable = self
                        .connections
                        .get(slot)
                        .is_some_and(|connection| connection.readable);
                    if !readable || self.read_attached(|| now, nic, slot, qpn).is_none() {
                        break;
                    }
                }
            }
            Phase::Refused(_) => {
                let connection = &mut self.connections[slot];
                (connection.readable, connection.writable) = (false, false);
            }
            Phase::Ending => self.end(slot),
        }
        self.attend(now, nic);
    }

    /// There may be something to read, but the queue pair says when to go on.
    fn hold_back(&mut self, slot: usize) {
        let connection = &mut self.connections[slot];
        connection.readable = false;
        connection.held_back = true;
    }

    /// Reads once for a queue pair. When that was, if anything came.
    pub(super) fn read_attached(
        &mut self,
        clock: impl FnOnce() -> Time,
        nic: &mut Nic,
        slot: usize,
        qpn: Qpn,
    ) -> Option<Time> {
        let connection = &mut self.connections[slot];
        if matches!(
            nic.stream_reading(qpn),
            StreamReading::Blocked | StreamReading::Closed
        ) {
            self.hold_back(slot);
            return None;
        }
        match connection.read(&mut self.input) {
            Ok(Read::Bytes(length)) => {
                let now = clock();
                self.counters.receives += 1;
                self.hot = Some(slot);
                let reading = nic.stream_received(now, qpn, &self.input[..length]);
                if matches!(reading, StreamReading::Blocked | StreamReading::Closed) {
                    self.hold_back(slot);
                }
                Some(now)
            }
            Ok(Read::Nothing) => None,
            Ok(Read::End) => {
                let now = clock();
                nic.stream_closed(now, qpn, StreamClosed::ByPeer);
                Some(now)
            }
            Err(_) => {
                let now = clock();
                connection.readable = false;
                nic.stream_closed(now, qpn, StreamClosed::Broken);
                Some(now)
            }
        }
    }

    /// Writes what a queue pair has to send, as long as there is room.
    pub(super) fn write_attached(&mut self, now: Time, nic: &mut Nic, slot: usize, qpn: Qpn) {
        for _ in 0..WRITES_PER_TURN {
            let connection = &mut self.connections[slot];
            if !connection.unsent.is_empty() {
                self.counters.sends += 1;
                let Ok(length) = connection.unsent.write(&mut connection.socket) else {
                    nic.stream_closed(now, qpn, StreamClosed::Broken);
                    return;
                };
                connection.writable = connection.unsent.is_empty();
                if connection.writable && std::mem::take(&mut connection.finishes) {
                    connection.socket.finish();
                }
                let counted = length.min(connection.counted);
                connection.counted -= counted;
                nic.stream_written(now, qpn, counted);
                if !connection.writable {
                    return;
                }
            }
            if !std::mem::replace(&mut connection.wants_to_send, false) {
                return;
            }
            let segment = connection.segment_size();
            let is_seen = connection.socket.transcript.is_some();
            let gathers = connection.is_bulky && !is_seen && nic.can_gather_stream(qpn);
            let sent = match gathers {
                true => self.send_gathered(now, nic, slot, qpn, segment),
                false => self.send_copied(now, nic, slot, qpn, segment),
            };
            let connection = &mut self.connections[slot];
            match sent {
                Sent::Nothing => return,
                Sent::Everything => {
                    connection.wants_to_send = nic.has_stream_output(qpn);
                    if !connection.wants_to_send {
                        return;
                    }
                }
                Sent::Some => {
                    (connection.wants_to_send, connection.writable) = (true, false);
                    connection.counted = connection.unsent.len();
                    return;
                }
                Sent::Broken => {
                    nic.stream_closed(now, qpn, StreamClosed::Broken);
                    return;
                }
            }
        }
    }

    /// Sends a batch that is copied: CRCs have to be computed.
    fn send_copied(&mut self, now: Time, nic: &mut Nic, slot: usize, qpn: Qpn, segment: usize) -> Sent {
        let length = nic.poll_stream_transmit(now, qpn, segment, &mut self.output);
        if length == 0 {
            return Sent::Nothing;
        }
        self.counters.sends += 1;
        let connection = &mut self.connections[slot];
        connection.is_bulky = length >= BULKY;
        let Ok(written) = connection.socket.write(&self.output[..length]) else {
            return Sent::Broken;
        };
        nic.stream_written(now, qpn, written);
        if written == length {
            return Sent::Everything;
        }
        let rest = &self.output[written..length];
        connection.unsent.end().extend_from_slice(rest);
        Sent::Some
    }

    /// Sends a batch from where its payload is.
    fn send_gathered(&mut self, now: Time, nic: &mut Nic, slot: usize, qpn: Qpn, segment: usize) -> Sent {
        self.gather.clear();
        let length = nic.gather_stream(now, qpn, segment, &mut self.gather);
        if length == 0 {
            return Sent::Nothing;
        }
        self.counters.sends += 1;
        let connection = &mut self.connections[slot];
        connection.is_bulky = length >= BULKY;
        let sent = self.gather.send(&connection.socket).and_then(|written| {
            let rest = self.gather.rest(written, connection.unsent.end());
            rest.map_err(|MemoryGone| io::ErrorKind::InvalidData)?;
            Ok(written)
        });
        // Nothing of the program's is named once this returns.
        self.gather.clear();
        let Ok(written) = sent else {
            return Sent::Broken;
        };
        nic.stream_written(now, qpn, written);
        match written == length {
            true => Sent::Everything,
            false => Sent::Some,
        }
    }
}

/// What became of a batch.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Sent {
    /// There was none.
    Nothing,
    /// The kernel took it.
    Everything,
    /// It took a part of it; the rest waits.
    Some,
    /// The connection is broken.
    Broken,
}
