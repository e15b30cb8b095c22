//! The state machine of an iWARP queue pair, as two tables: what a program may ask for, and what the stream does to it.
//!
//! The verbs' state names were made for InfiniBand: a queue pair begins in INIT (the RNIC's IDLE), is connected in RTS,
//! closes in SQD (CLOSING), has a Terminate to send in SQE (TERMINATE) and ends in ERR. RTR means nothing here; a
//! program that moves through it by hand may do so. Only a stream leads to RTS.

use crate::queue_pair::{AttributeMask as Mask, ModifyError, Named, QpState, Transition};
use nonic_wire::Service;

/// Attributes that say something about packets. They are accepted before a queue pair is connected, and mean nothing.
const IGNORED: Mask = Mask::PKEY_INDEX
    .union(Mask::PORT)
    .union(Mask::MAX_RD_ATOMIC)
    .union(Mask::MAX_DEST_RD_ATOMIC);

/// What a program may ask an iWARP queue pair to do. Any state may go to RESET or to ERR.
pub fn stream_transition(from: QpState, to: QpState) -> Option<Transition> {
    use QpState::{Error, Init, Reset, Rtr, Rts, Sqd, Sqe};
    let optional = match (from, to) {
        (_, Reset | Error) => Mask::empty(),
        (Reset | Init, Init) | (Init | Rtr, Rtr) => Mask::ACCESS_FLAGS | IGNORED,
        (Rts, Rts) => Mask::ACCESS_FLAGS,
        // Closing, and ending with a Terminate.
        (Rts, Sqd | Sqe) => Mask::empty(),
        (Sqd, Sqd) | (Sqe, Sqe) => Mask::empty(),
        _ => return None,
    };
    let (required, optional) = if from == to && !matches!(to, Reset | Error) {
        (Mask::empty(), optional | Mask::STATE)
    } else {
        (Mask::STATE, optional)
    };
    Some(Transition { required, optional })
}

/// Checks what a program asks for; returns the state it leads to.
pub(crate) fn check(from: QpState, to: Option<QpState>, given: Mask) -> Result<QpState, ModifyError> {
    // Connection managers of RNICs name no attributes at all.
    let to = match to {
        None if given.is_empty() => return Ok(from),
        to => to.unwrap_or(from),
    };
    let service = Service::Rc;
    let row = stream_transition(from, to).ok_or(ModifyError::NoTransition { service, from, to })?;
    let missing = Named(row.required - given);
    if !missing.0.is_empty() {
        return Err(ModifyError::Missing { from, to, missing });
    }
    let forbidden = Named(given - row.required - row.optional);
    if !forbidden.0.is_empty() {
        return Err(ModifyError::Forbidden { from, to, forbidden });
    }
    Ok(to)
}

/// What can happen to a connected queue pair.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum StreamInput {
    /// Start-up is over: a stream is attached.
    Attach,
    /// The program closes, and its send queue is empty.
    Close,
    /// The program closes with requests under way.
    CloseBusy,
    /// The program aborts.
    Abort,
    /// The peer did something wrong, or this side cannot go on: a Terminate is due.
    Fault,
    /// A Terminate came.
    Terminate,
    /// The peer ended its half between two FPDUs.
    Finish,
    /// The stream broke, or ended within an FPDU.
    Lost,
    /// All that was to be sent is sent.
    Sent,
    /// The wait for the peer to end its half is over.
    Expired,
}

impl StreamInput {
    /// Every input.
    pub const ALL: [StreamInput; 10] = [
        StreamInput::Attach,
        StreamInput::Close,
        StreamInput::CloseBusy,
        StreamInput::Abort,
        StreamInput::Fault,
        StreamInput::Terminate,
        StreamInput::Finish,
        StreamInput::Lost,
        StreamInput::Sent,
        StreamInput::Expired,
    ];
}

