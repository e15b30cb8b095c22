//! A drop-in `libibverbs.so.1`: the C ABI of rdma-core over `nonic-engine`.
//!
//! Programs compiled against rdma-core call these functions unchanged. What they mean is written in
//! rdma-core's man pages; this crate translates, and refuses to implement any protocol itself.
//!
//! Read first: `nonic_abi::verbs` (the structures), then `context` (what a program gets when it opens a device), then
//! `post` and `poll` (the two paths that must be fast).
//!
//! Files import downwards only. `object`, `objects` and `context` are below all verbs; protection domains, channels,
//! completion queues, receive queues and queue pairs follow in this order; posting, polling and events are above the queues
//! they use. `operations`, `open` and `exports` are on top: they know every verb and no verb knows them.
//!
//! Three conventions hold everywhere. An object is a `Box` whose first field is the C structure the program
//! sees, so the two pointers are one. A verb that takes a pointer trusts it as C does, except that NULL is an
//! error where the man page does not give it a meaning. Errors are returned in the way the man page of each
//! verb says: as an errno, as −1 with `errno` set, or as NULL with `errno` set.

mod address;
mod async_event;
mod channel;
mod cm;
mod compat;
mod context;
mod cq;
mod cq_event;
mod descriptors;
mod device;
mod errors;
mod exports;
mod extended;
mod fork;
mod limits;
mod memory;
mod multicast;
mod object;
mod objects;
mod open;
mod operations;
mod pd;
mod poll;
mod post;
mod private;
mod qp;
mod query;
mod refusal;
mod srq;
mod strings;
mod sysfs;
mod unsupported;
mod xrc;
