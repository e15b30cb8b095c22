//! The connection manager's state machine, as one table.
//!
//! A row says: a connection in this state, given this input, sends that, reports that to its owner and is then in this
//! state. What is not in the table does not happen: the message is ignored, the call is refused. The rest of the module
//! only executes the rows.

use std::fmt;

/// Where a connection, or a datagram service being resolved, stands.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum CmState {
    /// Active: REQ is out.
    ReqSent,
    /// Active: the peer needs time for our REQ.
    MraReqReceived,
    /// Active: REP is here; the program must establish or reject.
    RepReceived,
    /// The same, and the peer was asked for time.
    MraRepSent,
    /// Passive: REQ is here; the program must accept or reject.
    ReqReceived,
    /// The same, and the peer was asked for time.
    MraReqSent,
    /// Passive: REP is out.
    RepSent,
    /// Passive: the peer needs time for our REP.
    MraRepReceived,
    /// Both sides know of each other.
    Established,
    /// DREQ is out.
    DreqSent,
    /// It is over; packets and messages may still be on their way.
    TimeWait,
    /// The exchange is over; its final answer, if any, is kept to be repeated.
    Answered,
    /// Active: SIDR_REQ is out.
    SidrReqSent,
    /// Passive: SIDR_REQ is here; the program must answer.
    SidrReqReceived,
    /// Forgotten. No connection is ever seen in this state.
    Closed,
}

impl CmState {
    /// Every state a connection can be in.
    pub const ALL: [CmState; 14] = [
        CmState::ReqSent,
        CmState::MraReqReceived,
        CmState::RepReceived,
        CmState::MraRepSent,
        CmState::ReqReceived,
        CmState::MraReqSent,
        CmState::RepSent,
        CmState::MraRepReceived,
        CmState::Established,
        CmState::DreqSent,
        CmState::TimeWait,
        CmState::Answered,
        CmState::SidrReqSent,
        CmState::SidrReqReceived,
    ];

    /// Whether a request is out that the peer has said nothing about.
    pub(super) fn is_unanswered(self) -> bool {
        matches!(self, CmState::ReqSent | CmState::SidrReqSent | CmState::DreqSent)
    }

    /// Whether a listener's backlog counts it.
    pub(super) fn is_pending(self) -> bool {
        matches!(
            self,
            CmState::ReqReceived | CmState::MraReqSent | CmState::SidrReqReceived
        )
    }
}

impl fmt::Display for CmState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What can happen to a connection.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[expect(
    missing_docs,
    reason = "the arrival of the message of that name, unless it says otherwise"
)]
pub enum Input {
    Req,
    MraOfReq,
    MraOfRep,
    Rej,
    Rep,
    /// A REP whose queue pair belongs to another connection already.
    StaleRep,
    Rtu,
    Dreq,
    Drep,
    SidrReq,
    SidrRep,
    /// A REJ or SIDR_REP that says that there is no listener, while it may be worth asking again.
    Unserved,
    /// The peer, or an impostor at its address, asks for a new connection with the queue pair of this one.
    Stale,
    /// The peer was asked about this connection and has none.
    Unknown,
    /// The program accepts.
    Accept,
    /// The program rejects.
    Reject,
    /// The program's queue pair is ready, or has received something.
    Establish,
    /// The program disconnects.
    Disconnect,
    /// The program answers a request to resolve a service.
    Answer,
    /// The program wants to hear no more of it.
    Abandon,
    /// The peer's process has ended, as its host says.
    Gone,
    /// No answer in time, and more attempts are left.
    Timeout,
    /// No answer in time to the last attempt.
    Exhausted,
    /// Kept long enough.
    Expired,
}

impl Input {
    /// Every input.
    pub const ALL: [Input; 24] = [
        Input::Req,
        Input::MraOfReq,
        Input::MraOfRep,
        Input::Rej,
        Input::Rep,
        Input::StaleRep,
        Input::Rtu,
        Input::Dreq,
        Input::Drep,
        Input::SidrReq,
        Input::SidrRep,
        Input::Unserved,
        Input::Stale,
        Input::Unknown,
        Input::Accept,
        Input::Reject,
        Input::Establish,
        Input::Disconnect,
        Input::Answer,
        Input::Abandon,
        Input::Gone,
        Input::Timeout,
        Input::Exhausted,
        Input::Expired,
    ];
}

