//! The well-known RDMA programs on our libraries: rdma-core's examples, perftest, qperf and fio.
//!
//! Each is run unchanged and unprivileged, on loopback and between two network namespaces, with every connection type
//! and the options people use, and some on a network with faults. What runs is written in `docs/programs.md`; the chore
//! fails if reality differs.
//!
//! Read first: [`case`] (what a case is), [`cases`] and [`cm_cases`] (what is run), then [`pair`] and [`connected`] (how),
//! then [`testbed::topology`] (where). Several run side by side ([`testbed::side_by_side`]), each between network namespaces of its own: most of the time
//! is perftest's, which waits and calibrates its clock.

pub(crate) mod case;
mod cases;
mod cm_cases;
pub(crate) mod connected;
pub(crate) mod counters;
mod dissect;
pub(crate) mod document;
mod faulty;
mod files;
mod iwarp_cases;
pub(crate) mod pair;
mod table;

use crate::dist::{self, Dist};
use anyhow::{Context, Result, ensure};
use case::{Case, Outcome, Place, Shape};
use document::Part;
use std::path::{Path, PathBuf};
use testbed::case::{Ended, Judge};
use testbed::namespace::VethPair;
use testbed::packages::{install, is_root};
use testbed::side_by_side;
use testbed::sysctl::Sysctl;
use testbed::topology;

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    dist: dist::Chosen,
    /// Only cases whose command line contains this; the documentation is then left alone.
    #[arg(long, default_value = "")]
    only: String,
    /// Only the programs that run on a network with faults.
    #[arg(long)]
    faulty: bool,
    /// Only what tshark makes of what programs send on iWARP.
    #[arg(long)]
    dissect: bool,
    /// So many runs side by side, each between network namespaces of its own.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    jobs: u8,
    /// Also what takes minutes; CI has no time for that.
    #[arg(long)]
    exhaustive: bool,
    /// Write docs/programs.md instead of comparing with it.
    #[arg(long)]
    write: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(
        is_root(),
        "only root can make network namespaces and become another user"
    );
    install(&[
        ("/usr/bin/ibv_devinfo", "ibverbs-utils"),
        ("/usr/bin/ib_write_bw", "perftest"),
        ("/usr/bin/qperf", "qperf"),
        ("/usr/bin/rping", "rdmacm-utils"),
        ("/usr/bin/fio", "fio"),
    ])?;
    let built = options.dist.get()?;
    let readable = Readable::copy(&built)?;
    // UC and UD have no flow control: what the peer does not read in time must fit its socket buffer.
    let _buffers = Sysctl::at_least("/proc/sys/net/core/rmem_max", 4 << 20);
    // perftest leaves these behind; those of another user are in our way.
    for file in ["/tmp/xrc_domain_client", "/tmp/xrc_domain_server"] {
        let _ = std::fs::remove_file(file);
    }
    let veth_pairs: Vec<VethPair> = (0..options.jobs)
        .map(|_| VethPair::new())
        .collect::<Result<_>>()?;
    if options.faulty {
        let bad = faulty::run(&veth_pairs, &readable.nonic());
        ensure!(bad.is_empty(), "not as expected: {}", bad.join("; "));
        return Ok(());
    }
    if options.dissect {
        let bad = dissect::run(&veth_pairs, &readable.nonic())?;
        ensure!(bad.is_empty(), "{}", bad.join("; "));
        return Ok(());
    }
    let (mut outcomes, judge) = everything(&veth_pairs, &readable.nonic(), options)?;
    let bad: usize = outcomes.iter().map(|outcome| outcome.complaints.len()).sum();
    let runs = judge.total();
    let mut unexpected = judge.unexpected().to_vec();
    if options.only.is_empty() {
        unexpected.extend(faulty::run(&veth_pairs, &readable.nonic()));
        unexpected.extend(dissect::run(&veth_pairs, &readable.nonic())?);
    }
    println!(
        "tools: {runs} runs, {bad} of them do not run, {} not as expected",
        unexpected.len()
    );
    // A run that is not as expected would not be as documented either, and its name says more.
    let as_expected = || {
        ensure!(
            unexpected.is_empty(),
            "not as expected: {}",
            unexpected.join("; ")
        );
        Ok(())
    };
    if !options.write {
        as_expected()?;
    }
    if options.only.is_empty() {
        // The document tells what every run shows, which these are not part of.
        outcomes.retain(|outcome| !outcome.case.takes_long);
        Part::Tools.document(&table::markdown(&outcomes), options.write)?;
    }
    as_expected()
}

