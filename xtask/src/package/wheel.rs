//! The Python wheel: the tree inside a Python package whose only code starts the command.
//!
//! The archive is written by `packaging/wheel.py`, which needs Python's standard library only.

use super::sysroot::Sysroot;
use super::tree::{Tree, copy_folder};
use super::{VERSION, succeed};
use crate::dist::workspace;
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Makes it, by way of a folder of its own.
pub(super) fn make(tree: &Tree, sysroot: &Sysroot, folder: &Path, to: &Path) -> Result<()> {
    let package = folder.join("nonic");
    copy_folder(&workspace().join("packaging/python/nonic"), &package)?;
    for name in ["bin", "lib"] {
        copy_folder(&tree.root.join(name), &package.join(name))?;
    }
    for symbols in ["bin/.debug", "lib/nonic/.debug", "lib/nonic/rsocket/.debug"] {
        fs::remove_dir_all(package.join(symbols))?;
    }
    for name in ["libibverbs.so", "librdmacm.so"] {
        forward(sysroot, &package.join("lib/nonic"), name)?;
    }
    succeed(
        Command::new("python3")
            .arg(workspace().join("packaging/wheel.py"))
            .args(["--version", VERSION])
            .arg("--readme")
            .arg(workspace().join("README.md"))
            .arg("--licences")
            .args(["LICENSE-MIT", "LICENSE-APACHE"].map(|name| workspace().join(name)))
            .arg(folder)
            .arg(to),
    )
    .context("no wheel")
}

/// An archive of Python's has no symbolic links, and a copy would be a second library with a state of its own. So the
/// name by which some programs open the library is a shared object that holds nothing but the need of the real one.
fn forward(sysroot: &Sysroot, lib: &Path, name: &str) -> Result<()> {
    let file = lib.join(name);
    fs::remove_file(&file)?;
    succeed(
        Command::new(&sysroot.compiler)
            .args(["-shared", "-nostdlib", "-s", "-o"])
            .arg(&file)
            .args(["-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN"])
            .arg(format!("-Wl,-soname,{name}"))
            .arg(lib.join(format!("{name}.1"))),
    )
}
