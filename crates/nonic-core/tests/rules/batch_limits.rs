//! A batch has no more packets than the socket of its source address takes at once, whatever other sockets take.

use crate::support::{Fate, Node, Pair, Remote, Setup, Side, ms};
use crate::{completed, post};
use nonic_core::{
    Destination, Endpoint, MAX_BATCH_LEN, ManagementDatagram, Path, Psn, Qpn, Route, SendOp, Status, Transmit,
};
use nonic_wire::mad::MAD_LEN;
use std::net::IpAddr;

/// Of the second address; the first has none.
const LIMIT: usize = 1;
/// Packets that go from each address.
const PACKETS: usize = 12;
/// How they go in batches of at most eight. A batch ends with the first packet that is shorter than its first one, and that of
/// a WRITE has one header more.
const UNLIMITED: [usize; 3] = [2, 8, 2];

fn peer() -> Remote {
    Remote {
        ip: IpAddr::from([10, 0, 0, 99]),
        qpn: Qpn::new(0x777),
        psn: Psn::new(0x20_0000),
    }
}

/// A node with two addresses, the second of which is limited; and that one.
fn two_addresses(setup: &Setup) -> (Node, IpAddr) {
    let mut node = Node::new(1, setup);
    let second = IpAddr::from([10, 0, 1, 1]);
    node.nic.add_endpoint(Endpoint {
        ip: second,
        port: 50_100,
    });
    node.nic.limit_batches(1, LIMIT);
    (node, second)
}

/// Takes a queue pair from INIT to RTS, with the address of this index.
fn connect(node: &mut Node, qpn: Qpn, gid_index: u8) {
    let mut to_rtr = node.setup.to_rtr(&peer());
    to_rtr.path = to_rtr.path.map(|path| Path { gid_index, ..path });
    let to_rts = node.setup.to_rts(Psn::new(node.setup.first_psn));
    node.modify(qpn, &to_rtr).expect("INIT to RTR");
    node.modify(qpn, &to_rts).expect("RTR to RTS");
}

/// Every batch that the node has to send.
fn batches(node: &mut Node) -> Vec<Transmit> {
    let mut buffer = vec![0; MAX_BATCH_LEN];
    let max_segments = node.setup.max_segments;
    std::iter::from_fn(|| node.nic.poll_transmit(node.now, max_segments, &mut buffer)).collect()
}

/// How many packets each batch from an address has.
fn sizes(batches: &[Transmit], source: IpAddr) -> Vec<usize> {
    let from_there = batches.iter().filter(|batch| batch.flow.src == source);
    from_there.map(|batch| batch.segments).collect()
}

/// A WRITE from each address, and what is sent.
fn write_from_both(node: &mut Node) -> Vec<Transmit> {
    let (first, second) = (node.qpn, node.add_qp());
    connect(node, first, 0);
    connect(node, second, 1);
    for qpn in [first, second] {
        node.qpn = qpn;
        let remote = node.remote(0);
        post!(node, 1, SendOp::Write(remote), 0, PACKETS as u32 * 1024);
    }
    batches(node)
}

#[test]
fn an_address_that_takes_single_packets_gets_them_and_others_get_batches() {
    for setup in [Setup::rc(), Setup::uc()] {
        let (mut node, second) = two_addresses(&setup);
        let sent = write_from_both(&mut node);
        assert_eq!(sizes(&sent, second), [1; PACKETS], "{:?}", setup.service);
        assert_eq!(sizes(&sent, node.ip), UNLIMITED, "{:?}", setup.service);
    }
}

#[test]
fn the_smaller_of_both_limits_counts_and_the_last_word_about_an_address() {
    for (limit, expected) in [(3, vec![2, 3, 3, 3, 1]), (100, UNLIMITED.to_vec())] {
        let (mut node, second) = two_addresses(&Setup::rc());
        node.nic.limit_batches(1, limit);
        let sent = write_from_both(&mut node);
        assert_eq!(sizes(&sent, second), expected);
        assert_eq!(sizes(&sent, node.ip), UNLIMITED);
    }
}

#[test]
fn datagrams_of_one_queue_pair_from_both_addresses_keep_the_limit_of_each() {
    let (mut node, second) = two_addresses(&Setup::ud());
    let qpn = node.qpn;
    connect(&mut node, qpn, 0);
    for gid_index in [0, 1, 0, 1] {
        let destination = Destination {
            gid_index,
            ip: peer().ip,
            qpn: peer().qpn,
            qkey: node.setup.qkey,
        };
        for wr_id in 0..PACKETS as u64 / 2 {
            node.post_to(wr_id, SendOp::Send, (0, 64), destination)
                .expect("posted");
        }
    }
    let sent = batches(&mut node);
    assert_eq!(sizes(&sent, second), [1; PACKETS]);
    assert_eq!(sizes(&sent, node.ip), [6, 6]);
}

#[test]
fn answers_to_a_read_are_limited_too() {
    let mut pair = Pair::rc();
    let (b, remote) = (pair.b.ip, pair.b.remote(0));
    post!(pair.a, 1, SendOp::Read(remote), 0, PACKETS as u32 * 1024);
    pair.b.nic.limit_batches(0, LIMIT);
    pair.b.receive_all(&pair.a.transmit());
    assert_eq!(sizes(&batches(&mut pair.b), b), [1; PACKETS]);
}

#[test]
fn what_is_repeated_after_the_limit_is_known_keeps_it() {
    let mut pair = Pair::rc();
    let (a, remote) = (pair.a.ip, pair.b.remote(0));
    post!(pair.a, 1, SendOp::Write(remote), 0, PACKETS as u32 * 1024);
    assert_eq!(sizes(&batches(&mut pair.a), a), UNLIMITED, "all of it gets lost");
    // The kernel has said no meanwhile.
    pair.a.nic.limit_batches(0, LIMIT);
    pair.advance(ms(500));
    let mut repeated = 0;
    pair.exchange_with(|side, wire| {
        if side == Side::A {
            repeated += 1;
            assert_eq!(wire.identification, 0, "the first of its batch");
        }
        Fate::Deliver
    });
    assert_eq!(repeated, PACKETS);
    completed!(pair.a, [(1, Status::Success)]);
}

#[test]
fn a_batch_names_the_address_it_leaves_from() {
    for setup in [Setup::rc(), Setup::uc()] {
        let (mut node, second) = two_addresses(&setup);
        for batch in write_from_both(&mut node) {
            assert_eq!(batch.gid_index, u8::from(batch.flow.src == second));
        }
    }
    let (mut node, second) = two_addresses(&Setup::ud());
    let qpn = node.qpn;
    connect(&mut node, qpn, 0);
    for gid_index in [0, 1] {
        let destination = Destination {
            gid_index,
            ip: peer().ip,
            qpn: peer().qpn,
            qkey: 1,
        };
        node.post_to(1, SendOp::Send, (0, 64), destination)
            .expect("posted");
        let route = Route {
            local: node.nic.endpoints()[usize::from(gid_index)].ip,
            remote: peer().ip,
        };
        let mad = [0; MAD_LEN];
        let datagram = ManagementDatagram { route, mad };
        node.nic
            .send_management(datagram, Qpn::GSI)
            .expect("there is room");
    }
    let sent = batches(&mut node);
    assert_eq!(sent.len(), 4);
    for batch in sent {
        assert_eq!(batch.gid_index, u8::from(batch.flow.src == second));
    }
}
