//! `nonic ping`: whether a server answers, over which operations, and how fast.
//!
//! A ping is one message of a latency run (see [`crate::perf::latency`]) in which both sides sleep and check
//! every byte. SEND and WRITE are answered by the server's program, READ by its NIC alone.

use crate::arguments::Ends;
use crate::client::Session;
use crate::exchange::{Message, PEER_TIMEOUT};
use crate::exit::ExitWith;
use crate::interrupt::Interrupt;
use crate::output;
use crate::perf::latencies::Latencies;
use crate::perf::latency::LatencyClient;
use crate::perf::run::{Op, Run, Service, Test, name};
use crate::server;
use crate::units::{self, Size, nanoseconds};
use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use nonic::ConnectOptions;
use serde_json::{Value, json};
use std::time::Duration;

/// Send, write and read a few messages, with their round-trip times
///
/// Start `nonic ping --server` on one host and `nonic ping HOST` on the other; or `nonic ping --loopback`
/// for both on this one. Every payload is checked.
#[derive(Debug, clap::Args)]
#[command(after_long_help = NOTES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    ends: Ends,
    /// The service
    #[arg(long, value_enum, default_value = "rc")]
    service: Service,
    /// What to post
    #[arg(short, long, value_enum, default_value = "all")]
    op: PingOp,
    /// How many of each
    #[arg(short, long, value_name = "N", default_value_t = 4)]
    count: u64,
    /// The pause between two
    #[arg(short, long, value_parser = units::duration, default_value = "200ms")]
    interval: Duration,
    /// Bytes of a message
    #[arg(short, long, default_value = "64")]
    size: Size,
    /// How long to wait for an answer on an unreliable service
    #[arg(short = 'W', long, value_parser = units::duration, default_value = "1s")]
    timeout: Duration,
}

const NOTES: &str = "\
JSON (--json): {\"peer\", \"device\", \"runs\": [{service, op, size, sent, received, lost, loss_ratio,
  rtt_ns: {min, p50, p90, p99, p99_9, max, mean}, pings: [nanoseconds or null for a lost one]}]}
Percentiles are samples as long as there are at most 4096 of them; of more, they have three digits.
Ctrl-C prints the summary of what was done and ends with exit code 130.";

/// What is to be said of contents that are wrong although no checksum was.
const CHANGED_UNNOTICED: &str = ", though every checksum was right; if neither side has NONIC_FAULTS=garble set, something changes the \
                                 memory of one of the two, or nonic has a bug: capture both sides with NONIC_PCAP to see where it changes";

#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
enum PingOp {
    /// SEND, answered by the server's program
    Send,
    /// RDMA WRITE with immediate, answered by the server's program
    Write,
    /// RDMA READ, answered by the server's NIC alone
    Read,
    /// All that the service has
    All,
}

impl PingOp {
    fn ops(self, service: Service) -> &'static [Op] {
        match (self, service) {
            (PingOp::Send, _) => &[Op::Send],
            (PingOp::Write, _) => &[Op::Write],
            (PingOp::Read, _) => &[Op::Read],
            (PingOp::All, Service::Rc) => &[Op::Send, Op::Write, Op::Read],
            (PingOp::All, Service::Uc) => &[Op::Send, Op::Write],
            (PingOp::All, Service::Ud) => &[Op::Send],
        }
    }
}

pub(crate) fn main(arguments: &Arguments, json: bool) -> Result<()> {
    let ends = &arguments.ends;
    if ends.serving.server {
        return server::run(&ends.serving, &ends.choice, json);
    }
    let mut session = Session::open(ends, "ping")?;
    let interrupt = Interrupt::watch()?;
    let mut runs = Vec::new();
    let mut silent = Vec::new();
    for op in arguments.op.ops(arguments.service) {
        let run = arguments.run(*op, &session)?;
        let outcome = arguments
            .ping(&mut session, &run, &interrupt, json)
            .with_context(|| format!("ping of {} failed", session.peer))?;
        if outcome.latencies.samples() == 0 && arguments.count > 0 {
            silent.push(name(*op));
        }
        match json {
            true => runs.push(outcome.as_json(&run)),
            false => outcome.print(&run)?,
        }
        if interrupt.is_told() {
            break;
        }
    }
    if json {
        output::json(&json!({
            "peer": session.peer,
            "device": session.local.device_name(),
            "runs": runs,
        }))?;
    }
    if interrupt.is_told() {
        return Err(ExitWith::interrupted().into());
    }
    if !silent.is_empty() {
        bail!("{} did not answer any {}", session.peer, silent.join(" or "));
    }
    Ok(())
}

