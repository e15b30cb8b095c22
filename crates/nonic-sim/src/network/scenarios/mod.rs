//! The scenarios of the network workload, and the bounds that must hold.

mod distance;
mod exchange;
mod incast;
mod latecomers;
mod mixed;
mod oracles;
mod paths;

use super::flow::{Ends, FlowSpec};
use super::metrics::Metrics;
use super::net::Net;
use super::topology::Topology;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
/// More packets than any run sends.
const ENDLESS: u32 = u32::MAX;
/// Samples of a run.
const SAMPLES: u64 = 400;

/// A scenario.
#[derive(Copy, Clone, Debug)]
pub struct Scenario {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What it is called in a heading.
    pub title: &'static str,
    /// What is done, and what must hold.
    pub about: &'static str,
    run: fn(quick: bool, outcome: &mut Outcome),
}

/// What became of a scenario.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Which.
    pub scenario: Scenario,
    /// What was measured, once for each law or variant.
    pub runs: Vec<Metrics>,
    /// What had to hold.
    pub checks: Vec<Check>,
}

/// Something that must hold.
#[derive(Clone, PartialEq, Debug)]
pub struct Check {
    /// What was measured.
    pub what: String,
    /// What it came to.
    pub value: f64,
    /// What it must be.
    pub bound: f64,
    /// Whether it must not be less; otherwise it must not be more.
    pub at_least: bool,
}

impl Check {
    /// Whether it holds.
    pub fn holds(&self) -> bool {
        if self.at_least {
            self.value >= self.bound
        } else {
            self.value <= self.bound
        }
    }
}

impl std::fmt::Display for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let must = if self.at_least { "at least" } else { "at most" };
        write!(
            f,
            "{}: {:.3}, must be {must} {}",
            self.what, self.value, self.bound
        )?;
        if self.holds() {
            Ok(())
        } else {
            f.write_str(": FAILED")
        }
    }
}

impl Scenario {
    /// Runs it. If it must be quick, what is run is shorter, and only with nonic's own law; what must hold is the same.
    pub fn run(&self, quick: bool) -> Outcome {
        let mut outcome = Outcome {
            scenario: *self,
            runs: Vec::new(),
            checks: Vec::new(),
        };
        (self.run)(quick, &mut outcome);
        outcome
    }
}

impl Outcome {
    /// Whether everything held.
    pub fn holds(&self) -> bool {
        self.checks.iter().all(Check::holds)
    }

    fn at_least(&mut self, what: impl Into<String>, value: f64, bound: f64) {
        self.check(what.into(), value, bound, true);
    }

    fn at_most(&mut self, what: impl Into<String>, value: f64, bound: f64) {
        self.check(what.into(), value, bound, false);
    }

    fn check(&mut self, what: String, value: f64, bound: f64, at_least: bool) {
        self.checks.push(Check {
            what,
            value,
            bound,
            at_least,
        });
    }
}

/// All of them, oracles first.
pub fn scenarios() -> &'static [Scenario] {
    &[
        oracles::DCQCN,
        oracles::TIMELY,
        incast::LONG,
        incast::SHORT,
        exchange::ALL_TO_ALL,
        exchange::STRAGGLERS,
        paths::FLAPS,
        paths::SPRAYING,
        distance::LONG_PIPE,
        distance::TWO_DISTANCES,
        latecomers::LATECOMERS,
        mixed::MIXED,
        mixed::DEVICES,
    ]
}

/// What is simulated.
struct Plan {
    topology: Topology,
    flows: Vec<FlowSpec>,
    /// It counts from then on.
    from_ns: u64,
    until_ns: u64,
    /// From one sample to the next; a run that ends by itself is shorter than `until_ns`.
    sample_ns: u64,
    /// Bytes that the bottleneck carries in a second.
    capacity: u64,
}

impl Plan {
    /// Runs it for a law of this name.
    fn run(self, law: &str) -> (Net, Metrics) {
        self.run_with(law, |_| {})
    }

    fn run_with(self, law: &str, prepare: impl FnOnce(&mut Net)) -> (Net, Metrics) {
        let mut net = Net::new(self.topology, &self.flows, 7);
        net.sample_every(self.sample_ns);
        prepare(&mut net);
        if self.from_ns > 0 {
            net.run(self.from_ns);
            net.count_from_now();
        }
        net.run(self.until_ns);
        let metrics = Metrics::of(law, &net, self.capacity);
        (net, metrics)
    }
}

/// The laws that are run unless a scenario says otherwise: ours, and, if there is time, the two best known, held to a
/// window because nothing here is lossless.
fn laws(quick: bool, line: u64, window: u64) -> Vec<(&'static str, Ends)> {
    let mut laws = vec![("nonic", Ends::Nonic)];
    if !quick {
        let dcqcn = Ends::Dcqcn {
            begins: line,
            line,
            window,
        };
        let timely = Ends::Timely {
            begins: line / 10,
            line,
            window,
            patched: false,
        };
        laws.extend([("DCQCN", dcqcn), ("TIMELY", timely)]);
    }
    laws
}
