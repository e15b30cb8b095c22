//! One TCP connection: its phase, and what it has not sent yet.

use super::socket::{Read, StreamSocket};
use super::transcript::Transcript;
use crate::capture::Capture;
use nonic_core::cm::{ConnectRequest, ConnectionId, ListenerId};
use nonic_core::iwarp::startup::Startup;
use nonic_core::{Qpn, Time};
use nonic_wire::cm::ServiceId;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// A connection, from the moment it is opened or taken until it is closed.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) socket: StreamSocket,
    /// What the program calls it.
    pub(super) id: ConnectionId,
    pub(super) phase: Phase,
    /// The queue pair, once it is known.
    pub(super) qpn: Option<Qpn>,
    /// The listener that was asked, if the peer opened it, until the program has answered.
    pub(super) asked: Option<Asked>,
    /// The service that the peer asked for, if it opened it, for inspection.
    pub(super) opened_for: Option<ServiceId>,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    /// When it is given up, unless it has come further by then.
    pub(super) deadline: Option<Time>,
    /// What the kernel had no room for, and how much of it is the queue pair's.
    pub(super) unsent: Unsent,
    pub(super) counted: usize,
    /// There may be something to read; there may be room to write.
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// The end of what the peer sends is there to be read: no other edge tells of it.
    pub(super) hung_up: bool,
    /// There may be something to read, but the queue pair waits for a receive.
    pub(super) held_back: bool,
    /// The queue pair wants to send.
    pub(super) wants_to_send: bool,
    /// This half ends when what is unsent has been sent.
    pub(super) finishes: bool,
    /// The last batch was a large one.
    pub(super) is_bulky: bool,
    /// It stands in the line of connections with something to do.
    pub(super) in_line: bool,
    /// The program knows of it, and must learn of its end.
    pub(super) known: bool,
    /// The longest segment that TCP makes, and for how many batches it is believed: it grows at first.
    segment: usize,
    believed: u32,
}

/// Batches until the kernel is asked again how long segments are.
const SEGMENT_BELIEVED: u32 = 32;

/// What a connection is at.
#[derive(Debug)]
pub(super) enum Phase {
    /// TCP connects.
    Connecting(Box<Ask>),
    /// The peer has no listener there: it is tried again in a moment.
    Refused(Box<Ask>),
    /// The two ends agree on how to go on.
    Starting {
        startup: Box<Startup>,
        /// What to ask once more without the second revision's extras, if the peer should not know it.
        again: Option<Box<Ask>>,
    },
    /// It is a queue pair's.
    Attached(Qpn),
    /// It is closed as soon as everything is sent, and the peer has closed its end.
    Ending,
}

/// A listener that a peer asks, or will.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) listener: ListenerId,
    pub(super) service_id: ServiceId,
    pub(super) stage: Stage,
}

/// How far the request of a peer has come.
#[derive(Debug)]
pub(super) enum Stage {
    /// It is not there yet.
    Silent,
    /// It waits for a place in the backlog, until this time at the latest.
    Held {
        request: Box<ConnectRequest>,
        until: Time,
    },
    /// The program has to decide, and the backlog counts it.
    Told,
}

/// What is asked of a peer.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) ird: u16,
    pub(super) ord: u16,
    pub(super) private_data: Vec<u8>,
    /// With the second revision of the start-up frames.
    pub(super) enhanced: bool,
    /// When TCP must have connected.
    pub(super) give_up_at: Time,
    /// Until when it is tried again where the peer has no listener; known from the first refusal on.
    pub(super) unserved_until: Option<Time>,
}

/// Bytes that wait for room in the kernel.
#[derive(Debug, Default)]
pub(super) struct Unsent {
    bytes: Vec<u8>,
    sent: usize,
}

impl Unsent {
    pub(super) fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Where bytes are added.
    pub(super) fn end(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Writes what there is room for; how much that was.
    pub(super) fn write(&mut self, socket: &mut StreamSocket) -> io::Result<usize> {
        let length = socket.write(&self.bytes[self.sent..])?;
        self.sent += length;
        if self.is_empty() {
            // Most connections are idle most of the time: memory is for those that are not.
            (self.bytes, self.sent) = (Vec::new(), 0);
        }
        Ok(length)
    }
}

impl Connection {
    pub(super) fn new(
        socket: StreamSocket,
        id: ConnectionId,
        phase: Phase,
        ends: (SocketAddr, SocketAddr),
    ) -> Self {
        Connection {
            socket,
            id,
            phase,
            qpn: None,
            asked: None,
            opened_for: None,
            local: ends.0,
            remote: ends.1,
            deadline: None,
            unsent: Unsent::default(),
            counted: 0,
            readable: false,
            writable: false,
            hung_up: false,
            held_back: false,
            wants_to_send: false,
            finishes: false,
            is_bulky: false,
            in_line: false,
            known: false,
            segment: 0,
            believed: 0,
        }
    }

    /// Writes what it carries to the capture, if there is one.
    pub(super) fn transcribe(&mut self, capture: Option<&Arc<Capture>>) {
        let Some(capture) = capture else {
            return;
        };
        let local = self.socket.local_addr().unwrap_or(self.local);
        let mut transcript = Transcript::new(capture, local, self.remote);
        if !matches!(self.phase, Phase::Connecting(_) | Phase::Refused(_)) {
            transcript.accepted();
        }
        self.socket.transcript = Some(Box::new(transcript));
    }

    /// Reads once. Nothing and the end, or less than there was room for, mean that there is no more for now.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Read> {
        let read = self.socket.read(buffer)?;
        self.readable = match read {
            Read::Bytes(length) => length == buffer.len() || self.hung_up,
            Read::Nothing | Read::End => false,
        };
        Ok(read)
    }

    /// Whether it is not a queue pair's yet, and may never be.
    pub(super) fn is_starting(&self) -> bool {
        matches!(
            self.phase,
            Phase::Connecting(_) | Phase::Refused(_) | Phase::Starting { .. }
        )
    }

    /// The longest segment that TCP makes of what is sent, as of a moment ago.
    pub(super) fn segment_size(&mut self) -> usize {
        if self.believed == 0 {
            self.segment = self.socket.segment_size();
            self.believed = SEGMENT_BELIEVED;
        }
        self.believed -= 1;
        self.segment
    }

    /// Until when it waits for a place in the backlog, if it does.
    pub(super) fn held_until(&self) -> Option<Time> {
        match self.asked {
            Some(Asked {
                stage: Stage::Held { until, .. },
                ..
            }) => Some(until),
            _ => None,
        }
    }

    /// Whether it can go on by itself.
    pub(super) fn has_something_to_do(&self) -> bool {
        self.readable || (self.writable && (self.wants_to_send || !self.unsent.is_empty()))
    }
}
