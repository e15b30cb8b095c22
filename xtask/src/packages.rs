//! Debian packages that chores need, installed where they are missing.

use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;

/// Installs Debian packages whose file is missing; each is `(file, package)`.
pub(crate) fn install(wanted: &[(&str, &str)]) -> Result<()> {
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
        .stdout(std::process::Stdio::null())
        .status();
    ensure!(
        installed.context("cannot start apt-get")?.success(),
        "cannot install {list}"
    );
    Ok(())
}

/// Whether we may do what only root may.
pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}
