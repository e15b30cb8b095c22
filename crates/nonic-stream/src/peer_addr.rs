//! What handlers are told of a peer. Their libraries know only TCP's and Unix's own types.

use std::net::SocketAddr;

/// The address of the peer of a request: with axum in `ConnectInfo<PeerAddr>`, with tonic in the request's extensions. The port is 0
/// if the peer's request did not carry one.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PeerAddr(pub SocketAddr);