/// Where the stream of a queue pair stands. What the program sees of it is [`StreamPhase::shown`].
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum StreamPhase {
    /// No stream is attached.
    Idle,
    /// Both halves work.
    Open,
    /// The program closed: answers that are due go out, then this half ends.
    Closing,
    /// This half has ended; the peer's has not.
    HalfClosed,
    /// A Terminate is to be sent.
    Terminating,
    /// It is sent, and this half has ended. What still comes is thrown away.
    Lingering,
    /// The peer has ended its half; what is left to send is still being sent.
    Answering,
    /// It is over.
    Closed,
}

impl StreamPhase {
    /// Every phase.
    pub const ALL: [StreamPhase; 8] = [
        StreamPhase::Idle,
        StreamPhase::Open,
        StreamPhase::Closing,
        StreamPhase::HalfClosed,
        StreamPhase::Terminating,
        StreamPhase::Lingering,
        StreamPhase::Answering,
        StreamPhase::Closed,
    ];

    /// The state that verbs show.
    pub fn shown(self) -> QpState {
        match self {
            StreamPhase::Idle => QpState::Init,
            StreamPhase::Open => QpState::Rts,
            StreamPhase::Closing | StreamPhase::HalfClosed => QpState::Sqd,
            StreamPhase::Terminating => QpState::Sqe,
            StreamPhase::Lingering | StreamPhase::Answering | StreamPhase::Closed => QpState::Error,
        }
    }
}

/// What is done with the stream in a step.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum StreamAction {
    /// Nothing.
    Nothing,
    /// This half ends as soon as everything is sent.
    FinishAfterOutput,
    /// The Terminate goes out, then this half ends.
    SendTerminate,
    /// This half ends.
    Finish,
    /// The stream is closed.
    Close,
}

/// A step of the table.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct StreamStep {
    /// Where it leads.
    pub next: StreamPhase,
    /// What is done with the stream.
    pub action: StreamAction,
    /// Whether work ends with it: both queues are flushed, and the disconnection is reported to a program that was
    /// connected.
    pub ends: bool,
}

/// What an input does; `None` if nothing.
pub fn stream_step(phase: StreamPhase, input: StreamInput) -> Option<StreamStep> {
    use StreamAction as A;
    use StreamInput as I;
    use StreamPhase as P;
    let quiet = |next, action| (next, action, false);
    let ended = |next, action| (next, action, true);
    let (next, action, ends) = match (phase, input) {
        (P::Idle, I::Attach) => quiet(P::Open, A::Nothing),
        (P::Idle, I::Abort) => ended(P::Closed, A::Nothing),

        (P::Open, I::Close) => quiet(P::Closing, A::FinishAfterOutput),
        (P::Closing, I::Sent) => quiet(P::HalfClosed, A::Finish),
        (P::Open, I::CloseBusy) => ended(P::Closed, A::Close),
        (P::Open | P::Closing | P::HalfClosed, I::Abort | I::Finish | I::Lost | I::Terminate) => {
            ended(P::Closed, A::Close)
        }
        (P::Closing, I::Expired) => ended(P::Closed, A::Close),
        (P::Open | P::Closing, I::Fault) => ended(P::Terminating, A::SendTerminate),
        // Nothing can be said any more.
        (P::HalfClosed, I::Fault | I::Expired) => ended(P::Closed, A::Close),

        (P::Terminating, I::Sent) => quiet(P::Lingering, A::Finish),
        (P::Terminating, I::Finish) => quiet(P::Answering, A::Nothing),
        (P::Answering, I::Sent) => quiet(P::Closed, A::Close),
        (P::Lingering, I::Finish) => quiet(P::Closed, A::Close),
        // Work has ended, so an abort has nothing to end, and a Terminate on its way is not destroyed by it.
        (P::Terminating | P::Answering | P::Lingering, I::Expired | I::Lost) => quiet(P::Closed, A::Close),
        _ => return None,
    };
    Some(StreamStep { next, action, ends })
}
