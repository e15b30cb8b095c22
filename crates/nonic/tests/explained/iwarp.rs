//! How iWARP connections fail: a Terminate from either side, and bytes that were damaged.

use super::check;
use crate::bench::{Ends, PATIENCE};
use nonic::{Access, Device, Listener, RemoteSlice, RequestFailed};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

fn said(failed: &RequestFailed) -> String {
    failed.explanation().expect("an explanation").to_string()
}

/// Memory of the server, under a key that it never gave out.
fn wrong_key(ends: &Ends) -> (nonic::Exposed, RemoteSlice) {
    let lease = ends.domain.lease(64).expect("memory");
    let shelf = lease
        .expose(Access::REMOTE_READ | Access::REMOTE_WRITE)
        .expect("exposed");
    let mut remote = shelf.remote();
    remote.rkey ^= 0x55;
    (shelf, remote)
}

#[test]
fn iwarp_read_wrong_key() {
    let ends = Ends::new("iwarp_lo");
    let (_shelf, remote) = wrong_key(&ends);
    let read = ends.client.read(ends.domain.lease(64).expect("memory"), remote);
    let failed = read
        .wait_within(PATIENCE)
        .expect("it ends")
        .expect_err("it fails");
    assert!(
        format!("{:?}", failed.error).contains("RemoteAccess"),
        "{failed:?}"
    );
    let there = ends.server.pair.endpoint().qpn;
    let there = ends.domain.device().explain(there, None);
    let there = there.expect("it refused").to_string();
    check(
        "iwarp_read_wrong_key",
        "RemoteAccess",
        &format!("{} {there}", said(&failed)),
    );
}

/// What a receive of the client says that is flushed because the peer ended the connection.
fn flushed(ends: &Ends, wrong: impl FnOnce()) -> String {
    let receive = ends.client.recv(ends.domain.lease(64).expect("memory"));
    wrong();
    let failed = receive
        .wait_within(PATIENCE)
        .expect("it ends")
        .expect_err("nothing was sent");
    // Whether the end of the connection is known by then is a matter of time.
    let error = format!("{:?}", failed.error);
    assert!(error.contains("Closed") || error.contains("Flushed"), "{error}");
    said(&failed)
}

#[test]
fn iwarp_write_wrong_key() {
    let ends = Ends::new("iwarp_lo");
    let (_shelf, remote) = wrong_key(&ends);
    let said = flushed(&ends, || {
        drop(ends.client.write(ends.domain.lease(64).expect("memory"), remote));
    });
    check("iwarp_write_wrong_key", "flushed", &said);
}

#[test]
fn iwarp_no_receive() {
    let ends = Ends::new("iwarp_lo");
    let said = flushed(&ends, || {
        drop(ends.client.send(ends.domain.lease(64).expect("memory")));
    });
    check("iwarp_no_receive", "flushed", &said);
}

#[test]
fn iwarp_receive_too_short() {
    let ends = Ends::new("iwarp_lo");
    let receive = ends.server.recv(ends.domain.lease(100).expect("memory"));
    drop(ends.client.send(ends.domain.lease(300).expect("memory")));
    let failed = receive
        .wait_within(PATIENCE)
        .expect("it ends")
        .expect_err("too short");
    assert!(
        format!("{:?}", failed.error).contains("LocalLength"),
        "{failed:?}"
    );
    check("iwarp_receive_too_short", "LocalLength", &said(&failed));
}

/// MPA's Request: revision 1, with CRCs, without private data.
const REQUEST: &[u8] = b"MPA ID Req Frame\x40\x01\x00\x00";

#[test]
fn iwarp_crc() {
    let device = Device::open("iwarp_lo").expect("loopback is there");
    let domain = device.domain();
    let listener = Listener::bind(&device, "127.0.0.1:0".parse().expect("an address")).expect("a port");
    let mut peer = TcpStream::connect(listener.local_addr()).expect("it listens");
    peer.set_read_timeout(Some(PATIENCE)).expect("a socket");
    peer.write_all(REQUEST).expect("it takes it");
    let incoming = listener.accept_within(PATIENCE).expect("a request");
    let server = incoming
        .accept(domain.pair_builder::<nonic::Rc>(), b"")
        .expect("accepted");
    let receive = server.recv(domain.lease(64).expect("memory"));
    let mut reply = [0; 20];
    peer.read_exact(&mut reply).expect("a Reply");
    assert!(reply.starts_with(b"MPA ID Rep Frame"), "{reply:?}");
    // An FPDU of a SEND without payload: 18 bytes of headers, and a CRC that is not theirs.
    let mut frame = vec![0; 24];
    (frame[1], frame[2], frame[3]) = (18, 0x41, 0x43);
    frame[15] = 1;
    peer.write_all(&frame).expect("it takes it");
    let failed = receive
        .wait_within(PATIENCE)
        .expect("it ends")
        .expect_err("nothing came");
    check("iwarp_crc", "flushed", &said(&failed));
}
