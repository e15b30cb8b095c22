//! Ranks: how long collectives of MPI take on one host, with as many ranks as processors and with more.
//!
//! MPI jobs of a CI runner always have more ranks than processors. There a rank that polls must get out of the way of the one it waits
//! for, which no pair of programs shows. Beside UCX over nonic's queue pairs stand Open MPI's own TCP and its own shared memory, in
//! turns. All ranks are on this host: how ranks on two hosts fare, `cargo xtask programs` tries and does not measure.

use crate::dist;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use testbed::packages;
use testbed::page::Part;
use testbed::process::Process;
use testbed::stats::median;
use testbed::table::Table;
use testbed::temporary::Scratch;

const SOURCE: &str = include_str!("ranks.c");
const COMPILER: &str = "/usr/bin/mpicc.openmpi";
const LAUNCHER: &str = "/usr/bin/mpirun.openmpi";
const RANKS: [u32; 3] = [2, 4, 8];
/// So many times Open MPI's shared memory at most, with two ranks and with eight.
const MOST_TIMES_OF_SHARED_MEMORY: [(u32, f64); 2] = [(2, 3.0), (8, 4.0)];

/// What to measure, and where to write it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// How often each is measured; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Only with so many ranks
    #[arg(long)]
    ranks: Option<u32>,
    /// Write what was found to performance.md in this folder
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = "docs")]
    report: Option<PathBuf>,
    #[command(flatten)]
    dist: dist::Chosen,
}

/// What carries the messages of the ranks.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Carrier {
    Nonic,
    Tcp,
    SharedMemory,
}

impl Carrier {
    const ALL: [Carrier; 3] = [Carrier::Nonic, Carrier::Tcp, Carrier::SharedMemory];

    /// What Open MPI is told to use, and nothing else.
    fn options(self) -> &'static [&'static str] {
        match self {
            Carrier::Nonic => &[
                "--mca",
                "pml",
                "ucx",
                "-x",
                "UCX_TLS=rc,self",
                "-x",
                "UCX_NET_DEVICES=roce_lo:1",
            ],
            Carrier::Tcp => &[
                "--mca",
                "pml",
                "ob1",
                "--mca",
                "btl",
                "tcp,self",
                "--mca",
                "btl_tcp_if_include",
                "lo",
            ],
            Carrier::SharedMemory => &["--mca", "pml", "ob1", "--mca", "btl", "vader,self"],
        }
    }
}

/// What a line of the program says.
#[derive(Clone, PartialEq, Debug)]
struct Collective {
    name: String,
    bytes: u32,
    /// Microseconds of the very first one, and of one after the warm-up.
    first: f64,
    warm: f64,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let dist = options.dist.get()?;
    packages::install(&[(LAUNCHER, "openmpi-bin"), (COMPILER, "libopenmpi-dev")])?;
    let folder = Scratch::new()?;
    let program = compile(&folder)?;
    let mut table = Table::new([
        "ranks",
        "collective",
        "nonic",
        "its TCP",
        "its shared memory",
        "nonic's first",
        "of TCP",
        "of shared memory",
        "met",
    ]);
    let (mut met, mut judged) = (0, 0);
    for ranks in RANKS
        .into_iter()
        .filter(|ranks| options.ranks.is_none_or(|only| only == *ranks))
    {
        let mut found: [Vec<Vec<Collective>>; 3] = Default::default();
        for round in 0..options.rounds as usize {
            for turn in 0..Carrier::ALL.len() {
                let index = (round + turn) % Carrier::ALL.len();
                let carrier = Carrier::ALL[index];
                eprintln!("{ranks} ranks, round {}: {carrier:?}", round + 1);
                found[index].push(measure(&dist.nonic(), &program, &folder, carrier, ranks)?);
            }
        }
        let collectives = found[0][0].len();
        for place in 0..collectives {
            let of = |value: fn(&Collective) -> f64, index: usize| {
                let values = found[index]
                    .iter()
                    .filter_map(|round| round.get(place).map(value));
                median(&values.collect::<Vec<_>>()).unwrap_or(f64::NAN)
            };
            let [ours, tcp, memory] = [0, 1, 2].map(|index| of(|collective| collective.warm, index));
            let Collective { name, bytes, .. } = &found[0][0][place];
            let limit = MOST_TIMES_OF_SHARED_MEMORY
                .iter()
                .find(|(count, _)| *count == ranks);
            let good = ours <= tcp && limit.is_none_or(|(_, times)| ours <= memory * times);
            judged += 1;
            met += u32::from(good);
            table.add([
                ranks.to_string(),
                format!("{name}, {bytes} B"),
                format!("{ours:.1} µs"),
                format!("{tcp:.1} µs"),
                format!("{memory:.1} µs"),
                format!("{:.0} µs", of(|collective| collective.first, 0)),
                format!("{:.2} ×", ours / tcp),
                format!("{:.2} ×", ours / memory),
                if good { "yes" } else { "**no**" }.to_owned(),
            ]);
        }
    }
    let found = format!(
        "{}\nMet: {met} of {judged} (ahead of its TCP; within 3 × of its shared memory with 2 ranks, 4 × with 8).",
        table.markdown()
    );
    match &options.report {
        Some(docs) => Part::found_by("performance.md", "ranks --report").write(docs, &found),
        None => {
            println!("{found}");
            Ok(())
        }
    }
}

fn compile(folder: &Scratch) -> Result<PathBuf> {
    let (source, program) = (folder.path("ranks.c"), folder.path("ranks"));
    std::fs::write(&source, SOURCE)?;
    let mut command = Command::new(COMPILER);
    command
        .args(["-O2", "-Wall", "-Wextra", "-o"])
        .args([&program, &source]);
    let output = command.output().context("cannot start the compiler")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ranks.c does not compile: {complaint}");
    Ok(program)
}

fn measure(
    nonic: &Path,
    program: &Path,
    folder: &Scratch,
    carrier: Carrier,
    ranks: u32,
) -> Result<Vec<Collective>> {
    let mut command = match carrier {
        Carrier::Nonic => {
            let mut command = Command::new(nonic);
            command.args(["run", "--", LAUNCHER]);
            command
        }
        Carrier::Tcp | Carrier::SharedMemory => Command::new(LAUNCHER),
    };
    command.env("NONIC_LOOPBACK", "only").env("HOME", folder.folder());
    command
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command
        .args(["--oversubscribe", "--bind-to", "none"])
        .args(carrier.options());
    command.args(["-n", &ranks.to_string()]).arg(program);
    let printed = Process::start(&mut command)?.finish()?;
    let found: Vec<Collective> = printed.lines().filter_map(parse).collect();
    ensure!(
        !found.is_empty(),
        "{carrier:?} with {ranks} ranks says nothing: {printed}"
    );
    Ok(found)
}

/// A line is: all-to-all 4096 812.33 15.02
fn parse(line: &str) -> Option<Collective> {
    let mut words = line.split_whitespace();
    let name = words.next()?.to_owned();
    let bytes = words.next()?.parse().ok()?;
    let [first, warm] = [words.next()?.parse().ok()?, words.next()?.parse().ok()?];
    words.next().is_none().then_some(Collective {
        name,
        bytes,
        first,
        warm,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_program_are_told_from_those_of_others() {
        let read = parse("all-to-all 4096 812.33 15.02").expect("it is one");
        assert_eq!((read.name.as_str(), read.bytes), ("all-to-all", 4096));
        assert_eq!((read.first, read.warm), (812.33, 15.02));
        assert_eq!(parse("[host:12] a warning of the launcher"), None);
        assert_eq!(parse(""), None);
    }
}
