//! Lanes: records and packets through shared memory, between processes of one user in one network namespace.
//!
//! A lane is a one-way shared-memory [`ring`] owned by the sender. The sender offers it to the owner of a block of queue
//! pair numbers, on the line over which it asked that process where it listens ([`crate::host`]). A process that accepts
//! the lane answers with a bell to be woken by ([`crate::os::bell`]), and reads the ring until the line ends.
//!
//! Requests of reliable connections are *records*, which the reader executes in place and answers there ([`record_ring`],
//! [`nonic_core::Lanes`]). A queue pair that finds no room for a record waits for it. When the lane ends, its peer is lost.
//!
//! Everything else is RoCE *packets* without checksums. All packets to the block use the lane from then on; a queue pair never switches
//! path unless the lane breaks.
//!
//! The other process is trusted as much as the network is: what it writes is parsed and checked as if it had come from there.
//! A reader that does not read packets is like a network that loses them: after [`PATIENCE`] with a full ring, the sender drops
//! packets until the reader reads again, so no sender waits for it for long.
//!
//! There are no lanes where packets are captured or disturbed on purpose (`NONIC_PCAP`, `NONIC_FAULTS`), between different
//! users, and with `NONIC_LANE=off`.

#[cfg(any(all(test, not(loom)), feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod incoming;
mod outgoing;
mod record_lanes;
mod record_ring;
pub(crate) mod ring;
mod sleep;

pub(crate) use incoming::{BATCHES_PER_CALL, IncomingLanes, LaneLine};
pub(crate) use outgoing::{LaneRoom, LaneSource, OutgoingLanes};
pub(crate) use record_lanes::{OpenedLanes, RecordLanes};

use std::time::Duration;

/// How long a sender waits for room in a full ring.
const PATIENCE: Duration = Duration::from_millis(20);
/// How long the owner of a block may think about an offer before packets go another way.
const CONSIDERATION: Duration = Duration::from_millis(20);
/// The most lanes in each direction: every poll looks at each of them.
const MOST: usize = 256;
