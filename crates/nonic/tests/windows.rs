//! Memory windows: a part of memory, for one peer, until it is taken back. On both wires.

use crate::bench::{Ends, PATIENCE, WIRES};
use nonic::{Access, MemoryError, RemoteSlice, RequestError};
use nonic::{Connection, Domain, Rc};

/// Writes a byte; how that ended.
fn write(domain: &Domain, peer: &Connection<Rc>, remote: RemoteSlice) -> Result<(), RequestError> {
    let write = peer.write(domain.lease_from(b"!").expect("memory"), remote);
    // A WRITE over iWARP is done when it was sent: what comes after it shows whether it was taken.
    let read = peer.read(domain.lease(1).expect("memory"), remote);
    let done = write
        .wait_within(PATIENCE)
        .expect("in time")
        .and(read.wait_within(PATIENCE).expect("in time"));
    done.map(|_| ()).map_err(|failed| failed.error)
}

#[test]
fn a_window_serves_until_it_is_taken_back_and_has_another_key_each_time() {
    for wire in WIRES {
        let Ends {
            domain,
            client,
            server,
        } = Ends::new(wire);
        let table = domain
            .lease(64)
            .expect("memory")
            .expose(Access::MW_BIND)
            .expect("exposed");
        let rights = Access::REMOTE_WRITE | Access::REMOTE_READ;
        let mut window = domain.window().expect("a window");
        let mut last = None;
        for part in [8..16, 24..25] {
            let bound = server
                .bind(window, &table, part.clone(), rights)
                .expect("bindable");
            let bound = bound.wait_within(PATIENCE).expect("in time").expect("bound");
            let remote = bound.remote();
            assert_eq!(remote.len as usize, part.len());
            assert_ne!(last.replace(remote.rkey), Some(remote.rkey));
            write(&domain, &client, remote.slice(..1)).expect("permitted");
            let mut byte = [0];
            table.read_at(part.start, &mut byte).expect("inside");
            assert_eq!(&byte, b"!", "{wire}");
            window = server
                .invalidate(bound)
                .wait_within(PATIENCE)
                .expect("in time")
                .expect("taken back");
        }
        let late = RemoteSlice {
            va: 0,
            rkey: last.expect("it was bound"),
            len: 1,
        };
        assert!(
            write(&domain, &client, late).is_err(),
            "{wire}: it was taken back"
        );
    }
}

#[test]
fn a_window_gives_its_part_and_its_rights_and_no_more() {
    for wire in WIRES {
        for beyond in [false, true] {
            let Ends {
                domain,
                client,
                server,
            } = Ends::new(wire);
            let rights = Access::MW_BIND | Access::REMOTE_WRITE;
            let table = domain.lease(64).expect("memory").expose(rights).expect("exposed");
            let bound = server.bind(
                domain.window().expect("a window"),
                &table,
                8..16,
                Access::REMOTE_READ,
            );
            let bound = bound.expect("bindable").wait().expect("bound");
            let mut remote = bound.remote();
            let read = client.read(domain.lease(8).expect("memory"), remote);
            read.wait_within(PATIENCE).expect("in time").expect("permitted");
            if beyond {
                remote.len += 1;
                let read = client.read(domain.lease(9).expect("memory"), remote);
                assert!(read.wait_within(PATIENCE).expect("in time").is_err(), "{wire}");
            } else {
                assert!(write(&domain, &client, remote.slice(..1)).is_err(), "{wire}");
            }
        }
    }
}

#[test]
fn a_peer_can_give_a_window_back_with_a_message() {
    for wire in WIRES {
        let Ends {
            domain,
            client,
            server,
        } = Ends::new(wire);
        let table = domain
            .lease(64)
            .expect("memory")
            .expose(Access::MW_BIND)
            .expect("exposed");
        let rights = Access::REMOTE_WRITE | Access::REMOTE_READ;
        let bound = server.bind(domain.window().expect("a window"), &table, .., rights);
        let bound = bound.expect("bindable").wait().expect("bound");
        let remote = bound.remote();
        write(&domain, &client, remote.slice(..1)).expect("permitted");
        let receive = server.recv(domain.lease(8).expect("memory"));
        let done = client.send_with_invalidate(domain.lease_from(b"thanks").expect("memory"), remote.rkey);
        done.wait_within(PATIENCE).expect("in time").expect("sent");
        let got = receive.wait_within(PATIENCE).expect("in time").expect("received");
        assert_eq!(
            (got.bytes(), got.invalidated),
            (&b"thanks"[..], Some(remote.rkey)),
            "{wire}"
        );
        assert!(write(&domain, &client, remote.slice(..1)).is_err(), "{wire}");
    }
}

/// A window that goes while it is being bound must not take the queue pair along.
#[test]
fn a_window_that_is_dropped_harms_nobody() {
    let Ends {
        domain,
        client,
        server,
    } = Ends::new("roce_lo");
    let table = domain
        .lease(64)
        .expect("memory")
        .expose(Access::MW_BIND)
        .expect("exposed");
    let keys = domain.device().usage().memory_keys;
    for _ in 0..200 {
        // More than the send queue holds.
        let window = domain.window().expect("a window");
        drop(
            server
                .bind(window, &table, .., Access::REMOTE_READ)
                .expect("bindable"),
        );
    }
    let receive = client.recv(domain.lease(8).expect("memory"));
    server
        .send_bytes(b"well")
        .wait_within(PATIENCE)
        .expect("in time")
        .expect("sent");
    assert_eq!(receive.wait().expect("received").bytes(), b"well");
    assert_eq!(domain.device().usage().memory_keys, keys);
}

#[test]
fn what_cannot_be_bound_is_refused_before_it_costs_the_queue_pair() {
    let Ends {
        domain,
        client,
        server: _server,
    } = Ends::new("roce_lo");
    let closed = domain
        .lease(8)
        .expect("memory")
        .expose(Access::REMOTE_READ)
        .expect("exposed");
    let refused = client.bind(
        domain.window().expect("a window"),
        &closed,
        ..,
        Access::REMOTE_READ,
    );
    assert!(matches!(refused, Err(MemoryError::Key(_))), "no right to bind");
    let open = domain
        .lease(8)
        .expect("memory")
        .expose(Access::MW_BIND)
        .expect("exposed");
    let elsewhere = domain.device().domain();
    let refused = client.bind(
        elsewhere.window().expect("a window"),
        &open,
        ..,
        Access::REMOTE_READ,
    );
    assert!(
        matches!(refused, Err(MemoryError::Key(_))),
        "a window of another domain"
    );
    let bound = client.bind(domain.window().expect("a window"), &open, .., Access::REMOTE_READ);
    bound.expect("bindable").wait().expect("the queue pair is well");
}
