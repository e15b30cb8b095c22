//! The NIC driven by tokio's threads (`Device::drive_on_runtime`), and by the background thread when those do not come.

#![cfg(feature = "tokio")]

use nonic::{Connection, Device, Domain, Lease, Listener, Rc, Receive, connect};
use std::sync::mpsc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);

fn current_thread() -> Runtime {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

/// One end of a connection.
struct End {
    domain: Domain,
    connection: Connection<Rc>,
}

impl End {
    fn recv(&self) -> Receive<Lease> {
        self.connection.recv(self.domain.lease(64).expect("memory"))
    }
}

/// Two devices, so that what one sends comes to the other through its descriptors.
fn connected() -> (Device, End, End) {
    let [device, other] = [(); 2].map(|()| Device::open("roce_lo").expect("loopback is there"));
    let (here, there) = (device.domain(), other.domain());
    let listener = Listener::bind(&device, "127.0.0.1:0".parse().expect("an address")).expect("a port");
    let asked = connect(there.pair_builder::<Rc>(), listener.local_addr(), b"").expect("asked");
    let incoming = listener.accept().expect("a request");
    let server = incoming.accept(here.pair_builder::<Rc>(), b"").expect("accepted");
    let client = asked.wait().expect("connected");
    let end = |domain, connection| End { domain, connection };
    (device, end(here, server), end(there, client))
}

#[test]
fn requests_are_done_on_the_runtime() {
    let (device, server, client) = connected();
    let peer = std::thread::spawn(move || {
        for _ in 0..1000 {
            let receive = client.recv();
            client.connection.send_bytes(b"ping").wait().expect("sent");
            assert_eq!(receive.wait().expect("an answer").bytes(), b"pong");
        }
        client
    });
    current_thread().block_on(async {
        let drive = tokio::spawn(device.drive_on_runtime().expect("descriptors"));
        assert!(device.is_driven_on_runtime());
        let mut receive = server.recv();
        for _ in 0..1000 {
            let received = timeout(PATIENCE, receive)
                .await
                .expect("in time")
                .expect("a message");
            assert_eq!(received.bytes(), b"ping");
            receive = server.recv();
            server.connection.send_bytes(b"pong").await.expect("sent");
        }
        drive.abort();
        assert!(drive.await.is_err_and(|error| error.is_cancelled()));
        assert!(!device.is_driven_on_runtime(), "dropped with the task");
    });
    peer.join().expect("the peer is content");
}

/// The NIC serves its peers, whatever the program does: its only thread is busy here until they are served.
#[test]
fn a_runtime_that_does_not_come_is_stood_in_for() {
    let (device, server, client) = connected();
    current_thread().block_on(async {
        tokio::spawn(device.drive_on_runtime().expect("descriptors"));
        let receives: Vec<_> = (0..100).map(|_| server.recv()).collect();
        // The task has its turn, and sleeps.
        tokio::task::yield_now().await;
        let (done, wait) = mpsc::channel();
        let peer = std::thread::spawn(move || {
            for _ in 0..100 {
                client
                    .connection
                    .send_bytes(b"ping")
                    .wait()
                    .expect("acknowledged");
            }
            done.send(()).expect("somebody waits");
            client
        });
        wait.recv_timeout(PATIENCE)
            .expect("served by the background thread");
        for receive in receives {
            assert_eq!(receive.await.expect("it has come").bytes(), b"ping");
        }
        drop(peer.join());
    });
}

#[test]
fn the_task_ends_with_the_device() {
    let device = Device::open("roce_lo").expect("loopback is there");
    current_thread().block_on(async {
        let drive = tokio::spawn(device.drive_on_runtime().expect("descriptors"));
        tokio::task::yield_now().await;
        drop(device);
        timeout(PATIENCE, drive)
            .await
            .expect("in time")
            .expect("it did not panic");
    });
}

#[test]
fn there_must_be_a_runtime() {
    let device = Device::open("roce_lo").expect("loopback is there");
    assert!(device.drive_on_runtime().is_err());
    assert!(!device.is_driven_on_runtime());
}
