//! The files `/dev/infiniband` and `/sys/class/infiniband`, as the program sees them: see docs/files.md.

use super::program::bypasses_libc;
use anyhow::{Context, Result, ensure};
use nonic_sysfs::Config;
use nonic_sysfs::mount;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// What the user asks for.
#[derive(Copy, Clone, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Files {
    /// By a library in front of the C library; mounted for programs that do without one
    Auto,
    /// By a library in front of the C library
    Preload,
    /// Mounted, in namespaces of the program's own
    Mount,
    /// Not at all
    Off,
}

/// What the program must be told.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    /// Where the files are.
    pub(crate) folder: Option<PathBuf>,
    /// What is in front of the C library.
    pub(crate) library: Option<PathBuf>,
}

/// What rewrites paths, beside the other libraries.
const LIBRARY: &str = "libnonic_files.so";

/// Makes the files, and has the program see them.
pub(crate) fn show(files: Files, config: &Config, program: &OsStr, lib: &Path) -> Result<Shown> {
    match files {
        Files::Off => Ok(Shown::default()),
        Files::Preload => preloaded(config, lib),
        Files::Mount => mounted(config, lib),
        Files::Auto => Ok(automatic(config, program, lib).unwrap_or_else(|error| {
            eprintln!("nonic: the program will see no files of its devices: {error:#}");
            Shown::default()
        })),
    }
}

/// The library reaches most programs, and needs no permission.
fn automatic(config: &Config, program: &OsStr, lib: &Path) -> Result<Shown> {
    let shown = preloaded(config, lib)?;
    let folder = shown.folder.as_deref().filter(|_| bypasses_libc(program));
    if let Some(folder) = folder {
        if mount::is_possible(folder) {
            mount::mount(folder)?;
        } else {
            eprintln!(
                "nonic: {} does not go through the C library and cannot have mounts of its own here: it will see no \
                 files of its devices",
                program.to_string_lossy()
            );
        }
    }
    Ok(shown)
}

fn preloaded(config: &Config, lib: &Path) -> Result<Shown> {
    let library = lib.join(LIBRARY);
    ensure!(library.is_file(), "there is no {LIBRARY} in {}", lib.display());
    Ok(Shown {
        folder: Some(place(config)?),
        library: Some(library),
    })
}

/// Programs that go through the C library get the library too, if there is one: it adds the counters up.
fn mounted(config: &Config, lib: &Path) -> Result<Shown> {
    let folder = place(config)?;
    mount::mount(&folder)?;
    Ok(Shown {
        folder: Some(folder),
        library: Some(lib.join(LIBRARY)).filter(|library| library.is_file()),
    })
}

fn place(config: &Config) -> Result<PathBuf> {
    nonic_sysfs::place(config).context("cannot make the files of the devices")
}
