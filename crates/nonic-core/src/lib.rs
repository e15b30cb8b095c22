//! The NIC as a state machine: memory keys, queues, and the transports of RoCEv2 and iWARP.
//!
//! A [`Nic`] is a plain value. Its caller feeds it datagrams, bytes of streams, work requests and the time, and asks it
//! what to transmit, what completed and when to wake it. It does no I/O, reads no clock, draws no randomness and
//! contains no `unsafe`: sockets belong to `nonic-engine`, virtual time to `nonic-sim`, memory is behind the [`Region`]
//! trait and random numbers come from an [`Entropy`].
//!
//! Read first: [`Nic`] (the vocabulary), then [`memory`] (which key permits which bytes), then the module docs of
//! `roce::rc::requester` and `roce::rc::responder` (the hard part). [`iwarp`] has its own two.
//!
//! Work requests, completions and memory (`verbs`) and queue pair states (`qp`) belong to no transport, and neither do
//! the checks of what a peer may do to memory (`placement`). The RoCE services are in `roce`, and a queue pair
//! (`queue_pair`) holds the state machine of its service; iWARP is in [`iwarp`]. The [`Nic`] has all of them.
//!
//! A peer on the same host may be reached without packets: [`Lanes`] and [`DirectAccess`] say how, `roce::local` and
//! `roce::local::direct` when.
//!
//! Beside the NIC stands [`cm::Cm`], the connection manager, which connects the queue pairs of two programs. For iWARP
//! that is [`iwarp::startup`].
//!
//! Three kinds of trouble are kept apart: a peer's fault becomes a NAK, a Terminate or a completion [`Status`]; a caller's
//! misuse becomes a typed error ([`PostError`], [`ModifyError`], …); a bug panics. No packet can cause a panic.

#![cfg_attr(not(loom), forbid(unsafe_code))]

pub mod cm;
mod counters;
mod direct;
mod entropy;
pub mod iwarp;
mod lanes;
mod nic;
mod outbox;
mod placement;
mod queue_pair;
pub mod record;
mod resources;
mod roce;
pub mod room;
mod shortage;
mod sync;
mod time;
mod timer;
mod verbs;

pub use counters::Counters;
pub use direct::{
    Direct, DirectAccess, DirectOperation, DirectRequest, LocalBytes, LocalPart, PublishedKey, Target,
};
pub use entropy::{Entropy, SeededEntropy};
pub use lanes::{Answered, LaneId, Lanes, RecordAnswer, RecordTag};
pub use nic::{
    Arrival, CreateError, MAX_BATCH_LEN, MAX_BATCH_PACKETS, ManagementError, Nic, NicConfig, QPNS_PER_BLOCK,
    QpInit, Transmit, Usage,
};
pub use nonic_wire::{Psn, Qpn, Service};
pub use queue_pair::{
    AckTimeout, AttributeMask, ModifyError, Named, Path, PathMtu, PeerView, PostError, QpAttributes,
    QpCapacity, QpState, QueuePairView, RnrTimer, SequenceView, Traffic, Transition, Troubles, transition,
};
pub use resources::Endpoint;
pub use roce::congestion::Congestion;
pub use roce::emit::Hop;
pub use roce::notification::Notification;
pub use roce::qp1::{ManagementDatagram, NotManagement, Route, management_datagram};
pub use roce::rc::ReorderConfig;
pub use roce::window::WindowConfig;
pub use roce::xrc::XrcDomain;
pub use shortage::{Frequency, Shortage};
pub use time::Time;
pub use verbs::cq::{Arm, CompletionQueue, CqId, CqOverflow, CqView};
pub use verbs::event::Event;
pub use verbs::memory;
pub use verbs::memory::{
    Access, Fault, HeapRegion, Key, KeyError, KeyHasher, KeyPublisher, KeySpec, KeyTable, PdId, Region,
    RegionOwner, Sge, WindowBind, WindowKind,
};
pub use verbs::rq::{ReceiveQueue, RecvRefused, SrqId};
pub use verbs::work::{
    Completion, CompletionOpcode, Data, Destination, Flush, FlushRange, Placement, RecvRequest,
    RemoteAddress, SendFlags, SendOp, SendRequest, Status,
};