/// What is sent.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum CmReply {
    /// Nothing.
    Nothing,
    /// The message the program's call made.
    Given,
    /// The last message, once more.
    Again,
    /// MRA: please wait.
    Mra,
    /// REJ: the program does not want it.
    RejConsumer,
    /// REJ: no answer came in time.
    RejTimeout,
    /// REJ: an older connection is in the way.
    RejStale,
    /// REJ: there is no such connection any more.
    RejUnknown,
    /// DREQ.
    Dreq,
    /// A DREQ that ends nothing: whether the peer still has this connection.
    Question,
    /// DREP.
    Drep,
    /// SIDR_REP: the program does not want it.
    SidrReject,
}

/// What is reported to the owner.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "the event of that name")]
pub enum CmNotice {
    Nothing,
    Response,
    Established,
    Rejected,
    Unreachable,
    Disconnected,
    TimewaitExit,
    SidrResponse,
}

/// One row of the table.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct CmTransition {
    /// The state it leads to.
    pub next: CmState,
    /// What is sent.
    pub send: CmReply,
    /// What is reported to the owner.
    pub tell: CmNotice,
}

/// Looks the row up.
pub fn cm_transition(state: CmState, input: Input) -> Option<CmTransition> {
    let (next, send, tell) = arrival(state, input)
        .or_else(|| call(state, input))
        .or_else(|| time(state, input))?;
    Some(CmTransition { next, send, tell })
}

type Row = Option<(CmState, CmReply, CmNotice)>;

fn arrival(state: CmState, input: Input) -> Row {
    use CmState::*;
    use Input::*;
    Some(match (state, input) {
        // Active: waiting for REP.
        (ReqSent | MraReqReceived, Rep) => (RepReceived, CmReply::Nothing, CmNotice::Response),
        (ReqSent | MraReqReceived, StaleRep) => (Closed, CmReply::RejStale, CmNotice::Rejected),
        (ReqSent | MraReqReceived, MraOfReq) => (MraReqReceived, CmReply::Nothing, CmNotice::Nothing),
        (ReqSent | MraReqReceived, Rej) => (Closed, CmReply::Nothing, CmNotice::Rejected),
        (ReqSent | SidrReqSent, Unserved) => (state, CmReply::Nothing, CmNotice::Nothing),
        // Active: the program has the word. A second REP says that the peer grows impatient.
        (RepReceived | MraRepSent, Rep) => (MraRepSent, CmReply::Mra, CmNotice::Nothing),
        (RepReceived | MraRepSent, Rej) => (Closed, CmReply::Nothing, CmNotice::Rejected),
        (RepReceived | MraRepSent, Dreq) => (TimeWait, CmReply::Drep, CmNotice::Disconnected),
        // Passive: the program has the word.
        (ReqReceived | MraReqSent, Req) => (MraReqSent, CmReply::Mra, CmNotice::Nothing),
        (ReqReceived | MraReqSent, Rej) => (Answered, CmReply::Nothing, CmNotice::Rejected),
        // Passive: waiting for RTU. A DREQ says as much: the peer was established, and is no more.
        (RepSent, Req) => (RepSent, CmReply::Again, CmNotice::Nothing),
        (RepSent | MraRepReceived, MraOfRep) => (MraRepReceived, CmReply::Nothing, CmNotice::Nothing),
        (RepSent | MraRepReceived, Rtu) => (Established, CmReply::Nothing, CmNotice::Established),
        (RepSent | MraRepReceived, Rej) => (Answered, CmReply::Nothing, CmNotice::Rejected),
        (RepSent | MraRepReceived, Dreq) => (TimeWait, CmReply::Drep, CmNotice::Disconnected),
        // Established. A second REP says that our RTU was lost; a REJ that the peer gave up waiting for it.
        (Established, Rep) => (Established, CmReply::Again, CmNotice::Nothing),
        (Established, Rej) => (TimeWait, CmReply::Nothing, CmNotice::Disconnected),
        (Established, Dreq) => (TimeWait, CmReply::Drep, CmNotice::Disconnected),
        // Disconnecting, perhaps both at once.
        (DreqSent, Dreq) => (TimeWait, CmReply::Drep, CmNotice::Disconnected),
        (DreqSent, Drep | Rej) => (TimeWait, CmReply::Nothing, CmNotice::Disconnected),
        // Over. Whoever still believes in it is told.
        (TimeWait, Dreq) => (TimeWait, CmReply::Drep, CmNotice::Nothing),
        (TimeWait, Req) => (TimeWait, CmReply::RejStale, CmNotice::Nothing),
        (TimeWait, Rep) => (TimeWait, CmReply::RejUnknown, CmNotice::Nothing),
        (Answered, Req | Rep | Rtu | SidrReq) => (Answered, CmReply::Again, CmNotice::Nothing),
        (Answered, Dreq) => (Answered, CmReply::Drep, CmNotice::Nothing),
        // The peer's queue pair may be reused, or the message is forged: only the peer can tell. A connection that is
        // not established is asked about anyway, with every REP.
        (Established, Stale) => (Established, CmReply::Question, CmNotice::Nothing),
        (Established, Unknown) => (TimeWait, CmReply::Nothing, CmNotice::Disconnected),
        (SidrReqSent, SidrRep) => (Closed, CmReply::Nothing, CmNotice::SidrResponse),
        _ => return None,
    })
}

