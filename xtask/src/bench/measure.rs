//! Measures a probe: starts both processes where they belong, waits for them, and finds the figure.

use super::parse;
use super::probe::{Place, Probe, Quantity, Subject, Transport};
use crate::tools::pair::fresh_port;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use testbed::owned::end_with_us;
use testbed::process::{Process, Ready};
use testbed::run_as::RunAs;
use testbed::topology::{Topology, on_nonic};

/// Longer than any measurement takes on a machine that does little else.
const PATIENCE: Duration = Duration::from_secs(25);

/// A figure, in the unit of its probe's quantity.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) struct Figure {
    pub(crate) value: f64,
    /// The slowest in a hundred, in microseconds, if the subject tells.
    pub(crate) p99_us: Option<f64>,
}

/// Why there is no figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Absence {
    /// Of this Debian package.
    NotInstalled(&'static str),
    /// Only root can make network namespaces.
    NeedsRoot,
    Failed(String),
}

/// Where and with what.
pub(crate) struct Bench<'a> {
    pub(crate) nonic: PathBuf,
    pub(crate) one_host: Topology<'a>,
    /// Missing without root.
    pub(crate) two_hosts: Option<Topology<'a>>,
    /// How long to measure, as a multiple of what gives a steady figure.
    pub(crate) scale: f64,
}

