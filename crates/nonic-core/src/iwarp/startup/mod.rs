//! MPA start-up: turns a TCP connection into a stream for queue pairs (RFC 5044 §7.1, RFC 6581).
//!
//! A [`Startup`] is one end's half of the exchange: the initiator sends a Request and waits for the Reply, the responder waits for
//! a Request, has its program decide and sends the Reply. Bytes go in ([`Startup::handle_bytes`]) and out
//! ([`Startup::poll_transmit`]), time passes ([`Startup::poll_timeout`], [`Startup::handle_timeout`]), events come out
//! ([`Startup::poll_event`]). It opens no socket and knows no queue pair: its outcome is the [`StreamParams`] that one is attached
//! with.
//!
//! It refuses a peer that does not speak MPA, sends anything behind a Request, is silent for too long, or wants more
//! than this side has. On [`StartupEvent::Failed`] the caller transmits what is left and closes the connection.
//!
//! The ready message (RTR) of the initiator is the first of the stream: the queue pair sends it, not start-up.

mod initiator;
mod negotiate;
mod responder;

use super::params::StreamParams;
use crate::time::Time;
use negotiate::Depths;
use nonic_wire::iwarp::{Enhanced, MpaError, MpaFrame, ParsedMpa};
use std::collections::VecDeque;
use std::time::Duration;

/// What one end is able and willing to do.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct StartupConfig {
    /// Whether CRCs are asked for. If the peer asks for them, they are used in any case.
    pub crc: bool,
    /// Whether a Request is of revision 2. Without it, neither depths are negotiated nor a ready message is promised.
    pub enhanced: bool,
    /// Whether an initiator promises a ready message. Some hardware takes no other Request.
    pub peer_to_peer: bool,
    /// READs and atomics of a peer that this side can answer at a time.
    pub max_ird: u16,
    /// READs and atomics of this side that may be under way at a time.
    pub max_ord: u16,
    /// How long a responder waits for the Request.
    pub request_timeout: Duration,
    /// How long an initiator waits for the Reply. The peer's program may have to think first.
    pub reply_timeout: Duration,
}

impl Default for StartupConfig {
    fn default() -> Self {
        StartupConfig {
            crc: true,
            enhanced: true,
            peer_to_peer: true,
            max_ird: 128,
            max_ord: 128,
            request_timeout: Duration::from_secs(5),
            reply_timeout: Duration::from_secs(15),
        }
    }
}

/// What a program asks for, or answers with.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct StartupRequest<'a> {
    /// READs and atomics of the peer that this side is ready to answer at a time (`responder_resources`).
    pub ird: u16,
    /// READs and atomics of this side that may be under way at a time (`initiator_depth`).
    pub ord: u16,
    /// For the peer's program: at most [`Startup::max_private_data`] bytes.
    pub private_data: &'a [u8],
}

/// What happened during start-up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StartupEvent {
    /// Responder: a peer asks for a connection. Answer with [`Startup::accept`] or [`Startup::reject`].
    ConnectRequest {
        /// What the peer answers at a time; this side's limit if the peer did not say.
        peer_ird: u16,
        /// What the peer wants to have under way; this side's limit if the peer did not say.
        peer_ord: u16,
        /// What its program sent.
        private_data: Vec<u8>,
    },
    /// Initiator: the peer accepted. Attach a queue pair; bytes behind the Reply belong to it.
    Accepted {
        /// What was agreed on.
        params: StreamParams,
        /// What the peer answers at a time.
        peer_ird: u16,
        /// What the peer will have under way.
        peer_ord: u16,
        /// What its program sent.
        private_data: Vec<u8>,
    },
    /// Initiator: the peer refused.
    Rejected {
        /// What its program sent.
        private_data: Vec<u8>,
    },
    /// It came to nothing.
    Failed {
        /// Why.
        error: StartupError,
        /// The peer closed the connection as one does that knows only revision 1. It may be asked once more on a new connection,
        /// with a [`StartupConfig`] that is not `enhanced` (RFC 6581 §10).
        try_plain: bool,
    },
}

