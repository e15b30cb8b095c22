//! Runs seeds and reports the results.

use crate::capture::Capture;
use crate::connections::Connections;
use crate::direct::SharedHost;
use crate::fabric::Fabric;
use crate::lanes::LaneHost;
use crate::messages::Messages;
use crate::report::Report;
use crate::shares::Shares;
use crate::streams::Streams;
use crate::world::World;
use nonic_ladder::{Keep, Ladder, Selection};
use std::fmt;
use std::fs::File;
use std::io::BufWriter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// What to do besides running.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Writes the run's packets there, as pcapng.
    pub pcap: Option<PathBuf>,
    /// Prints what happens on standard error: packets, marks, completions and events.
    pub narrate: bool,
    /// What the hosts do.
    pub workload: Workload,
}

/// What the hosts of a run do.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Workload {
    /// They move data over queue pairs that are connected from the start.
    #[default]
    Traffic,
    /// They connect and disconnect through their connection managers.
    Connections,
    /// One keeps many processes at one address busy, some of which do not answer.
    Shares,
    /// They connect iWARP queue pairs over byte streams and move data.
    Streams,
    /// Two of them send each other messages over a connection that breaks.
    Messages,
}

impl Workload {
    /// The flag of `nonic sim` that asks for it, after a space.
    pub fn flag(self) -> &'static str {
        match self {
            Workload::Traffic => "",
            Workload::Connections => " --connections",
            Workload::Shares => " --shares",
            Workload::Streams => " --iwarp",
            Workload::Messages => " --messages",
        }
    }
}

/// A seed that went wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// What the hosts did.
    pub workload: Workload,
    /// When, in virtual time.
    pub virtual_ns: u64,
    /// What.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (flag, seed) = (self.workload.flag(), self.seed);
        write!(
            f,
            "nonic sim{flag} --seed {seed}   # at {} ns: {}",
            self.virtual_ns, self.what
        )
    }
}

impl std::error::Error for Failure {}

/// Runs the workload of a seed with all checks.
pub fn run_seed(seed: u64, options: &Options) -> Result<Report, Failure> {
    match options.workload {
        Workload::Traffic => run_world(World::draw(seed), seed, options),
        Workload::Connections => run_world(Connections::draw(seed), seed, options),
        Workload::Shares => run_world(Shares::draw(seed), seed, options),
        Workload::Streams => run_world(Streams::draw(seed), seed, options),
        Workload::Messages => run_world(Messages::draw(seed), seed, options),
    }
}

/// Runs the traffic of a seed with all checks, and draws it: which NIC posted, sent, placed and completed what.
///
/// The run is the same as without: a seed that fails in [`run_seed`] fails here, and its ladder ends there.
pub fn record_seed(seed: u64) -> (Result<Report, Failure>, Ladder) {
    let mut world = World::draw(seed);
    world.record();
    let outcome = run_simulation(&mut world, seed, &Options::default());
    let mut ladder = world.take_ladder().unwrap_or_default();
    ladder.title = format!("nonic sim --seed {seed}");
    (outcome, ladder)
}

/// The story of what went wrong with a seed: the last events of the queue pair that the failure names and of its peer, or
/// of all if it names none.
pub fn story_of_failure(seed: u64, events: usize) -> Option<Ladder> {
    let mut world = World::draw(seed);
    world.record();
    let failure = run_simulation(&mut world, seed, &Options::default()).err()?;
    let ladder = world.take_ladder()?;
    let blamed = blamed_queue_pair(&failure.what);
    let involved = blamed.map_or(Vec::new(), |number| world.involved(number));
    let selection = Selection {
        queue_pairs: involved.iter().map(|number| (None, *number as u32)).collect(),
        limit: Some(events),
        keep: Keep::Last,
        ..Selection::default()
    };
    let mut story = selection.apply(ladder);
    story.title = match involved[..] {
        [] => "What happened last:".to_owned(),
        [number] => format!("What happened last to QP {number}:"),
        [number, peer, ..] => format!("What happened last to QP {number} and its peer, QP {peer}:"),
    };
    Some(story)
}

