//! Runs one cell of the matrix: a server on one side of the wire, then a client on the other.

use super::cases::{Case, Kind};
use crate::lab::{Finished, Guest, Lab, Process, Task};
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longer than any case takes on a quiet machine.
const PATIENCE: Duration = Duration::from_secs(40);

/// What the server gets when the client has failed.
const GRACE: Duration = Duration::from_secs(2);

/// Which side nonic is on.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    NonicAsks,
    NonicServes,
}

/// Which GIDs are used.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Ipv4,
    Ipv6,
}

/// GID indexes of both devices, by IP version.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Gids {
    pub(super) ours: [u32; 2],
    pub(super) theirs: [u32; 2],
}

/// Everything a cell needs.
pub(super) struct Bench<'a> {
    pub(super) lab: &'a Lab,
    pub(super) guest: &'a mut Guest,
    pub(super) nonic: PathBuf,
    pub(super) gids: Gids,
    pub(super) mtu: u32,
    pub(super) port: u16,
}

impl Bench<'_> {
    /// Runs it; the error says what was wrong.
    pub(super) fn run(&mut self, case: &Case, direction: Direction, family: Family) -> Result<()> {
        // Ports of cases that follow each other must not be in the way of each other.
        self.port += 1;
        if let Some(fault) = case.fault {
            self.set_fault(Some(fault))?;
        }
        let outcome = match direction {
            Direction::NonicAsks => self.nonic_asks(case, family),
            Direction::NonicServes => self.nonic_serves(case, family),
        };
        if case.fault.is_some() {
            self.set_fault(None)?;
        }
        outcome
    }

    fn nonic_asks(&mut self, case: &Case, family: Family) -> Result<()> {
        let line = self.guest_line(case, family);
        let server = self.guest.start(&line)?;
        self.wait_for_guest(&server)?;
        let mut client = self.start_ours(case, family, Some("10.77.0.1"))?;
        let ours = client.wait(PATIENCE);
        // A client that failed leaves its server waiting.
        let patience = if matches!(&ours, Ok(finished) if finished.status == 0) {
            PATIENCE
        } else {
            GRACE
        };
        let theirs = self.guest.wait(&server, patience);
        judge(case, ("nonic, the client", ours), ("rxe, the server", theirs))
    }

    fn nonic_serves(&mut self, case: &Case, family: Family) -> Result<()> {
        let mut server = self.start_ours(case, family, None)?;
        self.wait_for_ours(&mut server)?;
        let line = format!("{} 10.77.0.254", self.guest_line(case, family));
        let client = self.guest.start(&line)?;
        let theirs = self.guest.wait(&client, PATIENCE);
        let patience = if matches!(&theirs, Ok(finished) if finished.status == 0) {
            PATIENCE
        } else {
            GRACE
        };
        let ours = server.wait(patience);
        judge(case, ("rxe, the client", theirs), ("nonic, the server", ours))
    }

    fn start_ours(&self, case: &Case, family: Family, server: Option<&str>) -> Result<Process> {
        let folder = self.lab.folder();
        let nonic = self.nonic.display().to_string();
        let script = folder.join("peer.py").display().to_string();
        let mut words = vec![nonic, "run".to_owned(), "--".to_owned()];
        words.extend(self.words(case, "roce_br0", self.gids.ours[family as usize], &script));
        words.extend(server.map(str::to_owned));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let counters = folder.join("counters").display().to_string();
        let mut environment = vec![("NONIC_COUNTERS", counters.as_str())];
        environment.extend(case.environment);
        Process::start(&words, &environment, folder.join("ours"))
    }

    fn guest_line(&self, case: &Case, family: Family) -> String {
        let gid = self.gids.theirs[family as usize];
        self.words(case, "rxe0", gid, "/run/lab/peer.py").join(" ")
    }

    /// The command line of either side, without the server's address.
    fn words(&self, case: &Case, device: &str, gid: u32, script: &str) -> Vec<String> {
        let (gid, port) = (gid.to_string(), self.port.to_string());
        let mut words: Vec<String> = Vec::new();
        let mut add = |more: &[&str]| words.extend(more.iter().map(|word| (*word).to_owned()));
        match case.kind {
            Kind::Script => {
                // Not just any Python: Debian's, which has pyverbs.
                add(&["/usr/bin/python3", script]);
                add(&case.options);
                add(&[device, &gid, &port]);
            }
            Kind::Example => {
                let mtu = if self.mtu > 4096 { "4096" } else { "1024" };
                add(&[case.program, "-d", device, "-g", &gid, "-p", &port]);
                // A datagram is one packet, so there is nothing to choose.
                if case.program != "ibv_ud_pingpong" {
                    add(&["-m", mtu]);
                }
                add(&case.options);
                add(&case.limits);
            }
            Kind::Perftest | Kind::NotYet => {
                add(&[case.program, "-d", device, "-x", &gid, "-p", &port]);
                add(&case.options);
                add(&case.limits);
            }
        }
        words
    }

    fn wait_for_ours(&self, server: &mut Process) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if listens(Path::new("/proc/self/net"), self.port) {
                return Ok(());
            }
            ensure!(
                server.runs(),
                "the server ended at once: {}",
                brief(&server.output())
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        bail!("the server does not listen");
    }

    fn wait_for_guest(&mut self, server: &Task) -> Result<()> {
        let line = format!(
            "for i in {{1..300}}; do grep -q ':{:04X} .* 0A ' /proc/net/tcp /proc/net/tcp6 && exit 0; sleep 0.05; \
             done; exit 1",
            self.port
        );
        let waited = self.guest.run(&line);
        waited
            .map(drop)
            .with_context(|| format!("rxe, the server: {}", brief(&self.guest.output(server))))
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
                brief(&finished.output)
            )),
            Err(error) => Some(format!("{who}: {error:#}")),
        })
        .collect();
    ensure!(complaints.is_empty(), "{}", complaints.join("; "));
    Ok(())
}

/// The last lines, in one.
pub(super) fn brief(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    lines[lines.len().saturating_sub(4)..].join(" | ")
}
