//! A case: a command, where it is run, what it must move, and why it is known to fail if it is.

use super::bench::Bench;
use super::launch::Launch;
pub(crate) use super::program::Program;
use crate::tools::case::Connected;
use anyhow::Result;
pub(crate) use testbed::case::{KnownFailure, Place};

/// How its processes are started.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    /// One process that looks and ends, and prints all of this.
    Alone {
        line: String,
        prints: &'static [&'static str],
    },
    /// A server and its client.
    Pair(Connected),
    /// Ranks of MPI.
    Launched(Launch),
    /// Anything else: it says how it went.
    Scripted(fn(&Bench<'_>) -> Result<()>),
}

/// One command.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) program: &'static Program,
    /// The command as the documentation shows it.
    pub(crate) line: String,
    pub(crate) shape: Shape,
    /// Where it is run; [`super::place`] has what is there.
    pub(crate) places: Vec<Place>,
    /// So many bytes at least must have left nonic's devices, or the program went another way.
    pub(crate) moved_bytes: u64,
    /// Part of what CI runs, where CI runs it.
    pub(crate) core: Vec<Place>,
    /// Where it does not run, and why: from the program's source, or its documentation.
    pub(crate) known_failure: Option<KnownFailure>,
}

impl testbed::case::Case for Case {
    fn line(&self) -> String {
        self.line.clone()
    }

    fn known_failure(&self) -> Option<&KnownFailure> {
        self.known_failure.as_ref()
    }
}

impl Case {
    /// One that is run nowhere yet: [`Case::at`] says where, [`Case::core`] what of it is CI's.
    pub(crate) fn new(
        program: &'static Program,
        line: impl Into<String>,
        shape: Shape,
        moved_bytes: u64,
    ) -> Self {
        Self {
            program,
            line: line.into(),
            shape,
            places: Vec::new(),
            moved_bytes,
            core: Vec::new(),
            known_failure: None,
        }
    }

    /// Part of what CI runs, at these places.
    pub(crate) fn core(mut self, places: &[Place]) -> Self {
        self.core = places.to_vec();
        self
    }

    /// Run at these places only.
    pub(crate) fn at(mut self, places: &[Place]) -> Self {
        self.places = places.to_vec();
        self
    }

    /// Known to fail at these places.
    pub(crate) fn except(mut self, places: &[Place], why: &'static str) -> Self {
        let places = places.to_vec();
        self.known_failure = Some(KnownFailure { places, why });
        self
    }
}
