//! A drop-in `librdmacm.so.1`: the connection manager's C ABI over nonic's `libibverbs.so.1`.
//!
//! Programs compiled against rdma-core call these functions unchanged; what they mean is in rdma-core's man pages.
//! The connection manager itself lives in the device, hence in `libibverbs.so.1`; this library calls it through
//! the private interface of `nonic_abi::cm` and creates queue pairs through the ordinary verbs. It refuses to
//! bring an engine of its own: a process has one.
//!
//! Read first: `id::Id` (what an `rdma_cm_id` is), then `device` (where events come in), then `event` and
//! `delivery` (how they reach the program), then `connection` (the calls that matter).
//!
//! Files import downwards only: `convert`, `port` and `channel`; `device`, which knows the recipients of its events as
//! a trait; `id`; `event`, `delivery` and `lifetime`; then the calls.
//!
//! Locks: the device calls its sink while it is locked itself. So the sink takes only the device's table, an
//! identifier's channel and a channel's queue, in that order, and none of these is held while a verb is called.
//!
//! Sockets over RDMA are in `rsocket`, on top of all this.
//!
//! Not offered: addresses of the family `AF_IB`, extended connection establishment.

mod address;
mod addrinfo;
mod attributes;
mod channel;
mod connection;
mod convert;
mod delivery;
mod descriptor;
mod device;
mod endpoint;
mod event;
mod id;
mod lifetime;
mod multicast;
mod options;
mod port;
mod qp;
mod refusal;
mod rsocket;
mod srq;
mod unsupported;
