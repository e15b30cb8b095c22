//! `nonic nvme-target` as a process: says how to connect, serves, and ends when it is told to.

use nonic::Device;
use nonic_nvme::initiator::{Initiator, InitiatorError};
use nonic_nvme::wire::{Nqn, Status};
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
        Self::start_by(Command::new(env!("CARGO_BIN_EXE_nonic")), arguments)
    }

    /// By a command that takes the rest.
    fn start_by(mut command: Command, arguments: &[&str]) -> Self {
        let mut child = command
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

    /// A host of it.
    fn host(&mut self) -> Initiator {
        self.line();
        let (address, nqn) = parse(&self.line());
        let device = Device::toward(address.ip()).expect("a device");
        Initiator::connect(&device, address, &nqn, Duration::ZERO).expect("a connection")
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

#[test]
fn a_file_that_another_target_serves_is_refused_with_its_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk.img");
    let path = path.to_str().expect("text");
    let mut first = Target::start(&["--file", path, "--size", "1M"]);
    first.line();
    let second = Command::new(env!("CARGO_BIN_EXE_nonic"))
        .args(["nvme-target", "--bind", "127.0.0.1:0", "--file", path])
        .output()
        .expect("it starts");
    assert!(!second.status.success());
    let said = String::from_utf8_lossy(&second.stderr);
    let who = format!("is in use: process {} (nonic)", first.child.id());
    assert!(said.contains(&who), "{said}");
    first.signal(Signal::KILL);
    first.child.wait().expect("it is killed");
    let mut third = Target::start(&["--file", path]);
    assert!(third.line().contains("1 MiB"));
}

#[test]
fn what_was_written_is_there_after_the_target_was_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk.img");
    let path = path.to_str().expect("text");
    let mut target = Target::start(&["--file", path, "--size", "8M"]);
    let mut host = target.host();
    host.write(0, &[1; 512]).expect("written");
    host.flush().expect("flushed");
    // In the kernel's cache: the end of the machine would take it, that of the process does not.
    host.write(4096, &[2; 1 << 19]).expect("written");
    target.signal(Signal::KILL);
    target.child.wait().expect("it is killed");
    drop(host);
    let mut target = Target::start(&["--file", path]);
    let mut host = target.host();
    assert_eq!(host.read(0, 1).expect("read"), [1; 512]);
    assert_eq!(host.read(4096, 1024).expect("read"), [2; 1 << 19]);
}

/// Writes until there is no more room, and sees that nothing else is lost by that.
fn fill(mut target: Target) {
    let mut host = target.host();
    host.write(0, &[1; 4096]).expect("there is room for the first");
    host.flush().expect("flushed");
    let blocks = host.namespace.blocks;
    let refused = (8..blocks / 8).find_map(|place| host.write(place * 8, &[2; 4096]).err());
    let Some(InitiatorError::Status(status)) = refused else {
        panic!("the disk is full: {refused:?}");
    };
    assert_eq!(status.code(), Status::CAPACITY_EXCEEDED);
    assert_ne!(status, status.code(), "trying again is of no use");
    // Data that the target fetches, too.
    let refused = host
        .write(blocks - 1024, &[3; 1 << 19])
        .expect_err("the disk is full");
    assert!(refused.to_string().contains("no room"), "{refused}");
    assert_eq!(host.read(0, 8).expect("read"), [1; 4096]);
    host.write(0, &[4; 4096])
        .expect("there is room where something was");
    host.flush().expect("flushed");
    assert_eq!(host.read(0, 8).expect("read"), [4; 4096]);
}

#[test]
fn a_full_disk_is_a_status_and_the_target_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = "mount -t tmpfs -o size=1M none \"$0\" && exec \"$@\"";
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", script])
        .arg(folder.path())
        .arg(env!("CARGO_BIN_EXE_nonic"));
    let path = folder.path().join("disk.img");
    let path = path.to_str().expect("text");
    fill(Target::start_by(command, &["--file", path, "--size", "4M"]));
}

#[test]
fn a_limit_for_files_is_a_status_and_the_target_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk.img");
    let file = std::fs::File::create(&path).expect("made");
    file.set_len(4 << 20).expect("as long as asked");
    let mut command = Command::new("prlimit");
    command.args(["--fsize=1048576", env!("CARGO_BIN_EXE_nonic")]);
    let path = path.to_str().expect("text");
    fill(Target::start_by(command, &["--file", path]));
}
