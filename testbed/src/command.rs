//! Commands that run to their end, for what they print. They have no time limit: [`crate::process`] has those.

use anyhow::{Context, Result, ensure};
use std::process::Command;

/// Runs a command that must succeed, for what it prints.
pub fn output(command: &mut Command) -> Result<String> {
    let found = command
        .output()
        .with_context(|| format!("cannot start {command:?}"))?;
    ensure!(
        found.status.success(),
        "{command:?} failed ({}):\n{}{}",
        found.status,
        String::from_utf8_lossy(&found.stdout),
        String::from_utf8_lossy(&found.stderr)
    );
    Ok(String::from_utf8_lossy(&found.stdout).into_owned())
}
