//! The reliable connected service: [`Requester`] sends work and collects acknowledgements, [`Responder`]
//! executes what the peer asks for.
//!
//! The two halves share nothing but the queue pair's attributes. Packets that a peer's responder sends
//! (acknowledgements, READ responses) go to our requester; packets that a peer's requester sends go to our
//! responder.

mod direct;
mod direct_progress;
mod repeats;
mod replies;
mod requester;
mod responder;

pub(crate) use requester::{Requester, RequesterTimers};
pub(crate) use responder::Responder;
