//! The files that programs expect of an RDMA device: `/sys/class/infiniband`, `/sys/class/infiniband_verbs` and
//! `/dev/infiniband`, as a folder that any user can make.
//!
//! Verbs need none of them, but middleware looks there before it asks the library: UCX and Mooncake want a character device
//! at `/dev/infiniband/uverbs…`, and others read which address, which network interface and which part of the machine a
//! device belongs to. `nonic run` makes the folder ([`place()`]) and either a library in front of the C library rewrites the
//! paths of a program (`nonic-files`, by [`paths`]) or the program gets the folder mounted where it looks ([`mount`]).
//!
//! It describes what the C library answers and refuses to invent: what is not known, such as the speed of a slot, has
//! no file. The folder is a picture of the moment in which it was made; only the counters move ([`counters`]).
//!
//! Read first: [`tree`], then [`place()`].

pub mod counters;
pub mod paths;

#[cfg(feature = "generate")]
pub mod mount;
#[cfg(feature = "generate")]
mod place;
#[cfg(feature = "generate")]
pub mod tree;

#[cfg(feature = "generate")]
pub use nonic_engine::{Config, Wires};
#[cfg(feature = "generate")]
pub use place::{PlaceError, place, place_in};
