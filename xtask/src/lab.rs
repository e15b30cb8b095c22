//! The chore that boots guests and runs a command in them. [`testbed::lab`] has the guests.

use anyhow::{Result, ensure};
use std::io::BufRead;
use std::time::Duration;
use testbed::lab::{Guest, Lab, Task, enter, is_inside, prepare};

/// What to boot and what to run there.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// How many guests; each runs the command, with its number in $LAB
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=9))]
    guests: u8,
    /// MTU of the wire; 4200 carries RDMA's largest packets
    #[arg(long, default_value_t = 1500)]
    mtu: u32,
    /// Memory of a guest, in MiB
    #[arg(long, default_value_t = 512)]
    memory_mib: u32,
    /// Processors of a guest
    #[arg(long, default_value_t = 1)]
    processors: u8,
    /// Give up after so many seconds
    #[arg(long, default_value_t = 600)]
    patience_s: u64,
    /// What to run, by bash [default: each line of the standard input]
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Boots the guests and runs the commands in each.
pub(crate) fn run(options: &Options) -> Result<()> {
    if !is_inside() {
        prepare()?;
        return Err(enter());
    }
    let lab = Lab::new(options.mtu)?;
    let mut guests = Vec::new();
    for number in 1..=options.guests {
        guests.push(lab.boot(number, options.memory_mib, options.processors)?);
    }
    let patience = Duration::from_secs(options.patience_s);
    if !options.command.is_empty() {
        return everywhere(&mut guests, &options.command.join(" "), patience);
    }
    for line in std::io::stdin().lock().lines() {
        everywhere(&mut guests, &line?, patience)?;
    }
    Ok(())
}

/// Runs a command in all guests at once, and prints what each said. The first exit status that is not zero is ours.
fn everywhere(guests: &mut [Guest], command: &str, patience: Duration) -> Result<()> {
    let tasks: Result<Vec<Task>> = guests.iter_mut().map(|guest| guest.start(command)).collect();
    let many = guests.len() > 1;
    let mut status = 0;
    for (guest, task) in guests.iter_mut().zip(tasks?) {
        let finished = guest.wait(&task, patience)?;
        for line in finished.output.lines() {
            match many {
                true => println!("{}: {line}", guest.number()),
                false => println!("{line}"),
            }
        }
        if status == 0 {
            status = finished.status;
        }
    }
    ensure!(status == 0, "exit status {status}");
    Ok(())
}
