//! Lanes: records through shared memory, between processes of one user in one network namespace.
//!
//! A lane is one-way shared [`memory`], made by the sender. The sender offers it to the owner of a block of queue
//! pair numbers, on the line over which it asked that process where it listens ([`crate::host`]). A process that accepts
//! the lane answers with a bell to be woken by ([`crate::os::bell`]), and reads the [`ring`] in it until the line ends.
//!
//! Requests of reliable connections, unreliable messages and datagrams are *records*, which the reader executes in place and answers
//! there ([`nonic_core::Lanes`]). The NIC writes them ([`writers`]); links make lanes and learn of their end ([`outgoing`], [`incoming`]).
//! A queue pair that finds no room for a record waits for it. When the lane ends, its peer is lost.
//!
//! What does not go in records goes as packets over UDP: the messages of connection managers, and a reliable connection that
//! began before there was a lane.
//!
//! The other process is trusted as much as the network is: what it writes is parsed and checked as if it had come from there.
//!
//! There are no lanes where packets are captured or disturbed on purpose (`NONIC_PCAP`, `NONIC_FAULTS`), between different
//! users, and with `NONIC_LANE=off`.

#[cfg(any(all(test, not(loom)), feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod incoming;
pub(crate) mod memory;
mod outgoing;
mod ring;
mod sleep;
mod writers;

pub(crate) use incoming::{IncomingLanes, LaneLine, RECORDS_PER_CALL};
pub(crate) use outgoing::{LaneSource, OutgoingLanes};
pub(crate) use writers::{OpenedLanes, RecordLanes};

/// The most lanes in each direction: every poll looks at each of them.
const MOST: usize = 256;
