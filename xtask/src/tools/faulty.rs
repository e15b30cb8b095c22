//! Programs on a network that loses, duplicates, reorders, damages and delays packets: `NONIC_FAULTS`.
//!
//! Each must end well with its data verified, where it can verify. The counters of both sides must tell that every kind of
//! fault was injected, and that what was lost was sent again: a run in which nothing happened proves nothing.

use super::case::{Case, Place, Shape, Wire};
use super::counters::Counters;
use super::{cm_cases, connected, pair};
use anyhow::{Result, ensure};
use std::path::Path;
use std::time::Instant;
use testbed::namespace::VethPair;
use testbed::process::Process;
use testbed::run_as::RunAs;
use testbed::side_by_side;
use testbed::topology::{self, Topology};

/// What is done to every packet that either side receives.
const FAULTS: &str = "loss=1%,dup=1%,reorder=1%,hold=500us,corrupt=0.5%,delay=20us,seed=1";

/// What must have happened.
const INJECTED: [&str; 5] = [
    "faults_lost",
    "faults_duplicated",
    "faults_reordered",
    "faults_corrupted",
    "faults_held",
];
/// How it was noticed and repaired.
const REPAIRED: [&str; 3] = ["rx_icrc_errors", "rx_duplicates", "retransmitted_packets"];

/// The programs, as the documentation shows them.
pub(super) fn lines() -> Vec<String> {
    programs().iter().map(Program::line).collect()
}

/// Runs them on loopback and between two hosts; what did not do as it should.
pub(super) fn run(veth_pairs: &[VethPair], nonic: &Path) -> Vec<String> {
    let programs = programs();
    let runs_at = |program: &Program, place| place == Place::OneHost || matches!(program, Program::Case(_));
    let jobs: Vec<(&Program, Place)> = programs
        .iter()
        .flat_map(|program| Place::IPV4.map(|place| (program, place)))
        .filter(|(program, place)| runs_at(program, *place))
        .collect();
    let run = |veth_pair: &VethPair, (program, place): &(&Program, Place)| {
        let topology = &topology::at(veth_pair, Wire::Roce, *place);
        let name = format!("NONIC_FAULTS={FAULTS} {} ({})", program.line(), topology.name);
        let started = Instant::now();
        match program.run(topology, nonic) {
            Ok(told) => {
                let seconds = started.elapsed().as_secs_f32();
                (format!("{name}: ok ({seconds:.1} s): {told}"), None)
            }
            Err(error) => {
                let complaint = format!("{name} fails");
                (format!("{name}: FAILED: {error:#}"), Some(complaint))
            }
        }
    };
    let outcomes = side_by_side::in_order(veth_pairs, &jobs, run, |_, (line, _)| println!("{line}"));
    outcomes
        .into_iter()
        .filter_map(|(_, complaint)| complaint)
        .collect()
}

enum Program {
    /// One of perftest, or one that uses the connection manager.
    Case(Box<Case>),
    /// `nonic perf`, with both ends on one host: for loopback alone.
    Perf(&'static [&'static str]),
}

fn programs() -> Vec<Program> {
    let perftest = |program, options: &[&'static str]| {
        Program::Case(Box::new(Case {
            service: "RC",
            // A busy machine spoils how perftest calibrates its clock; without this it then gives up its report.
            ..Case::pair(program, options, &["-F"])
        }))
    };
    vec![
        perftest("ib_write_bw", &["-n", "500"]),
        perftest("ib_read_bw", &["-n", "300"]),
        perftest("ib_send_bw", &["-n", "500"]),
        perftest("ib_atomic_bw", &["-n", "3000"]),
        Program::Case(Box::new(cm_cases::rping_verified("-v -C 300 -S 10000"))),
        Program::Case(Box::new(cm_cases::stream("rstream", "-T v -S 100000 -C 20 -I 5"))),
        Program::Perf(&["--verify", "-n", "500", "-s", "65536"]),
        Program::Perf(&["--verify", "-n", "2000", "-o", "send", "-s", "4096"]),
    ]
}

impl Program {
    fn line(&self) -> String {
        match self {
            Program::Case(case) => case.line(),
            Program::Perf(options) => format!("nonic perf {}", options.join(" ")),
        }
    }

    /// What was injected and repaired.
    fn run(&self, topology: &Topology<'_>, nonic: &Path) -> Result<String> {
        let counters = Counters::new()?;
        // Both sides of a topology have the same.
        let mut environment = topology.server.environment.to_vec();
        environment.push(("NONIC_FAULTS", FAULTS.to_owned()));
        environment.push(("NONIC_COUNTERS", counters.file().display().to_string()));
        let disturbed = |run_as| RunAs {
            environment: &environment,
            ..run_as
        };
        let topology = Topology {
            server: disturbed(topology.server),
            client: disturbed(topology.client),
            ..*topology
        };
        match self {
            Program::Case(case) => match &case.shape {
                Shape::Connected(connected) => connected::run(&topology, nonic, connected)?,
                _ => drop(pair::both(&topology, nonic, case)?),
            },
            Program::Perf(options) => {
                let mut command = topology.client.command(nonic);
                Process::start(command.args(["perf", "--loopback"]).args(*options))?.finish()?;
            }
        }
        check(&counters)
    }
}

/// What was injected and repaired, as the counters tell.
fn check(counters: &Counters) -> Result<String> {
    let sums = counters.sums()?;
    let mut told = Vec::new();
    for name in INJECTED.iter().chain(&REPAIRED) {
        let count = sums.get(*name).copied().unwrap_or(0);
        ensure!(count > 0, "{name} is zero: {sums:?}");
        told.push(format!("{name} {count}"));
    }
    Ok(told.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_in_which_nothing_was_injected_is_refused() {
        let counters = Counters::new().expect("a folder");
        let lines = |count| {
            let names = INJECTED.iter().chain(&REPAIRED);
            names.map(|name| format!("{name} {count}\n")).collect::<String>()
        };
        std::fs::write(counters.file(), lines(1)).expect("written");
        assert!(check(&counters).is_ok());
        std::fs::write(counters.file(), lines(0)).expect("written");
        assert!(check(&counters).is_err());
    }
}
