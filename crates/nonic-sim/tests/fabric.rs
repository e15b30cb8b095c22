//! The fabric by itself: many messages over a bad link, many NICs, partitions and restarts.

use crate::common::{Node, connect};
use nonic_core::{Data, RecvRequest, RemoteAddress, SendFlags, SendOp, SendRequest, Status};
use nonic_sim::{Batching, Fabric, FabricConfig, Faults, LinkProfile};

fn request(wr_id: u64, op: SendOp, sges: &[nonic_core::Sge]) -> SendRequest<'_> {
    SendRequest {
        wr_id,
        op,
        data: Data::Sges(sges),
        flags: SendFlags::SIGNALED,
        destination: None,
    }
}

/// Runs until nothing happens any more.
fn settle(fabric: &mut Fabric<()>) {
    for _ in 0..5_000_000u64 {
        if fabric.step().is_none() {
            return;
        }
    }
    panic!("the fabric does not come to rest");
}

fn statuses(node: &Node) -> Vec<(u64, Status)> {
    let mut out = Vec::new();
    node.cq
        .poll(usize::MAX, |completion| {
            out.push((completion.wr_id, completion.status))
        })
        .unwrap();
    out
}

#[test]
fn thousands_of_messages_arrive_in_order_over_a_link_that_loses_five_percent() {
    const MESSAGES: u64 = 4000;
    const SLOT: u64 = 1500;
    for batching in [Batching::Whole, Batching::Single] {
        let config = FabricConfig {
            faults: Faults {
                loss_ppm: 50_000,
                ..Faults::default()
            },
            batching,
            ..FabricConfig::default()
        };
        let mut fabric: Fabric<()> = Fabric::new(config, 7);
        let [a, b] = [(), ()].map(|()| Node::add(&mut fabric, (MESSAGES * SLOT) as usize));
        let (qa, qb) = (a.create_qp(&mut fabric), b.create_qp(&mut fabric));
        connect(&mut fabric, &a, qa, &b, qb);
        connect(&mut fabric, &b, qb, &a, qa);
        a.region.with(|bytes| {
            for (index, byte) in bytes.iter_mut().enumerate() {
                *byte = (index / 7) as u8;
            }
        });
        for message in 0..MESSAGES {
            let sges = [b.sge(message * SLOT, SLOT as u32)];
            let receive = RecvRequest {
                wr_id: message,
                sges: &sges,
            };
            fabric.nic_mut(b.station).post_recv(qb, &receive).unwrap();
        }
        let now = fabric.now();
        for message in 0..MESSAGES {
            let sges = [a.sge(message * SLOT, SLOT as u32)];
            let send = request(message, SendOp::Send, &sges);
            fabric.nic_mut(a.station).post_send(now, qa, &send).unwrap();
        }
        fabric.kick(a.station);
        settle(&mut fabric);
        let expected: Vec<_> = (0..MESSAGES).map(|message| (message, Status::Success)).collect();
        assert_eq!(statuses(&a), expected);
        assert_eq!(statuses(&b), expected);
        assert!(a.region.snapshot() == b.region.snapshot(), "the bytes differ");
        assert!(fabric.fault_counts().lost > 100);
    }
}

