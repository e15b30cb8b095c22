//! The quick check of a change while it is being written: format, clippy, the tests of the packages it touches and of
//! those built on them, and a few hundred simulated fabrics. CI judges the rest (`.ci/run`).
//!
//! The whole workspace is built as CI builds it, so that nothing is compiled for this alone.

use crate::dist::workspace;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// What changed.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// All that changed since this commit, committed or not.
    #[arg(long, value_name = "REV", default_value = "HEAD")]
    base: String,
    /// How many simulated fabrics of each kind.
    #[arg(long, default_value_t = 500)]
    seeds: u32,
}

/// Kinds of fabrics that `nonic sim` simulates, by the option that chooses each.
const FABRICS: [&[&str]; 3] = [&[], &["--connections"], &["--iwarp"]];

pub(crate) fn run(options: &Options) -> Result<()> {
    let packages = Packages::of_the_workspace()?;
    let changed = packages.touched_by(&changed_files(&options.base)?);
    let started = Instant::now();
    step(&started, "format");
    cargo(&["fmt", "--all", "--check"])?;
    step(&started, "clippy");
    cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--all-features",
        "--quiet",
        "--",
        "-D",
        "warnings",
    ])?;
    if changed.is_empty() {
        println!(
            "no package changed since {}: there is nothing to test",
            options.base
        );
        return Ok(());
    }
    let filter = filter(&changed);
    step(&started, &format!("tests: {filter}"));
    cargo(&[
        "nextest",
        "run",
        "--workspace",
        "--all-features",
        "--profile",
        "quick",
        "--cargo-quiet",
        "--filterset",
        &filter,
    ])?;
    step(
        &started,
        &format!("{} simulated fabrics of each kind", options.seeds),
    );
    for kind in FABRICS {
        simulate(kind, options.seeds)?;
    }
    step(&started, "passed");
    Ok(())
}

/// With the command as it was built for its tests: for itself alone, cargo would choose other features and build everything again.
fn simulate(kind: &[&str], seeds: u32) -> Result<()> {
    let folder =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from);
    let status = Command::new(folder.join("debug/nonic"))
        .args(["sim", "--seeds", &seeds.to_string()])
        .args(kind)
        .status()
        .context("cannot start nonic")?;
    ensure!(status.success(), "nonic sim {} failed", kind.join(" "));
    Ok(())
}

fn step(started: &Instant, what: &str) {
    println!("=== {what} ({} s)", started.elapsed().as_secs());
}

/// The tests of these packages and of all that are built on them, in nextest's language.
fn filter(changed: &BTreeSet<String>) -> String {
    let each: Vec<String> = changed.iter().map(|name| format!("rdeps(={name})")).collect();
    each.join(" | ")
}

fn cargo(arguments: &[&str]) -> Result<()> {
    let status = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(workspace())
        .status()
        .context("cannot start cargo")?;
    ensure!(status.success(), "cargo {} failed", arguments.join(" "));
    Ok(())
}

/// Files that differ from the commit, and those that git does not know yet, relative to the workspace.
fn changed_files(base: &str) -> Result<Vec<PathBuf>> {
    let lists = [
        vec!["diff", "--name-only", base],
        vec!["ls-files", "--others", "--exclude-standard"],
    ];
    let mut files = Vec::new();
    for arguments in lists {
        let output = Command::new("git")
            .args(&arguments)
            .current_dir(workspace())
            .output()
            .context("cannot start git")?;
        ensure!(
            output.status.success(),
            "git {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr)
        );
        files.extend(String::from_utf8(output.stdout)?.lines().map(PathBuf::from));
    }
    Ok(files)
}

/// The packages of the workspace: name and folder.
struct Packages(Vec<(String, PathBuf)>);

impl Packages {
    fn of_the_workspace() -> Result<Self> {
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .current_dir(workspace())
            .output()
            .context("cannot start cargo")?;
        let metadata: serde_json::Value =
            serde_json::from_slice(&output.stdout).context("no cargo metadata")?;
        let packages = metadata["packages"].as_array().context("no packages")?;
        let named = packages.iter().filter_map(|package| {
            let folder = Path::new(package["manifest_path"].as_str()?).parent()?;
            let folder = folder.strip_prefix(workspace()).ok()?;
            Some((package["name"].as_str()?.to_owned(), folder.to_owned()))
        });
        Ok(Self(named.collect()))
    }

    /// The packages that these files belong to. What all packages are built with belongs to every one of them; what is shared
    /// between the tests of several, to those at the bottom, on which the others are built.
    fn touched_by(&self, files: &[PathBuf]) -> BTreeSet<String> {
        let everything = ["Cargo.toml", "Cargo.lock", "fuzz/src", "tests/data"];
        let mut touched = BTreeSet::new();
        for file in files {
            let owner = self.0.iter().find(|(_, folder)| file.starts_with(folder));
            match owner {
                Some((name, _)) => drop(touched.insert(name.clone())),
                None if everything.iter().any(|path| file.starts_with(path)) => {
                    touched.extend(self.0.iter().map(|(name, _)| name.clone()));
                }
                None => {}
            }
        }
        touched
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packages() -> Packages {
        let folders = [
            ("nonic-core", "crates/nonic-core"),
            ("nonic", "crates/nonic"),
            ("xtask", "xtask"),
        ];
        Packages(
            folders
                .map(|(name, folder)| (name.to_owned(), folder.into()))
                .to_vec(),
        )
    }

    fn touched(file: &str) -> Vec<String> {
        packages().touched_by(&[file.into()]).into_iter().collect()
    }

    #[test]
    fn a_file_belongs_to_the_package_in_whose_folder_it_is() {
        assert_eq!(touched("crates/nonic-core/src/lib.rs"), ["nonic-core"]);
        assert_eq!(touched("crates/nonic/tests/api.rs"), ["nonic"]);
    }

    #[test]
    fn what_all_are_built_with_touches_all() {
        assert_eq!(touched("Cargo.lock").len(), 3);
    }

    #[test]
    fn prose_touches_none() {
        assert!(touched("docs/rust.md").is_empty());
    }

    #[test]
    fn what_is_built_on_a_package_is_tested_with_it() {
        let changed = ["nonic", "xtask"].map(str::to_owned).into();
        assert_eq!(filter(&changed), "rdeps(=nonic) | rdeps(=xtask)");
    }
}
