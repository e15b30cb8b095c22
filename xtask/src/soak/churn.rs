//! Processes come and go on a host, all the time and without good manners, while others rely on it.
//!
//! Host B has one server that lives from beginning to end, and visitors: processes that share its address, and so UDP
//! port 4791, for a moment. Clients on host A talk to the server. A process that comes or goes on B changes which
//! process gets which packet there; no client may notice.

use super::random;
use super::tally::Tally;
use crate::dist::Dist;
use crate::tools::Readable;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use testbed::namespace::VethPair;
use testbed::process::{Process, Ready};
use testbed::topology::{self, Topology};

/// Clients at a time.
const CLIENTS: usize = 4;
/// Visitors at a time.
const VISITORS: usize = 3;
/// How long visitors stay that are killed, in milliseconds.
const STAY_MS: std::ops::Range<u64> = 10..500;
/// A client that takes longer is reported. It measures for 300 ms.
const SLOW: Duration = Duration::from_secs(2);
/// How often it is told how things are.
const INTERVAL: Duration = Duration::from_secs(10);
/// Where `nonic perf --server` listens.
const PORT: u16 = 18515;

/// Processes that use host B for a moment.
const VISITS: [Visit; 7] = [
    Visit::Killed(&["ping", "--server", "--bind", "10.77.0.2:0"]),
    Visit::Orderly(&["run", "--", "ibv_devinfo", "-d", "roce_veth"]),
    Visit::Killed(&["perf", "10.77.0.2", "--duration", "5s"]),
    Visit::Orderly(&["perf", "10.77.0.2", "--duration", "50ms", "--verify"]),
    Visit::Orderly(&["devices"]),
    Visit::Orderly(&["perf", "--loopback", "--duration", "50ms", "--verify"]),
    Visit::Killed(&["perf", "--loopback", "--duration", "5s"]),
];

#[derive(Copy, Clone, Debug)]
enum Visit {
    /// Ends by itself, and well.
    Orderly(&'static [&'static str]),
    /// Would stay if it were not killed.
    Killed(&'static [&'static str]),
}

/// What happened so far.
#[derive(Debug)]
struct Events {
    tally: Tally,
    clients: usize,
    slow: usize,
    slowest: Duration,
    visitors: usize,
    killed: usize,
}

/// Two hosts, and what goes on there.
struct Churn<'a> {
    nonic: PathBuf,
    hosts: Topology<'a>,
    ends: Instant,
    events: Mutex<Events>,
}

pub(super) fn run(dist: &Dist, duration: Duration) -> Result<()> {
    let readable = Readable::copy(dist)?;
    let veth_pair = VethPair::new()?;
    let [_, hosts, ..] = topology::all(&veth_pair);
    let mut serve = hosts.server.command(&readable.nonic());
    let server = Process::start(serve.args(["perf", "--server", "--bind", hosts.address]))?;
    let churn = Churn {
        nonic: readable.nonic(),
        hosts,
        ends: Instant::now() + duration,
        events: Mutex::new(Events {
            tally: Tally::new("churn"),
            clients: 0,
            slow: 0,
            slowest: Duration::ZERO,
            visitors: 0,
            killed: 0,
        }),
    };
    server
        .wait_until(Ready::Service(PORT), &churn.hosts)
        .context("the server")?;
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let churn = &churn;
            scope.spawn(move || churn.be_clients(number));
        }
        for number in 0..VISITORS {
            let churn = &churn;
            scope.spawn(move || churn.be_visitors(number));
        }
        churn.tell();
    });
    let lives = server.runs();
    let last_lines = server.stop();
    let mut events = churn.events.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{}", events.told());
    if !lives {
        let ended = Err(anyhow::anyhow!("it ended: {last_lines}"));
        events.tally.count("the server", ended);
    }
    events.tally.conclude()
}

impl Churn<'_> {
    fn lasts(&self) -> bool {
        Instant::now() < self.ends
    }

    fn with_events<T>(&self, change: impl FnOnce(&mut Events) -> T) -> T {
        change(&mut self.events.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Says now and then how things are.
    fn tell(&self) {
        while self.lasts() {
            let left = self.ends.saturating_duration_since(Instant::now());
            std::thread::sleep(left.min(INTERVAL));
            println!("{}", self.with_events(|events| events.told()));
        }
    }

    /// One client after the other.
    fn be_clients(&self, number: usize) {
        for op in ["send", "write", "read"].into_iter().cycle().skip(number) {
            if !self.lasts() {
                return;
            }
            let mut command = self.hosts.client.command(&self.nonic);
            command.args(["perf", self.hosts.address, "--op", op, "--verify"]);
            command.args(["--duration", "300ms"]);
            let started = Instant::now();
            let outcome = Process::start(&mut command).and_then(Process::finish);
            let took = started.elapsed();
            self.with_events(|events| {
                events.clients += 1;
                events.slowest = events.slowest.max(took);
                if took > SLOW {
                    events.slow += 1;
                    let after = events.tally.started.elapsed();
                    println!("a client ({op}) took {took:.1?}, at {after:.0?}");
                }
                events.tally.count(&format!("a client ({op})"), outcome.map(drop));
            });
        }
    }

    /// One visitor after the other.
    fn be_visitors(&self, number: usize) {
        for visit in VISITS.into_iter().cycle().skip(2 * number) {
            if !self.lasts() {
                return;
            }
            let (killed, outcome) = match visit {
                Visit::Orderly(arguments) => {
                    let process = Process::start(&mut self.visitor(arguments));
                    (false, process.and_then(Process::finish).map(drop))
                }
                Visit::Killed(arguments) => (true, self.kill(&mut self.visitor(arguments))),
            };
            self.with_events(|events| {
                events.visitors += 1;
                events.killed += usize::from(killed);
                if outcome.is_err() {
                    events.tally.count(&format!("a visitor ({visit:?})"), outcome);
                }
            });
        }
    }

    fn visitor(&self, arguments: &[&str]) -> Command {
        let mut command = self.hosts.server.command(Path::new(&self.nonic));
        command.args(arguments);
        command
    }

    /// Starts a process and kills it after a moment, which it must live to see.
    fn kill(&self, command: &mut Command) -> Result<()> {
        let stay_ms = STAY_MS.start + random() % (STAY_MS.end - STAY_MS.start);
        let process = Process::start(command)?;
        std::thread::sleep(Duration::from_millis(stay_ms));
        let lives = process.runs();
        let last_lines = process.stop();
        ensure!(lives, "it ended before it was killed: {last_lines}");
        Ok(())
    }
}

impl Events {
    fn told(&self) -> String {
        format!(
            "churn: {:.0?}, {} clients, {} of them slow, the slowest {:.1?}; {} visitors, {} of them killed; {} failed",
            self.tally.started.elapsed(),
            self.clients,
            self.slow,
            self.slowest,
            self.visitors,
            self.killed,
            self.tally.failed
        )
    }
}
