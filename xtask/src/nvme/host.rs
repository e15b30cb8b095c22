//! The two sides: a guest that is the NVMe host, and a process of ours that is the target.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use testbed::lab::{Breakdown, Guest, Lab};
use testbed::logged::{Finished, LoggedProcess, POLL_INTERVAL};
use testbed::process::last_lines;

/// Where the target is, and the namespace in the guest.
pub(super) const ADDRESS: &str = "10.77.0.254";
pub(super) const NQN: &str = "nqn.2026-11.org.nonic-rdma:judged";

/// How long the target may take to serve.
const START: Duration = Duration::from_secs(30);

/// The guest and the target.
pub(super) struct Host {
    guest: Guest,
    nonic: PathBuf,
    folder: PathBuf,
    target: Option<LoggedProcess>,
    starts: u32,
    _capture: Option<LoggedProcess>,
}

impl Host {
    /// Makes rxe in the guest; starts nothing yet.
    pub(super) fn new(lab: &Lab, mut guest: Guest, nonic: PathBuf, capture: Option<&Path>) -> Result<Self> {
        // A disk that is away for a while is part of the plan, and no complaint about the kernel.
        guest.run(
            "echo 0 > /proc/sys/kernel/hung_task_timeout_secs; rdma link add rxe0 type rxe netdev eth0",
        )?;
        let capture = capture.map(|file| {
            let file = file.display().to_string();
            let words = [
                "tcpdump",
                "-i",
                "br0",
                "-U",
                "-Z",
                "root",
                "-s",
                "256",
                "-w",
                &file,
                "udp port 4791",
            ];
            LoggedProcess::start(&words, &[], lab.folder().join("capture"))
        });
        Ok(Host {
            guest,
            nonic,
            folder: lab.folder().to_owned(),
            target: None,
            starts: 0,
            _capture: capture.transpose()?,
        })
    }

    /// Starts the target with the same file as ever, and waits until it says how to connect.
    pub(super) fn start_target(&mut self) -> Result<()> {
        self.starts += 1;
        let nonic = self.nonic.display().to_string();
        let disk = self.folder.join("disk.img").display().to_string();
        let words = [
            nonic.as_str(),
            "nvme-target",
            "--file",
            &disk,
            "--size",
            "256M",
            "--nqn",
            NQN,
            "--bind",
            ADDRESS,
        ];
        let output = self.folder.join(format!("target-{}", self.starts));
        let mut target = LoggedProcess::start(&words, &[], output)?;
        let deadline = Instant::now() + START;
        while !target.output().contains("nvme connect -t rdma") {
            ensure!(
                target.runs(),
                "the target ended: {}",
                last_lines(&target.output())
            );
            ensure!(Instant::now() < deadline, "the target does not start");
            std::thread::sleep(POLL_INTERVAL);
        }
        self.target = Some(target);
        Ok(())
    }

    /// Kills it, as a crash would.
    pub(super) fn kill_target(&mut self) {
        if let Some(mut target) = self.target.take() {
            target.end();
        }
    }

    /// What the target has said since it was started last.
    pub(super) fn target_said(&self) -> String {
        self.target
            .as_ref()
            .map(LoggedProcess::output)
            .unwrap_or_default()
    }

    /// Runs a command in the guest that must succeed.
    pub(super) fn run(&mut self, command: &str, patience: Duration) -> Result<String> {
        let task = self.guest.start(command)?;
        let Finished { output, status } = self.guest.wait(&task, patience)?;
        ensure!(
            status == 0,
            "{command}: exit status {status}: {}",
            last_lines(&output)
        );
        Ok(output)
    }

    /// Waits until a command in the guest succeeds.
    pub(super) fn wait_until(&mut self, condition: &str, patience: Duration) -> Result<()> {
        let seconds = patience.as_secs();
        // Reading from a pipe without a writer is a sleep that starts no process: processes are slow in there.
        let line = format!(
            "exec 9<> <(:); end=$((SECONDS + {seconds})); until {condition}; do \
             [ $SECONDS -lt $end ] || exit 1; read -rt 0.2 -u 9; done; true"
        );
        self.run(&line, patience + Duration::from_secs(30))
            .map(drop)
            .with_context(|| format!("not after {seconds} s: {condition}"))
    }

    /// Whether the guest's kernel is well.
    pub(super) fn prove_guest(&mut self) -> Result<(), Breakdown> {
        self.guest.prove()
    }

    /// What both sides say, for the person who must find out why something failed.
    pub(super) fn circumstances(&mut self) -> String {
        // What is said once for each request hides why.
        let line =
            "dmesg | grep -v 'requeuing I/O\\|QID [0-9]* timeout' | tail -25; rdma statistic show link rxe0";
        let kernel = self.run(line, Duration::from_secs(30));
        format!(
            "the target:\n{}\nthe guest's kernel:\n{}",
            self.target_said(),
            kernel.unwrap_or_else(|_| self.console())
        )
    }

    /// The end of what the guest's kernel has said, for when the guest takes no commands any more.
    fn console(&self) -> String {
        let console = std::fs::read(self.guest.folder().join("console")).unwrap_or_default();
        let console = String::from_utf8_lossy(&console).into_owned();
        let lines: Vec<&str> = console.lines().filter(|line| !is_of_one_request(line)).collect();
        lines[lines.len().saturating_sub(100)..].join("\n")
    }
}

/// What is said once for each request hides why.
fn is_of_one_request(line: &str) -> bool {
    line.contains("requeuing I/O") || (line.contains(" QID ") && line.trim_end().ends_with("timeout"))
}
