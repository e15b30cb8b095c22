//! The invariant CRC (ICRC): covers everything that does not change between the two ends.
//!
//! It is CRC-32 over eight bytes of ones, the IP and UDP headers and the packet, with the fields that
//! routers may change replaced by ones: TOS, TTL and header checksum (IPv6: traffic class, flow label, hop
//! limit), the UDP checksum, and the BTH byte with the congestion bits. It stands on the wire least
//! significant byte first.
//!
//! The IPv4 Identification *is* covered, but a UDP socket does not show it. Our own sender makes it
//! predictable; other peers (Linux rxe, hardware) count it up. CRC is linear, so an unknown Identification
//! can be solved for: the difference between the received ICRC and one computed with a guessed
//! Identification is the image of sixteen known bit positions. [`verify`] undoes the shift that the bytes
//! behind the field caused and looks whether only those sixteen bits differ. That leaves sixteen bits of
//! error detection instead of thirty-two: a corrupted packet passes with probability 2^-16.
//!
//! Read [`compute`] and [`verify`] first; the arithmetic is in `gf2.rs`.

mod gf2;

use std::net::{IpAddr, Ipv6Addr};

use crc32fast::Hasher;

use crate::{Bth, ICRC_LEN};

/// The parts of the IP and UDP headers the ICRC covers.
///
/// Both addresses should be of one family; a mixed pair is treated as IPv6 with mapped addresses.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Flow {
    /// Address of the sender.
    pub src: IpAddr,
    /// Address of the receiver.
    pub dst: IpAddr,
    /// UDP port of the sender.
    pub src_port: u16,
    /// UDP port of the receiver, [`crate::ROCE_PORT`] for all RoCEv2.
    pub dst_port: u16,
}

impl Flow {
    /// The same flow seen from the other end.
    pub const fn reversed(&self) -> Flow {
        Flow {
            src: self.dst,
            dst: self.src,
            src_port: self.dst_port,
            dst_port: self.src_port,
        }
    }
}

/// What [`verify`] found.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Verdict {
    /// The ICRC fits, with the expected Identification if there is one.
    Verified,
    /// The ICRC fits with this Identification and no other.
    VerifiedWithId(u16),
    /// The packet is damaged, or not for this flow.
    Bad,
}

/// ICRC bytes as they stand on the wire. `packet` is everything from the BTH up to and excluding the ICRC.
/// `identification` is that of the IPv4 header and ignored for IPv6; "don't fragment" is assumed to be set.
pub fn compute(flow: &Flow, identification: u16, packet: &[u8]) -> [u8; ICRC_LEN] {
    checksum(flow, identification, packet).to_le_bytes()
}

/// Computes the ICRC of `datagram`, whose last four bytes it is, and writes it there.
/// A datagram shorter than that is left alone.
pub fn seal(flow: &Flow, identification: u16, datagram: &mut [u8]) {
    if let Some((packet, icrc)) = datagram.split_last_chunk_mut::<ICRC_LEN>() {
        *icrc = compute(flow, identification, packet);
    }
}

/// Checks the ICRC that ends `packet`.
///
/// `expected_id` is tried first. If it does not fit, the flow is IPv4 and `lenient` is set, the
/// Identification is solved for; see the module's text for what that costs in error detection.
pub fn verify(flow: &Flow, expected_id: u16, lenient: bool, packet: &[u8]) -> Verdict {
    let Some((covered, icrc)) = packet.split_last_chunk::<ICRC_LEN>() else {
        return Verdict::Bad;
    };
    let difference = checksum(flow, expected_id, covered) ^ u32::from_le_bytes(*icrc);
    if difference == 0 {
        return Verdict::Verified;
    }
    if !lenient || !matches!((flow.src, flow.dst), (IpAddr::V4(_), IpAddr::V4(_))) {
        return Verdict::Bad;
    }
    match solve_identification(difference, covered.len()) {
        Some(change) => Verdict::VerifiedWithId(expected_id ^ change),
        None => Verdict::Bad,
    }
}

/// ICRC bytes for a packet whose outer headers are at hand as they were on the wire, as in a capture.
/// `headers` is an IPv4 or IPv6 header without options or extensions and the UDP header behind it.
/// `None` if it is not that.
pub fn compute_behind(headers: &[u8], packet: &[u8]) -> Option<[u8; ICRC_LEN]> {
    let mut prefix = Prefix::new();
    match (headers.first()? >> 4, headers.len()) {
        (4, 28) if headers[0] == 0x45 => {
            prefix.push(&headers[..28]);
            prefix.mask(8 + 1, 1);
            prefix.mask(8 + 8, 1);
            prefix.mask(8 + 10, 2);
        }
        (6, 48) => {
            prefix.push(&headers[..48]);
            // Keep the version, hide traffic class and flow label.
            prefix.bytes[8] = 0x6f;
            prefix.mask(8 + 1, 3);
            prefix.mask(8 + 7, 1);
        }
        _ => return None,
    }
    let checksum_at = prefix.len - 2;
    prefix.mask(checksum_at, 2);
    Some(prefix.finish(packet).to_le_bytes())
}

