//! What every test of streams needs first: two ends of one, on either wire.

#![allow(dead_code, reason = "every test file uses a part of it")]

use nonic::Device;
use nonic_stream::{Node, Options, RdmaListener, RdmaStream};
use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

/// How long anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
pub(crate) const WIRES: [&str; 2] = ["roce_lo", "iwarp_lo"];

pub(crate) fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// With a fixed cut-off: what is tested does not depend on how fast the machine is.
pub(crate) fn node(wire: &str) -> Node {
    let mut options = Options::default();
    options.cutoff = Some(4096);
    Node::new(&Device::open(wire).expect("loopback is there"), options)
}

/// Two ends: first the connecting, then the accepting one.
pub(crate) async fn pair(wire: &str) -> (RdmaStream, RdmaStream) {
    let node = node(wire);
    let listener = RdmaListener::bind_on(&node, loopback()).expect("a port");
    ends(&node, &listener).await
}

pub(crate) async fn ends(node: &Node, listener: &RdmaListener) -> (RdmaStream, RdmaStream) {
    let address = listener.local_addr().expect("it is bound");
    let (connected, accepted) = tokio::join!(RdmaStream::connect_on(node, address), listener.accept());
    (connected.expect("connected"), accepted.expect("accepted").0)
}

/// Bytes that differ from place to place.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// Runs a test on a runtime of two threads, for each wire; what takes too long fails.
pub(crate) fn on_both_wires<F: Future<Output = ()>>(test: impl Fn(&'static str) -> F) {
    for wire in WIRES {
        within(test(wire)).unwrap_or_else(|_| panic!("{wire}: not done in {PATIENCE:?}"));
    }
}

pub(crate) fn within<F: Future>(test: F) -> Result<F::Output, tokio::time::error::Elapsed> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let outcome = runtime.block_on(async { tokio::time::timeout(PATIENCE, test).await });
    runtime.shutdown_background();
    outcome
}
