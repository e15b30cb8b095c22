//! Python packages, installed by name into an environment of their own that every user may read.

use super::program::Program;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use testbed::packages::install;

/// How long pip may take: longer than any of the downloads, shorter than CI's patience.
const PIP_SECONDS: &str = "600";

/// An environment with a program's wheels; it is kept for the next run. Not in the target folder, which perhaps only
/// its owner may read, and environments cannot be moved.
pub(crate) struct Wheels {
    folder: PathBuf,
}

impl Wheels {
    /// `None` if the program needs none.
    pub(super) fn install(program: &Program) -> Result<Option<Self>> {
        if program.wheels.is_empty() {
            return Ok(None);
        }
        install(&[("/usr/lib/python3.11/ensurepip", "python3-venv")])?;
        let name: String = program.name.chars().filter(char::is_ascii_alphanumeric).collect();
        let folder = std::env::temp_dir().join("nonic-wheels").join(name);
        let installed = folder.join("installed");
        let wanted = program.wheels.join("\n");
        if std::fs::read_to_string(&installed).is_ok_and(|found| found == wanted) {
            return Ok(Some(Self { folder }));
        }
        // Debian's Python: one that root has installed for itself could not be used by others.
        run(Command::new("/usr/bin/python3")
            .args(["-m", "venv", "--clear"])
            .arg(&folder))?;
        let pip = folder.join("bin/pip");
        let mut command = Command::new("timeout");
        command.arg(PIP_SECONDS).arg(&pip).args(["install", "--quiet"]);
        run(command.args(program.wheels))?;
        std::fs::write(&installed, wanted).context("cannot note what is installed")?;
        Ok(Some(Self { folder }))
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().context("cannot start it")?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}
