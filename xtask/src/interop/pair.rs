//! Runs one cell of the matrix: a server on one side of the wire, then a client on the other.

use super::case::{Case, Direction, Family};
use super::commands::{self, Readiness, Side, Terms};
use super::gids::Gids;
use crate::lab::{Finished, Guest, Lab, Process, last_lines};
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longer than any case takes on a quiet machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the server gets when the client has failed.
const GRACE: Duration = Duration::from_secs(2);

/// Addresses on the wire, by IP version.
const OURS: [&str; 2] = ["10.77.0.254", "fd77::254"];
const THEIRS: [&str; 2] = ["10.77.0.1", "fd77::1"];

/// Everything a cell needs.
pub(super) struct Bench<'a> {
    pub(super) lab: &'a Lab,
    pub(super) guest: &'a mut Guest,
    pub(super) nonic: PathBuf,
    pub(super) gids: Gids,
    pub(super) mtu: u32,
    pub(super) port: u16,
    /// Where to write what is on the wire, a file per cell.
    pub(super) captures: Option<PathBuf>,
}

impl Bench<'_> {
    /// Runs it; the error says what was wrong.
    pub(super) fn run(&mut self, case: &Case, direction: Direction, family: Family) -> Result<()> {
        // Ports of cases that follow each other must not be in the way of each other.
        self.port += 1;
        if let Some(fault) = case.fault {
            self.set_fault(Some(fault))?;
        }
        let _capture = match &self.captures {
            Some(folder) => Some(self.capture(folder, case, direction, family)?),
            None => None,
        };
        let outcome = match direction {
            Direction::NonicAsks => self.nonic_asks(case, family),
            Direction::NonicServes => self.nonic_serves(case, family),
        };
        if case.fault.is_some() {
            self.set_fault(None)?;
        }
        outcome
    }

    /// Writes down all RoCE packets until the answer is dropped.
    fn capture(&self, folder: &Path, case: &Case, direction: Direction, family: Family) -> Result<Process> {
        let name = format!("{} {} {direction:?} {family:?}.pcap", self.mtu, case.name());
        let file = folder.join(name.replace(['/', ' ', ','], "_"));
        let file = file.display().to_string();
        let words = [
            "tcpdump",
            "-i",
            "br0",
            "-U",
            "-Z",
            "root",
            "-w",
            &file,
            "udp port 4791",
        ];
        let mut capture = Process::start(&words, &[], self.lab.folder().join("capture"))?;
        while !capture.output().contains("listening on") {
            ensure!(capture.runs(), "no capture: {}", last_lines(&capture.output()));
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(capture)
    }

    fn nonic_asks(&mut self, case: &Case, family: Family) -> Result<()> {
        let terms = self.terms(family, Direction::NonicAsks);
        let line = commands::words(case, &self.theirs(family), &terms, false).join(" ");
        let condition = match Readiness::of(case, self.port) {
            Readiness::Tcp(port) => format!("listens {port:04X}"),
            Readiness::Service(_, port) => format!("rdma resource show cm_id | grep -q ' LISTEN .*:{port} '"),
            Readiness::Says(words) => format!("grep -q '{words}' ${{0%.command}}.output"),
        };
        let server = self
            .guest
            .serve(&line, &condition, PATIENCE)
            .context("rxe, the server")?;
        let mut client = self.start_ours(case, &terms, true)?;
        let ours = client.wait(PATIENCE);
        let theirs = self.guest.wait(&server, patience_after(&ours));
        judge(case, ("nonic, the client", ours), ("rxe, the server", theirs))
    }

    fn nonic_serves(&mut self, case: &Case, family: Family) -> Result<()> {
        let terms = self.terms(family, Direction::NonicServes);
        let mut server = self.start_ours(case, &terms, false)?;
        self.wait_for_ours(&mut server, &Readiness::of(case, self.port))?;
        let line = commands::words(case, &self.theirs(family), &terms, true).join(" ");
        let client = self.guest.start(&line)?;
        let theirs = self.guest.wait(&client, PATIENCE);
        let ours = server.wait(patience_after(&theirs));
        judge(case, ("rxe, the client", theirs), ("nonic, the server", ours))
    }

    fn terms(&self, family: Family, direction: Direction) -> Terms<'static> {
        let addresses = match direction {
            Direction::NonicAsks => THEIRS,
            Direction::NonicServes => OURS,
        };
        Terms {
            port: self.port,
            mtu: self.mtu,
            family,
            server: addresses[family as usize],
            server_ipv4: addresses[0],
        }
    }

    fn theirs(&self, family: Family) -> Side<'static> {
        Side {
            device: "rxe0",
            gid: self.gids.theirs[family as usize],
            script: "/run/lab/peer.py",
            address: THEIRS[family as usize],
        }
    }

    fn start_ours(&self, case: &Case, terms: &Terms<'_>, client: bool) -> Result<Process> {
        let folder = self.lab.folder();
        let nonic = self.nonic.display().to_string();
        let script = folder.join("peer.py").display().to_string();
        let side = Side {
            device: "roce_br0",
            gid: self.gids.ours[terms.family as usize],
            script: &script,
            address: OURS[terms.family as usize],
        };
        let mut words = vec![nonic, "run".to_owned(), "--".to_owned()];
        words.extend(commands::words(case, &side, terms, client));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let counters = folder.join("counters").display().to_string();
        let mut environment = vec![("NONIC_COUNTERS", counters.as_str())];
        environment.extend(case.environment);
        Process::start(&words, &environment, folder.join("ours"))
    }

    fn wait_for_ours(&self, server: &mut Process, readiness: &Readiness) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let is_ready = |server: &Process| match readiness {
            Readiness::Tcp(port) => listens(Path::new("/proc/self/net"), *port),
            Readiness::Service(service, _) => is_offered(*service),
            Readiness::Says(words) => server.output().contains(words),
        };
        while Instant::now() < deadline {
            if is_ready(server) {
                return Ok(());
            }
            ensure!(
                server.runs(),
                "nonic, the server, ended at once: {}",
                last_lines(&server.output())
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        bail!(
            "nonic, the server, does not listen: {}",
            last_lines(&server.output())
        );
    }

    /// Disturbs what the guest sends and, through an intermediate device, what it receives; or stops that.
    fn set_fault(&mut self, fault: Option<&str>) -> Result<()> {
        let line = match fault {
            Some(fault) => format!(
                "tc qdisc add dev eth0 root netem {fault} limit 10000 && ip link set ifb0 mtu {} up && \
                 tc qdisc add dev ifb0 root netem {fault} limit 10000 && tc qdisc add dev eth0 ingress && \
                 tc filter add dev eth0 parent ffff: matchall action mirred egress redirect dev ifb0",
                self.mtu
            ),
            None => {
                "tc qdisc del dev eth0 ingress; tc qdisc del dev ifb0 root; tc qdisc del dev eth0 root; true"
                    .to_owned()
            }
        };
        self.guest.run(&line).map(drop)
    }
}

