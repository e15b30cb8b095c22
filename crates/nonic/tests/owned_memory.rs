//! Memory that the program brings: it is used where it is, and comes out as what it was.

use crate::bench::{Bench, Ends, PATIENCE, WIRES};
use nonic::{Access, Device, Lease, OwnedMemory};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn what_moves_in_is_sent_and_received_where_it_is_and_comes_out_again() {
    for wire in WIRES {
        let Ends {
            domain,
            client,
            server,
        } = Ends::new(wire);
        let letter: Vec<u8> = (0..100_000_u32).map(|i| i as u8).collect();
        let (copy, address) = (letter.clone(), letter.as_ptr().addr());
        let receive = server.recv(
            domain
                .register(vec![0_u8; letter.len()].into_boxed_slice())
                .expect("registered"),
        );
        let sent = client.send(domain.register(letter).expect("registered"));
        let got = receive.wait_within(PATIENCE).expect("in time").expect("received");
        let received: Box<[u8]> = got.buffers.into_inner().expect("all of it is here");
        assert!(received[..] == copy[..], "{wire}");
        let sent = sent.wait_within(PATIENCE).expect("in time").expect("sent");
        let letter: Vec<u8> = sent.into_inner().expect("all of it is here");
        assert_eq!(letter.as_ptr().addr(), address, "it was not copied");
    }
}

#[test]
fn peers_write_read_and_count_in_it() {
    for wire in WIRES {
        let Ends {
            domain,
            client,
            server: _server,
        } = Ends::new(wire);
        let rights = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        let table = domain.register(vec![7_u64; 512]).expect("registered");
        let table = table.expose(rights).expect("exposed");
        let word = table.remote().slice(16..24);
        let before = client.fetch_add(word, 3).expect("memory").wait_within(PATIENCE);
        assert_eq!(before.expect("in time").expect("added"), 7);
        let words: Vec<u8> = [1_u64, 2].into_iter().flat_map(u64::to_ne_bytes).collect();
        let wrote = client.write(
            domain.register(words).expect("registered"),
            table.remote().slice(..16),
        );
        let buffer = wrote.wait_within(PATIENCE).expect("in time").expect("written");
        let read = client
            .read(buffer, table.remote().slice(8..24))
            .wait_within(PATIENCE);
        let read = read.expect("in time").expect("read").into_vec();
        assert_eq!(
            read,
            [2_u64, 10]
                .into_iter()
                .flat_map(u64::to_ne_bytes)
                .collect::<Vec<u8>>()
        );
        // Taking it back ends what peers may do to it.
        let table: Vec<u64> = table.into_lease().into_inner().expect("all of it is here");
        assert_eq!(table[..4], [1, 2, 10, 7]);
        assert!(
            client
                .read(domain.lease(8).expect("memory"), word)
                .wait()
                .is_err()
        );
    }
}

#[test]
fn it_does_not_come_out_while_somebody_has_a_part_or_as_something_else() {
    let bench = Bench::new();
    let lease = bench
        .domain
        .register(b"head and tail".to_vec())
        .expect("registered");
    let (head, tail) = lease.split_at(4);
    let head = head.into_inner::<Vec<u8>>().expect_err("the tail is elsewhere");
    let tail = tail.expose(Access::REMOTE_READ).expect("exposed");
    let head = head.into_inner::<Vec<u8>>().expect_err("the tail is elsewhere");
    drop(tail);
    let head = head.into_inner::<Box<[u8]>>().expect_err("it is a vector");
    assert_eq!(&head[..], b"head");
    assert_eq!(
        head.into_inner::<Vec<u8>>().expect("nobody has the tail"),
        b"head and tail"
    );
    let pages = bench.domain.lease(8).expect("memory");
    assert!(pages.into_inner::<Vec<u8>>().is_err(), "nobody brought it");
}

#[test]
fn a_request_under_way_keeps_it() {
    let Ends {
        domain,
        client: _client,
        server,
    } = Ends::new("roce_lo");
    let lease = domain.register(vec![0_u8; 64]).expect("registered");
    let (head, tail) = lease.split_at(32);
    let receive = server.recv(tail);
    let head = head.into_inner::<Vec<u8>>().expect_err("the NIC has the tail");
    drop(receive);
    let head = head.into_inner::<Vec<u8>>().expect_err("the NIC still has it");
    drop(server);
    assert_eq!(
        head.into_inner::<Vec<u8>>().expect("nobody has the tail").len(),
        64
    );
}

#[test]
fn every_lease_becomes_a_vector() {
    let bench = Bench::new();
    let vector = b"head and tail".to_vec();
    let address = vector.as_ptr();
    let vector = bench.domain.register(vector).expect("registered").into_vec();
    assert_eq!((vector.as_ptr(), &vector[..]), (address, &b"head and tail"[..]));
    let (head, tail) = bench.domain.register(vector).expect("registered").split_at(4);
    drop(tail);
    assert_eq!(head.into_vec(), b"head", "a part of it is a part");
    assert_eq!(
        bench.domain.lease_from(b"pages").expect("memory").into_vec(),
        b"pages"
    );
    assert_eq!(
        bench
            .domain
            .register(Vec::<u8>::new())
            .expect("registered")
            .into_vec(),
        b""
    );
}

/// Memory that looks at the device when it is freed.
struct Witness {
    bytes: Vec<u8>,
    device: Device,
    keys_at_the_end: Arc<AtomicUsize>,
}

// SAFETY: the bytes are a vector's.
unsafe impl OwnedMemory for Witness {
    fn span(&mut self) -> NonNull<[u8]> {
        self.bytes.span()
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        let keys = self.device.usage().memory_keys;
        self.keys_at_the_end.store(keys, Ordering::SeqCst);
    }
}

#[test]
fn it_is_deregistered_before_it_is_freed() {
    let bench = Bench::new();
    let keys_at_the_end = Arc::new(AtomicUsize::new(usize::MAX));
    let register = || -> Lease {
        let witness = Witness {
            bytes: vec![0; 64],
            device: bench.device.clone(),
            keys_at_the_end: Arc::clone(&keys_at_the_end),
        };
        bench.domain.register(witness).expect("registered")
    };
    drop(register());
    assert_eq!(keys_at_the_end.swap(usize::MAX, Ordering::SeqCst), 0);
    let exposed = register().expose(Access::REMOTE_READ).expect("exposed");
    assert_eq!(bench.device.usage().memory_keys, 2);
    drop(exposed);
    assert_eq!(keys_at_the_end.load(Ordering::SeqCst), 0);
}
