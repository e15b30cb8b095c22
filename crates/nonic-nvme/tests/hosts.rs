//! Hosts that take more than their part, say nothing, or are gone without a word: the others are served.

use nonic::{Device, Listener};
use nonic_nvme::initiator::{HostQueue, Initiator};
use nonic_nvme::wire::{ConnectData, Nqn};
use nonic_nvme::{FileDisk, Target, TargetConfig};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const DEVICES: [&str; 2] = ["roce_lo", "iwarp_lo"];
const TARGET: &str = "NONIC_TEST_TARGET";
const DEVICE: &str = "NONIC_TEST_DEVICE";
const PATIENCE: Duration = Duration::from_secs(20);

/// A target at both addresses of loopback: hosts that use one are not at the address of those that use the other.
struct Running {
    target: Arc<Target>,
    device: Device,
    addresses: Vec<SocketAddr>,
    servers: Vec<std::thread::JoinHandle<()>>,
}

impl Running {
    fn start(device: &str, change: impl FnOnce(&mut TargetConfig)) -> Self {
        let device = Device::open(device).expect("a device");
        let disk = FileDisk::in_memory(1 << 20).expect("memory");
        let mut config = TargetConfig::new(nqn());
        change(&mut config);
        let target = Arc::new(Target::new(config, Arc::new(disk), |_| {}).expect("a target"));
        let (mut addresses, mut servers) = (Vec::new(), Vec::new());
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = Listener::bind(&device, address.parse().expect("an address")).expect("a port");
            addresses.push(listener.local_addr());
            let target = Arc::clone(&target);
            servers.push(std::thread::spawn(move || target.serve(&listener)));
        }
        Running {
            target,
            device,
            addresses,
            servers,
        }
    }

    /// A queue that was accepted, and has not said Connect.
    fn open(&self, host: usize) -> Option<HostQueue> {
        HostQueue::open(&self.device, self.addresses[host], 0, 32).ok()
    }

    /// An admin queue with a controller, whose host names no time for Keep Alive.
    fn admin(&self, host: usize) -> Option<HostQueue> {
        let mut queue = self.open(host)?;
        let any = ConnectData::ANY_CONTROLLER;
        let connected = queue.connect(nqn().as_str(), any, 32, Duration::ZERO);
        connected.expect("there is room for a controller");
        Some(queue)
    }

    /// A host that reads what it has written.
    fn serves(&self, host: usize, word: u8) {
        let connected = Initiator::connect(&self.device, self.addresses[host], &nqn(), Duration::ZERO);
        let mut host = connected.expect("there are queues for it");
        host.write(word.into(), &[word; 512]).expect("written");
        assert_eq!(host.read(word.into(), 1).expect("read"), [word; 512]);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.target.stop();
        for server in self.servers.drain(..) {
            server.join().expect("the target does not panic");
        }
    }
}

fn nqn() -> Nqn {
    Nqn::new("nqn.2026-11.org.example:disk").expect("a name")
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not in time");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_host_has_its_part_of_the_queues_and_no_more() {
    for device in DEVICES {
        let running = Running::start(device, |config| {
            (config.max_queues, config.max_queues_per_host) = (8, 5);
        });
        let hog: Vec<HostQueue> = std::iter::from_fn(|| running.admin(0)).take(20).collect();
        assert_eq!(hog.len(), 5, "{device}");
        running.serves(1, 7);
        drop(hog);
        eventually("its queues end", || running.target.queues() == 0);
        running.serves(0, 8);
    }
}

#[test]
fn what_one_host_may_have_leaves_enough_for_another() {
    let config = TargetConfig::new(nqn());
    // An admin queue and sixteen for I/O, once more while the first are not known to be over; and the same once for another.
    assert!(config.max_queues_per_host >= 2 * 17);
    assert!(config.max_queues - config.max_queues_per_host >= 17);
}

#[test]
fn queues_that_were_never_connected_make_room() {
    for device in DEVICES {
        let running = Running::start(device, |config| {
            (config.max_queues, config.max_queues_per_host) = (8, 5);
        });
        let mut silent: Vec<HostQueue> = (0..20).map(|_| running.open(0).expect("accepted")).collect();
        running.serves(0, 1);
        silent.extend((0..20).map(|_| running.open(1).expect("accepted")));
        running.serves(1, 2);
        running.serves(0, 3);
    }
}

/// A child process that is a host, connects and then does nothing.
struct Idler(Child);

impl Idler {
    fn start(device: &str, target: SocketAddr) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command
            .args(["--exact", "hosts::idles", "--ignored", "--nocapture"])
            .envs([(TARGET, target.to_string()), (DEVICE, device.to_owned())])
            .stdout(Stdio::null());
        Idler(command.spawn().expect("a child process"))
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args([name, &self.0.id().to_string()])
            .status();
        assert!(sent.expect("kill is there").success());
    }
}

impl Drop for Idler {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Role: connect, name no time for Keep Alive, and wait to be stopped.
#[test]
#[ignore = "a child process of the other tests"]
fn idles() {
    let (Ok(target), Ok(device)) = (std::env::var(TARGET), std::env::var(DEVICE)) else {
        return;
    };
    let device = Device::open(&device).expect("loopback is there");
    let target = target.parse().expect("an address");
    let _host = Initiator::connect(&device, target, &nqn(), Duration::ZERO).expect("connected");
    std::thread::sleep(2 * PATIENCE);
}

#[test]
fn a_host_that_is_gone_is_missed_though_it_named_no_time_for_keep_alive() {
    for device in DEVICES {
        // Stopped, a process is as silent as a machine without power; a killed one may have left something to notice.
        for signal in ["-STOP", "-KILL"] {
            let running = Running::start(device, |config| config.keepalive = Duration::from_millis(100));
            let idler = Idler::start(device, running.addresses[0]);
            eventually("it connects", || running.target.queues() == 2);
            // Idle for many probes, it is still there.
            std::thread::sleep(Duration::from_millis(500));
            assert_eq!(running.target.queues(), 2, "{device}");
            idler.signal(signal);
            eventually("it is missed", || {
                running.target.queues() == 0 && running.target.controllers() == 0
            });
        }
    }
}
