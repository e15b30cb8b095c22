//! The library as programs see it: linked as it is installed, in a folder of its own.

#![allow(dead_code, reason = "each test uses what it needs")]

#[path = "../../../../xtask/src/link.rs"]
pub(crate) mod link;
#[path = "../../../nonic-abi/tests/support/outcome.rs"]
pub(crate) mod outcome;

pub(crate) mod build;
pub(crate) mod cancellation;
pub(crate) mod symbols;

pub(crate) use outcome::{missing, succeeded};

use std::path::{Path, PathBuf};
use std::process::Command;
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
            &build::archives(&["nonic-verbs"])[0],
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

    /// A command that finds it by `LD_LIBRARY_PATH`, and by nothing else. It sees loopback, whatever else there is.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", self.folder.path());
        command.env("NONIC_LOOPBACK", "only");
        command
    }

    /// Compiles a C program of `tests/c` against the system's headers and library, as any program is.
    pub(crate) fn compile(&self, name: &str, options: &[&str]) -> PathBuf {
        build::compile(name, options, self.folder.path())
    }
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
