//! Runs one cell of the matrix: a server on one side of the wire, then a client on the other.

use super::case::{Case, Direction, Family, Opposite};
use super::commands::{self, Readiness, Side, Terms};
use super::gids::Gids;
use crate::dist::Dist;
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use testbed::lab::{Guest, Lab, fault_commands, siw};
use testbed::logged::{Finished, LoggedProcess, POLL_INTERVAL};
use testbed::process::last_lines;

/// Longer than any case takes on a quiet machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the server gets when the client has failed.
const GRACE: Duration = Duration::from_secs(2);

/// The exit status of a process that was killed.
const KILLED: i32 = 137;

/// Addresses on the wire, by IP version.
const OURS: [&str; 2] = ["10.77.0.254", "fd77::254"];
const THEIRS: [&str; 2] = ["10.77.0.1", "fd77::1"];

/// How a cell ended that did not fail.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Good,
    /// siw's client did its work, and took its very last SEND for failed.
    SiwErredAtTheEnd,
}

/// Everything a cell needs.
pub(super) struct Bench<'a> {
    lab: &'a Lab,
    pub(super) guest: &'a mut Guest,
    dist: &'a Dist,
    pub(super) opposite: Opposite,
    gids: Gids,
    pub(super) mtu: u32,
    port: u16,
    /// How long either side may take.
    pub(super) patience: Duration,
    /// Where to write what is on the wire, a file per cell.
    pub(super) captures: Option<PathBuf>,
    /// How often the guest broke down.
    pub(super) breakdowns: u32,
}

impl<'a> Bench<'a> {
    /// Makes the device in the guest.
    pub(super) fn new(
        lab: &'a Lab,
        guest: &'a mut Guest,
        dist: &'a Dist,
        opposite: Opposite,
        mtu: u32,
    ) -> Result<Self> {
        let mut bench = Self {
            lab,
            guest,
            dist,
            opposite,
            gids: Gids::default(),
            mtu,
            port: 20000,
            patience: PATIENCE,
            captures: None,
            breakdowns: 0,
        };
        bench.set_up()?;
        Ok(bench)
    }

    /// Boots a new guest in the place of one that broke down.
    pub(super) fn replace_guest(&mut self) -> Result<()> {
        self.lab.replace(self.guest)?;
        self.set_up()
    }

    /// Does in the guest what all cells need.
    fn set_up(&mut self) -> Result<()> {
        for folder in [self.lab.folder(), self.guest.folder()] {
            std::fs::write(folder.join("peer.py"), include_str!("peer.py"))?;
            std::fs::write(folder.join("stream.py"), include_str!("stream.py"))?;
        }
        if self.opposite == Opposite::Siw {
            siw::load(self.guest)?;
        }
        // Else the guest verifies checksums before netem damages what they cover, and damaged bytes arrive by TCP.
        self.guest.run("ethtool -K eth0 gro off")?;
        let (device, driver, mtu) = (self.opposite.device(), self.opposite.driver(), self.mtu);
        self.guest.run(&format!(
            "rdma link del {device} 2>/dev/null; ip link set eth0 mtu {mtu} && \
             rdma link add {device} type {driver} netdev eth0"
        ))?;
        if self.opposite == Opposite::Rxe {
            // siw's peers are not addressed by GIDs.
            self.gids = Gids::find(self.dist, self.guest)?;
        }
        Ok(())
    }

    /// Where nonic writes what it counted.
    pub(super) fn counters_file(&self) -> PathBuf {
        self.lab.folder().join("counters")
    }

    /// Runs it; the error says what was wrong.
    pub(super) fn run(&mut self, case: &Case, direction: Direction, family: Family) -> Result<Outcome> {
        // Ports of cases that follow each other must not be in the way of each other.
        self.port += 1;
        if let Some(fault) = case.fault {
            disturb(self.guest, Some(fault), self.mtu)?;
        }
        if let Some((name, [value, _])) = case.parameter {
            self.set_parameter(name, value)?;
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
            disturb(self.guest, None, self.mtu)?;
        }
        if let Some((name, [_, usual])) = case.parameter {
            self.set_parameter(name, usual)?;
        }
        outcome
    }

