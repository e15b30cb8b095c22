//! Files for packagers: shell completions and manual pages, made from the same definitions as the help.

use crate::output::OutputClosed;
use anyhow::{Context, Result};
use clap_complete::Shell;
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Print the manual page, or write those of all commands to a directory
#[derive(Debug, clap::Args)]
pub(crate) struct Man {
    /// Where to write them
    #[arg(long)]
    dir: Option<PathBuf>,
}

pub(crate) fn completions(arguments: &Completions, mut command: clap::Command) -> Result<()> {
    // Made in memory first, because the generator panics where it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "nonic", &mut script);
    print(&script)
}

pub(crate) fn man(arguments: &Man, command: clap::Command) -> Result<()> {
    match &arguments.dir {
        Some(dir) => {
            std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
            clap_mangen::generate_to(command, dir)
                .with_context(|| format!("cannot write to {}", dir.display()))
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page)?;
            print(&page)
        }
    }
}

fn print(bytes: &[u8]) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(OutputClosed.into()),
        outcome => Ok(outcome?),
    }
}
