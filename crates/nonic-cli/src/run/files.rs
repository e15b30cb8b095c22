//! How the program sees `/dev/infiniband` and `/sys/class/infiniband`: see docs/files.md.

use anyhow::{Context, Result, ensure};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// What the user asks for.
#[derive(Copy, Clone, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Files {
    /// By a library in front of the C library
    Auto,
    /// By a library in front of the C library
    Preload,
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
pub(crate) fn show(files: Files, _program: &OsStr, lib: &Path) -> Result<Shown> {
    if files == Files::Off {
        return Ok(Shown::default());
    }
    let outcome = preloaded(lib);
    match outcome {
        Err(error) if files == Files::Auto => {
            eprintln!("nonic: the program will see no files of its devices: {error:#}");
            Ok(Shown::default())
        }
        outcome => outcome,
    }
}

fn preloaded(lib: &Path) -> Result<Shown> {
    let library = lib.join(LIBRARY);
    ensure!(library.is_file(), "there is no {LIBRARY} in {}", lib.display());
    let folder = nonic_sysfs::place().context("cannot make the files of the devices")?;
    Ok(Shown {
        folder: Some(folder),
        library: Some(library),
    })
}
