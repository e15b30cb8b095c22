//! NIXL: transfers between the memories of two hosts, by the UCX that its wheel brings.
//!
//! Its package demands PyTorch, with gigabytes of libraries for GPUs, and needs none of it for memory of the host: it is
//! installed without what it demands.

use super::bench::Bench;
use super::case::{Case, Place, Program, Shape};
use super::scratch::python_pair;
use anyhow::{Result, ensure};

const NIXL: Program = Program {
    name: "NIXL",
    version: "1.5.1 (with UCX 1.23)",
    packages: &[],
    wheels: &["--no-deps", "nixl-cu12==1.5.1", "numpy==2.4.6"],
};

/// Everything.
pub(super) fn all() -> Vec<Case> {
    vec![Case {
        program: &NIXL,
        line: "python: nixl_agent, READ and WRITE of 4 MiB by the UCX backend, verified".to_owned(),
        shape: Shape::Scripted(read_and_write),
        places: Place::IPV4.to_vec(),
        // On one host UCX gives a part of each transfer to the kernel, which copies from process to process.
        moved_bytes: 2 << 20,
        core: vec![Place::TwoHosts],
        known_failure: None,
    }]
}

fn read_and_write(bench: &Bench<'_>) -> Result<()> {
    let printed = python_pair(bench, include_str!("nixl_pair.py"), "")?;
    ensure!(printed.contains("verified"), "the client says: {printed}");
    Ok(())
}
