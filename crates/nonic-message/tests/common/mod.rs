//! What every test of channels needs first: two ends of one, on either wire.

#![allow(dead_code, unused_imports, reason = "every test file uses a part of it")]

#[path = "../../../nonic/tests/bench/block_on.rs"]
mod block_on;

pub(crate) use block_on::block_on;
use nonic::Device;
use nonic_message::{Channel, ChannelListener, Node, Options};
use std::future::Future;
use std::net::SocketAddr;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// How long anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
pub(crate) const WIRES: [&str; 2] = ["roce_lo", "iwarp_lo"];

pub(crate) fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

pub(crate) fn node(wire: &str, options: Options) -> Node {
    Node::new(&Device::open(wire).expect("loopback is there"), options)
}

/// A fixed cut-off: what is tested does not depend on how fast the machine is.
pub(crate) fn options(cutoff: u64) -> Options {
    let mut options = Options::default();
    options.cutoff = Some(cutoff);
    options
}

/// Two ends: first the connecting, then the accepting one.
pub(crate) fn pair(wire: &str, options: Options) -> (Channel, Channel) {
    let node = node(wire, options);
    let listener = node.listen(loopback()).expect("a port");
    ends(&node, &listener)
}

pub(crate) fn ends(node: &Node, listener: &ChannelListener) -> (Channel, Channel) {
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| {
            let accepted = listener.accept().wait_within(PATIENCE);
            accepted.expect("in time").expect("accepted")
        });
        let connected = node.connect(listener.local_addr()).wait().expect("connected");
        (connected, accepted.join().expect("no panic"))
    })
}

/// Bytes that differ from message to message and from place to place.
pub(crate) fn pattern(number: usize, len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at * 7 + number * 13 + at / 251) as u8)
        .collect()
}

pub(crate) fn receive(channel: &mut Channel) -> nonic_message::Message {
    let received = channel.recv().wait_within(PATIENCE).expect("in time");
    received.expect("the channel lives").expect("a message")
}

/// Polls a future once, with a waker that wakes nothing.
pub(crate) fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::pin::Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}