/// Why start-up failed, or a call was refused.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartupError {
    /// What the peer sent is no start-up frame.
    #[error("the peer does not speak MPA: {0}")]
    Frame(MpaError),
    /// A Request came where a Reply was due, or the other way round: both ends connect, or both listen.
    #[error("the peer is in the same role: both connect or both listen")]
    SameRole,
    /// Bytes came that the peer may not send yet.
    #[error("the peer sent data before it was allowed to")]
    TooEarly,
    /// The peer was silent for too long.
    #[error("the peer did not answer in time")]
    Timeout,
    /// The peer closed the connection.
    #[error("the peer closed the connection")]
    Closed,
    /// The peer wants more READs under way than this side can answer.
    #[error("the peer wants more outstanding READs than this side can answer")]
    InsufficientIrd,
    /// The peer chose a ready message that this side cannot send.
    #[error("the peer asks for a ready message that is not supported")]
    NoMatchingRtr,
    /// More private data than fits a frame.
    #[error("more private data than a start-up frame may have")]
    PrivateData,
    /// There is no request to be answered.
    #[error("there is no connection request to answer")]
    NoRequest,
}

/// One end's half of the start-up of a stream.
#[derive(Debug)]
pub struct Startup {
    config: StartupConfig,
    state: State,
    /// What has come of the peer's frame: never more than one frame.
    input: Vec<u8>,
    output: Vec<u8>,
    events: VecDeque<StartupEvent>,
    deadline: Option<Time>,
}

/// Where it stands.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum State {
    /// Initiator: the Request is out.
    AwaitReply { asked: Depths },
    /// Responder: nothing has come.
    AwaitRequest,
    /// Responder: the program must decide.
    Deciding { request: Asked },
    /// It has come to an end, good or bad.
    Over,
}

/// What of a Request the Reply depends on.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Asked {
    crc: bool,
    markers: bool,
    second_revision: bool,
    enhanced: Option<Enhanced>,
}

impl Startup {
    /// Private data that fits a frame, at most.
    pub fn max_private_data(enhanced: bool) -> usize {
        MpaFrame::MAX_PRIVATE_DATA - if enhanced { Enhanced::LEN } else { 0 }
    }

    fn new(config: &StartupConfig, state: State, deadline: Time) -> Self {
        Startup {
            config: *config,
            state,
            input: Vec::new(),
            output: Vec::new(),
            events: VecDeque::new(),
            deadline: Some(deadline),
        }
    }

    /// Takes bytes from the peer; returns how many. The bytes left when start-up is over belong to the stream.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> usize {
        match self.state {
            State::Over => return 0,
            State::Deciding { .. } => {
                if !bytes.is_empty() {
                    self.fail(StartupError::TooEarly);
                }
                return bytes.len();
            }
            State::AwaitReply { .. } | State::AwaitRequest => {}
        }
        let held = self.input.len();
        let taken = bytes.len().min(MpaFrame::MAX_LEN - held);
        self.input.extend_from_slice(&bytes[..taken]);
        let input = std::mem::take(&mut self.input);
        match MpaFrame::parse(&input) {
            Ok(ParsedMpa::Incomplete { .. }) => {
                self.input = input;
                taken
            }
            Ok(ParsedMpa::Whole { frame, len }) => {
                self.deadline = None;
                // The frame was not whole before, so it ends within what came now.
                let used = len.saturating_sub(held);
                self.handle_frame(&frame, used < bytes.len());
                used
            }
            Err(error) => {
                self.fail(StartupError::Frame(error));
                bytes.len()
            }
        }
    }

    fn handle_frame(&mut self, frame: &MpaFrame<'_>, more: bool) {
        match self.state {
            State::AwaitReply { asked } => self.handle_reply(frame, asked),
            State::AwaitRequest => self.handle_request(frame, more),
            State::Deciding { .. } | State::Over => {}
        }
    }

    /// The peer has closed the connection, or it broke.
    pub fn handle_closed(&mut self) {
        match self.state {
            State::Over => {}
            State::AwaitReply { .. } if self.config.enhanced && self.input.is_empty() => {
                self.end(StartupEvent::Failed {
                    error: StartupError::Closed,
                    try_plain: true,
                });
            }
            _ => self.fail(StartupError::Closed),
        }
    }

    /// Moves what is to be sent to the end of `out`. There may be something after every other call.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.output);
    }

    /// The next event. There may be one after every other call.
    pub fn poll_event(&mut self) -> Option<StartupEvent> {
        self.events.pop_front()
    }

    /// When [`Startup::handle_timeout`] is to be called.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.deadline
    }

    /// Gives up if the peer has taken too long.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.fail(StartupError::Timeout);
        }
    }

    /// Whether it has come to an end, good or bad.
    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }

    fn fail(&mut self, error: StartupError) {
        self.end(StartupEvent::Failed {
            error,
            try_plain: false,
        });
    }

    fn end(&mut self, event: StartupEvent) {
        self.state = State::Over;
        self.deadline = None;
        self.events.push_back(event);
    }
}