impl Arguments {
    fn run(&self, op: Op, session: &Session) -> Result<Run> {
        Ok(Run {
            test: Test::Lat,
            service: self.service,
            op,
            size: u32::try_from(self.size.0).context("a message has at most 2 GiB; use a smaller --size")?,
            depth: 1,
            qps: 1,
            mtu: session.mtu,
            ack_timeout: ConnectOptions::default().timeout,
            events: true,
            target_sleeps: false,
            verify: true,
        })
    }

    fn ping(&self, session: &mut Session, run: &Run, interrupt: &Interrupt, json: bool) -> Result<Outcome> {
        let mut resources = session.start(run)?;
        let mut client = LatencyClient::new(&mut resources, &session.conversation, self.timeout);
        let mut outcome = Outcome {
            latencies: Latencies::new(),
            pings: Vec::new(),
        };
        let what = format!("{} {}", name(run.service), name(run.op));
        for sequence in 0..self.count {
            if (sequence > 0 && !interrupt.sleep(self.interval)) || interrupt.is_told() {
                break;
            }
            let round_trip = client.once()?;
            ensure!(
                client.corrupt == 0,
                "the answer to {what} {sequence} has wrong contents{CHANGED_UNNOTICED}"
            );
            outcome.note(round_trip, json);
            if json {
                continue;
            }
            match round_trip {
                Some(time) => output::line(format_args!(
                    "{} bytes from {}: {what} seq={sequence} time={}",
                    run.size,
                    session.peer,
                    nanoseconds(time.as_nanos() as u64)
                ))?,
                None => output::line(format_args!(
                    "no answer from {} within {:?}: {what} seq={sequence}",
                    session.peer, self.timeout
                ))?,
            }
        }
        session.conversation.say(&Message::new("done"))?;
        let result = session.conversation.expect("result", PEER_TIMEOUT)?;
        let corrupt: u64 = result.field("corrupt")?;
        ensure!(
            corrupt == 0,
            "{corrupt} of our messages reached the server with wrong contents{CHANGED_UNNOTICED}"
        );
        Ok(outcome)
    }
}

/// What came of the pings of one operation.
struct Outcome {
    latencies: Latencies,
    /// Only kept for JSON: a long series must not grow without end.
    pings: Vec<Option<u64>>,
}

impl Outcome {
    fn note(&mut self, round_trip: Option<Duration>, keep: bool) {
        match round_trip {
            Some(time) => self.latencies.record(time),
            None => self.latencies.lost += 1,
        }
        if keep {
            self.pings.push(round_trip.map(|time| time.as_nanos() as u64));
        }
    }

    fn sent(&self) -> u64 {
        self.latencies.samples() + self.latencies.lost
    }

    fn loss_ratio(&self) -> f64 {
        self.latencies.lost as f64 / (self.sent() as f64).max(1.0)
    }

    fn print(&self, run: &Run) -> Result<()> {
        let what = format!("{} {}", name(run.service), name(run.op));
        output::line(format_args!(
            "--- {what}: {} sent, {} answered, {:.0}% lost, contents verified",
            self.sent(),
            self.latencies.samples(),
            self.loss_ratio() * 100.0
        ))?;
        if self.latencies.samples() > 0 {
            let told = |(name, ns): (&str, Option<u64>)| Some(format!("{name} {}", nanoseconds(ns?)));
            let times: Vec<String> = self.latencies.summary().into_iter().filter_map(told).collect();
            output::line(format_args!("    rtt {}", times.join(", ")))?;
        }
        Ok(())
    }

    fn as_json(&self, run: &Run) -> Value {
        json!({
            "service": run.service,
            "op": run.op,
            "size": run.size,
            "sent": self.sent(),
            "received": self.latencies.samples(),
            "lost": self.latencies.lost,
            "loss_ratio": self.loss_ratio(),
            "rtt_ns": self.latencies.as_json(),
            "pings": self.pings,
        })
    }
}
