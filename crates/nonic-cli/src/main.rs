//! The `nonic` command: see the devices, try them, measure them, look into processes, draw what they send, serve a disk, and run the
//! simulator.
//!
//! Everything here stands on the public API of the `nonic` crate, as any other program would. Two processes
//! find each other by address and port, through the connection manager, and agree in a few lines of text
//! ([`conversation`], [`exchange`]); what they do then is a [`perf::run::Run`].
//!
//! Read first: [`exchange`], [`perf`], [`server`].

#![forbid(unsafe_code)]

mod arguments;
mod client;
mod conversation;
mod devices;
mod doctor;
mod draw;
mod exchange;
mod exit;
mod explain;
mod footprint;
mod inspect;
mod interrupt;
mod listeners;
mod local_gid;
mod loopback;
mod meter;
mod nvme_target;
mod output;
mod pattern;
mod perf;
mod ping;
mod run;
mod server;
mod sim;
mod tools;
mod top;
mod units;

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;

/// RDMA with no NIC.
///
/// A software RNIC in an ordinary process: no kernel module, no root, no daemon.
#[derive(Debug, Parser)]
#[command(name = "nonic", version, propagate_version = true, after_long_help = nonic_settings::help())]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Print JSON, for scripts
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    Devices(devices::Arguments),
    Doctor(doctor::Arguments),
    Draw(draw::Arguments),
    Explain(explain::Arguments),
    Ping(ping::Arguments),
    NvmeTarget(nvme_target::Arguments),
    Perf(perf::Arguments),
    Ps(inspect::ps::Arguments),
    Show(inspect::show::Arguments),
    Top(top::Arguments),
    Metrics(inspect::metrics::Arguments),
    Run(run::Arguments),
    Sim(sim::Arguments),
    Completions(tools::Completions),
    Man(tools::Man),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match nonic_settings::Environment::read() {
        // Every command reports a misspelt variable, also one that opens no device.
        Err(error) => Err(error.into()),
        Ok(_) => run(cli),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<output::OutputClosed>() => ExitCode::SUCCESS,
        Err(error) => {
            let exit = error.downcast_ref::<exit::ExitWith>();
            if exit.is_none_or(|exit| exit.message.is_some()) {
                // Standard error may be closed too; the exit code still tells.
                use std::io::Write;
                let _ = writeln!(std::io::stderr(), "nonic: {error:#}");
            }
            exit.map_or(ExitCode::FAILURE, |exit| ExitCode::from(exit.code))
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Command::Devices(arguments) => devices::run(&arguments, cli.json),
        Command::Doctor(arguments) => doctor::run(&arguments, cli.json),
        Command::Draw(arguments) => draw::main(&arguments, cli.json),
        Command::Explain(arguments) => explain::run(&arguments, cli.json),
        Command::Ping(arguments) => ping::main(&arguments, cli.json),
        Command::NvmeTarget(arguments) => nvme_target::main(&arguments, cli.json),
        Command::Perf(arguments) => perf::main(&arguments, cli.json),
        Command::Ps(arguments) => inspect::ps::run(&arguments, cli.json),
        Command::Show(arguments) => inspect::show::run(&arguments, cli.json),
        Command::Top(arguments) => top::run(&arguments, cli.json),
        Command::Metrics(arguments) => inspect::metrics::run(&arguments, cli.json),
        Command::Run(arguments) => run::main(&arguments),
        Command::Sim(arguments) => sim::main(&arguments, cli.json),
        Command::Completions(arguments) => tools::completions(&arguments, Cli::command()),
        Command::Man(arguments) => tools::man(&arguments, Cli::command()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