fn checksum(flow: &Flow, identification: u16, packet: &[u8]) -> u32 {
    let udp_len = UDP_LEN + packet.len() + ICRC_LEN;
    let mut prefix = Prefix::new();
    match (flow.src, flow.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let total_len = (IPV4_LEN + udp_len) as u16;
            prefix.push(&[0x45, 0xff]);
            prefix.push(&total_len.to_be_bytes());
            prefix.push(&identification.to_be_bytes());
            // Don't fragment; TTL and header checksum hidden.
            prefix.push(&[0x40, 0x00, 0xff, UDP_PROTOCOL, 0xff, 0xff]);
            prefix.push(&src.octets());
            prefix.push(&dst.octets());
        }
        (src, dst) => {
            prefix.push(&[0x6f, 0xff, 0xff, 0xff]);
            prefix.push(&(udp_len as u16).to_be_bytes());
            prefix.push(&[UDP_PROTOCOL, 0xff]);
            prefix.push(&to_ipv6(src).octets());
            prefix.push(&to_ipv6(dst).octets());
        }
    }
    prefix.push(&flow.src_port.to_be_bytes());
    prefix.push(&flow.dst_port.to_be_bytes());
    prefix.push(&(udp_len as u16).to_be_bytes());
    prefix.push(&[0xff, 0xff]);
    prefix.finish(packet)
}

/// Given the difference two Identifications make to the CRC, the difference between the Identifications.
fn solve_identification(difference: u32, covered_len: usize) -> Option<u16> {
    // Behind the field: the rest of the IP header, the UDP header and the packet. The CRC register itself
    // stands four bytes behind the end of the message.
    let distance = IPV4_LEN - IPV4_ID_END + UDP_LEN + covered_len + size_of::<u32>();
    let origin = gf2::multiply(difference, gf2::inverse_power_of_bytes(distance)?);
    // In the reflected register the last byte of the message is the most significant one. The field is the
    // last two bytes seen from its own end, so anything in the lower half is damage from elsewhere.
    let [0, 0, high, low] = origin.to_le_bytes() else {
        return None;
    };
    Some(u16::from_be_bytes([high, low]))
}

/// The address in its IPv6 form, mapped if need be.
pub(crate) fn to_ipv6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

const IPV4_LEN: usize = 20;
const IPV4_ID_END: usize = 6;
const IPV6_LEN: usize = 40;
const UDP_LEN: usize = 8;
const UDP_PROTOCOL: u8 = 17;

/// The masked start of what the CRC covers, assembled on the stack: eight bytes that stand for the local
/// header RoCE does not have, IP, UDP, BTH.
struct Prefix {
    bytes: [u8; Self::CAPACITY],
    len: usize,
}

impl Prefix {
    const LOCAL_HEADER_LEN: usize = 8;
    const CAPACITY: usize = Self::LOCAL_HEADER_LEN + IPV6_LEN + UDP_LEN + Bth::LEN;
    const BTH_CONGESTION_AT: usize = 4;

    fn new() -> Self {
        Self {
            bytes: [0xff; Self::CAPACITY],
            len: Self::LOCAL_HEADER_LEN,
        }
    }

    #[inline(always)]
    fn push(&mut self, part: &[u8]) {
        self.bytes[self.len..self.len + part.len()].copy_from_slice(part);
        self.len += part.len();
    }

    fn mask(&mut self, at: usize, len: usize) {
        self.bytes[at..at + len].fill(0xff);
    }

    /// Adds the BTH with its congestion byte hidden, then sums everything.
    #[inline(always)]
    fn finish(mut self, packet: &[u8]) -> u32 {
        let (bth, rest) = packet.split_at(packet.len().min(Bth::LEN));
        let start = self.len;
        self.push(bth);
        if bth.len() > Self::BTH_CONGESTION_AT {
            self.bytes[start + Self::BTH_CONGESTION_AT] = 0xff;
        }
        let mut hasher = Hasher::new();
        hasher.update(&self.bytes[..self.len]);
        hasher.update(rest);
        hasher.finalize()
    }
}
