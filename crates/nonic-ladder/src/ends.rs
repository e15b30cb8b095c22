//! Assigns packets to ends: which end sent a packet, which one gets it, and which queue pairs are connected.
//!
//! Where two addresses talk, an end is an address. An address that talks to itself is several processes, told apart by
//! the UDP port that each sends from. Which of them has a queue pair is learned from what it sends. A request to
//! connect names the sender's queue pair, and so does a datagram. An answer comes from the process that has the queue
//! pair of the request, and has the same sequence number. Packets of other services do not name their sender.

use nonic_wire::cm::{CmMad, Message};
use nonic_wire::pcap::Direction;
use nonic_wire::{Flow, Packet, Psn, Qpn, Service};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

/// Requests that are remembered until their answer comes.
const MAX_REQUESTS: usize = 1 << 16;

/// An end of the ladder.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum End {
    Address(IpAddr),
    Socket(IpAddr, u16),
    /// A queue pair whose process is not known.
    QueuePair(IpAddr, u32),
}

/// A queue pair of an address.
type QueuePair = (IpAddr, u32);

/// What is known so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ends {
    talks_to_itself: HashSet<IpAddr>,
    sockets: BTreeMap<IpAddr, BTreeSet<u16>>,
    /// Sockets of the process that captured.
    captured_here: BTreeSet<(IpAddr, u16)>,
    owner: HashMap<QueuePair, u16>,
    peer: HashMap<QueuePair, u32>,
    /// The requester's port and queue pair, by addresses and sequence number; none if several asked.
    requests: HashMap<(IpAddr, IpAddr, Psn), Option<(u16, u32)>>,
    /// The queue pairs that asked to be connected, by their number of the connection.
    asked: HashMap<(IpAddr, u32), u32>,
}

impl Ends {
    /// Takes note of a packet.
    pub(crate) fn learn(&mut self, flow: &Flow, direction: Option<Direction>, packet: &Packet<'_>) {
        let sender = (flow.src, flow.src_port);
        if flow.src == flow.dst {
            self.talks_to_itself.insert(flow.src);
        }
        self.sockets.entry(flow.src).or_default().insert(flow.src_port);
        if direction == Some(Direction::Outbound) {
            self.captured_here.insert(sender);
        }
        let bth = &packet.headers.bth;
        if bth.dest_qp == Qpn::GSI {
            self.learn_connection(flow, packet);
        } else if bth.opcode.service() == Service::Ud {
            let own = packet.headers.deth.src_qp.value();
            self.owner.insert((flow.src, own), flow.src_port);
        } else if bth.opcode.operation().is_response() {
            self.learn_answer(flow, bth.psn, bth.dest_qp.value());
        } else {
            self.learn_request(flow, bth.psn, bth.dest_qp.value());
        }
    }

    fn learn_connection(&mut self, flow: &Flow, packet: &Packet<'_>) {
        match CmMad::parse(packet.payload).map(|mad| mad.message) {
            Ok(Message::Req(req)) => {
                let own = req.local_qpn.value();
                self.owner.insert((flow.src, own), flow.src_port);
                self.asked.insert((flow.src, req.local_comm_id), own);
            }
            Ok(Message::Rep(rep)) => {
                let own = rep.local_qpn.value();
                self.owner.insert((flow.src, own), flow.src_port);
                if let Some(asking) = self.asked.get(&(flow.dst, rep.remote_comm_id)).copied() {
                    self.peer.insert((flow.src, own), asking);
                    self.peer.insert((flow.dst, asking), own);
                }
            }
            _ => {}
        }
    }

    fn learn_request(&mut self, flow: &Flow, psn: Psn, to: u32) {
        if self.requests.len() >= MAX_REQUESTS {
            self.requests.clear();
        }
        let asker = (flow.src_port, to);
        let known = self
            .requests
            .entry((flow.src, flow.dst, psn))
            .or_insert(Some(asker));
        if *known != Some(asker) {
            *known = None;
        }
    }

    fn learn_answer(&mut self, flow: &Flow, psn: Psn, to: u32) {
        let Some(Some((port, asked))) = self.requests.get(&(flow.dst, flow.src, psn)).copied() else {
            return;
        };
        self.owner.entry((flow.src, asked)).or_insert(flow.src_port);
        self.owner.entry((flow.dst, to)).or_insert(port);
        self.peer.entry((flow.src, asked)).or_insert(to);
        self.peer.entry((flow.dst, to)).or_insert(asked);
    }

    /// The end that sent a packet.
    pub(crate) fn sender(&self, flow: &Flow) -> End {
        match self.talks_to_itself.contains(&flow.src) {
            true => End::Socket(flow.src, flow.src_port),
            false => End::Address(flow.src),
        }
    }

    /// The end that gets it.
    pub(crate) fn receiver(&self, flow: &Flow, direction: Option<Direction>, dest_qp: u32) -> End {
        if !self.talks_to_itself.contains(&flow.dst) {
            return End::Address(flow.dst);
        }
        if let Some(port) = self.owner.get(&(flow.dst, dest_qp)) {
            return End::Socket(flow.dst, *port);
        }
        let here: Vec<u16> = self
            .captured_here
            .iter()
            .filter(|(ip, _)| *ip == flow.dst)
            .map(|(_, port)| *port)
            .collect();
        if let (Some(Direction::Inbound), [port]) = (direction, &here[..]) {
            return End::Socket(flow.dst, *port);
        }
        // Of two processes it is the other one.
        let others: Vec<u16> = self
            .sockets
            .get(&flow.dst)
            .into_iter()
            .flatten()
            .copied()
            .filter(|port| *port != flow.src_port)
            .collect();
        match others[..] {
            [port] => End::Socket(flow.dst, port),
            _ => End::QueuePair(flow.dst, dest_qp),
        }
    }

    /// The queue pair that a packet for this one comes from.
    pub(crate) fn sending_queue_pair(&self, flow: &Flow, dest_qp: u32) -> Option<u32> {
        self.peer_of(flow.dst, dest_qp)
    }

    /// The queue pair that one of an address is connected to.
    pub(crate) fn peer_of(&self, ip: IpAddr, number: u32) -> Option<u32> {
        self.peer.get(&(ip, number)).copied()
    }

    /// The name of an end.
    pub(crate) fn name(&self, end: End) -> String {
        match end {
            End::Address(ip) => ip.to_string(),
            End::Socket(ip, port) => format!("{ip} port {port}"),
            End::QueuePair(ip, number) => format!("{ip} QP {number:#08x}"),
        }
    }

    /// Whether the process that captured is at both ends of a packet.
    pub(crate) fn is_own_traffic(&self, flow: &Flow) -> bool {
        self.captured_here.contains(&(flow.src, flow.src_port))
    }
}
