//! RDMA with no NIC: a safe verbs API over a software RNIC that lives in this process.
//!
//! ```
//! use nonic::{Device, Rc};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::open("roce_lo")?;
//! let (domain, queue) = (device.domain(), device.completion_queue(16)?);
//!
//! // Two queue pairs, connected to each other by exchanging endpoints (here: within one program).
//! let (left, right) = (domain.queue_pair::<Rc>(&queue)?, domain.queue_pair::<Rc>(&queue)?);
//! let (here, there) = (left.endpoint(), right.endpoint());
//! let (mut left, mut right) = (left.connect(&there)?, right.connect(&here)?);
//!
//! // Buffers are owned: moved into the request, returned by its completion.
//! right.rq.recv(1, domain.lease(64)?)?;
//! left.sq.send(2, domain.lease_from(b"hello, no NIC")?)?;
//!
//! for _ in 0..2 {
//!     let done = queue.wait(None)?.expect("no time limit was given");
//!     let length = done.result?;
//!     if done.id == 1 {
//!         assert_eq!(&done.buffers[0][..length], b"hello, no NIC");
//!     }
//! }
//! # Ok(()) }
//! ```
//!
//! # What to read first
//!
//! - [`Device`], [`Domain`]: what there is and what belongs together.
//! - [`Lease`] and [`Exposed`]: the two kinds of registered memory. A lease is yours alone until you move it
//!   into a request; exposed memory can be touched by peers at any time and is never a slice.
//! - [`QueuePair`]: its two halves can live on different threads.
//! - [`CompletionQueue`]: poll it, wait on it, or await it.
//! - [`Listener`] and [`connect`]: queue pairs connected by address and port; [`DatagramListener`] and [`resolve`]
//!   for datagrams.
//!
//! # What cannot happen
//!
//! A buffer cannot be freed, read or written while the NIC uses it: it is not in your hands. A queue pair
//! of a service without READ has no `read` method. Connecting twice does not compile. Cancelling a future
//! abandons nothing: the completion stays in its queue.

mod cm_dispatcher;
mod completion;
mod connection;
mod device;
mod endpoint;
mod memory;
mod outstanding;
mod posting;
mod queue_pair;
mod shared_receive_queue;
mod transport;

pub use completion::{Completion, CompletionQueue, Next, WaitError};
pub use connection::{
    ConnectError, Connecting, Connection, DatagramListener, DatagramService, Incoming, Inquiry, ListenError,
    Listener, Resolving, connect, connect_with, resolve,
};
pub use device::{Device, Domain, Usage};
pub use endpoint::{Endpoint, ParseEndpointError};
pub use memory::{Buffers, Exposed, Lease, MemoryError, ParseRemoteSliceError, RemoteSlice};
pub use nonic_core::{
    Access, AckTimeout, CompletionOpcode, Counters, CqOverflow, CreateError, Event, ModifyError, NicConfig,
    PathMtu, PostError, Psn, QpCapacity, QpState, Qpn, RnrTimer, Status,
};
pub use nonic_engine::host::{Occupant, RetryReason, Standing, occupant};
pub use nonic_engine::netdev::{Gid, GidEntry, LinkState, LocalAddress, NetDevice};
pub use nonic_engine::{LinkCounters, OpenError};
pub use nonic_wire::cm::RejectReason;
pub use posting::Refused;
pub use queue_pair::{
    ConnectOptions, Peer, Prepared, QueuePair, QueuePairBuilder, ReceiveQueue, RefusedBatch, SendQueue,
};
pub use shared_receive_queue::SharedReceiveQueue;
pub use transport::{Connected, Datagram, Rc, Reliable, Transport, Uc, Ud};

/// The Q_Key of datagram programs on Linux's rdma_cm, none of which says so on the wire.
pub const RDMA_UDP_QKEY: u32 = 0x0123_4567;

/// The README's examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
