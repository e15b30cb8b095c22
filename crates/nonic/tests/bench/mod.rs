//! What every test of the API needs first: loopback's device, a domain and a queue.

#![allow(dead_code, unused_imports, reason = "every test file uses a part of it")]

mod block_on;

pub(crate) use block_on::block_on;
use nonic::{CompletionQueue, Connection, Device, Domain, Listener, Rc, connect};
use std::net::IpAddr;
use std::time::Duration;

/// How long anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A device and what hangs on it.
pub(crate) struct Bench {
    pub(crate) device: Device,
    pub(crate) domain: Domain,
    pub(crate) queue: CompletionQueue,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let device = Device::open("roce_lo").expect("loopback is there");
        let (domain, queue) = (device.domain(), device.completion_queue(256).expect("a queue"));
        Bench {
            device,
            domain,
            queue,
        }
    }
}

/// An address of this host that only this process uses, so no process holds the RoCE port there.
pub(crate) fn deserted() -> IpAddr {
    let id = std::process::id().to_be_bytes();
    IpAddr::from([127, 99 ^ id[1], id[2], id[3] | 1])
}

/// Loopback's devices, one for each wire.
pub(crate) const WIRES: [&str; 2] = ["roce_lo", "iwarp_lo"];

/// Two ends of a connection on one device.
pub(crate) struct Ends {
    pub(crate) domain: Domain,
    pub(crate) client: Connection<Rc>,
    pub(crate) server: Connection<Rc>,
}

impl Ends {
    pub(crate) fn new(device: &str) -> Self {
        let device = Device::open(device).expect("loopback is there");
        let domain = device.domain();
        let listener = Listener::bind(&device, "127.0.0.1:0".parse().expect("an address")).expect("a port");
        let connecting = connect(domain.pair_builder(), listener.local_addr(), b"").expect("asked");
        let incoming = listener.accept_within(PATIENCE).expect("a request");
        let server = incoming.accept(domain.pair_builder(), b"").expect("accepted");
        let client = connecting.wait_within(PATIENCE).expect("connected");
        Ends {
            domain,
            client,
            server,
        }
    }
}
