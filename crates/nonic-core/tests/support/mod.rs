//! The test bench: NICs with explicit virtual time, and links that do what the test says.
//!
//! - [`Bench`] is one NIC with memory, completion queues and a queue pair, for every transport.
//! - [`Node`] is one that sends packets. It never sends by itself: the test asks for its packets and carries them.
//! - [`Pair`] is two connected nodes. [`Pair::exchange`] carries everything faithfully,
//!   [`Pair::exchange_with`] asks the test about each packet.
//! - [`SharedHost`] lets nodes reach each other's memory without packets.
//! - [`LaneHost`] lets them talk in records, through lanes.
//! - [`Solo`] is one node whose peer is the test itself, which writes packets by hand.
//!
//! Nothing here sleeps or reads a clock. A loop that does not end is a failure, not a hang.
#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "each test file uses a part of this module"
)]

mod bench;
mod bytes;
mod lane_host;
mod node;
mod pair;
mod setup;
mod shared_host;
mod solo;
mod wire;

pub use bench::{Bench, IOVA, Parts};
pub use bytes::Bytes;
pub use lane_host::LaneHost;
pub use node::{Node, Remote};
pub use pair::{Fate, Pair, Side};
pub use setup::Setup;
pub use shared_host::SharedHost;
pub use solo::Solo;
pub use wire::Wire;

use nonic_core::{Completion, Status};
use std::time::Duration;

/// Packets a test may see before it is taken for an endless loop.
pub const MANY: usize = 100_000;

pub const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub const fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// A recognisable byte sequence: `seed` decides where it starts.
pub fn pattern(seed: u8, length: usize) -> Bytes {
    let byte = |i: usize| (i.wrapping_mul(31) >> 3) as u8 ^ (i as u8).wrapping_add(seed);
    Bytes((0..length).map(byte).collect())
}

/// Completions reduced to what most tests are about.
pub fn outcomes(completions: &[Completion]) -> Vec<(u64, Status)> {
    completions.iter().map(|c| (c.wr_id, c.status)).collect()
}

/// Posts a send request with one gather element: `post!(node, 7, SendOp::Send, 0, 64)`.
#[macro_export]
macro_rules! post {
    ($node:expr, $wr_id:expr, $op:expr, $offset:expr, $length:expr) => {
        $node
            .try_send($wr_id, $op, $offset, $length)
            .expect("the request is posted")
    };
}

/// Posts a receive with one scatter element: `recv!(node, 7, 0, 64)`.
#[macro_export]
macro_rules! recv {
    ($node:expr, $wr_id:expr, $offset:expr, $length:expr) => {
        $node
            .try_recv($wr_id, $offset, $length)
            .expect("the receive is posted")
    };
}

/// What the node transmits must be exactly these opcodes; returns the packets.
#[macro_export]
macro_rules! sent {
    ($node:expr, [$($opcode:ident),* $(,)?]) => {{
        let packets = $node.transmit();
        let opcodes: Vec<nonic_wire::Opcode> = packets.iter().map(|wire| wire.opcode()).collect();
        let expected: Vec<nonic_wire::Opcode> = vec![$(nonic_wire::Opcode::$opcode),*];
        assert_eq!(opcodes, expected);
        packets
    }};
}

/// The node's send completions must be exactly these `(wr_id, status)`; returns them.
#[macro_export]
macro_rules! completed {
    ($node:expr, [$($outcome:expr),* $(,)?]) => {{
        let completions = $node.completions();
        let expected: Vec<(u64, nonic_core::Status)> = vec![$($outcome),*];
        assert_eq!($crate::support::outcomes(&completions), expected);
        completions
    }};
}

/// The node's receive completions must be exactly these `(wr_id, status)`; returns them.
#[macro_export]
macro_rules! received {
    ($node:expr, [$($outcome:expr),* $(,)?]) => {{
        let completions = $node.receptions();
        let expected: Vec<(u64, nonic_core::Status)> = vec![$($outcome),*];
        assert_eq!($crate::support::outcomes(&completions), expected);
        completions
    }};
}

/// The node has nothing to send, nothing to report and no event.
#[macro_export]
macro_rules! expect_nothing {
    ($node:expr) => {{
        assert_eq!($node.transmit(), [], "a packet was not expected");
        assert_eq!($node.completions(), [], "a send completion was not expected");
        assert_eq!($node.receptions(), [], "a receive completion was not expected");
        assert_eq!($node.events(), [], "an event was not expected");
    }};
}
