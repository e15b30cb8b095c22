//! Debian packages and privileges that tests and chores need. Chores install what is missing; tests only ask.

use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::{Command, Stdio};

/// Installs Debian packages whose file is missing; each is `(file, package)`.
pub fn install(wanted: &[(&str, &str)]) -> Result<()> {
    let missing: Vec<&str> = wanted
        .iter()
        .filter(|(file, _)| !Path::new(file).exists())
        .map(|(_, package)| *package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(", ");
    ensure!(is_root(), "not installed, and only root can install: {list}");
    eprintln!("installing {list}");
    let refreshed = Command::new("apt-get").args(["update", "-qq"]).status();
    ensure!(
        refreshed.context("cannot start apt-get")?.success(),
        "apt-get update failed"
    );
    let installed = Command::new("apt-get")
        .args(["install", "-y", "-qq"])
        .args(&missing)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdout(Stdio::null())
        .status();
    ensure!(
        installed.context("cannot start apt-get")?.success(),
        "cannot install {list}"
    );
    Ok(())
}

/// Whether we may do what only root may.
pub fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// Whether a program can be run.
pub fn has_program(name: &str, argument: &str) -> bool {
    let mut command = Command::new(name);
    command.arg(argument).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
