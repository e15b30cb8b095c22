//! The project's own faulty wire: network namespaces joined by a link in user space that delays, loses, reorders, duplicates and
//! damages packets, has a rate and a queue, and does the same again for the same seed.
//!
//! `run` gives a developer two hosts to try programs on, `table` measures nonic beside TCP on it, `check` is for every change.
//! It needs root, for namespaces, and `/dev/net/tun`; the kernel needs no netem.
//!
//! What a link can do, and the fate of a packet, are [`nonic_netem`]'s. Here is how packets get there and back.
//!
//! Read first: [`wire`], then [`nonic_netem::EmulatedLink`].

mod cells;
mod check;
mod frame;
mod many;
pub(crate) mod network;
mod pool;
mod report;
mod row;
mod subject;
mod table;
mod trial;
mod tun;
mod wire;

use crate::dist;
use anyhow::Result;
use std::path::PathBuf;
use testbed::packages::install;
use testbed::sysctl::Sysctl;

/// What to do with a faulty wire.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    task: Task,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Task {
    /// Run a command, or a shell, on one of two hosts with a faulty wire between them.
    Run(Box<trial::Options>),
    /// Change the wire of the shell that this is called in.
    Set(trial::SetOptions),
    /// Measure nonic beside TCP on faulty wires, taking turns.
    Table(table::Options),
    /// A few faulty wires in less than a minute: what arrives is verified.
    Check(check::Options),
}

pub(crate) fn run(options: &Options) -> Result<()> {
    match &options.task {
        Task::Run(options) => trial::run(options),
        Task::Set(options) => trial::set(options),
        Task::Table(options) => table::run(options),
        Task::Check(options) => check::run(options),
    }
}

/// What is measured, and the system prepared for it.
struct Built {
    root: PathBuf,
    nonic: PathBuf,
    _buffers: [Sysctl; 2],
}

impl Built {
    fn new(chosen: &dist::Chosen) -> Result<Self> {
        install(&[("/usr/bin/iperf3", "iperf3")])?;
        let dist = chosen.get()?;
        Ok(Self {
            nonic: dist.nonic(),
            root: dist.root,
            // As much as TCP has without being asked.
            _buffers: [
                Sysctl::at_least("/proc/sys/net/core/rmem_max", 4 << 20),
                Sysctl::at_least("/proc/sys/net/core/wmem_max", 4 << 20),
            ],
        })
    }
}
