//! `librdmacm.so.1` with C programs.
//!
//! One binary for all of them: it is linked once, and nextest runs each test in a process of its own.

#[path = "../../nonic-verbs/tests/support/errors_page.rs"]
mod errors_page;
#[path = "../../nonic/tests/bench/first_numbers.rs"]
mod first_numbers;
// It has tests of its own, and the library cannot run any.
#[path = "../src/rsocket/patience.rs"]
mod patience;
#[path = "../../nonic-verbs/tests/support/refusal_sources.rs"]
mod refusal_sources;
mod support;
#[path = "../../nonic-cli/tests/support/tshark.rs"]
mod tshark;

mod backlog;
mod cancel;
mod captures;
mod examples;
mod explained;
mod identifiers;
mod iwarp;
mod programs;
mod refusals;
mod rsockets;
mod rsockets_protocol;
mod symbols;
