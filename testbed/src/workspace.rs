//! Where the workspace is, and where cargo builds it. It builds nothing.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the workspace.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("testbed is a folder of the workspace")
        .to_owned()
}

/// Where cargo puts what it builds, however it was told.
pub fn target_directory() -> Result<PathBuf> {
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
