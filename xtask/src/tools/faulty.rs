//! Programs on a network that loses, duplicates, reorders, damages and delays packets: `NONIC_FAULTS`.
//!
//! Each must end well with its data verified, where it can verify. The counters of both sides must tell that every kind of
//! fault was injected, and that what was lost was sent again: a run in which nothing happened proves nothing.

use super::case::{Case, Shape};
use super::process::Process;
use super::topology::Topology;
use super::{cm_cases, connected, pair};
use crate::host::RunAs;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

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
pub(super) fn run(topologies: &[Topology<'_>], nonic: &Path) -> Vec<String> {
    let mut complaints = Vec::new();
    for program in programs() {
        for topology in &topologies[..2] {
            let started = Instant::now();
            let name = format!("NONIC_FAULTS={FAULTS} {} ({})", program.line(), topology.name);
            match program.run(topology, nonic) {
                Ok(Some(told)) => {
                    let seconds = started.elapsed().as_secs_f32();
                    println!("{name}: ok ({seconds:.1} s): {told}");
                }
                Ok(None) => {}
                Err(error) => {
                    println!("{name}: FAILED: {error:#}");
                    complaints.push(format!("{name} fails"));
                }
            }
        }
    }
    complaints
}

enum Program {
    /// One of perftest, or one that uses the connection manager.
    Case(Case),
    /// `nonic perf`, with both ends on one host.
    Perf(&'static [&'static str]),
}

fn programs() -> Vec<Program> {
    let perftest = |program, options: &[&'static str]| {
        Program::Case(Case {
            service: "RC",
            ..Case::pair(program, options, &[])
        })
    };
    vec![
        perftest("ib_write_bw", &["-n", "500"]),
        perftest("ib_read_bw", &["-n", "300"]),
        perftest("ib_send_bw", &["-n", "500"]),
        perftest("ib_atomic_bw", &["-n", "3000"]),
        Program::Case(cm_cases::rping_verified("-v -C 300 -S 10000")),
        Program::Case(cm_cases::stream("rstream", "-T v -S 100000 -C 20 -I 5")),
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

    /// What was injected and repaired; `None` if it is not for this topology.
    fn run(&self, topology: &Topology<'_>, nonic: &Path) -> Result<Option<String>> {
        let counters = Counters::new()?;
        let environment = [
            ("NONIC_FAULTS", FAULTS.to_owned()),
            ("NONIC_COUNTERS", counters.file().display().to_string()),
        ];
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
            Program::Perf(_) if topology.name != "loopback" => return Ok(None),
            Program::Perf(options) => {
                let mut command = topology.client.command(nonic);
                Process::start(command.args(["perf", "--loopback"]).args(*options))?.finish()?;
            }
        }
        counters.check().map(Some)
    }
}

/// The counters of everybody who took part, in a file that anybody may write to.
struct Counters {
    folder: PathBuf,
}

impl Counters {
    fn new() -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("nonic-counters-{}", std::process::id()));
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777))?;
        Ok(Counters { folder })
    }

    fn file(&self) -> PathBuf {
        self.folder.join("counters")
    }

    fn check(&self) -> Result<String> {
        let text = std::fs::read_to_string(self.file()).context("nobody wrote counters")?;
        let sums = sums(&text);
        let mut told = Vec::new();
        for name in INJECTED.iter().chain(&REPAIRED) {
            let count = sums.get(*name).copied().unwrap_or(0);
            ensure!(count > 0, "{name} is zero: {text}");
            told.push(format!("{name} {count}"));
        }
        Ok(told.join(", "))
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Lines of `name value`, added up by name.
fn sums(text: &str) -> BTreeMap<&str, u64> {
    let mut sums = BTreeMap::new();
    for (name, value) in text.lines().filter_map(|line| line.split_once(' ')) {
        *sums.entry(name).or_default() += value.parse::<u64>().unwrap_or(0);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_several_processes_are_added_up() {
        let sums = sums("sends 2\nreceives 5\nsends 3\n");
        assert_eq!(sums.get("sends"), Some(&5));
        assert_eq!(sums.get("receives"), Some(&5));
    }

    #[test]
    fn a_run_in_which_nothing_was_injected_is_refused() {
        let counters = Counters::new().expect("a folder");
        let lines = |count| {
            let names = INJECTED.iter().chain(&REPAIRED);
            names.map(|name| format!("{name} {count}\n")).collect::<String>()
        };
        std::fs::write(counters.file(), lines(1)).expect("written");
        assert!(counters.check().is_ok());
        std::fs::write(counters.file(), lines(0)).expect("written");
        assert!(counters.check().is_err());
    }
}
