//! Demultiplexing: which process a packet that came to port 4791 is for.
//!
//! An address has one QP 1, however many processes share its UDP port. The process that receives a message there reads just
//! enough of it to find the process it is for ([`owner_of`]). That process checks it again as it would any packet from the
//! wire. This module verifies nothing and does no I/O.

use super::Block;
use crate::link::datagrams::{Datagrams, Deliver};
use nonic_core::management_datagram;
use nonic_wire::cm::CmMad;
use nonic_wire::mad::MAD_LEN;
use nonic_wire::{Packet, Qpn};

/// The process a packet that came to port 4791 is for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// The process that has this block of queue pair numbers.
    Block(Block),
    /// The process that has this block of connection identifiers, which is the owner of the block of queue pair numbers.
    Identifier(Block),
    /// The process that listens on this service.
    Service(u64),
    /// No process in particular: the process that received it.
    Receiver,
}

/// Which process a packet is for, as far as it says.
pub(crate) fn owner_of(packet: &[u8]) -> Owner {
    match destination(packet) {
        None => Owner::Receiver,
        Some(Qpn::GSI) => {
            let packet = Packet::parse(packet).ok();
            let mad = packet.and_then(|packet| management_datagram(&packet).ok());
            mad.map_or(Owner::Receiver, owner_of_message)
        }
        Some(qpn) => Block::of_qpn(qpn.value()).map_or(Owner::Receiver, Owner::Block),
    }
}

/// Which process a message of the connection manager is for.
fn owner_of_message(mad: &[u8; MAD_LEN]) -> Owner {
    let Ok(message) = CmMad::parse(mad) else {
        return Owner::Receiver;
    };
    if let Some(service) = message.message.service_id() {
        return Owner::Service(service.0);
    }
    let block = message.message.receiver_id().and_then(block_of);
    block.map_or(Owner::Receiver, Owner::Identifier)
}

/// A queue pair number of the process that a message is for: on this host it is then sent there directly, without
/// the detour over port 4791. Only a request, which knows no more than a service, must take that.
pub(crate) fn dest_qpn_of(mad: &[u8; MAD_LEN]) -> Qpn {
    match owner_of_message(mad) {
        Owner::Identifier(block) => Qpn::new(block.first_qpn()),
        _ => Qpn::GSI,
    }
}

/// The block of queue pair numbers of the process that gave a connection this identifier.
pub(crate) fn block_of(id: u32) -> Option<Block> {
    Block::new((id >> 20) as u16)
}

pub(crate) fn destination(packet: &[u8]) -> Option<Qpn> {
    let qpn = packet.get(4..8)?;
    Some(Qpn::new(u32::from_be_bytes(qpn.try_into().ok()?) & 0xff_ffff))
}

/// Cuts a batch into runs of packets for the same process. Each is offered to `pass_on`, which answers whether it is ours:
/// then it goes to `deliver`.
pub(crate) fn sort(
    datagrams: &Datagrams<'_>,
    mut pass_on: impl FnMut(Owner, &Datagrams<'_>) -> bool,
    deliver: &mut Deliver<'_>,
) {
    let mut rest = datagrams.bytes;
    while !rest.is_empty() {
        let owner = owner_of(&rest[..datagrams.stride.min(rest.len())]);
        let run = rest
            .chunks(datagrams.stride)
            .take_while(|packet| owner_of(packet) == owner)
            .map(<[u8]>::len);
        let length = run.sum::<usize>().max(1).min(rest.len());
        let (head, tail) = rest.split_at(length);
        rest = tail;
        let run = Datagrams {
            bytes: head,
            ..*datagrams
        };
        if pass_on(owner, &run) {
            deliver(&run);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nonic_wire::{Bth, Headers, Opcode, Psn};

    fn packet(qpn: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        Packet {
            headers: Headers::new(Bth::new(Opcode::RC_SEND_ONLY, Qpn::new(qpn), Psn::new(0))),
            payload: &[],
            icrc: [0; 4],
        }
        .emit_into(&mut bytes);
        bytes
    }

    #[test]
    fn a_batch_is_cut_where_the_process_changes() {
        let qpns = [0x1_001, 0x1_002, 0x2_001, 0x1_003, 0];
        let packets: Vec<Vec<u8>> = qpns.iter().map(|qpn| packet(*qpn)).collect();
        let bytes = packets.concat();
        let datagrams = Datagrams {
            src: "10.0.0.1:4791".parse().expect("an address"),
            dst_ip: "10.0.0.2".parse().expect("an address"),
            ecn: 0,
            stride: packets[0].len(),
            bytes: &bytes,
            sealed: true,
        };
        let (mut runs, mut ours) = (Vec::new(), Vec::new());
        sort(
            &datagrams,
            |owner, run| {
                runs.push((owner, run.segments().count()));
                owner == Owner::Block(Block::FIRST) || owner == Owner::Receiver
            },
            &mut |run| ours.push(run.segments().count()),
        );
        let second = Block::new(2).expect("a block");
        assert_eq!(
            runs,
            [
                (Owner::Block(Block::FIRST), 2),
                (Owner::Block(second), 1),
                (Owner::Block(Block::FIRST), 1),
                (Owner::Receiver, 1)
            ]
        );
        assert_eq!(ours, [2, 1, 1], "and what is nobody's is whose socket it came to");
    }

    #[test]
    fn what_is_no_packet_is_the_receivers() {
        for bytes in [&[][..], &[0xff; 7], &[0; 8]] {
            assert_eq!(owner_of(bytes), Owner::Receiver);
        }
    }
}