    /// Writes down all packets of the wire until the answer is dropped.
    fn capture(
        &self,
        folder: &Path,
        case: &Case,
        direction: Direction,
        family: Family,
    ) -> Result<LoggedProcess> {
        // The port tells apart what is run more than once.
        let name = format!(
            "{} {} {direction:?} {family:?} {}.pcap",
            self.mtu,
            case.name(),
            self.port
        );
        let file = folder.join(name.replace(['/', ' ', ','], "_"));
        let file = file.display().to_string();
        let words = [
            "tcpdump",
            "-i",
            "br0",
            "-U",
            // What is in the kernel when it is ended would be lost.
            "--immediate-mode",
            "-Z",
            "root",
            "-w",
            &file,
            match self.opposite {
                Opposite::Rxe => "udp port 4791",
                Opposite::Siw => "tcp",
            },
        ];
        let mut capture = LoggedProcess::start(&words, &[], self.lab.folder().join("capture"))?;
        while !capture.output().contains("listening on") {
            ensure!(capture.runs(), "no capture: {}", last_lines(&capture.output()));
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(capture)
    }

    fn nonic_asks(&mut self, case: &Case, family: Family) -> Result<Outcome> {
        let terms = self.terms(family, Direction::NonicAsks);
        let line = commands::words(case, &self.theirs(family), &terms, false).join(" ");
        let condition = match Readiness::of(case, self.port, self.opposite) {
            Readiness::Tcp(port) => format!("listens {port:04X}"),
            Readiness::Service(_, port) => format!("rdma resource show cm_id | grep -q ' LISTEN .*:{port} '"),
            Readiness::Says(words) => format!("grep -q '{words}' ${{0%.command}}.output"),
        };
        let server = self
            .guest
            .serve(&line, &condition, self.patience)
            .with_context(|| self.them("server"))?;
        let mut client = self.start_ours(case, &terms, true)?;
        let ours = self.wait(&mut client, self.patience);
        let theirs = self.guest.wait(&server, self.patience_after(&ours));
        judge(case, ("nonic, the client", ours), (&self.them("server"), theirs))
    }

    fn nonic_serves(&mut self, case: &Case, family: Family) -> Result<Outcome> {
        let terms = self.terms(family, Direction::NonicServes);
        let mut server = self.start_ours(case, &terms, false)?;
        self.wait_for_ours(&mut server, &Readiness::of(case, self.port, self.opposite))?;
        let line = commands::words(case, &self.theirs(family), &terms, true).join(" ");
        let client = self.guest.start(&line)?;
        let theirs = self.guest.wait(&client, self.patience);
        let ours = self.wait(&mut server, self.patience_after(&theirs));
        let erred_at_the_end =
            matches!((&theirs, &ours), (Ok(theirs), Ok(ours)) if lost_its_last_word(theirs, ours));
        if self.opposite == Opposite::Siw && erred_at_the_end {
            return Ok(Outcome::SiwErredAtTheEnd);
        }
        judge(case, (&self.them("client"), theirs), ("nonic, the server", ours))
    }

    /// Waits for a process of ours, as long as the guest is well.
    fn wait(&mut self, process: &mut LoggedProcess, patience: Duration) -> Result<Finished> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(finished) = process.finished()? {
                return Ok(finished);
            }
            self.guest.check()?;
            ensure!(
                Instant::now() < deadline,
                "still runs after {patience:?}: {}",
                last_lines(&process.output())
            );
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// A client that failed leaves its server waiting; the runner need not wait for it.
    fn patience_after(&self, client: &Result<Finished>) -> Duration {
        match client {
            Ok(finished) if [0, KILLED].contains(&finished.status) => self.patience,
            _ => GRACE,
        }
    }

    /// The other side, in a complaint.
    fn them(&self, role: &str) -> String {
        format!("{}, the {role}", self.opposite.driver())
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
            device: self.opposite.device(),
            gid: self.gids.theirs[family as usize],
            script: match self.opposite {
                Opposite::Rxe => "/run/lab/peer.py",
                Opposite::Siw => "/run/lab/stream.py",
            },
            address: THEIRS[family as usize],
        }
    }

