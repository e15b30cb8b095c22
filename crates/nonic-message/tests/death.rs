//! Peers that die, and peers that do not keep to the protocol: an error in bounded time, never a hang or a panic.

use crate::common::{PATIENCE, WIRES, loopback, node, options, pattern};
use nonic::{Device, Listener, Rc, connect};
use nonic_message::protocol::{Greeting, GreetingError, ProtocolError};
use nonic_message::{Channel, Error, Lost, Node};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SERVER: &str = "NONIC_TEST_SERVER";
const WIRE: &str = "NONIC_TEST_WIRE";
/// The retries of a queue pair with the usual options, and the time to ask.
const RETRY_TIME: Duration = Duration::from_secs(8);

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Role: connect, send one short and one long message, and wait to be killed.
#[test]
#[ignore = "a child process of the other tests"]
fn stays() {
    let (Ok(server), Ok(wire)) = (std::env::var(SERVER), std::env::var(WIRE)) else {
        return;
    };
    let node = node(&wire, options(1024));
    let connect = node.connect(server.parse().expect("an address"));
    let mut channel = connect.wait().expect("connected");
    channel.send(b"here").wait().expect("sent");
    channel.send(pattern(1, 100_000)).wait().expect("sent");
    let _ = channel.recv().wait_within(PATIENCE);
    let _ = channel.recv().wait_within(PATIENCE);
}

/// A channel to a child process, which has sent its messages.
fn child(wire: &str, node: &Node) -> (Killed, Channel) {
    let listener = node.listen(loopback()).expect("a port");
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command
        .args(["--exact", "death::stays", "--ignored", "--nocapture"])
        .env(SERVER, listener.local_addr().to_string())
        .env(WIRE, wire)
        .stdout(Stdio::null());
    let child = Killed(command.spawn().expect("a child process"));
    let accepted = listener.accept().wait_within(PATIENCE).expect("it connects");
    (child, accepted.expect("accepted"))
}

fn lost<T: std::fmt::Debug>(outcome: Option<Result<T, Error>>) {
    match outcome.expect("never a hang") {
        Err(Error::Lost(_)) => {}
        other => panic!("{other:?}"),
    }
}

fn kill_and_wait(wire: &str) {
    let node = node(wire, options(1024));
    // Waits for a message of the dead.
    let (mut process, mut channel) = child(wire, &node);
    let first = channel.recv().wait_within(PATIENCE).expect("in time");
    assert_eq!(&first.expect("it lives").expect("a message")[..], b"here");
    process.0.kill().expect("it lives");
    let killed = Instant::now();
    // What has arrived, long or not, may still come; then the end.
    while let Ok(Some(message)) = channel.recv().wait_within(RETRY_TIME).expect("never a hang") {
        assert!(message[..] == pattern(1, 100_000));
    }
    lost(channel.recv().wait_within(RETRY_TIME));
    assert!(killed.elapsed() < RETRY_TIME, "{:?}", killed.elapsed());
    // Sends to the dead, and waits until it has arrived.
    let (mut process, mut channel) = child(wire, &node);
    process.0.kill().expect("it lives");
    let sent = channel
        .send(pattern(2, 100_000))
        .wait_within(RETRY_TIME)
        .expect("in time");
    if sent.is_ok() {
        lost(channel.flush().wait_within(RETRY_TIME));
    }
    lost(channel.close().wait_within(RETRY_TIME));
}

#[test]
fn a_killed_peer_is_an_error() {
    WIRES.into_iter().for_each(kill_and_wait);
}

/// Role: as if the child were on another host, whose peers do not see it end.
#[test]
#[ignore = "a child process of the other tests"]
fn waits_for_a_distant_peer() {
    if std::env::var_os("NONIC_NO_SHORTCUT").is_some() {
        kill_and_wait("roce_lo");
    }
}

#[test]
fn a_killed_peer_on_another_host_is_an_error_within_the_retry_time() {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    let status = command
        .args(["--exact", "death::waits_for_a_distant_peer", "--ignored"])
        .env("NONIC_NO_SHORTCUT", "1")
        .status();
    assert!(status.expect("a child process").success());
}

