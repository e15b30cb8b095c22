//! `nonic run`: any program that was built for RDMA hardware, on our libraries.
//!
//! The program is told by its environment where to find `libibverbs.so.1` ([`environment`]), sees the files of its devices
//! where it looks for them ([`files`]), and takes this process's place: signals, exit code and terminal are its own. It
//! refuses to guess: without its library beside it, it says so, since the program would otherwise quietly run on the
//! system's library and find no device.
//!
//! With `--sockets` the program need not know RDMA at all: `LD_PRELOAD` puts a library in front that carries its TCP
//! sockets (see docs/sockets.md).

mod environment;
mod faults;
mod files;
mod program;

use crate::exit::ExitWith;
use anyhow::{Context, Result, bail, ensure};
use environment::{asan_options, defaults, preloadable, with_first};
use files::Files;
use nonic_settings::Environment;
use nonic_sysfs::{Config, Wires};
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

/// Run a program on nonic
///
/// The program needs no change and no special build: whatever was linked with libibverbs.so.1, or opens it, works, also
/// under another name, as Python wheels carry it. With --sockets, so do programs that know nothing but TCP.
///
/// The program is told by LD_LIBRARY_PATH, LD_PRELOAD and NONIC_FILES. Unless they are set already,
/// OMPI_MCA_opal_common_ucx_devices=any has Open MPI use UCX without being asked, NCCL_IBVERBS_LIB names our library to
/// NCCL and RCCL, VALGRIND_OPTS names nonic's suppressions, and MC_WORKERS_PER_CTX=1 keeps Mooncake's threads out of each other's way on four processors or fewer. To ASAN_OPTIONS
/// is added verify_asan_link_order=0, for programs with AddressSanitizer.
#[derive(Debug, clap::Args)]
#[command(override_usage = "nonic run [OPTIONS] -- COMMAND...")]
pub(crate) struct Arguments {
    /// Say on standard error what goes wrong and why: warn, info, debug, or as NONIC_LOG says (docs/settings.md)
    #[arg(long, value_name = "LEVEL")]
    log: Option<String>,
    /// Write every packet to this file (pcapng); %p becomes the process id
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Disturb the network and the NIC: as in NONIC_FAULTS, or a TOML file with a play of faults (docs/faults.md)
    #[arg(long, value_name = "FAULTS|FILE.toml")]
    faults: Option<String>,
    /// Carry the program's TCP sockets over RDMA; the other side needs the same
    #[arg(long)]
    sockets: bool,
    /// What the devices speak that the program sees: RoCEv2 over UDP, iWARP over TCP, or both [default: NONIC_WIRE, or roce]
    #[arg(long, value_enum, value_name = "WIRE")]
    wire: Option<Wire>,
    /// How the program sees /dev/infiniband and /sys/class/infiniband
    #[arg(long, value_enum, default_value_t = Files::Auto, value_name = "HOW")]
    files: Files,
    /// Where libibverbs.so.1 is [default: found from where this command is installed]
    #[arg(long, value_name = "DIR")]
    lib: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// What devices speak.
#[derive(Copy, Clone, Debug, clap::ValueEnum)]
enum Wire {
    Roce,
    Iwarp,
    Both,
}

impl Wire {
    fn as_setting(self) -> &'static str {
        match self {
            Wire::Roce => "roce",
            Wire::Iwarp => "iwarp",
            Wire::Both => "both",
        }
    }

    fn as_wires(self) -> Wires {
        match self {
            Wire::Roce => Wires::Roce,
            Wire::Iwarp => Wires::Iwarp,
            Wire::Both => Wires::Both,
        }
    }
}

/// The file a folder must hold to be the one.
const LIBRARY: &str = "libibverbs.so.1";

/// The one for connections, beside it.
const CONNECTIONS: &str = "librdmacm.so.1";

