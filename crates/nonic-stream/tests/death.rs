//! Peers that die or refuse: the error a TCP user expects, in bounded time.

use crate::common::{PATIENCE, WIRES, loopback, node, pattern, within};
use nonic_stream::{RdmaListener, RdmaStream};
use std::io::ErrorKind;
use std::process::{Child, Command, Stdio};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const SERVER: &str = "NONIC_TEST_SERVER";
const WIRE: &str = "NONIC_TEST_WIRE";

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Role: connect, write, and wait to be killed.
#[test]
#[ignore = "a child process of the other tests"]
fn stays() {
    let (Ok(server), Ok(wire)) = (std::env::var(SERVER), std::env::var(WIRE)) else {
        return;
    };
    let _ = within(async {
        let address = server.parse().expect("an address");
        let mut stream = RdmaStream::connect_on(&node(&wire), address)
            .await
            .expect("connected");
        stream.write_all(b"here").await.expect("written");
        tokio::time::sleep(PATIENCE).await;
    });
}

async fn child(wire: &str) -> (Killed, RdmaStream) {
    let listener = RdmaListener::bind_on(&node(wire), loopback()).expect("a port");
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    let address = listener.local_addr().expect("it is bound");
    command
        .args(["--exact", "death::stays", "--ignored", "--nocapture"])
        .env(SERVER, address.to_string())
        .env(WIRE, wire)
        .stdout(Stdio::null());
    let child = Killed(command.spawn().expect("a child process"));
    let (mut stream, _) = listener.accept().await.expect("accepted");
    let mut bytes = [0; 4];
    stream.read_exact(&mut bytes).await.expect("read");
    assert_eq!(&bytes, b"here");
    (child, stream)
}

#[test]
fn a_killed_peer_is_a_reset_to_a_reader_and_a_broken_pipe_to_a_writer() {
    for wire in WIRES {
        within(async {
            let (mut process, mut stream) = child(wire).await;
            process.0.kill().expect("it lives");
            let lost = stream.read(&mut [0; 8]).await.expect_err("killed");
            assert!(
                matches!(lost.kind(), ErrorKind::ConnectionReset | ErrorKind::TimedOut),
                "{wire}: {lost}"
            );
            let lost = stream.write_all(b"in vain").await.expect_err("killed");
            assert!(
                matches!(lost.kind(), ErrorKind::BrokenPipe | ErrorKind::TimedOut),
                "{wire}: {lost}"
            );
            let lost = stream.shutdown().await.expect_err("killed");
            assert!(
                matches!(lost.kind(), ErrorKind::BrokenPipe | ErrorKind::TimedOut),
                "{wire}: {lost}"
            );
            // One that only writes learns it too.
            let (mut process, mut stream) = child(wire).await;
            process.0.kill().expect("it lives");
            let bytes = pattern(100_000);
            while stream.write_all(&bytes).await.is_ok() {}
        })
        .expect("never a hang");
    }
}

#[test]
fn a_port_where_nobody_listens_refuses() {
    for wire in WIRES {
        within(async {
            let node = node(wire);
            let listener = RdmaListener::bind_on(&node, loopback()).expect("a port");
            let address = listener.local_addr().expect("it is bound");
            drop(listener);
            let refused = RdmaStream::connect_on(&node, address)
                .await
                .expect_err("nobody listens");
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{wire}: {refused}");
        })
        .expect("in time");
    }
}

#[test]
fn a_peer_that_speaks_something_else_does_not_end_the_server_loop() {
    for wire in WIRES {
        within(async {
            let node = node(wire);
            let listener = RdmaListener::bind_on(&node, loopback()).expect("a port");
            let address = listener.local_addr().expect("it is bound");
            let builder = node.device().domain().pair_builder::<nonic::Rc>();
            let stranger = nonic::connect(builder, address, b"something else").expect("asked");
            let (rejected, (connected, accepted)) = tokio::join!(stranger, async {
                tokio::join!(RdmaStream::connect_on(&node, address), listener.accept())
            });
            assert!(matches!(rejected, Err(nonic::ConnectError::Rejected { .. })));
            assert!(connected.is_ok() && accepted.is_ok(), "{wire}");
        })
        .expect("in time");
    }
}
