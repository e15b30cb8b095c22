//! Keepalive: a peer that was stopped is noticed, a peer that only waits is not given up. On both wires.

use crate::bench::{PATIENCE, WIRES};
use nonic::{
    Access, CloseReason, ConnectOptions, Device, Listener, QpCapacity, Rc, RequestError, connect,
    connect_with,
};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SERVER: &str = "NONIC_TEST_SERVER";
const DEVICE: &str = "NONIC_TEST_DEVICE";
const INTERVAL: Duration = Duration::from_millis(100);
/// Interval and patience, and what a loaded machine adds.
const SOON: Duration = Duration::from_secs(6);

/// A child process that connects and then does nothing.
struct Idler(Child);

impl Idler {
    fn start(device: &str, server: SocketAddr) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command
            .args(["--exact", "keepalive::idles", "--ignored", "--nocapture"])
            .envs([(SERVER, server.to_string()), (DEVICE, device.to_owned())])
            .stdout(Stdio::null());
        Idler(command.spawn().expect("a child process"))
    }

    fn signal(&self, name: &str) {
        let pid = self.0.id().to_string();
        let sent = Command::new("kill").args([name, &pid]).status();
        assert!(sent.expect("kill is there").success());
    }
}

impl Drop for Idler {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Role: connect and wait to be stopped.
#[test]
#[ignore = "a child process of the other tests"]
fn idles() {
    let (Ok(server), Ok(device)) = (std::env::var(SERVER), std::env::var(DEVICE)) else {
        return;
    };
    let device = Device::open(&device).expect("loopback is there");
    let connecting = connect(
        device.domain().pair_builder::<Rc>(),
        server.parse().expect("an address"),
        b"",
    );
    let connection = connecting.expect("asked").wait().expect("connected");
    connection.wait_disconnected(Some(PATIENCE));
}

#[test]
fn a_peer_that_stops_is_missed() {
    for wire in WIRES {
        let device = Device::open(wire).expect("loopback is there");
        let domain = device.domain();
        let listener = Listener::bind(&device, "127.0.0.1:0".parse().expect("an address")).expect("free");
        let idler = Idler::start(wire, listener.local_addr());
        let options = ConnectOptions {
            keepalive: Some(INTERVAL),
            ..ConnectOptions::default()
        };
        let incoming = listener.accept_within(PATIENCE).expect("the child connects");
        let connection = incoming
            .accept_with(domain.pair_builder::<Rc>(), &options, b"")
            .expect("accepted");
        let receive = connection.recv(domain.lease(8).expect("memory"));
        // Many probes later it is still there.
        assert!(!connection.wait_disconnected(Some(INTERVAL * 5)), "{wire}");
        idler.signal("-STOP");
        let stopped = Instant::now();
        let failed = receive
            .wait_within(SOON)
            .expect("missed in time")
            .expect_err("nothing was sent");
        assert!(
            matches!(failed.error, RequestError::Closed(CloseReason::Unreachable)),
            "{wire}: {failed}"
        );
        assert!(stopped.elapsed() < SOON);
        assert_eq!(connection.closed().reason(), Some(CloseReason::Unreachable));
        idler.signal("-CONT");
    }
}

/// The client is told late that it was accepted, as if that message had got lost at first.
#[test]
fn a_client_that_learns_late_of_its_acceptance_is_not_missed() {
    for wire in WIRES {
        let device = Device::open(wire).expect("loopback is there");
        let domain = device.domain();
        let listener = Listener::bind(&device, "127.0.0.1:0".parse().expect("an address")).expect("free");
        let builder = domain.pair_builder::<Rc>();
        let connecting = connect(builder, listener.local_addr(), b"").expect("asked");
        let incoming = listener.accept_within(PATIENCE).expect("a request");
        let options = ConnectOptions {
            keepalive: Some(INTERVAL),
            ..ConnectOptions::default()
        };
        let server = incoming
            .accept_with(domain.pair_builder::<Rc>(), &options, b"")
            .expect("accepted");
        // Longer than a probe is waited for.
        assert!(!server.wait_disconnected(Some(Duration::from_secs(3))), "{wire}");
        let client = connecting.wait_within(PATIENCE).expect("connected");
        assert!(!server.wait_disconnected(Some(INTERVAL * 5)), "{wire}");
        drop(client);
    }
}

/// The probes of a connection that is gone end with it.
#[test]
fn nothing_is_left_of_connections_that_were_probed() {
    for wire in WIRES {
        let device = Device::open(wire).expect("loopback is there");
        let domain = device.domain();
        let listener = Listener::bind(&device, "127.0.0.1:0".parse().expect("an address")).expect("free");
        let options = ConnectOptions {
            keepalive: Some(Duration::from_millis(1)),
            ..ConnectOptions::default()
        };
        for _ in 0..5 {
            let builder = domain.pair_builder::<Rc>();
            let connecting = connect_with(builder, listener.local_addr(), &options, b"").expect("asked");
            let incoming = listener.accept_within(PATIENCE).expect("a request");
            let builder = domain.pair_builder::<Rc>();
            let server = incoming.accept_with(builder, &options, b"").expect("accepted");
            let client = connecting.wait_within(PATIENCE).expect("connected");
            assert!(
                !client.wait_disconnected(Some(Duration::from_millis(20))),
                "{wire}"
            );
            drop((client, server));
        }
        let deadline = Instant::now() + PATIENCE;
        // The thread that probes may just have looked at one, or lets go of the last one when it looks at it next.
        let left = || device.usage().queue_pairs + device.usage().completion_queues;
        while left() > 0 {
            assert!(Instant::now() < deadline, "{wire}: a probe is kept");
            std::thread::yield_now();
        }
    }
}

/// A probe takes none of the program's room, also while it is being posted.
#[test]
fn a_full_queue_is_the_programs_alone() {
    for wire in WIRES {
        let device = Device::open(wire).expect("loopback is there");
        let domain = device.domain();
        let listener = Listener::bind(&device, "127.0.0.1:0".parse().expect("an address")).expect("free");
        let options = ConnectOptions {
            keepalive: Some(Duration::from_millis(1)),
            ..ConnectOptions::default()
        };
        let one = QpCapacity {
            max_send_wr: 1,
            ..QpCapacity::default()
        };
        let sent = device.completion_queue(1).expect("a queue");
        let builder = domain.queue_pair_builder::<Rc>(&sent).capacity(one);
        let connecting = connect_with(builder, listener.local_addr(), &options, b"").expect("asked");
        let incoming = listener.accept_within(PATIENCE).expect("a request");
        let server = incoming
            .accept(domain.pair_builder::<Rc>(), b"")
            .expect("accepted");
        let mut client = connecting.wait_within(PATIENCE).expect("connected");
        let shelf = domain
            .lease(8)
            .expect("memory")
            .expose(Access::REMOTE_WRITE)
            .expect("exposed");
        let mut lease = domain.lease(8).expect("memory");
        let end = Instant::now() + Duration::from_secs(1);
        let mut written = 0;
        while Instant::now() < end {
            client
                .pair
                .sq
                .write(written, lease, shelf.remote().slice(..8))
                .unwrap_or_else(|refused| panic!("{wire}, after {written}: {refused}"));
            let done = sent.wait(Some(PATIENCE)).expect("no overflow").expect("in time");
            assert!(done.result.is_ok(), "{wire}: {:?}", done.result);
            lease = done.buffers.into_iter().next().expect("one was lent");
            written += 1;
        }
        drop((client, server));
    }
}
