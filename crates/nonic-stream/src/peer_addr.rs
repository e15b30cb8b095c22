//! The peer's address, as handlers get it. Their libraries know only TCP's and Unix's own types.

use std::net::SocketAddr;

/// The address of the peer of a request: with axum in `ConnectInfo<PeerAddr>`, with tonic in the request's extensions. The port is 0
/// if the peer's request did not carry one.
///
/// ```
/// use nonic_stream::PeerAddr;
///
/// fn greet(PeerAddr(address): PeerAddr) -> String {
///     format!("hello {}", address.ip())
/// }
/// assert_eq!(greet(PeerAddr(([127, 0, 0, 1], 0).into())), "hello 127.0.0.1");
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PeerAddr(pub SocketAddr);
