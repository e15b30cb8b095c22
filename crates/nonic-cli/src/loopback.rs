//! `--loopback`: the server side as a child process of this one, on an address of this host.

use crate::local_gid::DeviceChoice;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long the server may take to end by itself.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// A server that lives as long as this value.
#[derive(Debug)]
pub(crate) struct LocalServer {
    child: Child,
    /// Where it listens.
    pub(crate) address: String,
}

impl LocalServer {
    /// Starts a server on the same device and waits until it listens. If we take Ctrl-C for a wish to hear a summary, it must not reach
    /// the server, which is needed for that.
    pub(crate) fn start(choice: &DeviceChoice, survives_interrupt: bool) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let mut command = Command::new(program);
        // Two processes cannot write one capture, and the client's has every packet already.
        let pcap = &nonic_settings::PCAP;
        let environment = nonic_settings::Environment::read()?;
        if environment.text(pcap).is_some_and(|name| !name.contains("%p")) {
            command.env_remove(pcap.name);
        }
        if survives_interrupt {
            command.process_group(0);
        }
        let address = SocketAddr::new(choice.address_here()?, 0);
        let mut child = command
            .args(["perf", "--server", "--once", "--bind", &address.to_string()])
            .args(choice.as_arguments())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start the server side")?;
        let mut stderr = child
            .stderr
            .take()
            .context("the child's complaints were asked for")?;
        let stdout = child.stdout.take().context("the child's output was asked for")?;
        let mut server = LocalServer {
            child,
            address: String::new(),
        };
        for line in BufReader::new(stdout).lines() {
            let line = line.context("the server side does not speak")?;
            if let Some(address) = line.strip_prefix("listening on ") {
                server.address = address.split(' ').next().unwrap_or_default().to_owned();
                // What goes wrong from here on the client sees itself; the rest goes into closed pipes.
                return Ok(server);
            }
        }
        let mut complaint = String::new();
        // Whatever can be read of it.
        let _ = stderr.read_to_string(&mut complaint);
        bail!("the server side did not start: {}", complaint.trim_end())
    }
}

impl Drop for LocalServer {
    fn drop(&mut self) {
        // It ends by itself after its one client, closing what captures it writes; a run that failed half-way
        // must not leave it behind all the same.
        let deadline = Instant::now() + EXIT_TIMEOUT;
        while Instant::now() < deadline {
            if let Ok(Some(_)) = self.child.try_wait() {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
