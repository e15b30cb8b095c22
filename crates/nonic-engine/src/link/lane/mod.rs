//! Lanes: packets through shared memory, between processes of one user in one network namespace.
//!
//! A lane goes one way and belongs to who sends. It is offered to the owner of a block of queue pair numbers, on the line
//! over which that one was asked where it listens ([`crate::host`]): the memory of a [`ring`]. Who takes it answers with
//! something to be woken by ([`crate::os::bell`]), and reads the ring until the line ends. From then on all packets to that block go that way, or
//! none did: they do not change their way while a queue pair is in use, except when a lane breaks.
//!
//! What a lane carries is RoCE packets without checksums. The other process is trusted as much as the network is: what it
//! writes is parsed and checked as if it had come from there. A reader that does not read is a network that loses: after
//! [`PATIENCE`] with a full ring, what is sent is dropped until it reads again, so nobody waits for it.
//!
//! There are no lanes where packets are captured or harmed on purpose (`NONIC_PCAP`, `NONIC_FAULTS`), between different
//! users, and with `NONIC_LANE=off`.

#[cfg(any(all(test, not(loom)), feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod incoming;
mod outgoing;
pub(crate) mod ring;
mod sleep;

pub(crate) use incoming::{IncomingLanes, LaneLine};
pub(crate) use outgoing::{LaneRoom, LaneSource, OutgoingLanes};

use std::time::Duration;

/// How long a full ring is waited for.
const PATIENCE: Duration = Duration::from_millis(20);
/// How long the owner of a block may think about an offer before packets go another way.
const CONSIDERATION: Duration = Duration::from_millis(20);
/// The most lanes in each direction: each is looked at in every poll.
const MOST: usize = 256;
