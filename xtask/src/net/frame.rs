//! A frame of a TUN device: an IPv4 packet, or several that the kernel left in one piece (TSO, USO), behind the virtio
//! header that says so. Each packet can be treated by itself, and neighbours can be passed on in one piece again.
//!
//! Nothing here does I/O, and whatever the bytes are, nothing panics.
//!
//! Read first: [`Frame::parse`], then [`Frame::part`].

use std::net::Ipv4Addr;
use std::ops::Range;

/// Bytes of virtio's header.
pub(super) const VIRTIO: usize = 10;
/// As long as the headers of virtio, IPv4 and TCP can be together.
pub(super) const MOST_HEADERS: usize = VIRTIO + 60 + 60;

const NEEDS_CHECKSUM: u8 = 1;
const GSO_TCP4: u8 = 1;
const GSO_UDP: u8 = 5;
/// A flag beside the type: the first packet has CWR.
const GSO_ECN: u8 = 0x80;

const TCP: u8 = 6;
const UDP: u8 = 17;
const UDP_HEADER: usize = 8;
const ROCE_PORT: [u8; 2] = 4791_u16.to_be_bytes();
const FIN_AND_PSH: u8 = 0x09;
const CWR: u8 = 0x80;

/// Where things are in what was read.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) destination: Ipv4Addr,
    /// Whether ECN's bits say that it may be marked, or is.
    pub(super) can_be_marked: bool,
    protocol: u8,
    ip_header: usize,
    /// Bytes of the headers of IP and, if there are several packets, what it carries.
    headers: usize,
    /// Bytes after the headers, in all of it.
    payload: usize,
    /// Bytes after the headers in each packet but the last.
    step: usize,
}

/// Some packets of a frame that follow each other, ready to be written: their headers, and where their payload is.
pub(super) struct Part {
    headers: [u8; MOST_HEADERS],
    length: usize,
    pub(super) payload: Range<usize>,
}

impl Part {
    pub(super) fn headers(&self) -> &[u8] {
        &self.headers[..self.length]
    }
}

