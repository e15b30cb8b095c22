//! The subjects that are measured on the wire: nonic over RoCE and over iWARP, and TCP with one of the kernel's
//! congestion controls. All move 64 KiB at a time in one direction, for a while, and say what arrived.

use super::network::{Host, Network};
use crate::tools::counters::Counters;
use crate::tools::pair::fresh_port;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use testbed::process::{Process, Ready};
use testbed::run_as::RunAs;
use testbed::topology::Topology;

/// Longer than anything takes to begin and to end, on a slow wire and a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is measured.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Subject {
    /// RC WRITE.
    Roce,
    /// The same over iWARP, on the kernel's TCP with its default congestion control.
    Iwarp,
    /// A plain stream of iperf3 with this congestion control; none is the default.
    Tcp(&'static str),
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub(super) struct Figure {
    pub(super) mbit: f64,
    /// nonic's counters, of both ends.
    pub(super) counters: BTreeMap<String, u64>,
}

/// Both ends of something that is measured, while it runs.
pub(super) struct Flow {
    subject: Subject,
    server: Process,
    client: Process,
}

impl Subject {
    pub(super) fn name(self) -> String {
        match self {
            Subject::Roce => "nonic".to_owned(),
            Subject::Iwarp => "nonic, iWARP".to_owned(),
            Subject::Tcp("") => "TCP".to_owned(),
            Subject::Tcp(control) => format!("TCP {control}"),
        }
    }

    /// Whether the kernel has it.
    pub(super) fn is_available(self) -> bool {
        let Subject::Tcp(control) = self else { return true };
        let path = "/proc/sys/net/ipv4/tcp_available_congestion_control";
        let available = std::fs::read_to_string(path).unwrap_or_default();
        control.is_empty() || available.split_whitespace().any(|word| word == control)
    }
}

/// How to measure.
#[derive(Copy, Clone, Debug)]
pub(super) struct Meter<'a> {
    pub(super) nonic: &'a Path,
    pub(super) duration: Duration,
    /// Messages of nonic's that are under way at most. At the end all of them must still arrive.
    pub(super) depth: u32,
}

impl Meter<'_> {
    /// Starts it between the first hosts, waits, and tells.
    pub(super) fn measure(&self, network: &Network, subject: Subject) -> Result<Figure> {
        let counters = Counters::new()?;
        let file = counters.file();
        // Of the one before.
        let _ = std::fs::remove_file(&file);
        let environment = [("NONIC_COUNTERS", file.display().to_string())];
        let server = self.serve(subject, &network.right[0], &environment)?;
        let flow = server.connect(self, &network.left[0], &environment)?;
        let mbit = flow.finish(self.duration + PATIENCE)?;
        Ok(Figure {
            mbit,
            counters: counters.sums().unwrap_or_default(),
        })
    }

    /// Starts the receiving end.
    pub(super) fn serve<'a>(
        &self,
        subject: Subject,
        host: &'a Host,
        environment: &'a [(&'static str, String)],
    ) -> Result<Server> {
        let port = fresh_port();
        let run_as = host.run_as(environment);
        let address = host.address.to_string();
        let (mut command, ready) = match subject {
            Subject::Roce | Subject::Iwarp => {
                let mut command = self.perf(subject, &run_as);
                command.args(["--server", "--once", "--bind", &format!("{address}:{port}")]);
                let iwarp = subject == Subject::Iwarp;
                (
                    command,
                    if iwarp {
                        Ready::Tcp(port)
                    } else {
                        Ready::Service(port)
                    },
                )
            }
            Subject::Tcp(_) => {
                let mut command = run_as.command(Path::new("iperf3"));
                command.args(["--server", "--one-off", "--port", &port.to_string()]);
                (command, Ready::Tcp(port))
            }
        };
        let process = Process::start(&mut command)?;
        if let Err(error) = process.wait_until_within(ready, &topology(), PATIENCE) {
            bail!("the server: {error:#}: {}", process.stop());
        }
        Ok(Server {
            subject,
            process,
            address,
            port,
        })
    }

    fn perf(&self, subject: Subject, run_as: &RunAs<'_>) -> Command {
        let mut command = run_as.command(self.nonic);
        if subject == Subject::Iwarp {
            command.env("NONIC_WIRE", "iwarp");
        }
        command.arg("perf");
        command
    }
}

/// The receiving end.
pub(super) struct Server {
    subject: Subject,
    process: Process,
    address: String,
    port: u16,
}

impl Server {
    /// Starts the sending end.
    pub(super) fn connect(
        self,
        meter: &Meter<'_>,
        host: &Host,
        environment: &[(&'static str, String)],
    ) -> Result<Flow> {
        let run_as = host.run_as(environment);
        let seconds = meter.duration.as_secs_f64();
        let mut command = match self.subject {
            Subject::Roce | Subject::Iwarp => {
                let mut command = meter.perf(self.subject, &run_as);
                command.args([&format!("{}:{}", self.address, self.port), "--json", "--events"]);
                command.args(["--size", "65536", "--queue-depth", &meter.depth.to_string()]);
                command.args(["--duration", &format!("{seconds}s"), "--ack-timeout", "500ms"]);
                command
            }
            Subject::Tcp(control) => {
                let mut command = run_as.command(Path::new("iperf3"));
                command.args(["--client", &self.address, "--port", &self.port.to_string()]);
                command.args(["--json", "--length", "65536", "--time", &seconds.to_string()]);
                if !control.is_empty() {
                    command.args(["--congestion", control]);
                }
                command
            }
        };
        Ok(Flow {
            subject: self.subject,
            client: Process::start(&mut command)?,
            server: self.process,
        })
    }
}

impl Flow {
    /// Megabits per second that arrived.
    pub(super) fn finish(self, patience: Duration) -> Result<f64> {
        let printed = match self.client.finish_within(patience) {
            Ok(printed) => printed,
            Err(error) => bail!("the client: {error:#}; the server: {}", self.server.stop()),
        };
        // It writes its counters at its end.
        let _ = self.server.finish_within(Duration::from_secs(10));
        let start = printed.find('{').context("no JSON was printed")?;
        let mut values = serde_json::Deserializer::from_str(&printed[start..]).into_iter::<Value>();
        let value = values.next().context("no JSON was printed")??;
        let (pointer, unit) = match self.subject {
            Subject::Tcp(_) => ("/end/sum_received/bits_per_second", 1e-6),
            _ => ("/runs/0/gigabits_per_second", 1e3),
        };
        let figure = value.pointer(pointer).and_then(Value::as_f64);
        Ok(figure.with_context(|| format!("no {pointer} in {value}"))? * unit)
    }
}

/// Where the first hosts are, for code that waits for servers.
pub(super) fn topology() -> Topology<'static> {
    Topology {
        name: "the wire",
        device: "roce_wire",
        address: "10.78.1.1",
        client_address: "10.78.0.1",
        ethernet: ["10.78.1.1", "10.78.0.1"],
        group: IpAddr::from([239, 1, 2, 3]),
        gid_index: 0,
        server: RunAs::default(),
        client: RunAs::default(),
    }
}