impl Bench<'_> {
    /// One figure.
    pub(crate) fn measure(&self, probe: &Probe) -> Result<Figure, Absence> {
        if let Some((file, package)) = probe.subject.needs() {
            if !Path::new(&file).exists() {
                return Err(Absence::NotInstalled(package));
            }
        }
        let topology = match probe.place {
            Place::OneHost => &self.one_host,
            Place::TwoHosts => self.two_hosts.as_ref().ok_or(Absence::NeedsRoot)?,
        };
        let raw = self
            .raw(probe, topology)
            .map_err(|error| Absence::Failed(format!("{error:#}")))?;
        Ok(raw.convert(probe))
    }

    fn raw(&self, probe: &Probe, topology: &Topology<'_>) -> Result<Raw> {
        match probe.subject {
            Subject::Bare(which) => self.bare(which, probe, topology),
            Subject::Perftest { program, arguments } => self.perftest(program, arguments, probe, topology),
            Subject::NonicPerf { test, op } => {
                self.nonic_perf(test, op, &[], Ready::Service, probe, topology)
            }
            Subject::Iwarp { test, op, crc } => {
                let crc = if crc { "on" } else { "off" };
                let settings = [("NONIC_WIRE", "iwarp"), ("NONIC_IWARP_CRC", crc)];
                self.nonic_perf(test, op, &settings, Ready::Tcp, probe, topology)
            }
            Subject::Ucx { transport, test } => self.ucx(transport, test, probe, topology),
            Subject::Libfabric(transport) => self.libfabric(transport, &probe.size.to_string(), topology),
        }
    }

    fn bare(&self, which: bare_loops::Loop, probe: &Probe, topology: &Topology<'_>) -> Result<Raw> {
        let duration = Duration::from_millis(250).mul_f64(self.scale);
        let (server, client) = (&topology.server, &topology.client);
        let figure = bare_loops::measure(which, probe.size, duration, server, client, topology.address)?;
        Ok(match which {
            bare_loops::Loop::UdpBandwidth
            | bare_loops::Loop::UdpDutiesCopied
            | bare_loops::Loop::UdpDutiesGathered
            | bare_loops::Loop::TcpBandwidth
            | bare_loops::Loop::RingBandwidth => Raw::BytesPerSecond(figure.typical),
            _ => Raw::Time(parse::Latency {
                typical_us: figure.typical,
                p99_us: figure.p99,
            }),
        })
    }

    fn perftest(
        &self,
        program: &str,
        arguments: &[&str],
        probe: &Probe,
        topology: &Topology<'_>,
    ) -> Result<Raw> {
        let is_latency = program.ends_with("_lat");
        let port = fresh_port();
        let side = |run_as: &RunAs<'_>| {
            let mut command = on_nonic(run_as, &self.nonic, program);
            command.args(["-F", "-d", topology.device, "-x", &topology.gid_index.to_string()]);
            command.args(["-p", &port.to_string()]);
            let turns = if is_latency {
                self.trips(probe.size)
            } else {
                per_queue_pair(self.messages(probe.size), arguments)
            };
            command.args(["-n", &turns.to_string()]);
            if !program.contains("atomic") {
                command.args(["-s", &probe.size.to_string()]);
            }
            command.args(arguments);
            command
        };
        let mut client = side(&topology.client);
        client.arg(topology.address);
        let printed = pair(side(&topology.server), client, Ready::Tcp(port), topology)?;
        if is_latency {
            return Ok(Raw::Time(parse::perftest_latency(&printed)?));
        }
        Ok(Raw::PerSecond(parse::perftest_rate(&printed)?))
    }

    fn nonic_perf(
        &self,
        test: &str,
        op: &str,
        settings: &[(&str, &str)],
        ready: fn(u16) -> Ready,
        probe: &Probe,
        topology: &Topology<'_>,
    ) -> Result<Raw> {
        let port = fresh_port();
        let where_ = format!("{}:{port}", topology.address);
        let mut server = topology.server.command(&self.nonic);
        server.args(["perf", "--server", "--once", "--bind", &where_]);
        server.envs(settings.iter().copied());
        let mut client = topology.client.command(&self.nonic);
        client.envs(settings.iter().copied());
        client.args(["perf", &where_, "--json", "--test", test, "--op", op]);
        client.args(["--size", &probe.size.to_string()]);
        if test == "lat" {
            client.args(["--iterations", &self.trips(probe.size).to_string()]);
        } else {
            client.args(["--duration", &format!("{}ms", self.scaled(500))]);
        }
        let printed = pair(server, client, ready(port), topology)?;
        let line = printed.lines().find(|line| line.starts_with('{'));
        let report: Value = serde_json::from_str(line.context("nonic perf printed no JSON")?)?;
        let figure = |pointer: &str| {
            report
                .pointer(pointer)
                .and_then(Value::as_f64)
                .with_context(|| format!("no figure {pointer} in {report}"))
        };
        if test == "lat" {
            return Ok(Raw::Time(parse::Latency {
                typical_us: figure("/runs/0/latency_ns/p50")? / 1e3,
                p99_us: Some(figure("/runs/0/latency_ns/p99")? / 1e3),
            }));
        }
        Ok(Raw::PerSecond(figure("/runs/0/messages_per_second")?))
    }

    fn ucx(&self, transport: Transport, test: &str, probe: &Probe, topology: &Topology<'_>) -> Result<Raw> {
        let (transports, device) = match (transport, probe.place) {
            (Transport::Shm, _) => ("posix,cma,self", None),
            (Transport::Tcp, Place::OneHost) => ("tcp", Some("lo")),
            (Transport::Tcp, Place::TwoHosts) => ("tcp", Some("veth")),
            (Transport::Verbs, Place::OneHost) => ("rc,self", Some("roce_lo:1")),
            (Transport::Verbs, Place::TwoHosts) => ("rc,self", None),
        };
        let is_latency = test.ends_with("_lat");
        let port = fresh_port();
        let side = |run_as: &RunAs<'_>| {
            let mut command = match probe.place {
                _ if transport == Transport::Verbs => on_nonic(run_as, &self.nonic, "ucx_perftest"),
                Place::OneHost => run_as.command(Path::new("ucx_perftest")),
                // It looks for interfaces in /sys, which shows those of the namespace it was mounted in.
                Place::TwoHosts => {
                    let mut command = run_as.command(Path::new("unshare"));
                    let own_sys = "mount -t sysfs sysfs /sys && exec \"$@\"";
                    command.args(["--mount", "sh", "-c", own_sys, "sh", "ucx_perftest"]);
                    command
                }
            };
            command
                .env("UCX_TLS", transports)
                .env("UCX_WARN_UNUSED_ENV_VARS", "n");
            command.envs(device.map(|device| ("UCX_NET_DEVICES", device)));
            command.args(["-p", &port.to_string()]);
            command
        };
        let mut client = side(&topology.client);
        let turns = if is_latency {
            self.trips(probe.size)
        } else {
            self.messages(probe.size)
        };
        client.args([
            topology.address,
            "-t",
            test,
            "-s",
            &probe.size.to_string(),
            "-f",
            "-v",
        ]);
        client.args(["-n", &turns.to_string(), "-w", &(turns / 10).to_string()]);
        let printed = pair(side(&topology.server), client, Ready::Tcp(port), topology)?;
        if is_latency {
            return Ok(Raw::Time(parse::ucx_latency(&printed)?));
        }
        Ok(Raw::PerSecond(parse::ucx_rate(&printed)?))
    }

    fn libfabric(&self, transport: Transport, size: &str, topology: &Topology<'_>) -> Result<Raw> {
        let turns = size.parse().map_or(200, |size| self.trips(size));
        let found = self.pingpong(transport, size, turns, topology)?;
        ensure!(found.len() == 1, "one size was asked for, {} came", found.len());
        Ok(Raw::time(found[0].1))
    }

    /// Runs fi_pingpong with one size, or with `all` of its own.
    fn pingpong(
        &self,
        transport: Transport,
        size: &str,
        turns: usize,
        topology: &Topology<'_>,
    ) -> Result<Vec<(usize, f64)>> {
        let (provider, kind, interface) = match (transport, topology.device) {
            (Transport::Shm, _) => ("shm", "rdm", None),
            (Transport::Verbs, _) => bail!("fi_pingpong is not measured over verbs"),
            (Transport::Tcp, "roce_lo") => ("tcp", "msg", Some("lo")),
            (Transport::Tcp, _) => ("tcp", "msg", Some("veth")),
        };
        let port = fresh_port().to_string();
        let side = |run_as: &RunAs<'_>| {
            let mut command = run_as.command(Path::new("fi_pingpong"));
            command.envs(interface.map(|interface| ("FI_TCP_IFACE", interface)));
            command.args(["-p", provider, "-e", kind, "-S", size, "-I", &turns.to_string()]);
            command
        };
        let mut server = side(&topology.server);
        server.args(["-B", &port]);
        let mut client = side(&topology.client);
        client.args(["-P", &port, topology.address]);
        parse::pingpong(&pair(server, client, Ready::Tcp(port.parse()?), topology)?)
    }

    /// Every size that fi_pingpong knows, in one run: it takes a second to start.
    pub(crate) fn pingpong_sizes(
        &self,
        transport: Transport,
        place: Place,
    ) -> Result<Vec<(usize, f64)>, Absence> {
        let topology = match place {
            Place::OneHost => &self.one_host,
            Place::TwoHosts => self.two_hosts.as_ref().ok_or(Absence::NeedsRoot)?,
        };
        if let Some((file, package)) = Subject::Libfabric(transport).needs() {
            if !Path::new(&file).exists() {
                return Err(Absence::NotInstalled(package));
            }
        }
        self.pingpong(transport, "all", self.scaled(200), topology)
            .map_err(|error| Absence::Failed(format!("{error:#}")))
    }

    /// Round trips of a latency test.
    fn trips(&self, size: usize) -> usize {
        let trips = match size {
            0..=8192 => 10_000,
            8193..=65536 => 3_000,
            _ => 500,
        };
        self.scaled(trips)
    }

    /// Messages of a bandwidth test: at most a gigabyte.
    fn messages(&self, size: usize) -> usize {
        let messages = ((1 << 30) / size).clamp(200, 60_000);
        self.scaled(messages)
    }

    fn scaled(&self, count: usize) -> usize {
        (count as f64 * self.scale) as usize
    }
}

