//! What tests and chores try nonic on: hosts, the processes that run there, and the pages that tell what was found.
//!
//! A host is a network namespace ([`namespace`]); a guest is a host with a kernel of its own ([`lab`]). A process runs on a host, as a
//! user, and has a time limit ([`run_as`], [`process`], [`logged`], [`stopwatch`]). A [`topology`] is where the two programs of a case are. Cases run
//! side by side ([`side_by_side`]), each is judged by what is known of it ([`case`]), figures are summed up ([`stats`]), and the results
//! become tables ([`table`]) and parts of pages ([`page`]).
//!
//! It does not know which programs there are: the chores declare those (`xtask`), and the tests of `nonic-cli` use hosts and processes
//! alone. It depends on no crate of nonic, so that what is tested cannot help to judge itself.
//!
//! Read first: [`namespace::VethPair`], [`process::Process`], [`topology::Topology`].

pub mod case;
pub mod command;
pub mod confined;
pub mod lab;
pub mod logged;
pub mod namespace;
pub mod owned;
pub mod packages;
pub mod page;
pub mod process;
pub mod run_as;
pub mod side_by_side;
pub mod stats;
pub mod stopwatch;
pub mod sysctl;
pub mod table;
pub mod temporary;
pub mod topology;
pub mod workspace;
