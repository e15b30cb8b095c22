//! Counts the rounds of a soak.

use anyhow::{Result, ensure};
use std::time::Instant;

/// The outcomes of the rounds so far.
#[derive(Debug)]
pub(super) struct Tally {
    name: &'static str,
    pub(super) started: Instant,
    rounds: usize,
    pub(super) failed: usize,
}

impl Tally {
    pub(super) fn new(name: &'static str) -> Self {
        Self {
            name,
            started: Instant::now(),
            rounds: 0,
            failed: 0,
        }
    }

    /// Counts a round, and prints why it failed if it did.
    pub(super) fn count(&mut self, what: &str, outcome: Result<()>) {
        self.rounds += 1;
        if let Err(error) = outcome {
            self.failed += 1;
            println!("{what} FAILED after {:.0?}: {error:#}", self.started.elapsed());
        }
    }

    /// Tells how it went; a failure if anything failed.
    pub(super) fn conclude(self) -> Result<()> {
        println!(
            "soak {}: {} rounds, {} failed",
            self.name, self.rounds, self.failed
        );
        ensure!(self.failed == 0, "{} of {} failed", self.failed, self.rounds);
        Ok(())
    }
}
