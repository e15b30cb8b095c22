//! Runs a case: starts the server, waits until it listens, starts the client, waits for both.

use super::cases::Case;
use crate::place::Place;
use anyhow::{Context, Result, bail, ensure};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// Where both sides are.
#[derive(Copy, Clone, Debug)]
pub(super) struct Site<'a> {
    pub(super) name: &'static str,
    pub(super) device: &'static str,
    /// Where the client finds the server.
    pub(super) address: &'static str,
    pub(super) gid_index: u32,
    pub(super) server: Place<'a>,
    pub(super) client: Place<'a>,
}

/// Longer than any case takes, even on a busy machine: perftest calibrates its clock for every size it prints.
const PATIENCE: Duration = Duration::from_secs(120);

/// One process that looks and ends, and names our device.
pub(super) fn alone(site: &Site<'_>, nonic: &Path, case: &Case) -> Result<()> {
    let mut command = on_nonic(&site.client, nonic, case.program);
    let process = Process::start(command.args(&case.options))?;
    let printed = process.finish()?;
    ensure!(
        printed.contains(site.device),
        "it does not name {}: {printed}",
        site.device
    );
    Ok(())
}

/// A server and a client with the same options; what the client printed.
pub(super) fn both(site: &Site<'_>, nonic: &Path, case: &Case) -> Result<String> {
    let port = fresh_port();
    let gid_index = site.gid_index.to_string();
    let is_example = case.program.starts_with("ibv_");
    let arguments = |place: &Place<'_>| {
        let mut command = on_nonic(place, nonic, case.program);
        command.args(["-d", site.device, "-p", &port.to_string()]);
        command.args([if is_example { "-g" } else { "-x" }, &gid_index]);
        if !case.service.is_empty() {
            command.args(["-c", case.service]);
        }
        command.args(&case.options).args(&case.limits);
        command
    };
    let server = Process::start(&mut arguments(&site.server))?;
    server.wait_until_it_listens(port).context("the server")?;
    let client = Process::start(arguments(&site.client).arg(site.address))?;
    // If one side fails, what it says explains the other's failure too.
    let (client, server) = (client.finish(), server.finish());
    match (client, server) {
        (Ok(printed), Ok(_)) => Ok(printed),
        (Err(client), Ok(_)) => Err(client.context("the client")),
        (Ok(_), Err(server)) => Err(server.context("the server")),
        (Err(client), Err(server)) => bail!("the client: {client:#}; the server: {server:#}"),
    }
}

/// qperf's server serves any number of tests; ours serves one.
pub(super) fn qperf(site: &Site<'_>, nonic: &Path, case: &Case) -> Result<()> {
    let port = fresh_port();
    let mut command = on_nonic(&site.server, nonic, case.program);
    let server = Process::start(command.args(["-lp", &port.to_string()]))?;
    server.wait_until_it_listens(port).context("the server")?;
    let mut command = on_nonic(&site.client, nonic, case.program);
    let device = format!("{}:1", site.device);
    command.args([site.address, "-lp", &port.to_string(), "-i", &device]);
    command.args(&case.limits).args(&case.options);
    let printed = Process::start(&mut command)?.finish().context("the client")?;
    let name = case.options.first().context("a test has a name")?;
    ensure!(printed.contains(name), "no result: {printed}");
    Ok(())
}

/// `nonic run -- program` at a place.
fn on_nonic(place: &Place<'_>, nonic: &Path, program: &str) -> Command {
    let mut command = place.command(nonic);
    command.args(["run", "--", program]);
    command
}

/// Ports of cases that follow each other must not be in the way of each other.
fn fresh_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(20000);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A process that does not outlive its value.
struct Process {
    child: Child,
}

impl Process {
    fn start(command: &mut Command) -> Result<Self> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start it")?;
        Ok(Self { child })
    }

    /// Waits until the process's namespace has a listener on the port.
    fn wait_until_it_listens(&self, port: u16) -> Result<()> {
        let wanted = format!(":{port:04X} ");
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            for table in ["tcp", "tcp6"] {
                let path = format!("/proc/{}/net/{table}", self.child.id());
                let listens = |line: &&str| line.contains(" 0A ") && line.contains(&wanted);
                if std::fs::read_to_string(path)
                    .unwrap_or_default()
                    .lines()
                    .any(|line| listens(&line))
                {
                    return Ok(());
                }
            }
            if self.has_ended() {
                bail!("ended before it listened");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("does not listen");
    }

    fn has_ended(&self) -> bool {
        let state = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        state.is_empty() || state.contains(") Z ")
    }

    /// What it printed, if it ended well and in time.
    fn finish(mut self) -> Result<String> {
        let deadline = Instant::now() + PATIENCE;
        let (out, err) = (self.child.stdout.take(), self.child.stderr.take());
        let readers = [
            std::thread::spawn(move || read(out)),
            std::thread::spawn(move || read(err)),
        ];
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break Some(status);
            }
            if Instant::now() > deadline {
                self.child.kill()?;
                self.child.wait()?;
                break None;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let [out, err] = readers.map(|reader| reader.join().unwrap_or_default());
        match status {
            None => bail!("still runs after {PATIENCE:?}: {}", last_words(&out, &err)),
            Some(status) if !status.success() => bail!("{status}: {}", last_words(&out, &err)),
            Some(_) => Ok(out + &err),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended long ago.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(from: Option<impl std::io::Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut from) = from {
        let _ = from.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The end of what was said, on one line.
fn last_words(out: &str, err: &str) -> String {
    let lines: Vec<&str> = out
        .lines()
        .chain(err.lines())
        .filter(|line| !line.trim().is_empty())
        .collect();
    lines[lines.len().saturating_sub(6)..].join(" | ")
}
