//! RDMA middleware and applications on our libraries: UCX, libfabric, MPI and whatever else is built upon verbs.
//!
//! The second half of the tools' harness ([`crate::tools`]): those know verbs themselves, these choose a network, and
//! would silently take another. So each run is counted: what nonic's devices sent must be what the program moved. Each
//! is installed by name, unchanged, runs as the user nobody on one host and on two, and gets nothing that a user of
//! hardware would not give it.
//!
//! Read first: [`case`] (what a case is), [`ucx`] (what they look like), then [`mod@bench`] (how they are run).

mod bench;
mod case;
mod ceph;
mod crates;
mod launch;
mod libfabric;
mod mooncake;
mod mpi;
mod nixl;
mod pairs;
mod place;
mod program;
mod qemu;
mod running;
mod sources;
mod table;
mod ucx;
mod wheels;

use crate::dist;
use crate::tools::Readable;
use crate::tools::document::Part;
use anyhow::{Result, ensure};
use bench::Bench;
use case::Case;
use place::Hosts;
use std::path::Path;
use testbed::case::{Ended, Judge};
use testbed::confined::Confinement;
use testbed::packages::{install, is_root};
use testbed::sysctl::Sysctl;
use wheels::Wheels;

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    dist: dist::Chosen,
    /// Only cases whose program or command line contains this; the documentation is then left alone.
    #[arg(long, default_value = "")]
    only: String,
    /// Only what CI has time for; the documentation is then left alone.
    #[arg(long)]
    core: bool,
    /// So many times, one after the other.
    #[arg(long, default_value_t = 1)]
    repeat: usize,
    /// As a container's defaults leave programs: no namespaces, no mounts, a `/dev` of their own.
    #[arg(long)]
    confined: bool,
    /// Write this part of docs/programs.md instead of comparing with it.
    #[arg(long)]
    write: bool,
    /// Print which cases there are, and run none.
    #[arg(long)]
    list: bool,
}

/// Every case of every program.
fn all() -> Vec<Case> {
    [
        ucx::all(),
        libfabric::all(),
        mpi::all(),
        mooncake::all(),
        nixl::all(),
        qemu::all(),
        ceph::all(),
        crates::all(),
    ]
    .concat()
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut cases = all();
    cases.retain(|case| case.program.name.contains(&options.only) || case.line.contains(&options.only));
    if options.core {
        for case in &mut cases {
            case.places = case.core.clone();
        }
        cases.retain(|case| !case.places.is_empty());
    }
    ensure!(!cases.is_empty(), "no case has that in its command line");
    if options.list {
        for case in &cases {
            println!("{}: {}", case.program.name, case.line);
        }
        return Ok(());
    }
    ensure!(
        is_root(),
        "only root can make network namespaces and become another user"
    );
    let built = options.dist.get()?;
    let readable = Readable::copy(&built)?;
    // Unreliable datagrams have no flow control: what the peer does not read in time must fit its socket buffer.
    let _buffers = Sysctl::at_least("/proc/sys/net/core/rmem_max", 4 << 20);
    let hosts = Hosts::new()?;
    let confinement = options.confined.then(Confinement::new).transpose()?;
    let given = Given {
        nonic: &readable.nonic(),
        confinement: confinement.as_ref(),
    };
    let mut judge = Judge::new(cases.iter().map(|case| case.places.len()).sum());
    for _ in 0..options.repeat {
        judge.begin_again();
        everything(&cases, &hosts, &given, &mut judge)?;
    }
    let unexpected = judge.unexpected();
    println!(
        "programs: {} passed, {} failed, {} known",
        judge.passed(),
        unexpected.len(),
        judge.known()
    );
    ensure!(
        unexpected.is_empty(),
        "not as expected: {}",
        unexpected.join("; ")
    );
    if options.only.is_empty() && !options.core {
        Part::Programs.document(&table::markdown(&cases), options.write)?;
    }
    Ok(())
}

/// What every run has.
struct Given<'a> {
    nonic: &'a Path,
    confinement: Option<&'a Confinement>,
}

/// Runs every case wherever it runs, and says so. One after another: all of them use the same machines, and what a case needs is
/// installed just before it.
fn everything(cases: &[Case], hosts: &Hosts, given: &Given<'_>, judge: &mut Judge) -> Result<()> {
    for case in cases {
        install(case.program.packages)?;
        let wheels = Wheels::install(case.program)?;
        for place in &case.places {
            let bench = Bench {
                topology: hosts.topology(*place, given.confinement),
                nonic: given.nonic,
                wheels: wheels.as_ref(),
            };
            let ended = Ended::after(|| {
                let moved = running::run(case, &bench)?;
                Ok(Some(format!("{:.1} MB moved", moved as f64 / 1e6)))
            });
            judge.tell(case, *place, place.name(), &ended);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of a run in which everything went as it is known to is the one in the repository.
    #[test]
    fn the_document_is_up_to_date() {
        let text = table::markdown(&all());
        Part::Programs
            .document(&text, false)
            .expect("`cargo xtask programs --write` is due");
    }

    #[test]
    fn what_ci_runs_is_part_of_everything() {
        for case in all() {
            let is_run = |place| case.places.contains(place);
            assert!(case.core.iter().all(is_run), "{}", case.line);
        }
    }
}
