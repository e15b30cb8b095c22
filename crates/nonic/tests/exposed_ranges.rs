//! Exposed memory as what requests send from and receive into, while peers may use it.

use crate::bench::{Ends, PATIENCE, WIRES};
use nonic::{Access, BufferSet, Buffers, Exposed, Request};

/// What came of a request.
fn done<B: BufferSet>(request: Request<B>) -> B {
    request.wait_within(PATIENCE).expect("in time").expect("done")
}

/// What is in exposed memory.
fn text(exposed: &Exposed) -> String {
    let mut bytes = vec![0; exposed.len()];
    exposed.read_at(0, &mut bytes).expect("inside");
    String::from_utf8(bytes).expect("text")
}

#[test]
fn every_operation_takes_a_range_of_it() {
    for wire in WIRES {
        let Ends {
            domain,
            client,
            server,
        } = Ends::new(wire);
        let shelf = |text: &[u8]| {
            let lease = domain.lease_from(text).expect("memory");
            let rights = Access::REMOTE_READ | Access::REMOTE_WRITE;
            lease.expose(rights).expect("exposed")
        };
        let (here, there) = (shelf(b"0123456789"), shelf(b"abcdefghij"));

        let receive = server.recv(there.range(1..5));
        let sent = done(client.send(here.range(6..=8)));
        let got = receive.wait_within(PATIENCE).expect("in time").expect("received");
        assert_eq!((sent.len(), got.len), (3, 3));
        let mut received = [0; 4];
        got.buffers.copy_to(&mut received);
        assert_eq!(&received, b"678e");

        done(client.write(here.range(..2), there.remote().slice(8..)));
        // An iWARP write is done when it was sent; the read comes after it.
        done(client.read(here.range(8..), there.remote().slice(4..6)));
        assert_eq!(text(&there), "a678efgh01", "{wire}");
        assert_eq!(text(&here), "01234567ef", "{wire}");
    }
}

#[test]
fn a_message_is_gathered_from_both_kinds_of_memory_in_order() {
    for wire in WIRES {
        let Ends {
            domain,
            client,
            server,
        } = Ends::new(wire);
        let lease = |text: &[u8]| domain.lease_from(text).expect("memory");
        let body = lease(b"-body-").expose(Access::REMOTE_WRITE).expect("exposed");
        let receive = server.recv(domain.lease(64).expect("memory"));
        let message = Buffers::from(lease(b"head"))
            .and(body.range(..))
            .and(lease(b"tail"));
        let message = done(client.send(message));
        let got = receive.wait_within(PATIENCE).expect("in time").expect("received");
        assert_eq!(got.bytes(), b"head-body-tail", "{wire}");
        // The leases are ours again.
        assert_eq!((message.len(), &message[1][..]), (2, &b"tail"[..]));
    }
}

#[test]
fn the_verbs_as_they_are_take_ranges_too() {
    let Ends {
        domain,
        mut client,
        server,
    } = Ends::new("roce_lo");
    let shelf = domain.lease_from(b"shelf").expect("memory");
    let shelf = shelf.expose(Access::REMOTE_READ).expect("exposed");
    let receive = server.recv(domain.lease(8).expect("memory"));
    client.pair.sq.send(1, shelf.range(2..)).expect("posted");
    let got = receive.wait_within(PATIENCE).expect("in time").expect("received");
    assert_eq!(got.bytes(), b"elf");
}

/// The NIC may write to it, so it must not be a slice.
#[test]
fn what_is_taken_back_while_a_request_has_a_range_of_it_is_a_copy() {
    let Ends {
        domain,
        client,
        server,
    } = Ends::new("roce_lo");
    let keys = domain.device().usage().memory_keys;
    let shelf = domain.register(b"shelf".to_vec()).expect("registered");
    let shelf = shelf.expose(Access::REMOTE_WRITE).expect("exposed");
    let remote = shelf.remote();
    let receive = server.recv(shelf.range(..));
    let lease = shelf.into_lease();
    assert_eq!(&lease[..], b"shelf");
    let lease = lease.into_inner::<Vec<u8>>().expect_err("the request has it");
    done(client.send(domain.lease_from(b"later").expect("memory")));
    let got = receive.wait_within(PATIENCE).expect("in time").expect("received");
    let mut received = [0; 5];
    got.buffers.copy_to(&mut received);
    assert_eq!((&received, &lease[..]), (b"later", &b"shelf"[..]));
    // Peers lost access at once, though ranges of it still existed.
    let late = client.write(domain.lease(1).expect("memory"), remote.slice(..1));
    assert!(late.wait_within(PATIENCE).expect("in time").is_err());
    drop((got, lease));
    assert_eq!(domain.device().usage().memory_keys, keys);
}
