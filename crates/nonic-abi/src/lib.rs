//! The common ground of the C libraries `libibverbs.so.1`, `librdmacm.so.1` and `librspreload.so`.
//!
//! Half of it is data that C programs or another of these libraries see: the structures of the headers ([`verbs`],
//! [`rdma_cma`]), those of the private interface between the libraries ([`cm`]), and the prototypes of the functions
//! that one library calls in another ([`libibverbs`], [`librdmacm`]). Each is written here once; the library that
//! exports a function and those that call it are compiled against the same line.
//!
//! The other half is what each of them needs to be a C library at all: [`errno`], [`fork`], [`eventfd`],
//! [`event_queue`] and [`cancel`].
//!
//! It exports no symbol of its own, and it knows neither the engine nor the protocol: `librdmacm.so.1` and
//! `librspreload.so` are linked with it and must not bring an engine into a process that has one in `libibverbs.so.1`.
//! Where the engine has a need of the same kind (event descriptors, a mask of signals, its own forks) it has a module
//! of its own, since it must not know of C libraries.

pub mod cancel;
pub mod cm;
pub mod errno;
pub mod event_queue;
pub mod eventfd;
pub mod fork;
#[macro_use]
mod functions;
pub mod libibverbs;
pub mod librdmacm;
pub mod rdma_cma;
pub mod symbol;
pub mod verbs;