/// The queue pair that a checker names first in what it found.
fn blamed_queue_pair(what: &str) -> Option<usize> {
    let (_, behind) = what.split_once("QP ")?;
    let digits = behind.split(|letter: char| !letter.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// What a seed draws, whatever its hosts do.
trait Simulation {
    fn narrate(&mut self, narrate: bool);
    fn capture(&mut self, capture: Capture);
    fn take_capture(&mut self) -> Option<Capture>;
    fn run(&mut self) -> Result<(), String>;
    /// What happened so far.
    fn report(&self, seed: u64) -> Report;
}

fn run_world(mut world: impl Simulation, seed: u64, options: &Options) -> Result<Report, Failure> {
    run_simulation(&mut world, seed, options)
}

fn run_simulation(world: &mut impl Simulation, seed: u64, options: &Options) -> Result<Report, Failure> {
    world.narrate(options.narrate);
    let unwritable = |error| format!("cannot write the capture: {error}");
    let outcome = open_capture(options).map_err(unwritable).and_then(|capture| {
        if let Some(capture) = capture {
            world.capture(capture);
        }
        // A panic is a bug like any other, and other seeds should still run.
        catch_unwind(AssertUnwindSafe(|| world.run())).unwrap_or_else(|panic| Err(message_of(&*panic)))
    });
    let finished = world.take_capture().map_or(Ok(()), Capture::finish);
    let outcome = outcome.and_then(|()| finished.map_err(unwritable));
    let report = world.report(seed);
    match outcome {
        Ok(()) => Ok(report),
        Err(what) => Err(Failure {
            seed,
            workload: options.workload,
            virtual_ns: report.virtual_ns,
            what,
        }),
    }
}

impl Simulation for World {
    fn narrate(&mut self, narrate: bool) {
        World::narrate(self, narrate);
    }

    fn capture(&mut self, capture: Capture) {
        World::capture(self, capture);
    }

    fn take_capture(&mut self) -> Option<Capture> {
        self.fabric.take_capture()
    }

    fn run(&mut self) -> Result<(), String> {
        World::run(self)
    }

    fn report(&self, seed: u64) -> Report {
        Report {
            operations: self.model.operations,
            completions: self.model.completions,
            failures: self.model.failures,
            retries_exceeded: self.retries_exceeded,
            direct: self.shared_host.as_ref().map_or(0, SharedHost::requests),
            records: self.fabric.lanes().map_or(0, LaneHost::records),
            ..fabric_report(seed, self.steps, &self.fabric)
        }
    }
}

impl Simulation for Connections {
    fn narrate(&mut self, narrate: bool) {
        Connections::narrate(self, narrate);
    }

    fn capture(&mut self, capture: Capture) {
        Connections::capture(self, capture);
    }

    fn take_capture(&mut self) -> Option<Capture> {
        self.fabric.take_capture()
    }

    fn run(&mut self) -> Result<(), String> {
        Connections::run(self)
    }

    fn report(&self, seed: u64) -> Report {
        let tally = &self.tally;
        Report {
            operations: tally.attempts,
            completions: tally.established,
            failures: tally.refused + tally.unreachable,
            retries_exceeded: tally.unreachable,
            ..fabric_report(seed, self.steps, &self.fabric)
        }
    }
}

impl Simulation for Shares {
    fn narrate(&mut self, narrate: bool) {
        Shares::narrate(self, narrate);
    }

    fn capture(&mut self, capture: Capture) {
        Shares::capture(self, capture);
    }

    fn take_capture(&mut self) -> Option<Capture> {
        self.fabric.take_capture()
    }

    fn run(&mut self) -> Result<(), String> {
        Shares::run(self)
    }

    fn report(&self, seed: u64) -> Report {
        Report {
            operations: self.operations,
            completions: self.completions,
            ..fabric_report(seed, self.steps, &self.fabric)
        }
    }
}

impl Simulation for Streams {
    fn narrate(&mut self, narrate: bool) {
        Streams::narrate(self, narrate);
    }

    fn capture(&mut self, _: Capture) {}

    fn take_capture(&mut self) -> Option<Capture> {
        None
    }

    fn run(&mut self) -> Result<(), String> {
        Streams::run(self)
    }

    fn report(&self, seed: u64) -> Report {
        Streams::report(self, seed)
    }
}

impl Simulation for Messages {
    fn narrate(&mut self, narrate: bool) {
        Messages::narrate(self, narrate);
    }

    fn capture(&mut self, _: Capture) {}

    fn take_capture(&mut self) -> Option<Capture> {
        None
    }

    fn run(&mut self) -> Result<(), String> {
        Messages::run(self)
    }

    fn report(&self, seed: u64) -> Report {
        Messages::report(self, seed)
    }
}

/// The part of a report that the fabric knows.
fn fabric_report<T>(seed: u64, steps: u64, fabric: &Fabric<T>) -> Report {
    Report {
        seed,
        trace_hash: fabric.trace_hash(),
        virtual_ns: fabric.now().as_ns(),
        steps,
        packets: fabric.packets(),
        faults: fabric.fault_counts(),
        ..Report::default()
    }
}

fn open_capture(options: &Options) -> std::io::Result<Option<Capture>> {
    let Some(path) = &options.pcap else {
        return Ok(None);
    };
    let file = BufWriter::new(File::create(path)?);
    Capture::new(Box::new(file)).map(Some)
}

fn message_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panicked: {}", text.unwrap_or("without a message"))
}

/// What many runs did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Seeds run.
    pub seeds: u64,
    /// Those that went wrong, by seed.
    pub failures: Vec<Failure>,
    /// The sums of their reports' counts (seed and hash excepted).
    pub total: Report,
}

