//! A program under test: started, watched and ended.
//!
//! What it prints is read while it runs, since a full pipe would stop it, and kept as far as a caller asks.

use super::topology::Topology;
use anyhow::{Context, Result, bail};
use std::net::IpAddr;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longer than any case takes, even on a busy machine: perftest calibrates its clock for every size it prints.
const PATIENCE: Duration = Duration::from_secs(120);

/// As much of what a program prints as is kept: the end.
const KEPT_BYTES: usize = 1 << 20;

/// When a server can be reached.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    /// It listens on a TCP port.
    Tcp(u16),
    /// It has a UDP port.
    Udp(u16),
    /// It listens on a port of the connection manager.
    Service(u16),
    /// It is in the topology's multicast group.
    Group,
}

/// A process that does not outlive its value.
pub(crate) struct Process {
    child: Child,
    readers: [JoinHandle<String>; 2],
}

impl Process {
    /// Lets a command end when we do, even if we are killed: a server would wait for its client for ever.
    pub(crate) fn end_with_us(command: &mut Command) {
        use std::os::unix::process::CommandExt;
        let die = || {
            // SAFETY: the call changes this process only, and needs no memory.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            Ok(())
        };
        // SAFETY: between fork and exec there is one system call, which allocates nothing and takes no lock.
        unsafe { command.pre_exec(die) };
    }

    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start it")?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let readers = [
            std::thread::spawn(move || read(out)),
            std::thread::spawn(move || read(err)),
        ];
        Ok(Self { child, readers })
    }

    /// Waits until a client can reach it.
    pub(crate) fn wait_until(&self, ready: Ready, topology: &Topology<'_>) -> Result<()> {
        self.wait_until_within(ready, topology, PATIENCE)
    }

    /// The same with another patience.
    pub(crate) fn wait_until_within(
        &self,
        ready: Ready,
        topology: &Topology<'_>,
        patience: Duration,
    ) -> Result<()> {
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            if self.is(ready, topology) {
                return Ok(());
            }
            if !self.runs() {
                bail!("ended before it was ready");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("is never ready");
    }

    /// The kernel's tables of the process's namespace tell.
    fn is(&self, ready: Ready, topology: &Topology<'_>) -> bool {
        let has = |table: &str, fits: &dyn Fn(&str) -> bool| {
            let path = format!("/proc/{}/net/{table}", self.child.id());
            let text = std::fs::read_to_string(path).unwrap_or_default();
            text.lines().any(fits)
        };
        match ready {
            Ready::Tcp(port) => {
                let listens = |line: &str| line.contains(" 0A ") && line.contains(&format!(":{port:04X} "));
                has("tcp", &listens) || has("tcp6", &listens)
            }
            Ready::Udp(port) => {
                let has_port = |line: &str| {
                    let local = line.split_whitespace().nth(1);
                    local.is_some_and(|local| local.ends_with(&format!(":{port:04X}")))
                };
                has("udp", &has_port) || has("udp6", &has_port)
            }
            // A service's name has its address, and ends in its identifier, which ends in the port. A server that listens
            // everywhere gets one address after the other.
            Ready::Service(port) => has("unix", &|line| {
                // Servers that know IPv4 only never listen at an address of IPv6; their clients shall fail at once.
                let is_here =
                    line.contains(&format!("/{}/service/", topology.address)) || topology.group.is_ipv6();
                is_here && line.contains("/service/") && line.ends_with(&format!("{port:04x}"))
            }),
            Ready::Group => match topology.group {
                IpAddr::V4(group) => {
                    let wanted = format!("{:08X}", u32::from_ne_bytes(group.octets()));
                    has("igmp", &|line| line.trim().starts_with(&wanted))
                }
                IpAddr::V6(group) => {
                    let wanted = format!("{:032x}", u128::from(group));
                    has("igmp6", &|line| line.contains(&wanted))
                }
            },
        }
    }

    /// Whether it has not ended.
    pub(crate) fn runs(&self) -> bool {
        let state = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        !state.is_empty() && !state.contains(") Z ")
    }

    /// What it printed, if it ended well and in time.
    pub(crate) fn finish(self) -> Result<String> {
        self.finish_within(PATIENCE)
    }

    /// The same with another patience.
    pub(crate) fn finish_within(mut self, patience: Duration) -> Result<String> {
        let deadline = Instant::now() + patience;
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break Some(status);
            }
            if Instant::now() > deadline {
                break None;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let [out, err] = self.end();
        match status {
            None => bail!("still runs after {patience:?}: {}", last_lines(&out, &err)),
            Some(status) if !status.success() => bail!("{status}: {}", last_lines(&out, &err)),
            Some(_) => Ok(out + &err),
        }
    }

    /// Ends it, and tells the last it said.
    pub(crate) fn stop(mut self) -> String {
        let [out, err] = self.end();
        last_lines(&out, &err)
    }

    fn end(&mut self) -> [String; 2] {
        self.kill();
        let nobody = || std::thread::spawn(String::new);
        let readers = std::mem::replace(&mut self.readers, [nobody(), nobody()]);
        readers.map(|reader| reader.join().unwrap_or_default())
    }
}

impl Process {
    /// Ends it with the processes it started: fio's jobs and mpirun's ranks would outlive it, and keep its pipes open.
    fn kill(&mut self) {
        let started = descendants(&self.child.id().to_string());
        // It may have ended long ago.
        let _ = self.child.kill();
        for process in started {
            let _ = Command::new("kill").args(["-KILL", &process]).status();
        }
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The processes that a process started, and those that these started, as far as they run.
fn descendants(process: &str) -> Vec<String> {
    let path = format!("/proc/{process}/task/{process}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let children = text.split_whitespace();
    children
        .flat_map(|child| std::iter::once(child.to_owned()).chain(descendants(child)))
        .collect()
}

fn read(from: Option<impl std::io::Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut from) = from {
        let mut piece = vec![0; 1 << 16];
        while let Ok(length @ 1..) = from.read(&mut piece) {
            bytes.extend_from_slice(&piece[..length]);
            if bytes.len() > 2 * KEPT_BYTES {
                bytes.drain(..bytes.len() - KEPT_BYTES);
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The end of what was said, on one line.
fn last_lines(out: &str, err: &str) -> String {
    const LONGEST: usize = 200;
    let lines: Vec<String> = out
        .lines()
        .chain(err.lines())
        .filter(|line| !line.trim().is_empty())
        .map(|line| line.chars().take(LONGEST).collect())
        .collect();
    lines[lines.len().saturating_sub(6)..].join(" | ")
}