    fn start_ours(&self, case: &Case, terms: &Terms<'_>, client: bool) -> Result<LoggedProcess> {
        let folder = self.lab.folder();
        let nonic = self.dist.nonic().display().to_string();
        let (device, script) = match self.opposite {
            Opposite::Rxe => ("roce_br0", "peer.py"),
            Opposite::Siw => ("iwarp_br0", "stream.py"),
        };
        let script = folder.join(script).display().to_string();
        let side = Side {
            device,
            gid: self.gids.ours[terms.family as usize],
            script: &script,
            address: OURS[terms.family as usize],
        };
        let mut words = vec![nonic];
        words.extend(["run", "--wire", self.opposite.wire(), "--"].map(str::to_owned));
        words.extend(commands::words(case, &side, terms, client));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let counters = self.counters_file().display().to_string();
        let mut environment = vec![("NONIC_COUNTERS", counters.as_str())];
        environment.extend(case.environment);
        LoggedProcess::start(&words, &environment, folder.join("ours"))
    }

    fn wait_for_ours(&self, server: &mut LoggedProcess, readiness: &Readiness) -> Result<()> {
        let deadline = Instant::now() + self.patience;
        let is_ready = |server: &LoggedProcess| match readiness {
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

    /// Changes a parameter of siw.
    fn set_parameter(&mut self, name: &str, value: &str) -> Result<()> {
        let line = format!("echo {value} > /sys/module/siw/parameters/{name}");
        self.guest.run(&line).map(drop)
    }
}

/// Disturbs what the guest sends and, through an intermediate device, what it receives; or stops that.
pub(super) fn disturb(guest: &mut Guest, fault: Option<&str>, mtu: u32) -> Result<()> {
    guest.run(&fault_commands(fault, mtu)).map(drop)
}

/// Whether a process listens on a TCP port, by the kernel's tables.
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

/// Both sides must end well, but for the one that is killed on purpose.
fn judge(case: &Case, client: (&str, Result<Finished>), server: (&str, Result<Finished>)) -> Result<Outcome> {
    let wanted = |dies| if case.options.contains(&dies) { KILLED } else { 0 };
    let complaints: Vec<String> = [(client, wanted("client-killed")), (server, wanted("peer-killed"))]
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
    Ok(Outcome::Good)
}

/// Whether perftest did all its work and only the farewell failed, for what siw's client says of a SEND that nonic's server had and
/// answered: docs/interop.md, "Where siw differs".
fn lost_its_last_word(client: &Finished, server: &Finished) -> bool {
    let words = [
        "#bytes",
        "Bad wc status 2",
        "Failed to close connection between server and client",
    ];
    server.status == 0 && client.status == 1 && words.iter().all(|words| client.output.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(status: i32, output: &str) -> Finished {
        Finished {
            output: output.to_owned(),
            status,
        }
    }

    #[test]
    fn only_the_farewell_may_fail_and_only_on_siws_side() {
        let farewell = " #bytes #iterations\n 65536 100 0.1 0.1 Bad wc status 2\nUnable to write to socket/rdma_cm\n\
            Failed to close connection between server and client\n";
        let (good, bad) = (finished(0, ""), finished(1, ""));
        assert!(lost_its_last_word(&finished(1, farewell), &good));
        assert!(!lost_its_last_word(&finished(1, farewell), &bad));
        let earlier = farewell.replace("Failed to close connection between server and client", "");
        assert!(!lost_its_last_word(&finished(1, &earlier), &good));
        assert!(!lost_its_last_word(&finished(1, "Bad wc status 12"), &good));
    }
}