/// Whether somebody listens on a TCP port, by the kernel's tables.
fn listens(tables: &Path, port: u16) -> bool {
    let wanted = format!(":{port:04X} ");
    ["tcp", "tcp6"].iter().any(|table| {
        let text = std::fs::read_to_string(tables.join(table)).unwrap_or_default();
        text.lines()
            .any(|line| line.contains(" 0A ") && line.contains(&wanted))
    })
}

/// Whether a process of ours listens on a service of the connection manager.
fn is_offered(service: u64) -> bool {
    let wanted = format!("/service/{service:016x}");
    let names = std::fs::read_to_string("/proc/self/net/unix").unwrap_or_default();
    names.lines().any(|line| line.ends_with(&wanted))
}

/// A client that failed leaves its server waiting; nobody else need wait for it.
fn patience_after(client: &Result<Finished>) -> Duration {
    match client {
        Ok(finished) if finished.status == 0 => PATIENCE,
        _ => GRACE,
    }
}

/// Both sides must end well, but for the one that is killed on purpose.
fn judge(case: &Case, client: (&str, Result<Finished>), server: (&str, Result<Finished>)) -> Result<()> {
    let dies = case.options.contains(&"peer-killed");
    let complaints: Vec<String> = [(client, 0), (server, if dies { 137 } else { 0 })]
        .into_iter()
        .filter_map(|((who, outcome), wanted)| match outcome {
            Ok(finished) if finished.status == wanted => None,
            Ok(finished) => Some(format!(
                "{who}: exit status {}: {}",
                finished.status,
                last_lines(&finished.output)
            )),
            Err(error) => Some(format!("{who}: {error:#}")),
        })
        .collect();
    ensure!(complaints.is_empty(), "{}", complaints.join("; "));
    Ok(())
}
