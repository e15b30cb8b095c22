//! The Rust initiator and the target, each with queue pairs of its own, over RoCE and over iWARP on loopback.

use nonic::{Device, Listener};
use nonic_nvme::initiator::{HostQueue, Initiator, InitiatorError, Payload, discover};
use nonic_nvme::wire::{Command, IdentifyNamespace, Nqn, Status, nvm};
use nonic_nvme::{FileDisk, Storage, Target, TargetConfig};
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const NQN: &str = "nqn.2026-11.org.example:disk";
const DEVICES: [&str; 2] = ["roce_lo", "iwarp_lo"];

/// A target that serves on threads of its own; ends with the value.
struct Running {
    target: Arc<Target>,
    device: Device,
    address: SocketAddr,
    server: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    fn start(device: &str, storage: Arc<dyn Storage>) -> Self {
        let device = Device::open(device).expect("a device");
        let listener = Listener::bind(&device, "127.0.0.1:0".parse().expect("an address")).expect("a port");
        let address = listener.local_addr();
        let config = TargetConfig::new(nqn());
        let target = Arc::new(Target::new(config, storage, |_| {}).expect("a target"));
        let serving = Arc::clone(&target);
        let server = std::thread::spawn(move || serving.serve(&listener));
        Running {
            target,
            device,
            address,
            server: Some(server),
        }
    }

    fn memory(device: &str) -> Self {
        let disk = FileDisk::in_memory(8 << 20).expect("memory");
        Self::start(device, Arc::new(disk))
    }

    fn connect(&self) -> Initiator {
        Initiator::connect(&self.device, self.address, &nqn(), Duration::ZERO).expect("a connection")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.target.stop();
        if let Some(server) = self.server.take() {
            server.join().expect("the target does not panic");
        }
    }
}

fn nqn() -> Nqn {
    Nqn::new(NQN).expect("a name")
}

fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length)
        .map(|index| (index / 512 * 31 + index) as u8 ^ seed)
        .collect()
}

/// Waits for something that another thread does.
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not in time");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_host_finds_the_subsystem_and_who_it_is() {
    for device in DEVICES {
        let running = Running::memory(device);
        let found = discover(&running.device, running.address).expect("a list");
        assert_eq!(found.len(), 1);
        assert_eq!(SocketAddr::new(found[0].address, found[0].port), running.address);
        assert_eq!(found[0].subsystem_nqn, NQN);
        let host = running.connect();
        assert_eq!(host.controller.subsystem_nqn, NQN);
        let IdentifyNamespace {
            blocks, block_shift, ..
        } = host.namespace;
        assert_eq!((blocks, block_shift), (8 << 11, 9));
    }
}

#[test]
fn what_was_written_is_read_and_nothing_else_is_touched() {
    for device in DEVICES {
        let running = Running::memory(device);
        let mut host = running.connect();
        // In the capsule, at its limit, and fetched by the target, up to the longest.
        for (index, blocks) in [1_usize, 8, 16, 17, 128, 2048].into_iter().enumerate() {
            let data = pattern(blocks * 512, index as u8);
            host.write(100, &data).expect("written");
            assert_eq!(host.read(100, blocks as u16).expect("read"), data);
        }
        assert_eq!(host.read(0, 100).expect("read"), vec![0; 51_200]);
        assert_eq!(host.read(2148, 100).expect("read"), vec![0; 51_200]);
        host.flush().expect("flushed");
        host.keep_alive().expect("alive");
        assert_eq!(running.target.controllers(), 1);
        drop(host);
        eventually("the host's queues end", || {
            running.target.controllers() == 0 && running.target.queues() == 0
        });
    }
}

#[test]
fn a_block_beyond_the_end_is_refused_and_the_connection_goes_on() {
    for device in DEVICES {
        let running = Running::memory(device);
        let mut host = running.connect();
        let last = host.namespace.blocks;
        for first in [last, last - 1, u64::MAX] {
            match host.read(first, 2) {
                Err(InitiatorError::Status(status)) => assert_eq!(status.code(), Status::LBA_OUT_OF_RANGE),
                other => panic!("{other:?}"),
            }
        }
        assert!(host.write(last, &[1; 512]).is_err());
        host.write(last - 1, &[1; 512]).expect("the last block is there");
        assert_eq!(host.read(last - 1, 1).expect("read"), [1; 512]);
    }
}

#[test]
fn a_file_keeps_what_was_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk.img");
    let open = || Arc::new(FileDisk::open(&path, Some(1 << 20)).expect("a file"));
    let data = pattern(64 << 10, 5);
    {
        let running = Running::start("roce_lo", open());
        let mut host = running.connect();
        host.write(64, &data).expect("written");
        host.flush().expect("flushed");
    }
    let bytes = std::fs::read(&path).expect("the file");
    assert_eq!(bytes[64 * 512..64 * 512 + data.len()], data);
    let running = Running::start("roce_lo", open());
    assert_eq!(running.connect().read(64, 128).expect("read"), data);
}

