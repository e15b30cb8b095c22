//! `librspreload.so`: programs that know nothing but TCP, over RDMA.
//!
//! Loaded in front of the C library (`LD_PRELOAD`, or `nonic run --sockets`), it takes the calls a program makes on
//! its sockets and makes them on rsockets instead (`rsocket`, `rconnect`… of `librdmacm.so.1`), at both ends of a
//! connection.
//!
//! The idea is that of a *carried* socket. `socket` makes the socket that the program asked for, and an rsocket
//! beside it; the program gets the descriptor of the former, and `table` says which rsocket carries it. The
//! program's descriptor is thus a real socket of the right kind, though never connected: `fstat`, options that
//! RDMA does not know, flags, `dup` and inheritance are the kernel's, a call that is not intercepted fails with
//! `ENOTCONN` instead of doing harm, and falling back to TCP is one step: the table forgets the rsocket.
//!
//! It refuses to guess: what rsockets cannot do fails with an error of the C library's and is listed in
//! `docs/sockets.md`. It refuses to speak of RDMA itself: all of that is behind the functions of `rsockets`.
//!
//! Read first: `table` (what is carried), `rsockets` (whereby), then `life`, `route` and `connect`; `data`,
//! `wait` and `options` are then what one expects; `epoll` is the one that is not simple.
//!
//! Calls that are not for carried sockets, which are most, cost one load. Panics do not leave: an `extern "C"`
//! function that panics ends the process.

// A test must not replace its own C library: there, nothing here is exported, so little of it is used.
#![cfg_attr(test, allow(dead_code))]

mod caller;
mod config;
mod connect;
mod data;
mod epoll;
mod file;
mod fork;
mod internal;
mod life;
mod lock;
mod next;
mod options;
mod route;
mod rsockets;
mod select;
mod symbol;
mod table;
mod timed;
mod wait;
mod watch;
