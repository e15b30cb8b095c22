//! The preload library as programs see it, in front of libraries of our choice.

#![allow(dead_code, reason = "each test uses what it needs")]

#[path = "../../../nonic-verbs/tests/support/build.rs"]
mod build;
#[path = "../../../nonic-rdmacm/tests/support/libraries.rs"]
mod libraries;
#[path = "../../../../xtask/src/link.rs"]
mod link;
#[path = "../../../nonic-abi/tests/support/outcome.rs"]
mod outcome;

#[allow(unused_imports, reason = "each test uses what it needs")]
pub(crate) use outcome::missing;
pub(crate) use outcome::succeeded;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A folder as it is installed, with room for programs.
pub(crate) struct Installed {
    folder: TempDir,
}

impl Installed {
    /// The preload library alone: nothing is carried.
    pub(crate) fn alone() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let own = folder.path().join("rsocket");
        std::fs::create_dir(&own).expect("a folder can be made");
        let built = build::file_of("nonic-rspreload", "librspreload.so");
        std::fs::copy(built, own.join("librspreload.so")).expect("it can be copied");
        Installed { folder }
    }

    /// With rsockets that are TCP sockets 10000 ports further up.
    pub(crate) fn with_fake() -> Self {
        let installed = Self::alone();
        let options = ["-shared", "-fPIC", "-Wl,-soname,librdmacm.so.1"];
        let fake = build::compile("fake_rdmacm", &options, installed.folder.path());
        std::fs::rename(fake, installed.folder.path().join("librdmacm.so.1")).expect("it can be renamed");
        installed
    }

    /// With rsockets over RDMA.
    pub(crate) fn with_nonic() -> Self {
        let installed = Self::alone();
        libraries::link_into(installed.folder.path());
        installed
    }

    /// Room for files.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The file to preload.
    pub(crate) fn library(&self) -> PathBuf {
        self.folder.path().join("rsocket/librspreload.so")
    }

    /// A C program of `tests/c`, compiled as distributions do, with checked variants of functions.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        build::compile(name, &["-O2", "-D_FORTIFY_SOURCE=2"], self.folder.path())
    }

    /// A command that runs with it, and ends within a minute.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = plain(program);
        command.env("LD_PRELOAD", self.library());
        command
    }
}

/// A command that runs without, and ends within a minute.
pub(crate) fn plain(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("timeout");
    command.arg("60").arg(program);
    for variable in ["LD_PRELOAD", "NONIC_SOCKETS", "NONIC_PRELOAD_CONFIG"] {
        command.env_remove(variable);
    }
    command
}

/// A port below the shift of the fake rsockets that no other test of this machine is likely to use.
pub(crate) fn port(which: u32) -> u16 {
    let port = 10_000 + (std::process::id() * 10 + which) % 10_000;
    u16::try_from(port).expect("it is below 20000")
}