/// Runs every case wherever it runs, and says so.
fn everything(veth_pairs: &[VethPair], nonic: &Path, options: &Options) -> Result<(Vec<Outcome>, Judge)> {
    let mut cases = cases::all();
    cases.retain(|case| case.line().contains(&options.only));
    ensure!(!cases.is_empty(), "no case has that in its command line");
    let runs_at = |case: &Case, place| case.runs_at(place) && (options.exhaustive || !case.takes_long);
    let mut jobs: Vec<Job<'_>> = cases
        .iter()
        .enumerate()
        .flat_map(|(index, case)| {
            let places = Place::ALL.into_iter().filter(|place| runs_at(case, *place));
            places.map(move |place| Job { case, index, place })
        })
        .collect();
    jobs.sort_by_key(|job| !job.case.must_be_alone());
    let (alone, beside) = jobs.split_at(jobs.partition_point(|job| job.case.must_be_alone()));
    let mut judge = Judge::new(jobs.len());
    let mut tell = |job: &Job<'_>, (name, ended): &(&str, Ended)| {
        judge.tell(job.case, job.place, name, ended);
    };
    let run = |veth_pair: &VethPair, job: &Job<'_>| job.run(veth_pair, nonic);
    let mut ended = side_by_side::in_order(&veth_pairs[..1], alone, run, &mut tell);
    ended.extend(side_by_side::in_order(veth_pairs, beside, run, &mut tell));
    let runs: Vec<(usize, Place)> = jobs.iter().map(|job| (job.index, job.place)).collect();
    let outcome = |case| Outcome {
        case,
        complaints: Vec::new(),
    };
    let mut outcomes: Vec<Outcome> = cases.into_iter().map(outcome).collect();
    for ((index, place), (_, ended)) in runs.into_iter().zip(ended) {
        let complaint = ended.result.err().map(|complaint| (place, complaint));
        outcomes[index].complaints.extend(complaint);
    }
    Ok((outcomes, judge))
}

/// One run of a case.
struct Job<'a> {
    case: &'a Case,
    /// Which of the cases it is.
    index: usize,
    place: Place,
}

impl Job<'_> {
    /// The topology's name, and how it ended there.
    fn run(&self, veth_pair: &VethPair, nonic: &Path) -> (&'static str, Ended) {
        let topology = &topology::at(veth_pair, self.case.wire, self.place);
        let ended = Ended::after(|| {
            match &self.case.shape {
                Shape::Alone => pair::alone(topology, nonic, self.case)?,
                Shape::Pair => drop(pair::both(topology, nonic, self.case)?),
                Shape::Connected(connected) => connected::run(topology, nonic, connected)?,
            }
            Ok(None)
        });
        (topology.name, ended)
    }
}

/// A copy of what is installed that another user may read, wherever it was built.
pub(crate) struct Readable {
    folder: PathBuf,
}

impl Readable {
    pub(crate) fn copy(dist: &Dist) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("nonic-tools-{}", std::process::id()));
        let readable = Self { folder };
        for folder in ["bin", "lib"] {
            copy_folder(&dist.root.join(folder), &readable.folder.join(folder))?;
        }
        Ok(readable)
    }

    pub(crate) fn nonic(&self) -> PathBuf {
        self.folder.join("bin/nonic")
    }
}

impl Drop for Readable {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for entry in std::fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy_folder(&from, &to)?;
        } else {
            std::fs::copy(&from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use testbed::case::Case as _;

    /// The table of a run in which everything went as it is known to is the one in the repository.
    #[test]
    fn the_document_is_up_to_date() {
        let outcome = |case: Case| {
            let fails = |place: &Place| case.runs_at(*place) && case.is_known_to_fail(*place);
            let complaints = Place::ALL.into_iter().filter(fails);
            let complaints = complaints.map(|place| (place, "as known".to_owned()));
            let complaints = complaints.collect();
            Outcome { case, complaints }
        };
        let cases = cases::all().into_iter().filter(|case| !case.takes_long);
        let outcomes: Vec<Outcome> = cases.map(outcome).collect();
        let text = table::markdown(&outcomes);
        Part::Tools
            .document(&text, false)
            .expect("`cargo xtask tools --write` is due");
    }
}
