//! The connection manager's rules, one test each, with explicit time and hand-carried messages; and recorded
//! conversations between two Linux hosts, with our machine in place of either.

mod bench;

mod connecting;
mod datagrams;
mod disconnecting;
mod graph;
mod limits;
mod pace;
mod refusals;
mod repeats;
mod replay;
mod stale;
mod table;
mod timeouts;
mod unreachable;
