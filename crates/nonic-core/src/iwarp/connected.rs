//! The stream of a connected queue pair: its input, its output, and its timers.

use super::config::IwarpConfig;
use super::fault::StreamFault;
use super::frame::Frame;
use super::halves::Halves;
use super::params::{Rtr, StreamParams, StreamRole};
use super::requester::{Requester, Written};
use super::responder::Responder;
use crate::queue_pair::QpContext;
use crate::resources::NicResources;
use crate::time::Time;
use nonic_wire::iwarp::{Deframer, Framer, Framing, Header, Tagged, Terminate};

/// Answers that go out in a row while requests of this side wait.
const REPLIES_IN_A_ROW: u8 = 4;

/// The STag of a WRITE of no bytes. No receiver looks at it, except hardware that takes zero for a fault.
const RTR_STAG: u32 = 1;

/// How often an initiator repeats its ready message.
const READY_AGAIN: u8 = 3;

/// The stream of a connected queue pair.
#[derive(Debug)]
pub(super) struct ConnectedStream {
    pub(super) deframer: Deframer,
    pub(super) framer: Framer,
    pub(super) halves: Halves,
    /// A ULPDU that found no receive, and what came behind it.
    pub(super) held: Option<Vec<u8>>,
    pub(super) backlog: Vec<u8>,
    /// The peer has ended its half, but something is still held.
    pub(super) finish_waits: bool,
    /// The ready message, if it is still to be sent.
    opening: Option<Rtr>,
    /// How often that was repeated.
    ready_again: u8,
    /// Whether this side may send: a responder waits for the initiator's first message.
    pub(super) may_send: bool,
    pub(super) terminate: Option<Terminate>,
    turn: Turn,
    replies_in_a_row: u8,
    /// How much was written.
    pub(super) emitted: u64,
    pub(super) timers: StreamTimers,
    /// Whether the responder's program waits for the event that the first message came.
    pub(super) announces: bool,
}

/// Whose message is being written.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Turn {
    None,
    Request,
    Reply,
}

/// What a stream waits for, and until when.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct StreamTimers {
    /// A receive for what is held.
    pub(super) receive_by: Option<Time>,
    /// Anything at all: then this side sends without it.
    pub(super) first_send_at: Option<Time>,
    /// The message that the initiator promised.
    pub(super) ready_by: Option<Time>,
    /// Anything at all: then an initiator repeats its ready message.
    pub(super) ready_again_at: Option<Time>,
    /// The end of the peer's half, or of what is to be sent.
    pub(super) linger_until: Option<Time>,
}

impl StreamTimers {
    /// The first of them.
    pub(super) fn next(&self) -> Option<Time> {
        let all = [
            self.receive_by,
            self.first_send_at,
            self.ready_by,
            self.ready_again_at,
            self.linger_until,
        ];
        all.into_iter().flatten().min()
    }
}

impl ConnectedStream {
    pub(super) fn new(now: Time, params: &StreamParams, config: &IwarpConfig, sink: u32) -> Self {
        let responds = params.role == StreamRole::Responder;
        let mut timers = StreamTimers::default();
        if responds {
            match params.rtr {
                Some(_) => timers.ready_by = Some(now + config.rtr_timeout),
                None => timers.first_send_at = config.first_send_grace.map(|grace| now + grace),
            }
        } else if params.rtr == Some(Rtr::Write) {
            // The other kind is answered.
            timers.ready_again_at = Some(now + config.ready_again);
        }
        ConnectedStream {
            deframer: Deframer::new(Framing {
                crc: params.crc,
                markers: false,
            }),
            framer: Framer::new(Framing {
                crc: params.crc,
                markers: params.markers,
            }),
            halves: Halves {
                requester: Requester::new(params.ord, sink),
                responder: Responder::new(params.ird, config.extensions),
                taken: 0,
                heard: false,
            },
            held: None,
            backlog: Vec::new(),
            finish_waits: false,
            opening: params.rtr.filter(|_| !responds),
            ready_again: 0,
            may_send: !responds,
            terminate: None,
            turn: Turn::None,
            replies_in_a_row: 0,
            emitted: 0,
            timers,
            announces: responds && params.rtr.is_some(),
        }
    }

    /// Whether there may be something to write.
    pub(super) fn has_output(&self) -> bool {
        let Halves {
            requester, responder, ..
        } = &self.halves;
        self.terminate.is_some()
            || (self.may_send
                && (self.opening.is_some() || requester.has_unwritten() || responder.replies.len() > 0))
    }