#[test]
fn five_hundred_nics_write_to_their_neighbours() {
    const NICS: usize = 500;
    let mut fabric: Fabric<()> = Fabric::new(FabricConfig::default(), 1);
    let nodes: Vec<Node> = (0..NICS).map(|_| Node::add(&mut fabric, 8192)).collect();
    for (index, node) in nodes.iter().enumerate() {
        node.region.with(|bytes| bytes[..4096].fill(index as u8));
    }
    for index in 0..NICS {
        let (node, next) = (&nodes[index], &nodes[(index + 1) % NICS]);
        let (qpn, next_qpn) = (node.create_qp(&mut fabric), next.create_qp(&mut fabric));
        connect(&mut fabric, node, qpn, next, next_qpn);
        connect(&mut fabric, next, next_qpn, node, qpn);
        let remote = RemoteAddress {
            va: 4096,
            rkey: next.key.value(),
        };
        let sges = [node.sge(0, 4096)];
        let now = fabric.now();
        let write = request(index as u64, SendOp::Write(remote), &sges);
        fabric.nic_mut(node.station).post_send(now, qpn, &write).unwrap();
        fabric.kick(node.station);
    }
    settle(&mut fabric);
    for (index, node) in nodes.iter().enumerate() {
        assert_eq!(statuses(node), [(index as u64, Status::Success)]);
        let before = (index + NICS - 1) % NICS;
        assert!(
            node.region
                .with(|bytes| bytes[4096..].iter().all(|byte| *byte == before as u8))
        );
    }
}

/// Two connected NICs over a default link.
fn pair() -> (Fabric<()>, Node, nonic_core::Qpn, Node) {
    let mut fabric: Fabric<()> = Fabric::new(FabricConfig::default(), 3);
    let [a, b] = [(), ()].map(|()| Node::add(&mut fabric, 4096));
    let (qa, qb) = (a.create_qp(&mut fabric), b.create_qp(&mut fabric));
    connect(&mut fabric, &a, qa, &b, qb);
    connect(&mut fabric, &b, qb, &a, qa);
    (fabric, a, qa, b)
}

fn write(fabric: &mut Fabric<()>, a: &Node, qa: nonic_core::Qpn, b: &Node) {
    let remote = RemoteAddress {
        va: 0,
        rkey: b.key.value(),
    };
    let sges = [a.sge(0, 64)];
    let now = fabric.now();
    let write = request(1, SendOp::Write(remote), &sges);
    fabric.nic_mut(a.station).post_send(now, qa, &write).unwrap();
    fabric.kick(a.station);
}

#[test]
fn a_partition_shorter_than_all_retries_is_survived_and_a_longer_one_is_not() {
    let timeout_ns = 4096 << 10;
    // Seven retries: after one, two and six times four timeouts.
    for (timeouts, expected) in [(20, Status::Success), (40, Status::RetryExceeded)] {
        let (mut fabric, a, qa, b) = pair();
        fabric.partition(a.station, b.station, timeouts * timeout_ns);
        write(&mut fabric, &a, qa, &b);
        settle(&mut fabric);
        assert_eq!(statuses(&a), [(1, expected)]);
        assert!(fabric.disturbed(a.station, b.station) > 0);
    }
}

#[test]
fn a_restarted_nic_does_not_answer_for_its_former_life() {
    let (mut fabric, a, qa, b) = pair();
    let mut other: Fabric<()> = Fabric::new(FabricConfig::default(), 9);
    let fresh = Node::add(&mut other, 16);
    let spare = std::mem::replace(
        other.nic_mut(fresh.station),
        nonic_core::Nic::new(
            nonic_core::NicConfig::default(),
            std::sync::Arc::default(),
            Box::new(nonic_core::SeededEntropy::new(5)),
        ),
    );
    drop(fabric.replace(b.station, spare));
    write(&mut fabric, &a, qa, &b);
    settle(&mut fabric);
    assert_eq!(statuses(&a), [(1, Status::RetryExceeded)]);
}

#[test]
fn a_pair_may_have_a_link_of_its_own() {
    let (mut fabric, a, qa, b) = pair();
    let slow = LinkProfile {
        latency_ns: 1_000_000,
        ..LinkProfile::default()
    };
    fabric.set_link(a.station, b.station, slow, Faults::default());
    write(&mut fabric, &a, qa, &b);
    while a.cq.is_empty() {
        assert!(fabric.step().is_some(), "the write never completes");
    }
    // There and back: one slow way, one default way.
    let now_ns = fabric.now().as_ns();
    assert!((1_002_000..1_100_000).contains(&now_ns), "{now_ns}");
}