impl Frame {
    /// Nothing if it is no IPv4, or of a kind that we did not ask the kernel for.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (virtio, packet) = bytes.split_at_checked(VIRTIO)?;
        let first = *packet.first()?;
        let ip_header = usize::from(first & 0xf) * 4;
        if first >> 4 != 4 || ip_header < 20 || packet.len() < ip_header {
            return None;
        }
        let protocol = packet[9];
        let destination = Ipv4Addr::from(<[u8; 4]>::try_from(&packet[16..20]).ok()?);
        let transport = &packet[ip_header..];
        let (transport_header, step) = match virtio[1] & !GSO_ECN {
            0 => (0, transport.len()),
            GSO_TCP4 if protocol == TCP && transport.len() >= 20 => {
                (usize::from(transport[12] >> 4) * 4, segment(virtio))
            }
            GSO_UDP if protocol == UDP => (UDP_HEADER, segment(virtio)),
            _ => return None,
        };
        let least = if virtio[1] & !GSO_ECN == GSO_TCP4 { 20 } else { 0 };
        if transport_header < least {
            return None;
        }
        Some(Self {
            destination,
            can_be_marked: packet[1] & 3 != 0,
            protocol,
            ip_header,
            headers: ip_header + transport_header,
            payload: transport.len().checked_sub(transport_header)?,
            step: step.max(1),
        })
    }

    /// How many packets it is.
    pub(super) fn packets(&self) -> usize {
        self.payload.div_ceil(self.step).max(1)
    }

    /// Bytes of one of its packets.
    pub(super) fn length(&self, index: usize) -> usize {
        self.headers + self.payload_of(index..index + 1).len()
    }

    fn payload_of(&self, packets: Range<usize>) -> Range<usize> {
        (packets.start * self.step).min(self.payload)..(packets.end * self.step).min(self.payload)
    }

    /// The RoCE packet in one of its packets; empty if it is another one. `bytes` is what the frame was read from.
    pub(super) fn roce<'a>(&self, bytes: &'a [u8], index: usize) -> &'a [u8] {
        let transport = VIRTIO + self.ip_header;
        let port = bytes.get(transport + 2..transport + 4);
        if self.protocol != UDP || port != Some(&ROCE_PORT) {
            return &[];
        }
        let headers = VIRTIO + self.headers;
        let Range { start, end } = self.payload_of(index..index + 1);
        // The header of UDP is counted as payload if there is one packet only.
        let start = (headers + start).max(transport + UDP_HEADER);
        bytes.get(start..headers + end).unwrap_or_default()
    }

    /// Some of its packets in one piece, marked or not. `bytes` is what the frame was read from.
    pub(super) fn part(&self, bytes: &[u8], packets: Range<usize>, marked: bool) -> Part {
        let headers_end = VIRTIO + self.headers;
        let payload = self.payload_of(packets.clone());
        let mut part = Part {
            headers: [0; MOST_HEADERS],
            length: headers_end,
            payload: headers_end + payload.start..headers_end + payload.end,
        };
        part.headers[..headers_end].copy_from_slice(&bytes[..headers_end]);
        let all = self.packets();
        let (virtio, packet) = part.headers.split_at_mut(VIRTIO);
        let (ip, transport) = packet[..self.headers].split_at_mut(self.ip_header);
        if marked {
            ip[1] |= 3;
        }
        if packets != (0..all) {
            self.cut(virtio, ip, transport, &packets, payload);
        }
        if marked || packets != (0..all) {
            ip[10..12].fill(0);
            let sum = !fold(sum_of(ip));
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        part
    }

    /// Makes headers of the whole frame those of some of its packets.
    fn cut(
        &self,
        virtio: &mut [u8],
        ip: &mut [u8],
        transport: &mut [u8],
        packets: &Range<usize>,
        payload: Range<usize>,
    ) {
        let length = transport.len() + payload.len();
        let whole = (ip.len() + length) as u16;
        ip[2..4].copy_from_slice(&whole.to_be_bytes());
        let identifier = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(packets.start as u16);
        ip[4..6].copy_from_slice(&identifier.to_be_bytes());
        let checksum = match self.protocol {
            TCP => {
                let sequence = [transport[4], transport[5], transport[6], transport[7]];
                let sequence = u32::from_be_bytes(sequence).wrapping_add(payload.start as u32);
                transport[4..8].copy_from_slice(&sequence.to_be_bytes());
                if packets.end < self.packets() {
                    transport[13] &= !FIN_AND_PSH;
                }
                if packets.start > 0 {
                    transport[13] &= !CWR;
                    virtio[1] &= !GSO_ECN;
                }
                16
            }
            _ => {
                transport[4..6].copy_from_slice(&(length as u16).to_be_bytes());
                6
            }
        };
        // The kernel left the checksum to the code that cuts the packet: there is the sum over addresses, protocol and length.
        let sum = fold(self.pseudo_sum(ip, length));
        transport[checksum..checksum + 2].copy_from_slice(&sum.to_be_bytes());
        if packets.len() == 1 {
            virtio[1..6].fill(0);
        }
    }

    fn pseudo_sum(&self, ip: &[u8], length: usize) -> u64 {
        sum_of(&ip[12..20]) + u64::from(self.protocol) + length as u64
    }

    /// One of its packets with a wrong bit behind the header of IP, appended to `into`. Its checksum is that of the
    /// undamaged packet, and no flag tells the receiver to skip the check.
    pub(super) fn corrupt(&self, bytes: &[u8], index: usize, marked: bool, bit: u64, into: &mut Vec<u8>) {
        let part = self.part(bytes, index..index + 1, marked);
        into.clear();
        into.extend_from_slice(part.headers());
        into.extend_from_slice(&bytes[part.payload.clone()]);
        if into[0] & NEEDS_CHECKSUM != 0 {
            let start = usize::from(u16::from_ne_bytes([into[6], into[7]])) + VIRTIO;
            let field = start + usize::from(u16::from_ne_bytes([into[8], into[9]]));
            if field + 2 <= into.len() {
                let sum = !fold(sum_of(&into[start..]));
                // Nought would say that a datagram has none.
                let sum = if sum == 0 { 0xffff } else { sum };
                into[field..field + 2].copy_from_slice(&sum.to_be_bytes());
            }
        }
        into[..VIRTIO].fill(0);
        let behind = VIRTIO + self.ip_header;
        let bits = (into.len() - behind) as u64 * 8;
        if bits > 0 {
            let bit = bit % bits;
            into[behind + (bit / 8) as usize] ^= 1 << (bit % 8);
        }
    }
}

fn segment(virtio: &[u8]) -> usize {
    usize::from(u16::from_ne_bytes([virtio[4], virtio[5]]))
}

/// Of words of 16 bits, as the Internet's checksum adds them.
fn sum_of(bytes: &[u8]) -> u64 {
    let words = bytes.chunks(2);
    words
        .map(|word| u64::from(word[0]) << 8 | u64::from(word.get(1).copied().unwrap_or(0)))
        .sum()
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
