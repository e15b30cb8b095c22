//! Dispatches an incoming datagram to its queue pair.

use super::Nic;
use super::transmit::MAX_BATCH_PACKETS;
use crate::roce::queue_pair::RoceQueuePair;
use crate::time::Time;
use nonic_wire::{Flow, Packet, Qpn, ROCE_PORT, Service, Verdict, icrc};
use std::net::{IpAddr, SocketAddr};

/// Identifications below this are those that nonic senders leave. Accepting any of them costs six bits of error
/// detection, not sixteen.
const OWN_IDENTIFICATIONS: u16 = MAX_BATCH_PACKETS as u16;

/// Where a datagram came from and went to, and how it was batched.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// The sender's address and UDP port.
    pub src: SocketAddr,
    /// The address it was sent to: one of ours, or a multicast group.
    pub dst: IpAddr,
    /// Length of each packet in the batch but the last. The batch is one packet if it is not shorter.
    pub stride: usize,
    /// Whether the path marked it (ECN: Congestion Experienced).
    pub congested: bool,
}

/// What vouches for the bytes of a packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Integrity {
    /// Its checksum, as the packet of this index in its batch.
    Sealed(u16),
    /// Nothing: it was changed on purpose, so that nobody notices.
    Unchecked,
}

impl Arrival {
    fn parts(&self) -> (Flow, usize) {
        let flow = Flow {
            src: self.src.ip(),
            dst: self.dst,
            src_port: self.src.port(),
            // The port a packet was addressed to, whatever brought it here.
            dst_port: ROCE_PORT,
        };
        (flow, self.stride.max(1))
    }
}

impl Nic {
    /// Takes a datagram, or a batch of equal-sized ones as the kernel's GRO delivers them.
    pub fn handle_datagram(&mut self, now: Time, arrival: &Arrival, bytes: &[u8]) {
        let (flow, stride) = arrival.parts();
        for (index, packet) in bytes.chunks(stride).enumerate() {
            self.handle_packet(
                now,
                &flow,
                Integrity::Sealed(index as u16),
                packet,
                arrival.congested,
            );
        }
    }

    /// Takes a batch whose checksums do not count: what was changed on purpose, so that nobody notices.
    pub fn handle_unchecked(&mut self, now: Time, arrival: &Arrival, bytes: &[u8]) {
        let (flow, stride) = arrival.parts();
        for packet in bytes.chunks(stride) {
            self.handle_packet(now, &flow, Integrity::Unchecked, packet, false);
        }
    }

    fn handle_packet(&mut self, now: Time, flow: &Flow, integrity: Integrity, bytes: &[u8], congested: bool) {
        self.resources.counters.rx_packets += 1;
        self.resources.counters.rx_bytes += bytes.len() as u64;
        let Ok(packet) = Packet::parse(bytes) else {
            self.resources.counters.rx_malformed += 1;
            return;
        };
        if packet.headers.bth.dest_qp == Qpn::MULTICAST {
            self.handle_multicast(now, flow, integrity, bytes, &packet);
            return;
        }
        if packet.headers.bth.dest_qp == Qpn::GSI {
            self.handle_management(flow, integrity, bytes, &packet);
            return;
        }
        let slot = self.qps.slot(packet.headers.bth.dest_qp);
        let takes = |slot: &usize| {
            self.qps[*slot]
                .as_roce()
                .is_some_and(|qp| takes(qp, &packet, flow))
        };
        let Some(slot) = slot.filter(takes) else {
            self.handle_unclaimed(now, flow, integrity, bytes, &packet);
            return;
        };
        let lenient = self.config.lenient_icrc;
        if self.verify(flow, integrity, lenient, bytes) && self.is_of_our_partition(&packet) {
            if congested {
                self.resources.counters.rx_marked += 1;
                self.qps.roce_mut(slot).note_mark(now);
            }
            self.deliver(now, slot, flow, &packet, bytes.len());
        }
    }

    fn handle_multicast(
        &mut self,
        now: Time,
        flow: &Flow,
        integrity: Integrity,
        bytes: &[u8],
        packet: &Packet<'_>,
    ) {
        let datagram = packet.headers.bth.opcode.service() == Service::Ud;
        let members = self.groups.get(&flow.dst).map_or(0, Vec::len);
        if !datagram || members == 0 {
            self.resources.counters.rx_unclaimed += 1;
            return;
        }
        let lenient = self.config.lenient_icrc;
        if !self.verify(flow, integrity, lenient, bytes) || !self.is_of_our_partition(packet) {
            return;
        }
        for member in 0..members {
            let slot = self
                .groups
                .get(&flow.dst)
                .and_then(|qpns| qpns.get(member))
                .copied();
            if let Some(slot) = slot.and_then(|qpn| self.qps.slot(qpn)) {
                self.deliver(now, slot, flow, packet, bytes.len());
            }
        }
    }

    fn deliver(&mut self, now: Time, slot: usize, flow: &Flow, packet: &Packet<'_>, length: usize) {
        let nic = &mut *self;
        let qp = nic.qps.roce_mut(slot);
        qp.roce.common.traffic.received(1, length);
        qp.handle(nic.resources.at(now), packet, flow);
        self.touch(slot);
    }

    /// Checks the P_Key. There is one partition, the default one, and we are a full member.
    fn is_of_our_partition(&mut self, packet: &Packet<'_>) -> bool {
        let ours = packet.headers.bth.is_default_partition();
        self.resources.counters.rx_pkey_violations += u64::from(!ours);
        ours
    }

    /// Checks the ICRC. Nonic peers send Identification 0, or the index in the batch; others send anything, which is
    /// accepted if `lenient`.
    pub(super) fn verify(&mut self, flow: &Flow, integrity: Integrity, lenient: bool, bytes: &[u8]) -> bool {
        let Integrity::Sealed(index) = integrity else {
            return true;
        };
        match icrc::verify(flow, index, true, bytes) {
            Verdict::Verified => true,
            // Packets sent alone that the kernel merged on arrival; or a batch with one lost, twice or late.
            Verdict::VerifiedWithId(id) if id < OWN_IDENTIFICATIONS => true,
            Verdict::VerifiedWithId(_) if lenient => {
                self.resources.counters.rx_identification_solved += 1;
                true
            }
            _ => {
                self.resources.counters.rx_icrc_errors += 1;
                false
            }
        }
    }
}

/// Whether a packet's service and sender are those the queue pair listens to.
fn takes(qp: &RoceQueuePair, packet: &Packet<'_>, flow: &Flow) -> bool {
    let roce = &qp.roce;
    let service = packet.headers.bth.opcode.service();
    match roce.common.service {
        Service::Ud => service == Service::Ud,
        // Every connected queue pair takes congestion notifications.
        own => {
            (service == own || service == Service::Cnp)
                && roce.flow.dst == flow.src
                && roce.flow.src == flow.dst
        }
    }
}
