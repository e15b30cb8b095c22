//! Queue pairs whose packets go to the same process of the same host share a batch; others do not.

use crate::post;
use crate::support::{Node, Pair, Remote, Setup};
use nonic_core::{Destination, MAX_BATCH_LEN, MAX_BATCH_PACKETS, Psn, QPNS_PER_BLOCK, Qpn, SendOp, Transmit};
use nonic_wire::{Opcode, Packet};
use std::net::IpAddr;

/// A queue pair of the peer's process.
const FIRST: u32 = 5 * QPNS_PER_BLOCK;

fn at(host: u8, qpn: u32) -> Remote {
    Remote {
        ip: IpAddr::from([10, 0, 0, host]),
        qpn: Qpn::new(qpn),
        psn: Psn::new(0x20_0000),
    }
}

/// A node with a queue pair for each of those, each of which has a WRITE of so many bytes to send.
fn writing_to(setup: &Setup, peers: &[(Remote, u32)]) -> Node {
    let mut node = Node::new(1, setup);
    let mut unconnected = Some(node.qpn);
    for (peer, length) in peers {
        let qpn = unconnected.take().unwrap_or_else(|| node.add_qp());
        let psn = Psn::new(node.setup.first_psn);
        node.connect(qpn, peer, psn);
        node.qpn = qpn;
        let remote = node.remote(0);
        post!(node, 1, SendOp::Write(remote), 0, *length);
    }
    node
}

/// Every batch that the node has to send: to which queue pairs its packets go.
fn batches(node: &mut Node) -> Vec<(Transmit, Vec<u32>)> {
    let mut buffer = vec![0; MAX_BATCH_LEN];
    std::iter::from_fn(|| {
        let batch = node.nic.poll_transmit(node.now, MAX_BATCH_PACKETS, &mut buffer)?;
        let packets = buffer[..batch.len].chunks(batch.segment_size);
        let qpns = packets.map(|bytes| {
            Packet::parse(bytes)
                .expect("a packet")
                .headers
                .bth
                .dest_qp
                .value()
        });
        Some((batch, qpns.collect()))
    })
    .collect()
}

fn destinations(node: &mut Node) -> Vec<Vec<u32>> {
    batches(node).into_iter().map(|(_, qpns)| qpns).collect()
}

#[test]
fn short_messages_of_several_queue_pairs_to_one_process_are_one_batch() {
    for setup in [Setup::rc(), Setup::uc()] {
        let peers = [0, 1, 2].map(|index| (at(9, FIRST + index), 64));
        let mut node = writing_to(&setup, &peers);
        let sent = destinations(&mut node);
        assert_eq!(sent, [[FIRST, FIRST + 1, FIRST + 2]], "{:?}", setup.service);
    }
}

/// The process that gets a batch would have to cut it up for the others.
#[test]
fn other_processes_and_other_hosts_get_batches_of_their_own() {
    const OTHER: u32 = FIRST + QPNS_PER_BLOCK;
    let peers = [at(9, FIRST), at(9, OTHER), at(8, OTHER), at(8, OTHER + 1)];
    let mut node = writing_to(&Setup::rc(), &peers.map(|peer| (peer, 64)));
    let sent = destinations(&mut node);
    let expected = [vec![FIRST], vec![OTHER], vec![OTHER, OTHER + 1]];
    assert_eq!(sent, expected);
}

#[test]
fn a_packet_too_long_for_a_batch_begins_the_next() {
    let lengths = [64, 65, 65, 1, 65];
    let peers: Vec<(Remote, u32)> = (FIRST..)
        .zip(lengths)
        .map(|(qpn, length)| (at(9, qpn), length))
        .collect();
    let mut node = writing_to(&Setup::rc(), &peers);
    // The shorter one ends its batch.
    let expected = [
        vec![FIRST],
        vec![FIRST + 1, FIRST + 2, FIRST + 3],
        vec![FIRST + 4],
    ];
    assert_eq!(destinations(&mut node), expected);
}

#[test]
fn queue_pairs_share_no_more_packets_than_a_batch_may_have() {
    let peers: Vec<(Remote, u32)> = (FIRST..FIRST + 10).map(|qpn| (at(9, qpn), 64)).collect();
    let mut node = writing_to(&Setup::rc(), &peers);
    node.nic.limit_batches(0, 4);
    let sizes: Vec<usize> = destinations(&mut node).iter().map(Vec::len).collect();
    assert_eq!(sizes, [4, 4, 2]);
}

#[test]
fn each_queue_pair_counts_its_own_packets() {
    let mut node = writing_to(&Setup::rc(), &[(at(9, FIRST), 64), (at(9, FIRST + 1), 64)]);
    let sent = batches(&mut node);
    let [(batch, _)] = &sent[..] else {
        panic!("{sent:?}");
    };
    let mut counted = Vec::new();
    node.nic.view_queue_pairs(0, 8, &mut |view| {
        counted.push((view.traffic.tx_packets, view.traffic.tx_bytes));
    });
    assert_eq!(counted, [(1, batch.len as u64 / 2); 2]);
}

#[test]
fn datagrams_to_several_queue_pairs_of_one_process_are_one_batch() {
    let mut node = Node::new(1, &Setup::ud());
    let qpn = node.qpn;
    node.connect(qpn, &at(9, FIRST), Psn::new(0));
    for (host, qpn) in [
        (9, FIRST),
        (9, FIRST + 1),
        (8, FIRST),
        (8, FIRST + QPNS_PER_BLOCK),
    ] {
        let to = at(host, qpn);
        let destination = Destination {
            gid_index: 0,
            ip: to.ip,
            qpn: to.qpn,
            qkey: 1,
        };
        node.post_to(1, SendOp::Send, (0, 64), destination)
            .expect("posted");
    }
    let expected = [vec![FIRST, FIRST + 1], vec![FIRST], vec![FIRST + QPNS_PER_BLOCK]];
    assert_eq!(destinations(&mut node), expected);
}

/// What comes in one batch is answered in one.
#[test]
fn acknowledgements_of_several_queue_pairs_are_one_batch() {
    let mut pair = Pair::rc();
    // A process has whole blocks of numbers.
    pair.a.nic.add_qpn_block(7);
    pair.b.nic.add_qpn_block(8);
    let connections = [pair.connect_more(), pair.connect_more()];
    for (qpn, _) in connections {
        pair.a.qpn = qpn;
        let remote = pair.b.remote(0);
        post!(pair.a, 1, SendOp::Write(remote), 0, 64);
    }
    pair.b.receive_all(&pair.a.transmit());
    let mut buffer = vec![0; MAX_BATCH_LEN];
    let b = &mut pair.b;
    let batch = b
        .nic
        .poll_transmit(b.now, MAX_BATCH_PACKETS, &mut buffer)
        .expect("answers");
    let packets = buffer[..batch.len].chunks(batch.segment_size);
    let opcodes: Vec<Opcode> = packets
        .map(|bytes| Packet::parse(bytes).expect("a packet").headers.bth.opcode)
        .collect();
    assert_eq!(opcodes, [Opcode::RC_ACKNOWLEDGE; 2]);
    assert_eq!(b.nic.poll_transmit(b.now, MAX_BATCH_PACKETS, &mut buffer), None);
}
