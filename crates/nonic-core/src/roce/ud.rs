//! The receiving half of the datagram service.
//!
//! Any queue pair may send one, from any address; the Q_Key decides whether it is taken. A receive's first 40 bytes are
//! filled with the network header, as programs expect of a global route.

use crate::record::{QpEvent, RefusalReason, RequestKind};
use crate::resources::NicResources;
use crate::roce::context::RoceContext;
use crate::roce::emit::Fatal;
use crate::verbs::memory::SgFault;
use crate::verbs::work::Status;
use nonic_wire::{Flow, ICRC_LEN, Packet, pad_len};
use std::net::IpAddr;

/// Length of the network header area in a datagram's receive buffer.
pub(crate) const GRH_LEN: usize = 40;

/// The receiving half; it keeps nothing between packets.
#[derive(Debug, Default)]
pub(crate) struct UdReceiver;

impl UdReceiver {
    pub(crate) fn handle(
        &self,
        roce: &RoceContext,
        nic: &mut NicResources,
        packet: &Packet<'_>,
        flow: &Flow,
    ) -> Result<(), Fatal> {
        if packet.headers.deth.qkey != roce.qkey {
            nic.counters.rx_qkey_violations += 1;
            record_dropped(roce, nic, RefusalReason::Qkey);
            return Ok(());
        }
        if packet.payload.len() > roce.mtu as usize {
            nic.counters.rx_dropped += 1;
            let (payload, mtu) = (packet.payload.len() as u32, roce.mtu);
            record_dropped(roce, nic, RefusalReason::PacketLength { payload, mtu });
            return Ok(());
        }
        let Some(wqe) = roce.common.take_recv(nic) else {
            nic.counters.rx_dropped += 1;
            record_dropped(roce, nic, RefusalReason::NoReceive);
            return Ok(());
        };
        let length = (GRH_LEN + packet.payload.len()) as u32;
        let fits = if u64::from(length) > wqe.target.length() {
            Err(SgFault::Length)
        } else {
            Ok(())
        };
        let placed = fits
            .and_then(|()| wqe.place(&nic.keys, 0, &network_header(flow, packet)))
            .and_then(|()| wqe.place(&nic.keys, GRH_LEN as u32, packet.payload));
        let status = placed.map_or_else(Status::from, |()| Status::Success);
        if let Err(fault) = placed {
            roce.common.record_misplaced(nic, fault, u64::from(length), &wqe);
        }
        let operation = packet.headers.bth.opcode.operation();
        let mut done = roce.common.received(&wqe, status, length);
        done.completion.src_qp = packet.headers.deth.src_qp;
        done.completion.grh = true;
        done.completion.ipv4 = flow.src.is_ipv4();
        done.completion.immediate = operation.has_immediate().then_some(packet.headers.immediate);
        done.solicited = packet.headers.bth.solicited;
        roce.common.complete_recv(nic, done);
        if status == Status::Success {
            Ok(())
        } else {
            Err(Fatal)
        }
    }
}

/// Writes down that a datagram was dropped: its sender hears nothing of it.
#[cold]
fn record_dropped(roce: &RoceContext, nic: &mut NicResources, reason: RefusalReason) {
    nic.record(roce.common.qpn, QpEvent::Dropped(RequestKind::Send, reason));
}

/// The packet's IP header as far as a socket lets us know it; an IPv4 header goes in the last 20 bytes.
fn network_header(flow: &Flow, packet: &Packet<'_>) -> [u8; GRH_LEN] {
    const UDP: u8 = 17;
    const TTL: u8 = 64;
    let udp_length =
        8 + (packet.headers.len() + packet.payload.len() + pad_len(packet.payload.len()) + ICRC_LEN) as u16;
    let mut header = [0; GRH_LEN];
    match (flow.src, flow.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let ip = &mut header[20..];
            ip[0] = 0x45;
            ip[2..4].copy_from_slice(&(20 + udp_length).to_be_bytes());
            ip[6] = 0x40;
            ip[8] = TTL;
            ip[9] = UDP;
            ip[12..16].copy_from_slice(&src.octets());
            ip[16..20].copy_from_slice(&dst.octets());
        }
        (src, dst) => {
            header[0] = 0x60;
            header[4..6].copy_from_slice(&udp_length.to_be_bytes());
            header[6] = UDP;
            header[7] = TTL;
            header[8..24].copy_from_slice(&as_v6(src));
            header[24..40].copy_from_slice(&as_v6(dst));
        }
    }
    header
}

fn as_v6(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}
