//! `nonic run`: any program that was built for RDMA hardware, on our libraries.
//!
//! The program is told by `LD_LIBRARY_PATH` where to find `libibverbs.so.1`, and takes this process's place: signals,
//! exit code and terminal are its own. It refuses to guess: without its library beside it, it says so, since the
//! program would otherwise quietly run on the system's library and find no device.
//!
//! With `--sockets` the program need not know RDMA at all: `LD_PRELOAD` puts a library in front that carries its TCP
//! sockets (see docs/sockets.md).

use anyhow::{Context, Result, bail, ensure};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

/// Run a program on nonic
///
/// The program needs no change and no special build: whatever was linked with libibverbs.so.1, or opens it, works. With
/// --sockets, so do programs that know nothing but TCP.
#[derive(Debug, clap::Args)]
#[command(override_usage = "nonic run [OPTIONS] -- COMMAND...")]
pub(crate) struct Arguments {
    /// Write every packet to this file (pcapng); %p becomes the process id
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Carry the program's TCP sockets over RDMA; the other side needs the same
    #[arg(long)]
    sockets: bool,
    /// Where libibverbs.so.1 is [default: found from where this command is installed]
    #[arg(long, value_name = "DIR")]
    lib: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// The file a folder must hold to be the one.
const LIBRARY: &str = "libibverbs.so.1";

/// What carries sockets, beside it.
const PRELOADED: &str = "rsocket/librspreload.so";

/// Becomes the program. Answers only if that fails.
pub(crate) fn main(arguments: &Arguments) -> Result<()> {
    let lib = match &arguments.lib {
        Some(lib) => {
            with_library(lib).with_context(|| format!("there is no {LIBRARY} in {}", lib.display()))?
        }
        None => installed()?,
    };
    let (program, rest) = arguments.command.split_first().context("which command?")?;
    let mut command = std::process::Command::new(program);
    command.args(rest).env(
        "LD_LIBRARY_PATH",
        searched_first(&lib, std::env::var_os("LD_LIBRARY_PATH")),
    );
    if arguments.sockets {
        let preloaded = lib.join(PRELOADED);
        ensure!(
            preloaded.is_file(),
            "there is no {PRELOADED} in {}",
            lib.display()
        );
        command.env(
            "LD_PRELOAD",
            searched_first(&preloaded, std::env::var_os("LD_PRELOAD")),
        );
    }
    if let Some(pcap) = &arguments.pcap {
        let pcap = std::path::absolute(pcap).with_context(|| format!("cannot use {}", pcap.display()))?;
        command.env("NONIC_PCAP", pcap);
    }
    let error = command.exec();
    Err(error).with_context(|| format!("cannot run {}", program.to_string_lossy()))
}

/// The folder of the libraries that were installed together with this command.
fn installed() -> Result<PathBuf> {
    let command = std::env::current_exe().context("cannot tell where this command is installed")?;
    let candidates = candidates(&command);
    for folder in &candidates {
        if let Some(folder) = with_library(folder) {
            return Ok(folder);
        }
    }
    let list: Vec<String> = candidates
        .iter()
        .map(|folder| folder.display().to_string())
        .collect();
    bail!(
        "{LIBRARY} is not installed with this command (looked in {}); build both with `cargo xtask dist`, \
         or say where it is with --lib",
        list.join(" and ")
    );
}

/// `lib/nonic` comes first: in a folder shared with the system, `lib` may hold the system's own library.
fn candidates(command: &Path) -> Vec<PathBuf> {
    let Some(prefix) = command.parent().and_then(Path::parent) else {
        return Vec::new();
    };
    vec![prefix.join("lib/nonic"), prefix.join("lib")]
}

/// The folder with its real name, if it holds the library.
fn with_library(folder: &Path) -> Option<PathBuf> {
    let folder = folder.canonicalize().ok()?;
    folder.join(LIBRARY).is_file().then_some(folder)
}

/// A path of the loader's with an entry in front. An empty entry would mean the current folder, so none is left over.
fn searched_first(first: &Path, before: Option<OsString>) -> OsString {
    let mut path = first.as_os_str().to_owned();
    if let Some(before) = before.filter(|before| !before.is_empty()) {
        path.push(":");
        path.push(before);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_folder_is_searched_before_those_of_the_program() {
        let folder = Path::new("/opt/nonic/lib");
        let text = |before: Option<&str>| searched_first(folder, before.map(Into::into)).into_string();
        assert_eq!(text(None).as_deref(), Ok("/opt/nonic/lib"));
        assert_eq!(text(Some("")).as_deref(), Ok("/opt/nonic/lib"));
        assert_eq!(text(Some("/a:/b")).as_deref(), Ok("/opt/nonic/lib:/a:/b"));
    }

    #[test]
    fn libraries_are_beside_the_folder_of_the_command() {
        let found = candidates(Path::new("/usr/bin/nonic"));
        assert_eq!(found, [Path::new("/usr/lib/nonic"), Path::new("/usr/lib")]);
    }
}
