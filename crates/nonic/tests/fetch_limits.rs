//! READs are agreed upon for each direction: a peer that begins none, as Linux's NVMe host, may still be read.

use nonic::{Device, Listener, Psn, Rc, RemoteSlice};
use nonic_core::cm::ConnectParams;
use nonic_core::{PathMtu, Route};
use nonic_wire::cm::{IpHeader, PortSpace, ServiceId};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// Accepts a peer with these numbers, and tries to READ from it; whether the NIC took the request.
fn may_read(responder_resources: u8, initiator_depth: u8) -> bool {
    let device = Device::open("roce_lo").expect("a device");
    let (domain, queue) = (device.domain(), device.completion_queue(16).expect("a queue"));
    let listener = Listener::bind(&device, "127.0.0.1:0".parse().expect("an address")).expect("a port");
    let here = IpAddr::from(Ipv4Addr::LOCALHOST);
    // The peer says what this crate would not: the numbers of the two directions differ.
    let peer = nonic_engine::Device::open("roce_lo").expect("a device");
    let target = domain
        .queue_pair::<Rc>(&queue)
        .expect("a queue pair")
        .endpoint()
        .qpn;
    let route = Route {
        local: here,
        remote: here,
    };
    let service = ServiceId::from_port(PortSpace::Tcp, listener.local_addr().port());
    peer.connect(&ConnectParams {
        responder_resources,
        initiator_depth,
        path_mtu: PathMtu::Mtu1024,
        ip: Some(IpHeader {
            source_port: 0,
            source: here,
            destination: here,
        }),
        ..ConnectParams::new(route, service, target, Psn::new(7))
    })
    .expect("asked");
    let incoming = listener
        .accept_within(Duration::from_secs(20))
        .expect("a request");
    let mut server = incoming
        .accept(domain.queue_pair_builder::<Rc>(&queue), b"")
        .expect("accepted");
    let remote = RemoteSlice {
        va: 0,
        rkey: 1,
        len: 64,
    };
    server
        .pair
        .sq
        .read(1, domain.lease(64).expect("memory"), remote)
        .is_ok()
}

#[test]
fn a_peer_that_begins_no_reads_may_be_read() {
    assert!(may_read(16, 0));
}

#[test]
fn a_peer_that_answers_no_reads_is_not_asked() {
    assert!(!may_read(0, 16));
}
