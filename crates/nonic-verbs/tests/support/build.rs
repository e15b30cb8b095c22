//! The files that libraries are linked from, or are, for the tests of every C library.

use super::outcome::succeeded;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The static libraries of these packages. They are built with the features that all tests of the workspace are built with: CI,
/// which builds all of them, then has them already. Features that only tests ask for are among them, and cargo unites those with
/// the others if it builds a test or an example: so it builds the smallest example too.
#[allow(dead_code, reason = "each test uses what it needs")]
pub(crate) fn archives(packages: &[&str]) -> Vec<PathBuf> {
    let mut what = vec!["--workspace", "--all-features", "--lib", "--example", "connect"];
    // Those that `file_of` builds: each would replace the other's file, and be built again every time.
    what.extend(["--exclude", "nonic-files", "--exclude", "nonic-rspreload"]);
    let messages = build(&what);
    let archive = |package: &&str| artifact(&messages, &format!("lib{}.a", package.replace('-', "_")));
    packages.iter().map(archive).collect()
}

/// The file of this name that a package is built to, with the features it is shipped with: a library in front of the C library must
/// not bring an engine along.
#[allow(dead_code, reason = "each test uses what it needs")]
pub(crate) fn file_of(package: &str, name: &str) -> PathBuf {
    artifact(&build(&["--package", package]), name)
}

/// Builds what these arguments choose, in the profile of this test. Answers cargo's messages.
fn build(what: &[&str]) -> String {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--message-format", "json"]).args(what);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    succeeded(&cargo.output().expect("cargo runs"), "cargo build")
}

/// The path of a file that was built, as cargo's messages name it.
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

/// Compiles a C program of `tests/c` against the system's headers and libraries, as any program is.
pub(crate) fn compile(name: &str, options: &[&str], folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/c")
        .join(name)
        .with_extension("c");
    let program = folder.join(name);
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