/// How many messages perftest sends on each of its queue pairs. It asks for as many as its queues are deep at least, and for whole
/// lists.
fn per_queue_pair(messages: usize, arguments: &[&str]) -> usize {
    /// Of lists of 32, and of the 100 messages for which perftest counts each of its completions: if a queue pair has fewer
    /// left at its end, perftest may believe that it has all completions, and waits for ever to post the rest.
    const UNIT: usize = 800;
    let after = |option: &str| arguments.iter().skip_while(|one| **one != option).nth(1);
    let queue_pairs = after("-q").and_then(|count| count.parse().ok()).unwrap_or(1);
    (messages / queue_pairs / UNIT).max(1) * UNIT
}

/// What a subject tells, before it is turned into what is asked for.
#[derive(Copy, Clone, Debug)]
enum Raw {
    Time(parse::Latency),
    BytesPerSecond(f64),
    PerSecond(f64),
}

impl Raw {
    fn time(typical_us: f64) -> Self {
        Raw::Time(parse::Latency {
            typical_us,
            p99_us: None,
        })
    }

    fn convert(self, probe: &Probe) -> Figure {
        let size = probe.size as f64;
        let mut p99_us = None;
        let per_second = match self {
            Raw::Time(latency) => {
                p99_us = latency.p99_us;
                1e6 / latency.typical_us
            }
            Raw::BytesPerSecond(bytes) => bytes / size,
            Raw::PerSecond(rate) => rate,
        };
        let value = match probe.quantity {
            Quantity::Time => 1e6 / per_second,
            Quantity::Bandwidth => per_second * size,
            Quantity::Rate => per_second,
        };
        Figure { value, p99_us }
    }
}

/// Starts a server, then a client, and waits for both; what the client printed.
fn pair(mut server: Command, mut client: Command, ready: Ready, topology: &Topology<'_>) -> Result<String> {
    end_with_us(&mut server);
    end_with_us(&mut client);
    let server = Process::start(&mut server)?;
    if let Err(error) = server.wait_until_within(ready, topology, PATIENCE) {
        bail!("the server: {error:#}: {}", server.stop());
    }
    let client = Process::start(&mut client)?;
    match client.finish_within(PATIENCE) {
        // How the server ends does not matter here; it is killed if it does not end by itself.
        Ok(printed) => Ok(printed),
        Err(error) => bail!("the client: {error:#}; the server: {}", server.stop()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(quantity: Quantity) -> Probe {
        Probe {
            subject: Subject::Bare(bare_loops::Loop::VmWrite),
            size: 1000,
            quantity,
            place: Place::OneHost,
        }
    }

    #[test]
    fn a_time_per_call_is_a_rate_and_a_bandwidth_too() {
        let raw = Raw::time(0.5);
        assert!((raw.convert(&probe(Quantity::Time)).value - 0.5).abs() < 1e-12);
        assert!((raw.convert(&probe(Quantity::Rate)).value - 2e6).abs() < 1e-6);
        assert!((raw.convert(&probe(Quantity::Bandwidth)).value - 2e9).abs() < 1e-3);
        let rate = Raw::BytesPerSecond(5e9).convert(&probe(Quantity::Rate));
        assert!((rate.value - 5e6).abs() < 1e-6);
    }
}
