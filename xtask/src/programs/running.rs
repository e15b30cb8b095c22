//! Runs a case on a bench, and tells by nonic's counters whether the program used it.

use super::bench::Bench;
use super::case::{Case, Shape};
use crate::tools::case::Connected;
use crate::tools::connected;
use crate::tools::counters::Counters;
use anyhow::{Result, ensure};
use testbed::process::Process;
use testbed::run_as::RunAs;
use testbed::topology::Topology;

/// Runs a case; how many bytes its devices saw.
pub(super) fn run(case: &Case, bench: &Bench<'_>) -> Result<u64> {
    let counters = Counters::new()?;
    let environment = [("NONIC_COUNTERS", counters.file().display().to_string())];
    let counted = |run_as| RunAs {
        environment: &environment,
        ..run_as
    };
    let bench = Bench {
        topology: Topology {
            server: counted(bench.topology.server),
            client: counted(bench.topology.client),
            ..bench.topology
        },
        ..*bench
    };
    match &case.shape {
        Shape::Alone { line, prints } => {
            let printed = Process::start(&mut bench.client(line))?.finish()?;
            for word in *prints {
                ensure!(printed.contains(word), "it does not print {word:?}: {printed}");
            }
        }
        Shape::Pair(pair) => {
            let filled_in = Connected {
                server: bench.fill_in(&pair.server),
                client: bench.fill_in(&pair.client),
                ..pair.clone()
            };
            connected::run(&bench.topology, bench.nonic, &filled_in)?;
        }
        Shape::Launched(launch) => launch.run(&bench)?,
        Shape::Scripted(script) => script(&bench)?,
    }
    if case.moved_bytes == 0 {
        return Ok(0);
    }
    let sums = counters.sums()?;
    let seen = |name: &str| sums.get(name).copied().unwrap_or(0);
    // A server that was killed has not said what it sent; its client has what it received.
    // What was executed in the memory of a process of the same host is not among packets.
    let moved = seen("tx_bytes").max(seen("rx_bytes")) + seen("direct_bytes");
    ensure!(
        moved >= case.moved_bytes,
        "it went another way: nonic's devices saw {moved} bytes, and {} are what it moved",
        case.moved_bytes
    );
    Ok(moved)
}