/// What carries sockets, beside it.
const SOCKETS: &str = "rsocket/librspreload.so";

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
    command.args(rest);
    let mut preloaded = Vec::new();
    if arguments.sockets {
        let library = lib.join(SOCKETS);
        ensure!(library.is_file(), "there is no {SOCKETS} in {}", lib.display());
        preloaded.push(library);
    }
    let mut config = Config::from_environment()?;
    if let Some(wire) = arguments.wire {
        command.env("NONIC_WIRE", wire.as_setting());
        config.wires = wire.as_wires();
    }
    let shown = files::show(arguments.files, &config, program, &lib)?;
    match &shown.folder {
        Some(folder) => command.env("NONIC_FILES", folder),
        None => command.env_remove("NONIC_FILES"),
    };
    preloaded.extend(shown.library);
    // An installation may be without the second.
    let ours = [LIBRARY, CONNECTIONS].map(|name| lib.join(name));
    preloaded.extend(ours.into_iter().filter(|library| library.is_file()));
    let preloaded: Vec<PathBuf> = preloaded.into_iter().map(preloadable).collect();
    let list = |name: &str, first: &[PathBuf], separators: &[u8]| {
        with_first(first, std::env::var_os(name).as_deref(), separators)
    };
    command
        .env("LD_PRELOAD", list("LD_PRELOAD", &preloaded, b": "))
        .env(
            "LD_LIBRARY_PATH",
            list("LD_LIBRARY_PATH", std::slice::from_ref(&lib), b":;"),
        );
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    for (name, value) in defaults(&lib.join(LIBRARY), processors) {
        if std::env::var_os(name).is_none() {
            command.env(name, value);
        }
    }
    let asan = std::env::var_os("ASAN_OPTIONS");
    command.env("ASAN_OPTIONS", asan_options(asan.as_deref()));
    if let Some(log) = &arguments.log {
        command.env("NONIC_LOG", log);
    }
    if let Some(pcap) = &arguments.pcap {
        let pcap = std::path::absolute(pcap).with_context(|| format!("cannot use {}", pcap.display()))?;
        command.env("NONIC_PCAP", pcap);
    }
    check_files(arguments.pcap.as_deref())?;
    if let Some(faults) = &arguments.faults {
        command.env("NONIC_FAULTS", faults::setting(faults)?);
    }
    Err(not_run(program, &command.exec()).into())
}

/// As shells and `env` tell it: 127 of a program that is not there, 126 of one that cannot be run.
fn not_run(program: &OsStr, error: &std::io::Error) -> ExitWith {
    ExitWith {
        code: match error.kind() {
            ErrorKind::NotFound => 127,
            _ => 126,
        },
        message: Some(format!("cannot run {}: {error}", program.to_string_lossy())),
    }
}

/// Says of the files that the program is to write if they cannot be written: its errors would not name them.
fn check_files(pcap: Option<&Path>) -> Result<()> {
    let environment = Environment::read()?;
    let named = |setting| environment.file(setting).map(PathBuf::from);
    // Becoming a program keeps the process id.
    let process = std::process::id().to_string();
    let pcap = match pcap {
        Some(pcap) => Some(PathBuf::from(pcap.to_string_lossy().replace("%p", &process))),
        None => named(&nonic_settings::PCAP),
    };
    let files = [
        (pcap, "the capture cannot be written to"),
        (
            named(&nonic_settings::COUNTERS),
            "the counters of NONIC_COUNTERS cannot be written to",
        ),
    ];
    for (file, problem) in files {
        if let Some(file) = file {
            nonic_settings::check_writable(&file).with_context(|| format!("{problem} {}", file.display()))?;
        }
    }
    Ok(())
}

/// The folder of the libraries that were installed together with this command.
fn installed() -> Result<PathBuf> {
    let command = std::env::current_exe().context("cannot tell where this command is installed")?;
    if let Some(folder) = libraries_of(&command) {
        return Ok(folder);
    }
    let list: Vec<String> = candidates(&command)
        .iter()
        .map(|folder| folder.display().to_string())
        .collect();
    bail!(
        "{LIBRARY} is not installed with this command (looked in {}); install both from a checkout with \
         `cargo xtask install`, or say where it is with --lib",
        list.join(" and ")
    );
}

/// The folder of the libraries that were installed together with a command.
pub(crate) fn libraries_of(command: &Path) -> Option<PathBuf> {
    candidates(command).iter().find_map(|folder| with_library(folder))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_beside_the_folder_of_the_command() {
        let found = candidates(Path::new("/usr/bin/nonic"));
        assert_eq!(found, [Path::new("/usr/lib/nonic"), Path::new("/usr/lib")]);
    }
}
