//! A crate's sources from the registry, by name and version, and what is built of them: its tests and examples.

use super::case::Program;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How long a build may take on a machine that has more to do.
const BUILD_SECONDS: &str = "1800";

/// What was built, by name. It is kept for the next run, where every user may read it.
pub(super) struct Sources {
    tests: BTreeMap<String, PathBuf>,
    examples: BTreeMap<String, PathBuf>,
}

impl Sources {
    /// Fetches and builds it, as far as that is not done.
    pub(super) fn build(program: &Program) -> Result<Self> {
        let name = format!("{}-{}", program.name, program.version);
        let folder = std::env::temp_dir().join("nonic-crates").join(&name);
        if !folder.join("Cargo.toml").exists() {
            fetch(program, &name, &folder)?;
        }
        let cargo = |arguments: &[&str]| {
            let mut command = Command::new("timeout");
            command.args([BUILD_SECONDS, "cargo"]).args(arguments);
            command.args(["--locked", "--quiet", "--message-format=json-render-diagnostics"]);
            // Each its own: examples of two crates may have the same name.
            command.arg("--target-dir").arg(folder.join("target"));
            // Crates that deny warnings mean those of the compiler they had.
            command.env("RUSTFLAGS", "--cap-lints=warn");
            // What cargo tells us about ourselves is not about them.
            for (variable, _) in std::env::vars().filter(|(name, _)| name.starts_with("CARGO_PKG_")) {
                command.env_remove(variable);
            }
            executables(command.current_dir(&folder))
        };
        Ok(Self {
            tests: cargo(&["test", "--no-run", "--lib", "--tests"])?,
            examples: cargo(&["build", "--examples"])?,
        })
    }

    /// A binary of tests; those of the library have its name.
    pub(super) fn test(&self, name: &str) -> Result<PathBuf> {
        let found = self.tests.get(name);
        found.cloned().with_context(|| format!("no test {name}"))
    }

    pub(super) fn example(&self, name: &str) -> Result<PathBuf> {
        let found = self.examples.get(name);
        found.cloned().with_context(|| format!("no example {name}"))
    }
}

/// Has cargo download it, and copies it to where it can be built as a package of its own.
fn fetch(program: &Program, name: &str, folder: &Path) -> Result<()> {
    let wanted = format!("{}@{}", program.name, program.version);
    // Of all that downloads, this alone is content with a crate whose dependencies were withdrawn since it was published.
    let asked = Command::new("cargo").args(["info", "--quiet", &wanted]).output();
    let asked = asked.context("cannot start cargo")?;
    let complaint = String::from_utf8_lossy(&asked.stderr);
    ensure!(asked.status.success(), "cannot fetch {wanted}: {complaint}");
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| {
        let home = std::env::var_os("HOME")?;
        Some(PathBuf::from(home).join(".cargo"))
    });
    let registries = home.context("cargo has no home")?.join("registry/src");
    for registry in std::fs::read_dir(&registries)? {
        let source = registry?.path().join(name);
        if source.join("Cargo.toml").exists() {
            return copy(&source, folder);
        }
    }
    bail!("{wanted} is not in {}", registries.display())
}

fn copy(source: &Path, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    let copied = Command::new("cp")
        .arg("-r")
        .arg(source.join("."))
        .arg(folder)
        .status();
    ensure!(copied?.success(), "cannot copy {}", source.display());
    Ok(())
}

/// Builds, and tells what came of it: executables by their target's name.
fn executables(command: &mut Command) -> Result<BTreeMap<String, PathBuf>> {
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    ensure!(output.status.success(), "{command:?}: {}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = text.lines().filter_map(|line| serde_json::from_str(line).ok());
    let executable = |message: Value| {
        let name = message["target"]["name"].as_str()?.replace('-', "_");
        let path = message["executable"].as_str()?;
        Some((name, PathBuf::from(path)))
    };
    Ok(messages.filter_map(executable).collect())
}
