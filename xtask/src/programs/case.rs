//! A case: a command, where it is run, what it must move, and why it is known to fail if it is.

use super::bench::Bench;
use super::launch::Launch;
pub(crate) use super::program::Program;
use crate::tools::case::Connected;
use anyhow::Result;

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

/// Where a case is run; [`super::place`] has what is there.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    OneHost,
    TwoHosts,
    OneHostIpv6,
    TwoHostsIpv6,
}

impl Place {
    pub(crate) const ALL: [Place; 4] = [
        Place::OneHost,
        Place::TwoHosts,
        Place::OneHostIpv6,
        Place::TwoHostsIpv6,
    ];
    pub(crate) const IPV4: [Place; 2] = [Place::OneHost, Place::TwoHosts];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Place::OneHost => "one host",
            Place::TwoHosts => "two hosts",
            Place::OneHostIpv6 => "one host, IPv6",
            Place::TwoHostsIpv6 => "two hosts, IPv6",
        }
    }
}

/// One command.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) program: &'static Program,
    /// The command as the documentation shows it.
    pub(crate) line: String,
    pub(crate) shape: Shape,
    pub(crate) places: Vec<Place>,
    /// So many bytes at least must have left nonic's devices, or the program went another way.
    pub(crate) moved_bytes: u64,
    /// Part of what CI runs, where CI runs it.
    pub(crate) core: Vec<Place>,
    /// Where it does not run, and why: from the program's source, or its documentation.
    pub(crate) known_failure: Option<KnownFailure>,
}

/// Where a case does not run, and why.
#[derive(Clone, Debug)]
pub(crate) struct KnownFailure {
    pub(crate) places: Vec<Place>,
    pub(crate) why: &'static str,
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

    pub(crate) fn is_known_to_fail(&self, place: Place) -> bool {
        let known = self.known_failure.as_ref();
        known.is_some_and(|known| known.places.contains(&place))
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
