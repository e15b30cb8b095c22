//! Processes of one host that are killed or stopped while they talk: the other one learns of it, or waits and goes on.
//!
//! Both ends are `nonic perf`. One of them is killed, or stopped and continued, at a moment that differs from round to round: while they
//! connect, while they measure, while they end. A process whose peer was killed must end soon. If nobody was killed, both must end well,
//! with every payload as it was sent.

use super::random;
use super::tally::Tally;
use crate::dist::Dist;
use anyhow::{Result, bail, ensure};
use std::process::Command;
use std::time::{Duration, Instant};
use testbed::process::Process;

/// From the start of the client until the first signal, in milliseconds.
const BEFORE_MS: std::ops::Range<u64> = 0..250;
/// How long a process stays stopped, in milliseconds. Shorter than the peer's patience.
const STOPPED_MS: std::ops::Range<u64> = 1..300;
/// How long a process may live whose peer was killed: it may be connecting, which it gives up after five seconds.
const SURVIVAL: Duration = Duration::from_secs(8);
/// What a server says of a client that has connected to it begins like this.
const PEER: &str = "127.0.0.1: ";
/// How long both may take if nobody was killed: a third of a second, and what a busy machine adds.
const PATIENCE: Duration = Duration::from_secs(30);

/// What happens to the two processes of a round.
#[derive(Copy, Clone, Debug)]
enum Fate {
    /// This end is killed.
    Killed(End),
    /// This end is stopped, and goes on.
    Stopped(End),
    /// This end is stopped; the other one is killed before it goes on.
    AloneWhenItGoesOn(End),
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum End {
    Client,
    Server,
}

const FATES: [Fate; 6] = [
    Fate::Killed(End::Server),
    Fate::Stopped(End::Client),
    Fate::AloneWhenItGoesOn(End::Server),
    Fate::Killed(End::Client),
    Fate::Stopped(End::Server),
    Fate::AloneWhenItGoesOn(End::Client),
];

/// What they do meanwhile. A prime number of kinds, so that each meets every fate.
const TALKS: [&[&str]; 7] = [
    &["--op", "send"],
    &["--op", "write", "--size", "4K"],
    &["--op", "read", "--size", "1M"],
    &["--test", "lat", "--op", "send", "--size", "64"],
    &["--test", "lat", "--op", "fetch-add"],
    &["--op", "send", "--events"],
    &["--test", "rate", "--op", "write", "--qps", "8"],
];

pub(super) fn run(dist: &Dist, times: usize) -> Result<()> {
    let mut tally = Tally::new("signals");
    let mut slowest = Duration::ZERO;
    let kinds = FATES.iter().cycle().zip(TALKS.iter().cycle());
    for (number, (fate, talk)) in (1..=times).zip(kinds) {
        let before = millis(BEFORE_MS);
        let outcome = round(dist, *fate, talk, before).map(|survived| slowest = slowest.max(survived));
        tally.count(&format!("{number}: {fate:?} after {before:?}, {talk:?}"), outcome);
        if number % 50 == 0 {
            println!(
                "signals {number} of {times}: {} failed so far; no process outlived its peer by more than {slowest:.1?}",
                tally.failed
            );
        }
    }
    tally.conclude()
}

/// One pair of processes. How long the one lived whose peer was killed.
fn round(dist: &Dist, fate: Fate, talk: &[&str], before: Duration) -> Result<Duration> {
    let duration = match fate {
        Fate::Stopped(_) => "300ms",
        Fate::Killed(_) | Fate::AloneWhenItGoesOn(_) => "30s",
    };
    let perf = |arguments: &[&str]| {
        let mut command = Command::new(dist.nonic());
        Process::start(command.arg("perf").args(arguments))
    };
    let server = perf(&["--server", "--once", "--bind", "127.0.0.1"])?;
    let client = perf(
        &[
            talk,
            &[
                "127.0.0.1",
                "--verify",
                "--duration",
                duration,
                "--ack-timeout",
                "500ms",
            ],
        ]
        .concat(),
    )?;
    std::thread::sleep(before);
    match fate {
        Fate::Killed(End::Client) => outlives(client, server),
        Fate::Killed(End::Server) => outlives(server, client),
        Fate::Stopped(end) => {
            let stopped = match end {
                End::Client => &client,
                End::Server => &server,
            };
            pause(stopped, || ())?;
            for process in [client, server] {
                process.finish_within(PATIENCE)?;
            }
            Ok(Duration::ZERO)
        }
        Fate::AloneWhenItGoesOn(end) => {
            let (stopped, killed) = match end {
                End::Client => (client, server),
                End::Server => (server, client),
            };
            pause(&stopped, || drop(killed.stop()))?;
            ends_soon(stopped)
        }
    }
}

/// Stops a process for a moment, and does something before it goes on.
fn pause(process: &Process, meanwhile: impl FnOnce()) -> Result<()> {
    process.signal(libc::SIGSTOP)?;
    std::thread::sleep(millis(STOPPED_MS));
    meanwhile();
    process.signal(libc::SIGCONT)
}

/// Kills one process; how long the other one lives after that.
fn outlives(killed: Process, survivor: Process) -> Result<Duration> {
    drop(killed.stop());
    ends_soon(survivor)
}

/// Waits for a process that has nobody to talk to any more. How it ends is its own matter, but a panic is not.
fn ends_soon(process: Process) -> Result<Duration> {
    let alone = Instant::now();
    while process.runs() {
        if alone.elapsed() > SURVIVAL {
            let said = process.stop();
            if listens_still(&said) {
                return Ok(Duration::ZERO);
            }
            bail!("it still runs {SURVIVAL:?} after its peer was killed: {said}");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let lived = alone.elapsed();
    let said = process.stop();
    ensure!(!said.contains("panicked"), "{said}");
    Ok(lived)
}

/// Whether a server has not been asked for a connection yet: its client was killed so soon. Then it waits for the next one, as it should.
fn listens_still(said: &str) -> bool {
    said.contains("listening on") && !said.contains(PEER)
}

fn millis(range: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(range.start + random() % (range.end - range.start))
}
