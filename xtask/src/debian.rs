//! Debian's archive: packages of a suite without installing them, and root folders of a suite.
//!
//! Everything comes from the mirror that this machine's apt uses.

use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use testbed::command::output;

/// A suite that we are tried on.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Suite {
    /// As the archive calls it.
    pub(crate) name: &'static str,
    /// As people do.
    pub(crate) release: &'static str,
    /// The package with `librdmacm.so.1`.
    pub(crate) rdmacm: &'static str,
}

pub(crate) const SUITES: [Suite; 3] = [
    Suite {
        name: "bookworm",
        release: "Debian 12",
        rdmacm: "librdmacm1",
    },
    Suite {
        name: "trixie",
        release: "Debian 13",
        rdmacm: "librdmacm1t64",
    },
    Suite {
        name: "forky",
        release: "Debian testing",
        rdmacm: "librdmacm1t64",
    },
];

/// A mirror may be a copy that was made some time ago. Signatures are checked all the same.
const AS_OF_OLD: &str = "Acquire::Check-Valid-Until=false";

/// Where this machine gets Debian's packages from.
fn mirror() -> Result<String> {
    let found = output(Command::new("apt-get").args([
        "indextargets",
        "--format=$(REPO_URI)",
        "Origin: Debian",
        "Label: Debian",
        "Created-By: Packages",
    ]))?;
    let mirror = found.lines().next();
    let mirror = mirror.context(
        "apt has no source of Debian's packages; is this a Debian, and was `apt-get update` called?",
    )?;
    Ok(mirror.to_owned())
}

/// A root folder of the suite at `place`, or the one made before. The arguments are more of `mmdebstrap`'s.
pub(crate) fn root(place: &Path, suite: &str, arguments: &[&str]) -> Result<()> {
    if place.exists() {
        return Ok(());
    }
    let folder = place.parent().context("a root folder is in another")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let unfinished = place.with_extension("unfinished");
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished)?;
    }
    output(
        Command::new("timeout")
            .args(["300", "mmdebstrap", "--quiet"])
            .arg(format!("--aptopt={}", AS_OF_OLD.replacen('=', " ", 1)))
            .args(arguments)
            .arg(suite)
            .arg(&unfinished)
            .arg(mirror()?),
    )
    .with_context(|| format!("no root folder of {suite}; is the package mmdebstrap installed?"))?;
    fs::rename(&unfinished, place)?;
    Ok(())
}

/// Packages of the suite as they are now, unpacked one over the other in a new folder.
pub(crate) fn unpack(suite: &Suite, packages: &[&str], folder: &Path) -> Result<Vec<PathBuf>> {
    let _ = fs::remove_dir_all(folder);
    for part in ["lists/partial", "cache", "archives"] {
        let part = folder.join(part);
        fs::create_dir_all(&part).with_context(|| format!("cannot make {}", part.display()))?;
    }
    let sources = folder.join("sources.list");
    fs::write(&sources, format!("deb {} {} main\n", mirror()?, suite.name))?;
    let archives = folder.join("archives");
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("timeout");
        command.args(["300", "apt-get", "--quiet=2"]);
        // As if nothing were installed and no other source known.
        let options = [
            format!("Dir::Etc::SourceList={}", sources.display()),
            "Dir::Etc::SourceParts=/dev/null".to_owned(),
            "Dir::State::status=/dev/null".to_owned(),
            format!("Dir::State::Lists={}", folder.join("lists").display()),
            format!("Dir::Cache={}", folder.join("cache").display()),
            AS_OF_OLD.to_owned(),
            "Acquire::Languages=none".to_owned(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".to_owned(),
        ];
        for option in options {
            command.args(["-o", &option]);
        }
        output(command.args(arguments).current_dir(&archives))
    };
    apt(&["update"])?;
    apt(&[&["download"], packages].concat())?;
    let mut found = Vec::new();
    for entry in fs::read_dir(&archives)? {
        let archive = entry?.path();
        output(
            Command::new("dpkg-deb")
                .arg("--extract")
                .args([&archive, &folder.join("root")]),
        )?;
        found.push(archive);
    }
    ensure!(found.len() == packages.len(), "{}: only {found:?}", suite.name);
    Ok(found)
}
