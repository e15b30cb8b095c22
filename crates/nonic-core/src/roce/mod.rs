//! RoCE: InfiniBand's transport services over UDP.
//!
//! - `queue_pair`: a queue pair, which holds the machine of its service.
//! - `rc`: the reliable connection, a requester and a responder. `xrc` and `served` are what extended reliable connections
//!   add to it.
//! - `local`: to a process of this host, records instead of packets: their header, and a reliable connection's two halves.
//! - `sender`, `uc`, `ud`: the unreliable services. Sending is the same for both: a request is complete when its last
//!   packet is written. What differs is receiving: UC reassembles messages and drops those with a gap; UD takes single
//!   packets from any sender that knows the Q_Key.
//! - `qp1`: management datagrams.
//! - `request_packet`, `segment`: from a work request to the bytes of one of its packets, for every service.
//! - `refusal`: which NAK says why a request is not executed.
//! - `window`: how much may be on its way to a peer, for all queue pairs that talk to it; `congestion`: what the path tells
//!   about how much that should be.
//! - `pacer`: a rate that a queue pair was given.
//! - `notification`: how the peer is told that the path is congested.
//!
//! What a program sees of a queue pair (work requests, completions, memory) belongs to no transport and is beside this module.

pub(crate) mod congestion;
pub(crate) mod context;
pub(crate) mod departure;
pub(crate) mod emit;
pub(crate) mod extended_psn;
pub(crate) mod local;
pub(crate) mod notification;
pub(crate) mod pacer;
pub(crate) mod qp1;
pub(crate) mod queue_pair;
pub(crate) mod rc;
pub(crate) mod refusal;
pub(crate) mod request_packet;
pub(crate) mod segment;
pub(crate) mod sender;
pub(crate) mod served;
pub(crate) mod uc;
pub(crate) mod ud;
pub(crate) mod window;
pub(crate) mod xrc;
