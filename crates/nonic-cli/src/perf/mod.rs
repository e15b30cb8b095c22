//! `nonic perf`: bandwidth, latency and message rate between two processes.
//!
//! Read first: [`run::Run`] (what a run is), [`resources`] (what each side has), then the two pairs of
//! loops: [`bandwidth`] and [`bandwidth_target`], [`latency`] and [`latency_target`].

pub(crate) mod bandwidth;
pub(crate) mod bandwidth_target;
pub(crate) mod cm_side;
pub(crate) mod connections;
pub(crate) mod connections_target;
pub(crate) mod connections_test;
pub(crate) mod histogram;
pub(crate) mod latencies;
pub(crate) mod latency;
pub(crate) mod latency_target;
pub(crate) mod pair;
pub(crate) mod report;
pub(crate) mod resources;
pub(crate) mod run;

use crate::arguments::Ends;
use crate::client::Session;
use crate::exchange::{Message, PEER_TIMEOUT};
use crate::meter::Meter;
use crate::server;
use crate::units::{self, Size};
use anyhow::{Context, Result, ensure};
use bandwidth::{BandwidthClient, Goal, ensure_intact};
use connections_test::ConnectionsTest;
use latencies::Latencies;
use latency::LatencyClient;
use nonic::{AckTimeout, PathMtu};
use report::{Found, Report, half_round_trip};
use run::{Op, Run, Service, Test};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long an unreliable answer may take in a latency run.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(100);
/// Latency runs begin with so many messages that are not counted, bandwidth runs with so much time.
const WARM_UP_MESSAGES: u64 = 200;
const WARM_UP: Duration = Duration::from_millis(100);

/// Measure bandwidth, latency or message rate
///
/// Start `nonic perf --server` on one host and `nonic perf HOST` on the other; or `nonic perf --loopback`
/// for both on this one.
#[derive(Debug, clap::Args)]
#[command(after_long_help = NOTES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    ends: Ends,
    /// What to measure
    #[arg(short, long, value_enum, default_value = "bw")]
    test: Test,
    /// The service
    #[arg(long, value_enum, default_value = "rc")]
    service: Service,
    /// What to post [default: write, on UD: send]
    #[arg(short, long, value_enum)]
    op: Option<Op>,
    /// Bytes of a message, such as 64K [default: bw 64K (UD: the path MTU), lat and rate 8]
    #[arg(short, long)]
    size: Option<Size>,
    /// Messages of 2 B, 4 B, … 8 MiB (UD: up to the path MTU)
    #[arg(short, long, conflicts_with = "size")]
    all_sizes: bool,
    /// How long to measure each size
    #[arg(short = 'D', long, value_parser = units::duration, default_value = "2s")]
    duration: Duration,
    /// Measure so many messages instead
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "duration")]
    iterations: Option<u64>,
    /// Requests in the send queue at a time [default: bw 16 to 128, by size; rate 128]
    #[arg(short, long, value_name = "N")]
    queue_depth: Option<u32>,
    /// Queue pairs
    #[arg(long, value_name = "N", default_value_t = 1)]
    qps: u32,
    /// The path MTU: 256, 512, 1024, 2048 or 4096 [default: the largest both interfaces carry]
    #[arg(short, long, value_parser = path_mtu)]
    mtu: Option<PathMtu>,
    /// How long RC waits for an acknowledgement before it repeats; it gives up after eight times as long
    #[arg(long, value_name = "TIME", value_parser = ack_timeout, default_value = "50ms")]
    ack_timeout: AckTimeout,
    /// Sleep until there is something, on both sides, instead of polling
    #[arg(short, long)]
    events: bool,
    /// Let the server's program sleep during one-sided bandwidth runs: its NIC works on its own
    #[arg(long)]
    target_sleeps: bool,
    /// Check the contents of every message
    #[arg(long)]
    verify: bool,
    /// With --test lat: write how latencies are spread to this file as SVG
    #[arg(long, value_name = "FILE", conflicts_with_all = ["all_sizes", "connections"])]
    plot: Option<PathBuf>,
    /// Instead: open N connections, exchange a verified message on each, close them
    #[arg(long, value_name = "N", conflicts_with_all = ["test", "service", "op", "all_sizes", "iterations", "qps"])]
    connections: Option<u32>,
}