/// Runs `count` seeds from `first` on `threads` threads. `progress` is called from time to time with the number of
/// seeds done and of failures so far; it returns whether to go on.
pub fn run_many(
    first: u64,
    count: u64,
    threads: usize,
    progress: impl Fn(u64, u64) -> bool + Sync,
) -> Summary {
    run_many_of(Workload::Traffic, first, count, threads, progress)
}

/// As [`run_many`], with a workload of the caller's choice.
pub fn run_many_of(
    workload: Workload,
    first: u64,
    count: u64,
    threads: usize,
    progress: impl Fn(u64, u64) -> bool + Sync,
) -> Summary {
    const CHUNK: u64 = 16;
    let next = AtomicU64::new(0);
    let summary = Mutex::new(Summary::default());
    let work = || {
        loop {
            let start = next.fetch_add(CHUNK, Ordering::Relaxed);
            if start >= count {
                return;
            }
            let seeds = first + start..first + (start + CHUNK).min(count);
            let mut part = Summary::default();
            for seed in seeds {
                let options = Options {
                    workload,
                    ..Options::default()
                };
                part.add(run_seed(seed, &options));
            }
            let mut whole = summary.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            whole.merge(part);
            if !progress(whole.seeds, whole.failures.len() as u64) {
                next.store(count, Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(work);
        }
    });
    let mut summary = summary
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    summary.failures.sort_by_key(|failure| failure.seed);
    summary
}

impl Summary {
    fn add(&mut self, outcome: Result<Report, Failure>) {
        self.seeds += 1;
        match outcome {
            Ok(report) => self.total.add(&report),
            Err(failure) => self.failures.push(failure),
        }
    }

    fn merge(&mut self, other: Summary) {
        self.seeds += other.seeds;
        self.failures.extend(other.failures);
        self.total.add(&other.total);
    }
}

impl Report {
    fn add(&mut self, other: &Report) {
        self.virtual_ns = self.virtual_ns.saturating_add(other.virtual_ns);
        self.steps += other.steps;
        self.packets += other.packets;
        self.operations += other.operations;
        self.completions += other.completions;
        self.failures += other.failures;
        self.retries_exceeded += other.retries_exceeded;
        self.direct += other.direct;
        self.records += other.records;
        self.faults.lost += other.faults.lost;
        self.faults.duplicated += other.faults.duplicated;
        self.faults.reordered += other.faults.reordered;
        self.faults.corrupted += other.faults.corrupted;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_pair_that_is_named_first_is_blamed() {
        let blamed = |what| blamed_queue_pair(what);
        assert_eq!(blamed("QP 3 (Rc, Alive): request 7 never completed"), Some(3));
        assert_eq!(
            blamed("datagram 4 of QP 12 arrived 3 times; QP 1 sent it"),
            Some(12)
        );
        assert_eq!(blamed("host 0 has 5 keys instead of 4"), None);
        assert_eq!(blamed("QP was gone"), None);
    }
}