    /// The peer has sent nothing: repeats the ready message. A WRITE of no bytes changes nothing, however often.
    pub(super) fn say_again_ready(&mut self, now: Time, config: &IwarpConfig) {
        self.opening = Some(Rtr::Write);
        self.ready_again += 1;
        if self.ready_again < READY_AGAIN {
            let wait = config.ready_again * 10_u32.pow(self.ready_again.into());
            self.timers.ready_again_at = Some(now + wait);
        }
    }

    /// Whether all that is owed to the peer is written and taken.
    pub(super) fn is_sent(&self) -> bool {
        let owed = self.terminate.is_some() || self.halves.responder.replies.len() > 0;
        !owed && self.opening.is_none() && self.halves.taken >= self.emitted
    }

    /// Writes as many segments as there are and fit.
    pub(super) fn write(
        &mut self,
        common: &QpContext,
        nic: &mut NicResources,
        frame: &mut impl Frame,
    ) -> Result<(), StreamFault> {
        loop {
            let before = frame.len();
            let written = self.write_next(common, nic, frame)?;
            match written {
                Written::Idle | Written::NoRoom => return Ok(()),
                Written::Local => continue,
                Written::Failed(status) => {
                    let number = self.halves.requester.current();
                    return Err(StreamFault::request(number, status));
                }
                Written::Segment | Written::Last => frame.end(),
            }
            self.emitted += (frame.len() - before) as u64;
            if written == Written::Last {
                if self.turn == Turn::Request {
                    self.halves.requester.finish_message(self.emitted);
                }
                self.turn = Turn::None;
            }
        }
    }

    fn write_next(
        &mut self,
        common: &QpContext,
        nic: &mut NicResources,
        frame: &mut impl Frame,
    ) -> Result<Written, StreamFault> {
        if let Some(terminate) = self.terminate {
            return Ok(self.write_terminate(&terminate, frame));
        }
        if !self.may_send {
            return Ok(Written::Idle);
        }
        if let (Some(rtr), Turn::None) = (self.opening, self.turn) {
            return Ok(self.write_opening(rtr, frame));
        }
        let Halves {
            requester, responder, ..
        } = &mut self.halves;
        let replies = &mut responder.replies;
        match self.turn {
            Turn::Request => return Ok(requester.write(common, nic, frame)),
            Turn::Reply => return replies.write(frame),
            Turn::None => {}
        }
        // Messages of the two are never mixed; answers go first, but not for ever.
        let patient = self.replies_in_a_row < REPLIES_IN_A_ROW;
        if replies.len() > 0 && patient {
            let written = replies.write(frame)?;
            self.begin(Turn::Reply, written);
            return Ok(written);
        }
        let written = requester.write(common, nic, frame);
        if written == Written::Idle && replies.len() > 0 {
            let written = replies.write(frame)?;
            self.begin(Turn::Reply, written);
            return Ok(written);
        }
        self.begin(Turn::Request, written);
        Ok(written)
    }

    /// A message was begun, if one was.
    fn begin(&mut self, turn: Turn, written: Written) {
        if matches!(written, Written::Segment | Written::Last) {
            self.turn = turn;
            self.replies_in_a_row = match turn {
                Turn::Reply => self.replies_in_a_row.saturating_add(1),
                _ => 0,
            };
        }
    }

    fn write_opening(&mut self, rtr: Rtr, frame: &mut impl Frame) -> Written {
        let written = match rtr {
            Rtr::Read => self.halves.requester.write_rtr_read(frame),
            Rtr::Write => {
                let header = Header::Write(Tagged {
                    last: true,
                    stag: RTR_STAG,
                    to: 0,
                });
                match frame.begin(&header, 0) {
                    true => Written::Last,
                    false => Written::NoRoom,
                }
            }
        };
        if written == Written::Last {
            self.opening = None;
        }
        written
    }

    fn write_terminate(&mut self, terminate: &Terminate, frame: &mut impl Frame) -> Written {
        let mut body = [0; Terminate::MAX_LEN];
        let length = terminate.emit(&mut body);
        if !frame.begin(&Header::Terminate { msn: 1 }, length) {
            return Written::NoRoom;
        }
        frame.bytes(&body[..length]);
        self.terminate = None;
        // It is the last message: what was half written before stays so.
        (self.may_send, self.opening, self.turn) = (false, None, Turn::None);
        Written::Last
    }
}
