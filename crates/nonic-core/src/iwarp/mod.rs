//! iWARP: queue pairs over byte streams, as RFCs 5040 (RDMAP), 5041 (DDP), 5044 (MPA), 6581 and 7306 define them.
//!
//! [`startup`] agrees on a stream with the peer. A queue pair is then attached to it
//! ([`Nic::stream_attach`](crate::Nic::stream_attach)) and is a machine from bytes to bytes: input goes in however TCP
//! has cut it, output comes out in whole FPDUs. Work requests, receive queues, memory keys and completions are those of
//! every other queue pair, and so are the calls of the [`Nic`](crate::Nic) for them.
//!
//! Nothing here opens a socket, reads a clock or trusts a peer. `placement` decides what a peer may do to memory.
//! Whatever a peer does wrong ends its own stream, and no other, with a Terminate that says why. Memory is bounded: by
//! queue sizes, by the depth of READs, and by one FPDU and one chunk of input per stream.
//!
//! Read first: `requester` and `responder` (the hard part), then `connected` (which half writes when) and [`stream_step`]
//! (how it ends).

pub mod startup;

mod answers;
mod config;
mod connected;
mod event;
mod fault;
mod frame;
mod halves;
mod outstanding;
mod params;
mod post;
mod queue_pair;
mod replies;
mod requester;
mod responder;
mod states;
mod stream;
mod view;

pub use config::{Extensions, IwarpConfig};
pub use event::{StreamClosed, StreamEnd, StreamEvent, StreamReading};
pub use frame::StreamGather;
pub use params::{Rtr, StreamParams, StreamRole};
pub use queue_pair::AttachError;
pub(crate) use queue_pair::{IwarpQueuePair, Signals};
pub use states::{StreamAction, StreamInput, StreamPhase, StreamStep, stream_step, stream_transition};
