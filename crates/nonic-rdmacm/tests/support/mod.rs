//! Both libraries as programs see them: linked as they are installed, in a folder of their own.

#![allow(dead_code, reason = "each test uses what it needs")]

#[path = "../../../nonic-verbs/tests/support/build.rs"]
mod build;
#[path = "../../../nonic-verbs/tests/support/cancellation.rs"]
pub(crate) mod cancellation;
#[path = "../../../../xtask/src/link.rs"]
pub(crate) mod link;
#[path = "../../../nonic-abi/tests/support/outcome.rs"]
mod outcome;
#[path = "../../../nonic-verbs/tests/support/symbols.rs"]
pub(crate) mod symbols;

mod libraries;
pub(crate) mod pair;

pub(crate) use outcome::{missing, succeeded};

use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A folder with `libibverbs.so.1` and `librdmacm.so.1`.
pub(crate) struct Libraries {
    folder: TempDir,
    captures: Option<PathBuf>,
    wire: &'static str,
}

impl Libraries {
    /// Builds and links them.
    pub(crate) fn build() -> Self {
        Self::for_wire("roce")
    }

    /// Builds and links them. Programs see the devices that speak this.
    pub(crate) fn for_wire(wire: &'static str) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        libraries::link_into(folder.path());
        Libraries {
            folder,
            captures: None,
            wire,
        }
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
        command.env("NONIC_WIRE", self.wire);
        if let Some(captures) = &self.captures {
            command.env("NONIC_PCAP", captures.join("%p.pcapng"));
        }
        command
    }

    /// Programs started from now on write down their packets, each in a file of its own.
    pub(crate) fn capture_into(&mut self, folder: &Path) {
        self.captures = Some(folder.to_owned());
    }

    /// Compiles a C program of `tests/c` against the system's headers and libraries, as any program is.
    pub(crate) fn compile(&self, name: &str, options: &[&str]) -> PathBuf {
        build::compile(name, options, self.folder.path())
    }
}
