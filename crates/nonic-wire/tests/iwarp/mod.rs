//! The formats of iWARP: against the RFCs' own examples, against what Linux siw sent, and against anything.
//!
//! The captures are in `tests/data/iwarp` at the root of the repository: siw of Linux 6.1 between two machines,
//! with CRCs if the name says so.

mod captures;
mod framing;
mod messages;
mod round_trips;
mod startup;
mod streams;
mod terminate;
