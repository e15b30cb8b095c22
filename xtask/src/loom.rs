//! Explores the interleavings of the models of what threads share (see docs/concurrency.md).

use anyhow::{Context, ensure};
use std::process::Command;

/// Crates with models, each in `mod models` under `cfg(loom)`.
const CRATES: [&str; 2] = ["nonic-core", "nonic-engine"];

/// Builds the crates with loom's primitives, in a target folder of their own, and runs the models.
pub(crate) fn run() -> anyhow::Result<()> {
    for name in CRATES {
        let status = Command::new(env!("CARGO"))
            .args([
                "test",
                "--release",
                "--quiet",
                "--lib",
                "--package",
                name,
                "--",
                "models",
            ])
            .env("RUSTFLAGS", "--cfg loom")
            .env("CARGO_TARGET_DIR", "target/loom")
            .env("LOOM_MAX_PREEMPTIONS", "3")
            // Optimising across crates takes longer to build than the models then run shorter.
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
            .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
            .status()
            .context("cannot start cargo")?;
        ensure!(status.success(), "a model of {name} failed");
    }
    Ok(())
}
