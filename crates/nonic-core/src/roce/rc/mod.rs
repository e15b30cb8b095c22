//! The reliable connected service: [`Requester`] sends work and collects acknowledgements, [`Responder`]
//! executes what the peer asks for.
//!
//! The two halves share nothing but the queue pair's attributes. Packets that a peer's responder sends
//! (acknowledgements, READ responses) go to our requester; packets that a peer's requester sends go to our responder.
//! Each half keeps its own packets that come out of order ([`reorder`]).

mod allowance;
mod answers;
mod early;
mod execution;
mod gap;
mod loss_state;
mod overtaking;
mod reach;
mod recovery;
mod reorder;
mod repeats;
mod replies;
mod requester;
mod responder;
mod retry;
mod round_trip;
mod scoreboard;
mod sequence;
mod view;

pub(crate) use execution::{Execution, Outcome};
pub use reorder::ReorderConfig;
pub(crate) use reorder::ReorderMemory;
pub(crate) use replies::Refusals;
pub(crate) use requester::{Requester, RequesterTroubles};
pub(crate) use responder::Responder;
