//! What is installed: `bin/nonic` and the libraries programs run on, under `nonic/` in the target folder.

use crate::link::link;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// How to build.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(id = "dist")]
pub(crate) struct Options {
    /// Unoptimised and quickly built, in `nonic-debug/` instead.
    #[arg(long)]
    debug: bool,
}

/// A folder that can be copied anywhere.
#[derive(Clone, Debug)]
pub(crate) struct Dist {
    /// The folder.
    pub(crate) root: PathBuf,
}

impl Dist {
    /// Builds it.
    pub(crate) fn build(options: &Options) -> Result<Self> {
        let target = target_directory()?;
        let profile = if options.debug { "debug" } else { "release" };
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args([
            "build",
            "--quiet",
            "--package",
            "nonic-cli",
            "--package",
            "nonic-verbs",
            "--package",
            "nonic-rdmacm",
            "--package",
            "nonic-rspreload",
            "--package",
            "nonic-files",
        ]);
        if !options.debug {
            cargo.arg("--release");
        }
        let status = cargo.status().context("cannot start cargo")?;
        ensure!(status.success(), "it does not build");

        let root = root(options)?;
        let (bin, lib) = (root.join("bin"), root.join("lib"));
        // Apart from the others, as rdma-core has it: nobody loads it by accident.
        let preloaded = lib.join("rsocket");
        for folder in [&bin, &lib, &preloaded] {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        let built = target.join(profile);
        replace(&built.join("nonic"), &bin.join("nonic"))?;
        let verbs = lib.join("libibverbs.so.1");
        link(
            &built.join("libnonic_verbs.a"),
            &workspace().join("crates/nonic-verbs/libibverbs.map"),
            "libibverbs.so.1",
            &[],
            &verbs,
        )?;
        link(
            &built.join("libnonic_rdmacm.a"),
            &workspace().join("crates/nonic-rdmacm/librdmacm.map"),
            "librdmacm.so.1",
            &[&verbs],
            &lib.join("librdmacm.so.1"),
        )?;
        replace(&built.join("librspreload.so"), &preloaded.join("librspreload.so"))?;
        replace(&built.join("libnonic_files.so"), &lib.join("libnonic_files.so"))?;
        Ok(Self { root })
    }

    /// The one built before.
    pub(crate) fn built(options: &Options) -> Result<Self> {
        Ok(Self { root: root(options)? })
    }

    /// The command.
    pub(crate) fn nonic(&self) -> PathBuf {
        self.root.join("bin/nonic")
    }
}

/// Builds it and says where it is.
pub(crate) fn run(options: &Options) -> Result<()> {
    let dist = Dist::build(options)?;
    println!("{}", dist.root.display());
    Ok(())
}

fn root(options: &Options) -> Result<PathBuf> {
    Ok(target_directory()?.join(if options.debug { "nonic-debug" } else { "nonic" }))
}

/// The folder of the workspace.
pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask is a folder of the workspace")
        .to_owned()
}

/// Where cargo puts what it builds, however it was told.
pub(crate) fn target_directory() -> Result<PathBuf> {
    let found = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(workspace())
        .output()
        .context("cannot start cargo")?;
    let metadata: serde_json::Value = serde_json::from_slice(&found.stdout).context("no cargo metadata")?;
    let target = metadata["target_directory"]
        .as_str()
        .context("no target directory")?;
    Ok(PathBuf::from(target))
}

/// Copies a file in one step: a program that runs cannot be overwritten, but its name can be given away.
fn replace(from: &Path, to: &Path) -> Result<()> {
    let unfinished = to.with_extension("unfinished");
    std::fs::copy(from, &unfinished).with_context(|| format!("cannot copy {}", from.display()))?;
    std::fs::rename(&unfinished, to).with_context(|| format!("cannot write {}", to.display()))
}
