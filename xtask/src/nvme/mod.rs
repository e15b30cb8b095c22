//! Linux's own `nvme-rdma`, on rxe in a guest, and `nonic nvme-target` here, on one wire.
//!
//! The kernel is the judge: it discovers, connects, partitions, makes a file system, mounts it, and has fio write and verify,
//! also on a wire that loses packets; then the target is killed and started anew, and the kernel must come back by itself.
//! A guest whose kernel breaks down proves nothing; then all of it is run once more in another.
//!
//! Read first: [`stages`].

mod fio;
mod host;
mod stages;

use crate::dist::{self, Dist};
use anyhow::{Result, bail, ensure};
use host::Host;
use std::path::{Path, PathBuf};
use std::time::Instant;
use testbed::lab::{self, Breakdown, Lab};
use testbed::packages::install;

/// Packets of 4 KiB fit.
const MTU: u32 = 4200;

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    build: dist::Options,
    /// A few seconds of everything, instead of a minute of fio
    #[arg(long)]
    quick: bool,
    /// Only stages whose name contains this; the guest is connected anyway
    #[arg(long, default_value = "")]
    only: String,
    /// Write what is on the wire to this file
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// Do not build; use this command
    #[arg(long, value_name = "FILE")]
    nonic: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if !lab::is_inside() {
        lab::prepare()?;
        install(&[
            ("/usr/sbin/nvme", "nvme-cli"),
            ("/usr/bin/fio", "fio"),
            ("/usr/sbin/mkfs.ext4", "e2fsprogs"),
            ("/usr/sbin/sfdisk", "fdisk"),
        ])?;
        if options.capture.is_some() {
            install(&[("/usr/bin/tcpdump", "tcpdump")])?;
        }
        if options.nonic.is_none() {
            Dist::build(&options.build)?;
        }
        return Err(lab::enter());
    }
    let nonic = match &options.nonic {
        Some(path) => path.clone(),
        None => Dist::built(&options.build)?.nonic(),
    };
    match attempt(options, &nonic)? {
        Outcome::Passed => {}
        Outcome::Failed => bail!("Linux's nvme-rdma and nonic do not understand each other"),
        Outcome::BrokeDown(breakdown) => {
            println!("{breakdown}; once more from the beginning, in a new guest");
            for line in breakdown.lines() {
                eprintln!("    {line}");
            }
            let again = attempt(options, &nonic)?;
            ensure!(
                matches!(again, Outcome::Passed),
                "it failed after the guest had broken down: {breakdown}"
            );
        }
    }
    println!("nvme: all stages passed");
    Ok(())
}

/// How a run of all stages ended.
enum Outcome {
    Passed,
    Failed,
    /// The guest's kernel is no judge any more.
    BrokeDown(Breakdown),
}

/// Runs all stages in a guest of its own.
fn attempt(options: &Options, nonic: &Path) -> Result<Outcome> {
    let lab = Lab::new(MTU)?;
    let began = Instant::now();
    let guest = lab.boot(1, 768, 1)?;
    eprintln!("guest up after {:.1} s", began.elapsed().as_secs_f32());
    let mut host = Host::new(&lab, guest, nonic.to_owned(), options.capture.as_deref())?;
    for stage in stages::all(options.quick) {
        if !stage.name.contains(&options.only) && !stage.always {
            continue;
        }
        let began = Instant::now();
        let outcome = (stage.run)(&mut host);
        let seconds = began.elapsed().as_secs_f32();
        match &outcome {
            Ok(said) => println!("{:<44} passed  {seconds:>6.1} s  {said}", stage.name),
            // What comes after needs what this should have done.
            Err(error) => {
                println!("{:<44} FAILED  {seconds:>6.1} s  {error:#}", stage.name);
                println!("{}", host.circumstances());
                return Ok(match host.prove_guest() {
                    Ok(()) => Outcome::Failed,
                    Err(breakdown) => Outcome::BrokeDown(breakdown),
                });
            }
        }
    }
    Ok(Outcome::Passed)
}
