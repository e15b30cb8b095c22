//! The connection manager's state machine, as one table.
//!
//! A row says: a connection in this state, given this input, sends that, tells its owner that and is then in
//! this state. What is not in the table does not happen: a message is ignored, a call is refused. The rest of
//! the module only carries out what is written here.

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
    /// The last word is said; it is kept to be said again.
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
    /// A REJ or SIDR_REP that says that nobody listens, and it may be worth asking again.
    Unserved,
    /// Somebody at the peer's address asks for a new connection with the queue pair of this one.
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
pub enum Send {
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

/// What the owner is told.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "the event of that name")]
pub enum Tell {
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
    pub send: Send,
    /// What the owner is told.
    pub tell: Tell,
}

/// Looks the row up.
pub fn cm_transition(state: CmState, input: Input) -> Option<CmTransition> {
    let (next, send, tell) = arrival(state, input)
        .or_else(|| call(state, input))
        .or_else(|| time(state, input))?;
    Some(CmTransition { next, send, tell })
}

type Row = Option<(CmState, Send, Tell)>;

fn arrival(state: CmState, input: Input) -> Row {
    use CmState::*;
    use Input::*;
    Some(match (state, input) {
        // Active: waiting for REP.
        (ReqSent | MraReqReceived, Rep) => (RepReceived, Send::Nothing, Tell::Response),
        (ReqSent | MraReqReceived, StaleRep) => (Closed, Send::RejStale, Tell::Rejected),
        (ReqSent | MraReqReceived, MraOfReq) => (MraReqReceived, Send::Nothing, Tell::Nothing),
        (ReqSent | MraReqReceived, Rej) => (Closed, Send::Nothing, Tell::Rejected),
        (ReqSent | SidrReqSent, Unserved) => (state, Send::Nothing, Tell::Nothing),
        // Active: the program has the word. A second REP says that the peer grows impatient.
        (RepReceived | MraRepSent, Rep) => (MraRepSent, Send::Mra, Tell::Nothing),
        (RepReceived | MraRepSent, Rej) => (Closed, Send::Nothing, Tell::Rejected),
        (RepReceived | MraRepSent, Dreq) => (TimeWait, Send::Drep, Tell::Disconnected),
        // Passive: the program has the word.
        (ReqReceived | MraReqSent, Req) => (MraReqSent, Send::Mra, Tell::Nothing),
        (ReqReceived | MraReqSent, Rej) => (Answered, Send::Nothing, Tell::Rejected),
        // Passive: waiting for RTU. A DREQ says as much: the peer was established, and is no more.
        (RepSent, Req) => (RepSent, Send::Again, Tell::Nothing),
        (RepSent | MraRepReceived, MraOfRep) => (MraRepReceived, Send::Nothing, Tell::Nothing),
        (RepSent | MraRepReceived, Rtu) => (Established, Send::Nothing, Tell::Established),
        (RepSent | MraRepReceived, Rej) => (Answered, Send::Nothing, Tell::Rejected),
        (RepSent | MraRepReceived, Dreq) => (TimeWait, Send::Drep, Tell::Disconnected),
        // Established. A second REP says that our RTU was lost; a REJ that the peer gave up waiting for it.
        (Established, Rep) => (Established, Send::Again, Tell::Nothing),
        (Established, Rej) => (TimeWait, Send::Nothing, Tell::Disconnected),
        (Established, Dreq) => (TimeWait, Send::Drep, Tell::Disconnected),
        // Disconnecting, perhaps both at once.
        (DreqSent, Dreq) => (TimeWait, Send::Drep, Tell::Disconnected),
        (DreqSent, Drep | Rej) => (TimeWait, Send::Nothing, Tell::Disconnected),
        // Over. Whoever still believes in it is told.
        (TimeWait, Dreq) => (TimeWait, Send::Drep, Tell::Nothing),
        (TimeWait, Req) => (TimeWait, Send::RejStale, Tell::Nothing),
        (TimeWait, Rep) => (TimeWait, Send::RejUnknown, Tell::Nothing),
        (Answered, Req | Rep | Rtu | SidrReq) => (Answered, Send::Again, Tell::Nothing),
        (Answered, Dreq) => (Answered, Send::Drep, Tell::Nothing),
        // The peer's queue pair may live a new life, or somebody lies: the peer alone can tell. One that is not
        // established is asked anyway, with every REP.
        (Established, Stale) => (Established, Send::Question, Tell::Nothing),
        (Established, Unknown) => (TimeWait, Send::Nothing, Tell::Disconnected),
        (SidrReqSent, SidrRep) => (Closed, Send::Nothing, Tell::SidrResponse),
        _ => return None,
    })
}

fn call(state: CmState, input: Input) -> Row {
    use CmState::*;
    use Input::*;
    Some(match (state, input) {
        (ReqReceived | MraReqSent, Accept) => (RepSent, Send::Given, Tell::Nothing),
        (ReqReceived | MraReqSent | RepReceived | MraRepSent, Reject) => {
            (Answered, Send::Given, Tell::Nothing)
        }
        (RepReceived | MraRepSent, Establish) => (Established, Send::Given, Tell::Nothing),
        // The first data arrived before RTU did.
        (RepSent | MraRepReceived, Establish) => (Established, Send::Nothing, Tell::Established),
        (Established | RepSent | MraRepReceived, Disconnect) => (DreqSent, Send::Given, Tell::Nothing),
        (DreqSent | TimeWait, Disconnect) => (state, Send::Nothing, Tell::Nothing),
        (SidrReqReceived, Answer) => (Answered, Send::Given, Tell::Nothing),
        (ReqSent | MraReqReceived, Abandon) => (Closed, Send::RejTimeout, Tell::Nothing),
        (ReqReceived | MraReqSent | RepReceived | MraRepSent, Abandon) => {
            (Answered, Send::RejConsumer, Tell::Nothing)
        }
        // Not a REJ: the peer may be established already, and Linux would not listen to one then.
        (RepSent | MraRepReceived | Established, Abandon) => (DreqSent, Send::Dreq, Tell::Nothing),
        (DreqSent | TimeWait | Answered, Abandon) => (state, Send::Nothing, Tell::Nothing),
        (SidrReqSent, Abandon) => (Closed, Send::Nothing, Tell::Nothing),
        (SidrReqReceived, Abandon) => (Answered, Send::SidrReject, Tell::Nothing),
        _ => return None,
    })
}

fn time(state: CmState, input: Input) -> Row {
    use CmState::*;
    use Input::*;
    Some(match (state, input) {
        // As if it had said goodbye to what it knew of; nobody is left to answer anything.
        (MraReqReceived, Gone) => (Closed, Send::Nothing, Tell::Unreachable),
        (ReqReceived | MraReqSent, Gone) => (Answered, Send::Nothing, Tell::Unreachable),
        (RepReceived | MraRepSent | RepSent | MraRepReceived | Established | DreqSent, Gone) => {
            (TimeWait, Send::Nothing, Tell::Disconnected)
        }
        (ReqSent | MraReqReceived, Timeout) => (ReqSent, Send::Again, Tell::Nothing),
        (ReqSent | MraReqReceived, Exhausted) => (Closed, Send::RejTimeout, Tell::Unreachable),
        (RepSent | MraRepReceived, Timeout) => (RepSent, Send::Again, Tell::Nothing),
        (RepSent | MraRepReceived, Exhausted) => (Answered, Send::RejTimeout, Tell::Unreachable),
        (DreqSent, Timeout) => (DreqSent, Send::Again, Tell::Nothing),
        (DreqSent, Exhausted) => (TimeWait, Send::Nothing, Tell::Disconnected),
        (SidrReqSent, Timeout) => (SidrReqSent, Send::Again, Tell::Nothing),
        (SidrReqSent, Exhausted) => (Closed, Send::Nothing, Tell::Unreachable),
        (TimeWait, Expired) => (Closed, Send::Nothing, Tell::TimewaitExit),
        (Answered, Expired) => (Closed, Send::Nothing, Tell::Nothing),
        _ => return None,
    })
}