const NOTES: &str = "\
How to read it:
  - bw and rate keep the send queue full. RC counts what was acknowledged. UC and UD count what arrived,
    by the receiver's clock; their sender gets at most 256 KiB ahead of what the receiver reported, and
    what got lost is shown as LOST. WRITE on UC carries an immediate, so that arrivals can be counted.
  - lat: send and write go there and back and half of that is reported; read and atomics report the whole
    round trip. WRITE is awaited by polling memory; with --events it carries an immediate instead. A percentile is
    told if there were enough samples: 10 for P90, 100 for P99, 1000 for P99.9. On a terminal, bars show the spread.
  - --verify fills and checks every payload, which takes longer than moving it. RC WRITE is checked at the
    end: the last message in every slot of the target's memory.

JSON (--json): {\"runs\": [{test, service, op, size, queue_depth, qps, mtu, events, verified,
  bw and rate: sent, messages, bytes, seconds, gigabytes_per_second, gigabits_per_second,
               messages_per_second, lost, loss_ratio
  lat:         samples, lost, half_round_trip, latency_ns: {min, p50, p90, p99, p99_9, max, mean}}],
               (null: too few samples)
  link: {sends, receives, handed_in, handed_over, send_errors}}";

pub(crate) fn main(arguments: &Arguments, json: bool) -> Result<()> {
    let ends = &arguments.ends;
    if ends.serving.server {
        return server::run(&ends.serving, &ends.choice, json);
    }
    ensure!(
        arguments.plot.is_none() || arguments.test == Test::Lat,
        "--plot shows how latencies are spread; add --test lat"
    );
    let mut session = Session::open(ends, "perf")?;
    if let Some(count) = arguments.connections {
        let test = ConnectionsTest::new(count, arguments.size.map_or(64, |size| size.0))?;
        return connections::run(&mut session, test, json);
    }
    let mtu = match arguments.mtu {
        Some(mtu) => {
            ensure!(
                mtu <= session.mtu,
                "the interfaces carry a path MTU of {} at most; use --mtu {} or less",
                session.mtu.bytes(),
                session.mtu.bytes()
            );
            mtu
        }
        None => session.mtu,
    };
    let mut reports = Vec::new();
    for size in arguments.sizes(mtu)? {
        let run = arguments.run(size, mtu);
        let found = arguments
            .measure(&mut session, &run, json)
            .with_context(|| format!("{run} with {} failed", session.peer))?;
        reports.push(Report { run, found });
    }
    if let (Some(path), Some(report)) = (&arguments.plot, reports.first()) {
        if let Found::Latency(latencies) = &report.found {
            let svg = histogram::plot(&format!("Latency of {}", report.run), latencies);
            std::fs::write(path, svg).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    report::print(&reports, &session.local.device.counters().1, json)
}

impl Arguments {
    fn op(&self) -> Op {
        self.op.unwrap_or(match self.service {
            Service::Ud => Op::Send,
            _ => Op::Write,
        })
    }

    fn sizes(&self, mtu: PathMtu) -> Result<Vec<u32>> {
        let one = match (self.size, self.test, self.service) {
            _ if self.all_sizes => None,
            (Some(size), _, _) => {
                Some(u32::try_from(size.0).context("a message has at most 2 GiB; use a smaller --size")?)
            }
            _ if self.op().is_atomic() => Some(8),
            (None, Test::Bw, Service::Ud) => Some(mtu.bytes()),
            (None, Test::Bw, _) => Some(64 << 10),
            (None, Test::Lat | Test::Rate, _) => Some(8),
        };
        let largest = match self.service {
            _ if self.op().is_atomic() => 8,
            Service::Ud => mtu.bytes(),
            _ => 8 << 20,
        };
        let smallest = if self.op().is_atomic() { 8 } else { 2 };
        Ok(match one {
            Some(size) => vec![size],
            None => (0..32)
                .map(|bit| 1 << bit)
                .filter(|size| (smallest..=largest).contains(size))
                .collect(),
        })
    }

    fn run(&self, size: u32, mtu: PathMtu) -> Run {
        Run {
            test: self.test,
            service: self.service,
            op: self.op(),
            size,
            depth: self.queue_depth.unwrap_or(Run::default_depth(self.test, size)),
            qps: self.qps,
            mtu,
            ack_timeout: self.ack_timeout,
            events: self.events,
            target_sleeps: self.target_sleeps,
            verify: self.verify,
        }
    }

    fn measure(&self, session: &mut Session, run: &Run, json: bool) -> Result<Found> {
        let mut resources = session.start(run)?;
        let goal = match self.iterations {
            Some(count) => Goal::Messages(count),
            None => Goal::Time(self.duration),
        };
        let (total, expected) = match goal {
            // How long that takes is not known; a bar does no harm.
            Goal::Messages(count) => (count, Duration::MAX),
            Goal::Time(limit) => (limit.as_millis() as u64, limit),
        };
        let mut meter = Meter::new(run.to_string(), total, expected, json);
        match run.test {
            Test::Bw | Test::Rate => {
                let mut client = BandwidthClient::new(&mut resources, &mut session.conversation);
                if let Goal::Time(limit) = goal {
                    client.phase(Goal::Time(WARM_UP.min(limit / 10)), false, &mut meter)?;
                }
                let tally = client.phase(goal, true, &mut meter)?;
                ensure_intact(&tally)?;
                Ok(Found::Bandwidth(tally))
            }
            Test::Lat => {
                let mut client = LatencyClient::new(&mut resources, &session.conversation, ANSWER_TIMEOUT);
                let latencies = latencies(&mut client, run, goal, &mut meter)?;
                let corrupt = client.corrupt;
                session.conversation.say(&Message::new("done"))?;
                let result = session.conversation.expect("result", PEER_TIMEOUT)?;
                let corrupt = corrupt + result.field::<u64>("corrupt")?;
                ensure!(corrupt == 0, "{corrupt} messages arrived with wrong contents");
                Ok(Found::Latency(latencies))
            }
        }
    }
}

fn latencies(client: &mut LatencyClient<'_>, run: &Run, goal: Goal, meter: &mut Meter) -> Result<Latencies> {
    for _ in 0..WARM_UP_MESSAGES {
        client.once()?;
    }
    let mut latencies = Latencies::new();
    let start = Instant::now();
    let mut count = 0;
    loop {
        let now = Instant::now();
        let over = match goal {
            Goal::Messages(limit) => count >= limit,
            Goal::Time(limit) => now - start >= limit,
        };
        if over {
            return Ok(latencies);
        }
        match client.once()? {
            Some(round_trip) if half_round_trip(run) => latencies.record(round_trip / 2),
            Some(round_trip) => latencies.record(round_trip),
            None => latencies.lost += 1,
        }
        count += 1;
        let position = match goal {
            Goal::Messages(_) => count,
            Goal::Time(_) => (now - start).as_millis() as u64,
        };
        meter.at(now, position, || format!("{count} messages"));
    }
}

fn ack_timeout(text: &str) -> Result<AckTimeout, String> {
    units::duration(text).map(AckTimeout::at_least)
}

fn path_mtu(text: &str) -> Result<PathMtu, String> {
    text.parse()
        .ok()
        .and_then(PathMtu::from_bytes)
        .ok_or_else(|| format!("`{text}` is no path MTU; there are 256, 512, 1024, 2048 and 4096"))
}
