//! An independent observer of one direction of a stream: reads FPDUs as they are written, and is not a NIC.
//!
//! It sees what no program sees: that frames keep to the segment size, that no more READs are under way than was agreed
//! on, that a promised first message is the first, and that nothing follows a Terminate.

use super::Check;
use nonic_core::iwarp::{Rtr, StreamParams, StreamRole};
use nonic_wire::iwarp::fpdu::{fpdu_len, mulpdu};
use nonic_wire::iwarp::{Deframer, Framing, Header, Segment};
use std::collections::VecDeque;

/// The observer of a direction.
#[derive(Debug)]
pub(crate) struct Observer {
    deframer: Deframer,
    longest: usize,
    /// What the first message must be.
    promised: Option<Rtr>,
    bytes: u64,
    frames: u64,
    /// Whole SENDs and immediates so far.
    pub(crate) messages: u64,
    /// Whole WRITEs so far, a ready message not among them.
    pub(crate) writes: u64,
    /// READs and atomics so far, a ready message among them.
    pub(crate) requests: u64,
    /// Where answers to READs and atomics end that the peer has not read.
    answers: VecDeque<u64>,
    terminated: bool,
}

impl Observer {
    /// For what is written with these parameters, in segments of `mss` bytes.
    pub(crate) fn new(mss: usize, params: &StreamParams) -> Self {
        let framing = Framing {
            // The reader of the stream checks CRCs, not the observer.
            crc: false,
            markers: params.markers,
        };
        let longest = fpdu_len(mulpdu(mss, params.markers));
        let promised = params.rtr.filter(|_| params.role == StreamRole::Initiator);
        Observer {
            deframer: Deframer::new(framing),
            longest,
            promised,
            bytes: 0,
            frames: 0,
            messages: 0,
            writes: 0,
            requests: 0,
            answers: VecDeque::new(),
            terminated: false,
        }
    }

    /// Whether a Terminate was written.
    pub(crate) fn terminated(&self) -> bool {
        self.terminated
    }

    /// Bytes were written.
    pub(crate) fn see(&mut self, bytes: &[u8]) -> Check {
        if self.terminated {
            return Err("something follows a Terminate".into());
        }
        let mut rest = bytes;
        loop {
            let before = rest.len();
            let ulpdu = self.deframer.next(&mut rest);
            let ulpdu = ulpdu.map_err(|error| format!("not a frame: {error}"))?;
            let Some(ulpdu) = ulpdu else {
                self.bytes += before as u64;
                return Ok(());
            };
            self.bytes += (before - rest.len()) as u64;
            self.frames += 1;
            let length = fpdu_len(ulpdu.len());
            if length > self.longest {
                return Err(format!("an FPDU of {length} bytes; {} are allowed", self.longest));
            }
            let segment = Segment::parse(ulpdu).map_err(|error| format!("not a segment: {error}"))?;
            let payload = segment.payload.len();
            let first = self.promised.take();
            let kept = match (first, segment.header) {
                (None, _) | (_, Header::Terminate { .. }) => true,
                (Some(Rtr::Write), Header::Write(to)) => to.last && payload == 0,
                (Some(Rtr::Read), Header::ReadRequest { request, .. }) => request.size == 0,
                _ => false,
            };
            if !kept {
                return Err(format!(
                    "the first message should be {first:?}, not {:?}",
                    segment.header
                ));
            }
            match segment.header {
                Header::Send { last, .. } => self.messages += u64::from(last),
                Header::Immediate { .. } => self.messages += 1,
                Header::Write(to) => self.writes += u64::from(to.last && first.is_none()),
                Header::ReadRequest { .. } | Header::AtomicRequest { .. } => self.requests += 1,
                Header::AtomicResponse { .. } => self.answers.push_back(self.bytes),
                Header::ReadResponse(to) => {
                    if to.last {
                        self.answers.push_back(self.bytes);
                    }
                }
                Header::Terminate { .. } => {
                    self.terminated = true;
                    if !rest.is_empty() {
                        return Err("something follows a Terminate".into());
                    }
                }
            }
        }
    }

    /// The peer has read so many bytes in all; how many answers ended within what it had not read before.
    pub(crate) fn answers_until(&mut self, read: u64) -> u64 {
        let mut count = 0;
        while self.answers.front().is_some_and(|end| *end <= read) {
            self.answers.pop_front();
            count += 1;
        }
        count
    }
}
