//! Both libraries as programs see them: linked as they are installed, in a folder of their own.

#![allow(dead_code, reason = "each test uses what it needs")]

#[path = "../../../../xtask/src/link.rs"]
mod link;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// A folder with `libibverbs.so.1` and `librdmacm.so.1`.
pub(crate) struct Libraries {
    folder: TempDir,
}

impl Libraries {
    /// Builds and links them.
    pub(crate) fn build() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let crates = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .expect("a folder of crates");
        let messages = cargo_build();
        let (verbs, rdmacm) = (
            folder.path().join("libibverbs.so.1"),
            folder.path().join("librdmacm.so.1"),
        );
        let script = crates.join("nonic-verbs/libibverbs.map");
        link::link(
            &artifact(&messages, "libnonic_verbs.a"),
            &script,
            "libibverbs.so.1",
            &[],
            &verbs,
        )
        .expect("libibverbs.so.1 links");
        let script = crates.join("nonic-rdmacm/librdmacm.map");
        link::link(
            &artifact(&messages, "libnonic_rdmacm.a"),
            &script,
            "librdmacm.so.1",
            &[&verbs],
            &rdmacm,
        )
        .expect("librdmacm.so.1 links");
        Libraries { folder }
    }

    /// Where the connection manager is.
    pub(crate) fn rdmacm(&self) -> PathBuf {
        self.folder.path().join("librdmacm.so.1")
    }

    /// A command that finds them, and ends within a minute.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("timeout");
        command.arg("60").arg(program);
        command.env("LD_LIBRARY_PATH", self.folder.path());
        command
    }
}

fn cargo_build() -> String {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--package", "nonic-verbs", "--package", "nonic-rdmacm"]);
    cargo.args(["--message-format", "json"]);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let output = cargo.output().expect("cargo runs");
    succeeded(&output, "cargo build")
}

/// The path of a file that was built.
fn artifact(messages: &str, name: &str) -> PathBuf {
    let end = format!("/{name}\"");
    let mut lines = messages.lines().rev();
    let line = lines
        .find(|line| line.contains(&end))
        .expect("an archive is built");
    let end = line.find(&end).expect("it was found") + end.len() - 1;
    let start = line[..end].rfind('"').expect("a JSON string begins with a quote") + 1;
    PathBuf::from(&line[start..end])
}

/// What a program printed, after seeing that it succeeded.
pub(crate) fn succeeded(output: &Output, what: &str) -> String {
    assert!(
        output.status.success(),
        "{what}: {}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Says that a test cannot be made here; in CI that is a failure.
pub(crate) fn missing(file: &str) -> bool {
    if Path::new(file).exists() {
        return false;
    }
    assert!(
        std::env::var_os("CI").is_none(),
        "CI cannot run this test: {file} is not installed"
    );
    eprintln!("NOT TESTED: {file} is not installed");
    true
}
