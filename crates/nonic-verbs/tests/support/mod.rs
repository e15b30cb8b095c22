//! The library as programs see it: linked as it is installed, in a folder of its own.

#![allow(dead_code, reason = "each test uses what it needs")]

#[path = "../../../../xtask/src/link.rs"]
mod link;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// A folder with `libibverbs.so.1` and room for programs.
pub(crate) struct Library {
    folder: TempDir,
}

impl Library {
    /// Builds and links it.
    pub(crate) fn build() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let library = Library { folder };
        let version_script = Path::new(env!("CARGO_MANIFEST_DIR")).join("libibverbs.map");
        link::link(
            &archive(),
            &version_script,
            "libibverbs.so.1",
            &[],
            &library.path(),
        )
        .expect("the library links");
        library
    }

    /// Where it is.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("libibverbs.so.1")
    }

    /// Its folder.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A command that finds it by `LD_LIBRARY_PATH`, and by nothing else.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", self.folder.path());
        command
    }

    /// Compiles a C program of `tests/c` against the system's headers and library, as any program is.
    pub(crate) fn compile(&self, name: &str, options: &[&str]) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/c")
            .join(name)
            .with_extension("c");
        let program = self.folder.path().join(name);
        let output = Command::new("cc")
            .args(["-Wall", "-Wextra", "-Werror", "-g", "-O1", "-pthread", "-o"])
            .arg(&program)
            .arg(&source)
            .args(options)
            .output()
            .expect("cc runs");
        succeeded(&output, name);
        program
    }
}

/// The static library, built as this test was.
fn archive() -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--package", "nonic-verbs", "--message-format", "json"]);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let output = cargo.output().expect("cargo runs");
    succeeded(&output, "cargo build");
    let messages = String::from_utf8(output.stdout).expect("cargo prints text");
    let artifact = messages
        .lines()
        .rev()
        .find(|line| line.contains("libnonic_verbs.a\""))
        .expect("an archive is built");
    let end = artifact.find("libnonic_verbs.a\"").expect("it was found") + "libnonic_verbs.a".len();
    let start = artifact[..end]
        .rfind('"')
        .expect("a JSON string begins with a quote")
        + 1;
    PathBuf::from(&artifact[start..end])
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

/// The header every C program includes.
pub(crate) const HEADER: &str = "/usr/include/infiniband/verbs.h";

/// Where the compiler finds a library of the system, if it is installed.
pub(crate) fn system_library(name: &str) -> Option<PathBuf> {
    let output = Command::new("cc")
        .arg(format!("-print-file-name={name}"))
        .output()
        .expect("cc runs");
    let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    // The compiler answers the name itself if it finds nothing.
    path.is_absolute().then_some(path)
}
