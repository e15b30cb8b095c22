//! NIXL: transfers between the memories of two hosts, by the UCX that its wheel brings.
//!
//! Its package demands PyTorch, with gigabytes of libraries for GPUs, and needs none of it for memory of the host: it is
//! installed without what it demands.

use super::bench::Bench;
use super::case::{Case, Place, Program, Shape};
use super::pairs::python_pair;
use anyhow::{Result, ensure};

const NIXL: Program = Program {
    name: "NIXL",
    version: "1.5.1 (with UCX 1.23)",
    packages: &[],
    wheels: &["--no-deps", "nixl-cu12==1.5.1", "numpy==2.4.6"],
};

/// Everything.
pub(super) fn all() -> Vec<Case> {
    let line = "python: nixl_agent, READ and WRITE of 4 MiB by the UCX backend, verified";
    // On one host UCX gives a part of each transfer to the kernel, which copies from process to process.
    let case = Case::new(&NIXL, line, Shape::Scripted(read_and_write), 2 << 20);
    vec![case.at(&Place::IPV4).core(&[Place::TwoHosts])]
}

fn read_and_write(bench: &Bench<'_>) -> Result<()> {
    let printed = python_pair(bench, include_str!("nixl_pair.py"), "")?;
    ensure!(printed.contains("verified"), "the client says: {printed}");
    Ok(())
}