fn call(state: CmState, input: Input) -> Row {
    use CmState::*;
    use Input::*;
    Some(match (state, input) {
        (ReqReceived | MraReqSent, Accept) => (RepSent, CmReply::Given, CmNotice::Nothing),
        (ReqReceived | MraReqSent | RepReceived | MraRepSent, Reject) => {
            (Answered, CmReply::Given, CmNotice::Nothing)
        }
        (RepReceived | MraRepSent, Establish) => (Established, CmReply::Given, CmNotice::Nothing),
        // The first data arrived before RTU did.
        (RepSent | MraRepReceived, Establish) => (Established, CmReply::Nothing, CmNotice::Established),
        (Established | RepSent | MraRepReceived, Disconnect) => (DreqSent, CmReply::Given, CmNotice::Nothing),
        (DreqSent | TimeWait, Disconnect) => (state, CmReply::Nothing, CmNotice::Nothing),
        (SidrReqReceived, Answer) => (Answered, CmReply::Given, CmNotice::Nothing),
        (ReqSent | MraReqReceived, Abandon) => (Closed, CmReply::RejTimeout, CmNotice::Nothing),
        (ReqReceived | MraReqSent | RepReceived | MraRepSent, Abandon) => {
            (Answered, CmReply::RejConsumer, CmNotice::Nothing)
        }
        // Not a REJ: the peer may be established already, and Linux would not listen to one then.
        (RepSent | MraRepReceived | Established, Abandon) => (DreqSent, CmReply::Dreq, CmNotice::Nothing),
        (DreqSent | TimeWait | Answered, Abandon) => (state, CmReply::Nothing, CmNotice::Nothing),
        (SidrReqSent, Abandon) => (Closed, CmReply::Nothing, CmNotice::Nothing),
        (SidrReqReceived, Abandon) => (Answered, CmReply::SidrReject, CmNotice::Nothing),
        _ => return None,
    })
}

fn time(state: CmState, input: Input) -> Row {
    use CmState::*;
    use Input::*;
    Some(match (state, input) {
        // As if the process had disconnected what it knew of; it can answer nothing any more.
        (MraReqReceived, Gone) => (Closed, CmReply::Nothing, CmNotice::Unreachable),
        (ReqReceived | MraReqSent, Gone) => (Answered, CmReply::Nothing, CmNotice::Unreachable),
        (RepReceived | MraRepSent | RepSent | MraRepReceived | Established | DreqSent, Gone) => {
            (TimeWait, CmReply::Nothing, CmNotice::Disconnected)
        }
        (ReqSent | MraReqReceived, Timeout) => (ReqSent, CmReply::Again, CmNotice::Nothing),
        (ReqSent | MraReqReceived, Exhausted) => (Closed, CmReply::RejTimeout, CmNotice::Unreachable),
        (RepSent | MraRepReceived, Timeout) => (RepSent, CmReply::Again, CmNotice::Nothing),
        (RepSent | MraRepReceived, Exhausted) => (Answered, CmReply::RejTimeout, CmNotice::Unreachable),
        (DreqSent, Timeout) => (DreqSent, CmReply::Again, CmNotice::Nothing),
        (DreqSent, Exhausted) => (TimeWait, CmReply::Nothing, CmNotice::Disconnected),
        (SidrReqSent, Timeout) => (SidrReqSent, CmReply::Again, CmNotice::Nothing),
        (SidrReqSent, Exhausted) => (Closed, CmReply::Nothing, CmNotice::Unreachable),
        (TimeWait, Expired) => (Closed, CmReply::Nothing, CmNotice::TimewaitExit),
        (Answered, Expired) => (Closed, CmReply::Nothing, CmNotice::Nothing),
        _ => return None,
    })
}