#[test]
fn a_host_that_says_nothing_is_given_up() {
    for device in DEVICES {
        let running = Running::memory(device);
        let kato = Duration::from_millis(300);
        let mut host =
            Initiator::connect(&running.device, running.address, &nqn(), kato).expect("a connection");
        eventually("the controller ends", || running.target.controllers() == 0);
        eventually("its queues end", || running.target.queues() == 0);
        assert!(
            host.read(0, 1).is_err(),
            "the I/O queue ended with the admin queue"
        );
    }
}

#[test]
fn a_target_that_ends_is_noticed_and_can_be_connected_to_again() {
    for device in DEVICES {
        let running = Running::memory(device);
        let mut host = running.connect();
        host.write(0, &[7; 512]).expect("written");
        running.target.stop();
        assert!(host.read(0, 1).is_err());
        drop(running);
        let running = Running::memory(device);
        running.connect().read(0, 1).expect("read");
    }
}

/// A disk that does nothing until it is let.
struct StuckDisk {
    disk: FileDisk,
    gate: Mutex<Receiver<()>>,
}

impl StuckDisk {
    fn new() -> (Self, Sender<()>) {
        let (open, gate) = channel();
        let disk = FileDisk::in_memory(1 << 20).expect("memory");
        let gate = Mutex::new(gate);
        (StuckDisk { disk, gate }, open)
    }

    fn wait(&self) {
        // The end of the sender opens it as well.
        let _ = self.gate.lock().expect("nobody panics").recv();
    }
}

impl Storage for StuckDisk {
    fn len(&self) -> u64 {
        self.disk.len()
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.wait();
        self.disk.read_at(at, buffer)
    }

    fn write_at(&self, at: u64, data: &[u8]) -> io::Result<()> {
        self.wait();
        self.disk.write_at(at, data)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_disk_that_is_stuck_does_not_stop_the_queues() {
    for device in DEVICES {
        let (disk, gate) = StuckDisk::new();
        let running = Running::start(device, Arc::new(disk));
        let mut host = running.connect();
        let read = Command::transfer(nvm::READ, 1, 0, 1);
        host.io.set_patience(Duration::from_millis(200));
        assert!(matches!(
            host.io.execute(read, Payload::FromTarget(512)),
            Err(InitiatorError::Silent)
        ));
        // Another host comes, and this one's other commands are answered.
        let mut other = running.connect();
        other.flush().expect("flushed");
        host.keep_alive().expect("alive");
        drop(gate);
        assert_eq!(other.read(0, 1).expect("read"), [0; 512]);
    }
}

/// A disk that fails.
struct BrokenDisk;

impl Storage for BrokenDisk {
    fn len(&self) -> u64 {
        1 << 20
    }

    fn read_at(&self, _at: u64, _buffer: &mut [u8]) -> io::Result<()> {
        Err(io::ErrorKind::Other.into())
    }

    fn write_at(&self, _at: u64, _data: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Other.into())
    }

    fn flush(&self) -> io::Result<()> {
        Err(io::ErrorKind::Other.into())
    }
}

#[test]
fn a_disk_that_fails_is_a_status_and_not_the_end() {
    let running = Running::start("roce_lo", Arc::new(BrokenDisk));
    let mut host = running.connect();
    let status = |outcome: Result<(), InitiatorError>| match outcome {
        Err(InitiatorError::Status(status)) => status,
        other => panic!("{other:?}"),
    };
    for _ in 0..40 {
        // More often than the data that may be on its way: none of it is lost.
        assert_eq!(status(host.read(0, 2048).map(drop)), Status::UNRECOVERED_READ);
    }
    assert_eq!(status(host.write(0, &[0; 512])), Status::WRITE_FAULT);
    assert_eq!(status(host.write(0, &[0; 1 << 19])), Status::WRITE_FAULT);
    assert_eq!(status(host.flush()), Status::WRITE_FAULT);
}

#[test]
fn capsules_that_make_no_sense_end_at_most_their_own_connection() {
    for device in DEVICES {
        let running = Running::memory(device);
        let mut good = running.connect();
        good.write(0, &[9; 512]).expect("written");
        let mut bad = HostQueue::open(&running.device, running.address, 0, 32).expect("accepted");
        bad.set_patience(Duration::from_secs(5));
        assert!(bad.exchange(&[0xff; 10]).is_err(), "shorter than a command");
        let mut bad = running.connect();
        // A key that is not there: the target's READ fails, and with it this queue.
        let mut write = Command::transfer(nvm::WRITE, 1, 0, 1).emit();
        write[32..36].copy_from_slice(&[0, 2, 0, 0x55]);
        write[39] = 0x40;
        bad.io.set_patience(Duration::from_secs(5));
        assert!(bad.io.exchange(&write).is_err());
        assert_eq!(good.read(0, 1).expect("read"), [9; 512]);
    }
}

#[test]
fn queues_of_a_number_beyond_the_limit_are_refused() {
    let running = Running::memory("roce_lo");
    let open = |qid| HostQueue::open(&running.device, running.address, qid, 16);
    assert!(open(1000).is_err());
    open(1).expect("accepted");
}
