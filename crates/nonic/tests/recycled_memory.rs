//! Buffers that go back to where they came from, and what peers of this host have mapped of them meanwhile.

use crate::bench::PATIENCE;
use nonic::{Access, Connection, Device, Domain, Lease, Listener, Rc, Recycler, connect};
use std::sync::{Arc, Mutex};
use std::time::Instant;

const LEN: usize = 64 * 1024;

#[derive(Default)]
struct Spare(Mutex<Vec<Lease>>);

impl Recycler for Spare {
    fn recycle(&self, lease: Lease) {
        self.0.lock().expect("nobody panicked").push(lease);
    }
}

impl Spare {
    fn take(&self) -> Option<Lease> {
        self.0.lock().expect("nobody panicked").pop()
    }
}

/// Two devices of this process, which are peers on one host like those of two processes.
struct Hosts {
    owner: Domain,
    reader: Domain,
    _server: Connection<Rc>,
    client: Connection<Rc>,
}

impl Hosts {
    fn new() -> Self {
        let [owner, reader] = [(); 2].map(|()| Device::open("roce_lo").expect("loopback is there").domain());
        let listener =
            Listener::bind(owner.device(), "127.0.0.1:0".parse().expect("an address")).expect("a port");
        let asked = connect(reader.pair_builder(), listener.local_addr(), b"").expect("asked");
        let incoming = listener.accept_within(PATIENCE).expect("a request");
        let server = incoming.accept(owner.pair_builder(), b"").expect("accepted");
        Hosts {
            owner,
            reader,
            _server: server,
            client: asked.wait_within(PATIENCE).expect("connected"),
        }
    }

    /// How many buffers of the owner the reader has mapped so far.
    fn mapped(&self) -> u64 {
        self.reader.device().counters().1.direct_mapped
    }

    /// Exposes a buffer and reads it once; it goes home.
    fn read(&self, lease: Lease) {
        let exposed = lease.expose(Access::REMOTE_READ).expect("exposed");
        let into = self.reader.lease(exposed.len()).expect("memory");
        let read = self.client.read(into, exposed.remote());
        read.wait().expect("it may be read");
    }
}

/// A process that mapped the buffer may not see what the program puts into it next.
#[test]
fn a_buffer_that_a_peer_has_mapped_does_not_come_back() {
    let (hosts, spare) = (Hosts::new(), Arc::new(Spare::default()));
    let buffer = hosts.owner.lease(LEN).expect("memory");
    let exposed = buffer.recycled_by(spare.clone(), LEN).expose(Access::REMOTE_READ);
    let exposed = exposed.expect("exposed");
    // One buffer until it is mapped: the counter does not tell which one it was.
    let deadline = Instant::now() + PATIENCE;
    while hosts.mapped() == 0 {
        let into = hosts.reader.lease(LEN).expect("memory");
        let read = hosts.client.read(into, exposed.remote());
        read.wait().expect("it may be read");
        assert!(Instant::now() < deadline, "it is never mapped");
    }
    drop(exposed);
    assert!(spare.take().is_none(), "one that is mapped has come back");
}

#[test]
fn one_that_stays_mapped_is_mapped_once_and_comes_back_each_time() {
    let (hosts, spare) = (Hosts::new(), Arc::new(Spare::default()));
    let whole = hosts.owner.lease(LEN).expect("memory");
    whole.stay_mapped();
    let deadline = Instant::now() + PATIENCE;
    let (mut next, mut since) = (Some(whole), 0);
    while since < 50 {
        let whole = next.take().expect("it came back");
        // A message is hardly ever as long as its buffer.
        let mut buffer = whole.recycled_by(spare.clone(), LEN - 100);
        buffer.fill(since);
        hosts.read(buffer);
        next = spare.take();
        since += u8::from(hosts.mapped() > 0);
        assert!(Instant::now() < deadline, "it is not mapped");
    }
    assert_eq!(hosts.mapped(), 1);
    // To be the program's own again it must be other memory.
    let whole = next.expect("it came back");
    let place = whole.as_ptr();
    let exposed = whole.expose(Access::REMOTE_READ).expect("exposed");
    assert_ne!(exposed.into_lease().as_ptr(), place);
}
