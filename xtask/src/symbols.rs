//! `cargo xtask symbols`: which symbols rdma-core's libraries export and import, as Debian's suites ship them.
//!
//! A program that is linked with libmlx5 starts only if our libibverbs has every name that libmlx5 imports, at its version,
//! and each release of rdma-core brings others. So the names of every release that people have are files of this repository
//! (`crates/nonic-verbs/tests/rdma_core`, a folder for each release), and tests compare our libraries with all of them.
//! The folder of a release that no suite has any more stays: people do.

use crate::debian::{self, SUITES, Suite};
use crate::dist::{target_directory, workspace};
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use testbed::command::output;

/// What to do.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Write nothing, and fail if a suite has other symbols than are listed.
    #[arg(long)]
    check: bool,
}

/// Libraries of this kind are rdma-core's, and the prefix is that of their version nodes.
const NODES: [(&str, &str); 2] = [("libibverbs", "IBVERBS_"), ("librdmacm", "RDMACM_")];

pub(crate) fn run(options: &Options) -> Result<()> {
    let lists = workspace().join("crates/nonic-verbs/tests/rdma_core");
    let mut differ = Vec::new();
    for suite in &SUITES {
        let folder = target_directory()?.join("symbols").join(suite.name);
        let (version, found) = of_suite(suite, &folder)?;
        let major = version.split('.').next().context("a version has a number")?;
        println!(
            "{} ({}): rdma-core {version}, {} lists",
            suite.release,
            suite.name,
            found.len()
        );
        for (name, symbols) in found {
            let path = lists.join(major).join(format!("{name}.txt"));
            let mut text = format!(
                "# {name} of rdma-core {version}, as in {}: cargo xtask symbols\n",
                suite.name
            );
            for symbol in symbols {
                text.push_str(&symbol);
                text.push('\n');
            }
            if fs::read_to_string(&path).ok().as_ref() == Some(&text) {
                continue;
            }
            differ.push(format!("{major}/{name}.txt"));
            if !options.check {
                fs::create_dir_all(lists.join(major))?;
                fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            }
        }
    }
    println!("symbols: {} lists are new or changed: {differ:?}", differ.len());
    ensure!(
        !options.check || differ.is_empty(),
        "call `cargo xtask symbols` and supply what is missing"
    );
    Ok(())
}

/// The lists of a suite by name, and the version of its rdma-core.
fn of_suite(suite: &Suite, folder: &Path) -> Result<(String, BTreeMap<String, BTreeSet<String>>)> {
    let packages = ["libibverbs1", "ibverbs-providers", suite.rdmacm];
    let archives = debian::unpack(suite, &packages, folder)?;
    let first = archives.first().context("there are packages")?;
    let version = output(Command::new("dpkg-deb").arg("--field").arg(first).arg("Version"))?;
    // Without the distribution's part.
    let version = version.trim().split('-').next().unwrap_or_default().to_owned();
    let mut lists = BTreeMap::new();
    for (name, library) in libraries(&folder.join("root/usr/lib"))? {
        if let Some((_, nodes)) = NODES.iter().find(|(library, _)| *library == name) {
            lists.insert(
                format!("exported_{name}"),
                symbols(&library, "--defined-only", nodes)?,
            );
        }
        let imported = symbols(&library, "--undefined-only", "IBVERBS_")?;
        if !imported.is_empty() {
            lists.insert(format!("imported_{name}"), imported);
        }
    }
    for needed in ["exported_libibverbs", "exported_librdmacm", "imported_libmlx5"] {
        ensure!(lists.contains_key(needed), "{}: no {needed}", suite.name);
    }
    Ok((version, lists))
}

/// The libraries that programs can be linked with, by name: `libmlx5` for `libmlx5.so.1`.
fn libraries(lib: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for folder in fs::read_dir(lib).with_context(|| format!("no {}", lib.display()))? {
        let folder = folder?.path();
        if !folder.is_dir() {
            continue;
        }
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if let Some(name) = name.strip_suffix(".so.1") {
                found.push((name.to_owned(), path.clone()));
            }
        }
    }
    Ok(found)
}

/// Symbols at these nodes, as `name@VERSION`.
fn symbols(library: &Path, which: &str, nodes: &str) -> Result<BTreeSet<String>> {
    let printed = output(
        Command::new("nm")
            .args(["-D", which, "--with-symbol-versions"])
            .arg(library)
            .env("LC_ALL", "C"),
    )?;
    let symbols = printed
        .lines()
        .filter_map(|line| line.split_whitespace().next_back());
    Ok(symbols
        .map(|symbol| symbol.replace("@@", "@"))
        .filter(|symbol| {
            let version = symbol.split_once('@');
            // The nodes themselves are listed at themselves.
            version.is_some_and(|(name, version)| version.starts_with(nodes) && name != version)
        })
        .collect())
}
