//! The parameters of a stream that start-up agreed on.

/// Which side asked for the connection.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum StreamRole {
    /// Sent the MPA Request.
    Initiator,
    /// Sent the MPA Reply.
    Responder,
}

/// The message by which an initiator says that it is ready, so that the responder may send: RFC 6581 §9.2.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Rtr {
    /// A WRITE of no bytes.
    Write,
    /// A READ of no bytes.
    Read,
}

/// What both sides of a stream agreed on: the outcome of [`super::startup`], and what a queue pair is attached with.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct StreamParams {
    /// Which side asked for the connection.
    pub role: StreamRole,
    /// Whether both directions carry CRCs.
    pub crc: bool,
    /// Whether the peer wants markers in what this side sends.
    pub markers: bool,
    /// READs and atomics of the peer that this side answers at a time.
    pub ird: u16,
    /// READs and atomics of this side that the peer answers at a time.
    pub ord: u16,
    /// For an initiator: what to send first. For a responder: what is promised to come first; `None` if nothing is.
    pub rtr: Option<Rtr>,
}
