//! For each way in which a queue pair fails, what is recorded, and that both sides' explanations name the cause and the
//! next step. Queue pairs fail on the test bench of the core.

#[path = "../../nonic-core/tests/support/mod.rs"]
mod support;

mod complete;
mod failures;
mod iwarp;
