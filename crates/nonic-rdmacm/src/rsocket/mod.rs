//! rsockets: sockets over RDMA, for programs that know no verbs.
//!
//! A stream is an RC connection whose two ends write into each other's memory; a datagram socket is a UDP socket with
//! UD queue pairs beside it. What is said on the wire, and when, is in [`protocol`]; the rest of this folder moves
//! the bytes, waits, and speaks C. It uses the library's own identifiers and the verbs like any program would.
//!
//! An rsocket's number is a descriptor of its own ([`table`]). It means nothing to other calls of the system: [`poll`]
//! waits for both kinds. One thread per process ([`service`]) takes the events of connections; it sleeps when there
//! are none. Everything else happens in the thread that calls. Table and service know no kind of socket, but what every
//! one can do ([`socket::Socket`]); [`kinds`] says how the two kinds do it, on top of both.
//!
//! Locks: a socket has one, and verbs are called under it. A waiting thread holds none ([`waker`]). Identifiers are
//! destroyed without it, since destroying one waits for the service to be done with its events.
//!
//! What differs from rdma-core's, on purpose: vectors are filled to the last; connections are accepted before the
//! program asks (as with TCP); credits are returned by the call that reads, not by the next one; the end of a
//! connection by a fault is `ECONNRESET` also for readers; `SO_RCVTIMEO` and `SO_SNDTIMEO` exist; buffers are twice as large; a thread
//! looks for as long before it sleeps as its waits are short ([`patience`]).
//!
//! Read first: [`stream::StreamSocket`], then [`stream_queue_pair::StreamQueuePair`].

mod backlog;
mod calls;
mod completions;
mod connecting;
mod datagram;
mod identifier;
mod iomap;
mod kinds;
mod listener;
mod mapping;
mod memory;
mod options;
mod patience;
mod poll;
mod protocol;
mod service;
mod settings;
mod socket;
mod stream;
mod stream_queue_pair;
mod table;
mod vector;
mod wait;
mod wait_limit;
mod waker;
mod words;
