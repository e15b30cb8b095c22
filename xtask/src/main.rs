//! Project chores: `cargo xtask <chore>`.
//!
//! Measurements need an optimised build: `cargo run --release --package xtask -- bench bare`.

mod bare;
mod loom;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Project chores")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Measure.
    Bench {
        #[command(subcommand)]
        subject: Subject,
    },
    /// Explore the interleavings of what threads share.
    Loom,
    /// The other side of a bare-socket measurement, started by it.
    #[command(hide = true)]
    BarePeer {
        #[arg(value_enum)]
        role: bare::Role,
    },
}

#[derive(Subcommand)]
enum Subject {
    /// Bare UDP sockets on loopback: the yardstick for everything built on them.
    Bare {
        /// How long to measure bandwidth.
        #[arg(long, default_value_t = 3.0)]
        seconds: f64,
        /// How many batches may be on their way at once.
        #[arg(long, default_value_t = 4)]
        window: usize,
        /// How many round trips to measure.
        #[arg(long, default_value_t = 100_000)]
        iterations: usize,
    },
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().chore {
        Chore::Bench {
            subject:
                Subject::Bare {
                    seconds,
                    window,
                    iterations,
                },
        } => {
            if cfg!(debug_assertions) {
                eprintln!("note: this is not an optimised build; add --release for figures to keep");
            }
            let bandwidth = bare::bandwidth(seconds, window)?;
            println!("bare bandwidth  {:.2} GB/s  (window {window})", bandwidth / 1e9);
            println!("bare latency    {}", bare::latency(iterations)?);
            Ok(())
        }
        Chore::Loom => loom::run(),
        Chore::BarePeer { role } => bare::serve(role),
    }
}