const GREETING: Greeting = Greeting {
    credits: 4,
    frame_bytes: 4096,
    message_bytes: 1 << 20,
};

/// Sends these bytes to a channel as a frame; how it takes them.
fn sends_raw(frames: &[&[u8]]) -> Error {
    let node = node("roce_lo", options(1024));
    let listener = node.listen(loopback()).expect("a port");
    let device = Device::open("roce_lo").expect("a device");
    let domain = device.domain();
    let asked = connect(
        domain.pair_builder::<Rc>(),
        listener.local_addr(),
        &GREETING.emit(),
    )
    .expect("asked");
    let mut channel = listener
        .accept()
        .wait_within(PATIENCE)
        .expect("in time")
        .expect("accepted");
    let connection = asked.wait_within(PATIENCE).expect("connected");
    for frame in frames {
        // One that comes after the end fails.
        let _ = connection.send(domain.lease_from(frame).expect("memory")).wait();
    }
    match channel.recv().wait_within(PATIENCE).expect("never a hang") {
        Err(error) => error,
        Ok(message) => panic!("{message:?}"),
    }
}

#[test]
fn a_peer_that_sends_nonsense_ends_the_channel() {
    let hello: &[u8] = &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let offer_of_too_much: &[u8] = &[
        1, 2, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 0, 0,
        0, 0,
    ];
    let scripts: [&[&[u8]]; 5] = [
        &[b""],
        &[b"GET / HTTP/1.1\r\n\r\n"],
        &[hello, hello],
        &[hello, offer_of_too_much],
        &[hello, &[9; 4096]],
    ];
    for script in scripts {
        let error = sends_raw(script);
        assert!(
            matches!(
                error,
                Error::Lost(Lost::Protocol(
                    ProtocolError::Frame(_) | ProtocolError::Violation(_)
                ))
            ),
            "{script:?}: {error}"
        );
    }
    // An offer of memory that is not there: the READ fails.
    let offer: &[u8] = &[
        1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0,
    ];
    let error = sends_raw(&[hello, offer]);
    assert!(
        matches!(error, Error::Lost(Lost::Failed(_) | Lost::Closed(_))),
        "{error}"
    );
}

#[test]
fn a_peer_of_another_version_is_told_so_before_the_first_frame() {
    let mut other = GREETING.emit();
    other[4] = 2;
    // A listener of another version accepts.
    let device = Device::open("roce_lo").expect("a device");
    let listener = Listener::bind(&device, loopback()).expect("a port");
    let node = node("roce_lo", options(1024));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let incoming = listener.accept_within(PATIENCE).expect("asked");
            let accepted = incoming.accept(device.domain().pair_builder::<Rc>(), &other);
            accepted.expect("accepted").wait_disconnected(Some(PATIENCE));
        });
        let error = node.connect(listener.local_addr()).wait().expect_err("version 2");
        assert!(
            matches!(error, Error::Greeting(GreetingError::Version(2))),
            "{error}"
        );
    });
    // One that connects is rejected, with our version.
    let listener = node.listen(loopback()).expect("a port");
    for (greeting, expected) in [
        (&other[..], GreetingError::Version(2)),
        (&b"hi"[..], GreetingError::Foreign),
    ] {
        let asked = connect(
            device.domain().pair_builder::<Rc>(),
            listener.local_addr(),
            greeting,
        );
        let refused = listener.accept().wait_within(PATIENCE).expect("in time");
        let refused = refused.map(|_| ()).expect_err("refused");
        assert!(
            matches!(refused, Error::Greeting(error) if error == expected),
            "{refused}"
        );
        let rejected = asked.expect("asked").wait_within(PATIENCE).expect_err("rejected");
        let nonic::ConnectError::Rejected { private_data, .. } = rejected else {
            panic!("{rejected}");
        };
        assert!(Greeting::parse(&private_data).is_ok(), "says what this side is");
    }
}
