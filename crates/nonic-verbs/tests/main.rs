//! `libibverbs.so.1` with C programs.
//!
//! One binary for all of them: it is linked once, and nextest runs each test in a process of its own.

#[path = "support/errors_page.rs"]
mod errors_page;
#[path = "support/refusal_sources.rs"]
mod refusal_sources;
mod support;

mod cancel;
mod closing;
mod explained;
mod forks;
mod loading;
mod memory_limit;
mod misuse;
mod on_demand;
mod refusals;
mod symbols;
mod threads;
mod vanishing;
