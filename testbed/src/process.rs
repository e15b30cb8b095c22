//! A program under test: started, watched and ended.
//!
//! What it prints is read while it runs, since a full pipe would stop it, and kept as far as a caller asks.

use crate::owned::OwnedChild;
use crate::topology::Topology;
use anyhow::{Context, Result, bail};
use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longer than any case takes, even on a busy machine: perftest calibrates its clock for every size it prints.
const PATIENCE: Duration = Duration::from_secs(120);

/// As much of what a program prints as is kept: the end.
const KEPT_BYTES: usize = 1 << 20;

/// When a server can be reached.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Ready {
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
pub struct Process {
    child: OwnedChild,
    readers: [JoinHandle<String>; 2],
}

impl Process {
    /// Starts it, with nothing to read and both outputs kept.
    pub fn start(command: &mut Command) -> Result<Self> {
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
        Ok(Self {
            child: child.into(),
            readers,
        })
    }

    /// Waits until a client can reach it.
    pub fn wait_until(&self, ready: Ready, topology: &Topology<'_>) -> Result<()> {
        self.wait_until_within(ready, topology, PATIENCE)
    }

    /// The same with another patience.
    pub fn wait_until_within(&self, ready: Ready, topology: &Topology<'_>, patience: Duration) -> Result<()> {
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

    /// Sends it a signal.
    pub fn signal(&self, signal: libc::c_int) -> Result<()> {
        // SAFETY: the call concerns another process only. The number is that of our child, which nobody has waited for yet.
        let sent = unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
        match sent {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()).context("cannot send it a signal"),
        }
    }

    /// Whether it has not ended.
    pub fn runs(&self) -> bool {
        self.child.runs()
    }

    /// What it printed, if it ended well and in time.
    pub fn finish(self) -> Result<String> {
        self.finish_within(PATIENCE)
    }

    /// The same with another patience.
    pub fn finish_within(mut self, patience: Duration) -> Result<String> {
        let status = self.child.wait_until(Instant::now() + patience)?;
        let [out, err] = self.end();
        match status {
            None => bail!(
                "still runs after {patience:?}: {}",
                last_lines(&(out + "\n" + &err))
            ),
            Some(status) if !status.success() => bail!("{status}: {}", last_lines(&(out + "\n" + &err))),
            Some(_) => Ok(out + &err),
        }
    }

    /// Ends it, and tells the last it said.
    pub fn stop(self) -> String {
        let [out, err] = self.end();
        last_lines(&(out + "\n" + &err))
    }

    fn end(mut self) -> [String; 2] {
        self.child.kill();
        self.readers.map(|reader| reader.join().unwrap_or_default())
    }
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
pub fn last_lines(text: &str) -> String {
    const LONGEST: usize = 200;
    let lines: Vec<String> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(|line| line.chars().take(LONGEST).collect())
        .collect();
    lines[lines.len().saturating_sub(6)..].join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Process {
        Process::start(Command::new("sh").args(["-c", script])).expect("sh starts")
    }

    #[test]
    fn what_a_process_printed_is_told_if_it_ended_well() {
        let printed = shell("echo one; echo two >&2").finish().expect("it ends well");
        assert_eq!(printed, "one\ntwo\n");
    }

    #[test]
    fn a_failure_comes_with_the_last_lines() {
        let error = shell("echo one; echo; echo '  two' >&2; exit 3")
            .finish()
            .unwrap_err();
        assert_eq!(error.to_string(), "exit status: 3: one | two");
    }

    #[test]
    fn a_process_has_a_time_limit() {
        let limit = Duration::from_millis(20);
        let error = shell("exec sleep 1000").finish_within(limit).unwrap_err();
        assert_eq!(error.to_string(), "still runs after 20ms: ");
    }

    #[test]
    fn six_lines_are_enough() {
        assert_eq!(last_lines("1\n2\n3\n4\n5\n6\n7\n\n8"), "3 | 4 | 5 | 6 | 7 | 8");
    }
}
