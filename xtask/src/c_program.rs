//! Compiles a C program that a chore carries, as any program is compiled: against the system's headers and libraries.

use crate::dist::target_directory;
use anyhow::{Context, Result, ensure};
use std::path::PathBuf;
use std::process::Command;

/// What the programs include beside the system's headers.
const NEED: &str = include_str!("need.h");

/// The program of this name, in a folder of its own below the target folder.
pub(crate) fn compile(name: &str, source: &str, libraries: &[&str]) -> Result<PathBuf> {
    let folder = target_directory()?.join(name);
    std::fs::create_dir_all(&folder)?;
    let (file, program) = (folder.join(name).with_extension("c"), folder.join(name));
    std::fs::write(folder.join("need.h"), NEED)?;
    std::fs::write(&file, source)?;
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let output = Command::new(compiler)
        .args(["-O2", "-g", "-Wall", "-Wextra", "-o"])
        .args([&program, &file])
        .args(libraries)
        .output()
        .context("cannot start the C compiler")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name}.c does not compile: {complaint}");
    Ok(program)
}
