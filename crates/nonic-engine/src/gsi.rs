//! QP 1, the general services interface: which process a packet is for, and the connection manager behind it.
//!
//! An address has one QP 1, however many processes share its UDP port 4791. Whoever receives a message there reads just
//! enough of it to find the process it is for ([`owner_of`]); that process checks it again as it would any packet from
//! the wire.

use crate::entropy::KernelEntropy;
use crate::registry::Block;
use crate::socket::WireSocket;
use nonic_core::cm::{Cm, CmConfig, Route};
use nonic_core::{Time, Transmit};
use nonic_wire::cm::CmMad;
use nonic_wire::mad::{GSI_QKEY, MAD_LEN};
use nonic_wire::{Bth, Deth, Flow, Headers, ICRC_LEN, Opcode, Packet, Psn, Qpn, ROCE_PORT, Verdict, icrc};
use std::net::IpAddr;

/// The queue pair that management datagrams go to.
const GSI: Qpn = Qpn::new(1);

/// For a tenth of a second a port may come to be listened on.
const UNSERVED_RETRIES: u8 = 10;

/// The process a packet that came to port 4791 is for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// Whoever has this block of queue pair numbers.
    Block(Block),
    /// Whoever has this block of connection identifiers, which is the same process.
    Identifier(Block),
    /// Whoever listens on this service.
    Service(u64),
    /// Nobody in particular: whoever received it.
    Receiver,
}

/// Which process a packet is for, as far as it says. Nothing of it is verified.
pub(crate) fn owner_of(packet: &[u8]) -> Owner {
    let Some(qpn) = destination(packet) else {
        return Owner::Receiver;
    };
    if qpn != GSI {
        return Block::of_qpn(qpn.value()).map_or(Owner::Receiver, Owner::Block);
    }
    let Some(message) = Packet::parse(packet).ok().and_then(|packet| message_of(&packet)) else {
        return Owner::Receiver;
    };
    if let Some(service) = message.message.service_id() {
        return Owner::Service(service.0);
    }
    let block = message.message.receiver_id().and_then(block_of);
    block.map_or(Owner::Receiver, Owner::Identifier)
}

/// The block of queue pair numbers that the process has which gave a connection this identifier.
pub(crate) fn block_of(id: u32) -> Option<Block> {
    Block::new((id >> 20) as u16)
}

/// A device's QP 1.
#[derive(Debug)]
pub(crate) struct Gsi {
    pub(crate) cm: Cm,
    next_psn: Psn,
}

impl Gsi {
    /// `id_block` tells whoever receives the answers to our messages at port 4791 that they are ours.
    pub(crate) fn new(ca_guid: u64, id_block: Option<Block>) -> Self {
        let config = CmConfig {
            ca_guid,
            id_block: id_block.map(Block::number),
            max_unserved_retries: UNSERVED_RETRIES,
            ..CmConfig::default()
        };
        Gsi {
            cm: Cm::new(config, Box::new(KernelEntropy::new())),
            next_psn: Psn::new(0),
        }
    }

    /// Takes a packet for QP 1. `index` is its place in the batch it came with.
    pub(crate) fn receive(&mut self, now: Time, flow: &Flow, index: usize, bytes: &[u8]) {
        let Ok(packet) = Packet::parse(bytes) else { return };
        // Peers send any Identification, and a message is worth little until its identifiers fit.
        let intact = icrc::verify(flow, index as u16, true, bytes) != Verdict::Bad;
        if intact && message_of(&packet).is_some() {
            let route = Route {
                local: flow.dst,
                remote: flow.src,
            };
            self.cm.handle_mad(now, route, packet.payload);
        }
    }

    /// Passes on which hosts refuse what this socket sends.
    #[inline]
    pub(crate) fn hear_refusals(&mut self, now: Time, socket: &WireSocket) {
        while let Some(host) = socket.poll_refusal() {
            self.cm.unreachable(now, host);
        }
    }

    /// Writes the next message to `out`. `port_of` answers from which port packets of an address leave.
    pub(crate) fn transmit(
        &mut self,
        port_of: impl Fn(IpAddr) -> Option<u16>,
        out: &mut [u8],
    ) -> Option<Transmit> {
        loop {
            let message = self.cm.poll_transmit()?;
            // An address that is gone cannot be sent from; the message counts as lost.
            let Some(src_port) = port_of(message.route.local) else {
                continue;
            };
            let flow = Flow {
                src: message.route.local,
                dst: message.route.remote,
                src_port,
                dst_port: ROCE_PORT,
            };
            let mut headers = Headers::new(Bth::new(Opcode::UD_SEND_ONLY, GSI, self.next_psn));
            headers.deth = Deth {
                qkey: GSI_QKEY,
                src_qp: GSI,
            };
            self.next_psn = self.next_psn.next();
            let start = headers.emit(out);
            let len = start + MAD_LEN + ICRC_LEN;
            out[start..start + MAD_LEN].copy_from_slice(&message.mad);
            icrc::seal(&flow, 0, &mut out[..len]);
            return Some(Transmit {
                flow,
                dest_qpn: route_of(&out[..len]),
                len,
                segment_size: len,
                segments: 1,
            });
        }
    }
}

/// A queue pair number of the process that a message is for: on this host it is then sent there directly, without
/// the detour over port 4791. Only a request, which knows no more than a service, must take that.
fn route_of(packet: &[u8]) -> Qpn {
    match owner_of(packet) {
        Owner::Identifier(block) => Qpn::new(block.first_qpn()),
        _ => GSI,
    }
}

/// Whether a packet is for QP 1.
pub(crate) fn is_for(packet: &[u8]) -> bool {
    destination(packet) == Some(GSI)
}

fn destination(packet: &[u8]) -> Option<Qpn> {
    let qpn = packet.get(4..8)?;
    Some(Qpn::new(u32::from_be_bytes(qpn.try_into().ok()?) & 0xff_ffff))
}

/// The connection manager's message in a packet, if it is one.
fn message_of(packet: &Packet<'_>) -> Option<CmMad> {
    let headers = &packet.headers;
    let is_management = headers.bth.opcode == Opcode::UD_SEND_ONLY
        && headers.deth.qkey == GSI_QKEY
        && headers.bth.is_default_partition()
        && packet.payload.len() == MAD_LEN;
    is_management.then(|| CmMad::parse(packet.payload).ok()).flatten()
}
