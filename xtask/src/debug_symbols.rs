//! Debug symbols are kept beside what they belong to, so that what is copied and installed is small.
//!
//! `lib/libx.so` gets `lib/.debug/libx.so.debug`, a place where gdb and Rust's own backtraces look without being told.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder beside a file in which its symbols are.
pub(crate) const FOLDER: &str = ".debug";

/// Takes the symbols out of an executable or a shared object. In one step: it may be running.
pub(crate) fn split(file: &Path) -> Result<()> {
    let name = file.file_name().context("a file has a name")?.to_owned();
    let folder = file.with_file_name(FOLDER);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut symbols = folder.join(&name);
    symbols.as_mut_os_string().push(".debug");
    let mut stripped = PathBuf::from(file);
    stripped.as_mut_os_string().push(".stripped");
    objcopy(&["--only-keep-debug"], file, &symbols)?;
    let mut link = std::ffi::OsString::from("--add-gnu-debuglink=");
    link.push(&symbols);
    let status = Command::new("objcopy")
        .arg("--strip-unneeded")
        .arg(link)
        .args([file, &stripped])
        .status()
        .context("cannot start objcopy, of the package binutils")?;
    ensure!(status.success(), "cannot strip {}", file.display());
    std::fs::rename(&stripped, file).with_context(|| format!("cannot write {}", file.display()))
}

fn objcopy(options: &[&str], from: &Path, to: &Path) -> Result<()> {
    let status = Command::new("objcopy")
        .args(options)
        .args([from, to])
        .status()
        .context("cannot start objcopy, of the package binutils")?;
    ensure!(status.success(), "cannot take the symbols of {}", from.display());
    Ok(())
}
