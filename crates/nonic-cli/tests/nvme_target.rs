//! `nonic nvme-target` as a process: says how to connect, serves, and ends when it is told to.

use nonic::Device;
use nonic_nvme::initiator::Initiator;
use nonic_nvme::wire::Nqn;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A running target; ends with the value.
struct Target {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Target {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_nonic"))
            .args(["nvme-target", "--bind", "127.0.0.1:0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Target { child, lines }
    }

    /// The next line; nothing at the end.
    fn line(&mut self) -> String {
        self.lines.next().transpose().expect("text").unwrap_or_default()
    }

    fn signal(&self, signal: Signal) {
        let process = Pid::from_child(&self.child);
        kill_process(process, signal).expect("it is ours");
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Address and name in the line that people paste.
fn parse(line: &str) -> (SocketAddr, Nqn) {
    let words: Vec<&str> = line.split(' ').collect();
    let ["nvme", "connect", "-t", "rdma", "-a", ip, "-s", port, "-n", nqn] = words[..] else {
        panic!("not the line to paste: {line}");
    };
    let address = format!("{ip}:{port}").parse().expect("an address");
    (address, Nqn::new(nqn).expect("a name"))
}

#[test]
fn it_says_how_to_connect_serves_and_ends_when_told() {
    for signal in [Signal::INT, Signal::TERM] {
        let mut target = Target::start(&["--memory", "8M", "--block", "4096"]);
        assert!(target.line().contains("8 MiB in blocks of 4096 bytes"));
        let (address, nqn) = parse(&target.line());
        let device = Device::toward(address.ip()).expect("a device");
        let mut host = Initiator::connect(&device, address, &nqn, Duration::ZERO).expect("a connection");
        assert!(target.line().contains("has connected"));
        host.write(5, &[3; 4096]).expect("written");
        assert_eq!(host.read(5, 1).expect("read"), [3; 4096]);
        target.signal(signal);
        assert!(target.line().contains("has ended: the target ends"));
        assert_eq!(target.line(), "ended: 0 MiB were read and 0 MiB written");
        assert!(target.child.wait().expect("it ends").success());
        assert!(host.read(5, 1).is_err(), "the host was told");
    }
}

#[test]
fn a_file_that_is_not_there_is_made_only_when_asked() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk.img");
    let path = path.to_str().expect("text");
    let refused = Command::new(env!("CARGO_BIN_EXE_nonic"))
        .args(["nvme-target", "--file", path])
        .output()
        .expect("it starts");
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--size makes it"));
    let mut target = Target::start(&["--file", path, "--size", "1M"]);
    assert!(
        target
            .line()
            .starts_with("nqn.2026-11.org.nonic-rdma:disk.img: 1 MiB")
    );
    assert_eq!(std::fs::metadata(path).expect("it was made").len(), 1 << 20);
}
