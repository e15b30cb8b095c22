//! Writes pcapng captures of RoCEv2 packets, and of TCP segments, that Wireshark opens, with nanosecond stamps.
//!
//! A socket does not show IP and UDP headers, so they are made up again from the [`Flow`] and the Identification;
//! fields that cannot be known (TOS, TTL, IPv6 flow label) get plain values. Nothing is buffered beyond one packet and
//! nothing is read back: wrap a file in a `BufWriter` and flush it yourself.
//!
//! ```
//! use nonic_wire::{Flow, ROCE_PORT, pcapng::PcapngWriter};
//! let flow = Flow {
//!     src: "fd00::1".parse().unwrap(),
//!     dst: "fd00::2".parse().unwrap(),
//!     src_port: 50_000,
//!     dst_port: ROCE_PORT,
//! };
//! let mut capture = PcapngWriter::new(Vec::new()).unwrap();
//! capture.write_packet(1_700_000_000_000_000_000, None, &flow, 0, &[0; 16]).unwrap();
//! assert_eq!(capture.into_inner().len() % 4, 0);
//! ```

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::TryFromIntError;

use crate::Flow;
use crate::icrc::to_ipv6;
use crate::pcap::{Direction, TCP, TCP_LEN, TcpSegment};

/// Writes a capture with one raw-IP interface, or several.
#[derive(Debug)]
pub struct PcapngWriter<W> {
    inner: W,
    /// The block under construction: each block goes out in one `write_all`, so that writers that share a
    /// file opened for appending do not interleave.
    block: Vec<u8>,
    interfaces: u32,
}

impl<W: Write> PcapngWriter<W> {
    /// Writes the section header and that of an interface without a name.
    pub fn new(inner: W) -> io::Result<Self> {
        Self::named(inner, "")
    }

    /// Writes the section header and that of an interface, which readers show by this name.
    pub fn named(inner: W, interface: &str) -> io::Result<Self> {
        let mut writer = Self {
            inner,
            block: Vec::new(),
            interfaces: 0,
        };
        writer.begin(SECTION_HEADER);
        writer.block.extend_from_slice(&BYTE_ORDER_MAGIC.to_le_bytes());
        writer.block.extend_from_slice(&1u16.to_le_bytes());
        writer.block.extend_from_slice(&0u16.to_le_bytes());
        // Section length: not known in advance.
        writer.block.extend_from_slice(&u64::MAX.to_le_bytes());
        writer.finish()?;
        writer.add_interface(interface)?;
        Ok(writer)
    }

    /// Writes the header of one more interface; returns its number. The first one is 0.
    pub fn add_interface(&mut self, name: &str) -> io::Result<u32> {
        self.begin(INTERFACE_DESCRIPTION);
        self.block.extend_from_slice(&LINK_RAW_IP.to_le_bytes());
        self.block.extend_from_slice(&0u16.to_le_bytes());
        // Snapshot length: unlimited.
        self.block.extend_from_slice(&0u32.to_le_bytes());
        if !name.is_empty() {
            self.option(OPTION_INTERFACE_NAME, name.as_bytes());
        }
        // Time stamps count 10^-9 s.
        self.option(OPTION_TIME_RESOLUTION, &[9]);
        self.end_options();
        self.finish()?;
        self.interfaces += 1;
        Ok(self.interfaces - 1)
    }

    /// Appends one packet of the first interface: see [`write_packet_of`](Self::write_packet_of).
    ///
    /// # Errors
    /// The same.
    pub fn write_packet(
        &mut self,
        timestamp_ns: u64,
        direction: Option<Direction>,
        flow: &Flow,
        identification: u16,
        packet: &[u8],
    ) -> io::Result<()> {
        self.write_packet_of(0, timestamp_ns, direction, flow, identification, packet)
    }

    /// Appends one packet of an interface, `packet` being the UDP payload including the ICRC, with the way it went if that is known.
    ///
    /// # Errors
    /// Those of the writer underneath; `InvalidInput` if the packet does not fit a datagram.
    pub fn write_packet_of(
        &mut self,
        interface: u32,
        timestamp_ns: u64,
        direction: Option<Direction>,
        flow: &Flow,
        identification: u16,
        packet: &[u8],
    ) -> io::Result<()> {
        self.write_ip(interface, timestamp_ns, direction, |out| {
            push_datagram(out, flow, identification, packet)
        })
    }

    /// Appends one TCP segment of an interface, with the way it went.
    ///
    /// # Errors
    /// Those of the writer underneath; `InvalidInput` if the segment does not fit an IP packet.
    pub fn write_segment_of(
        &mut self,
        interface: u32,
        timestamp_ns: u64,
        direction: Direction,
        segment: &TcpSegment<'_>,
    ) -> io::Result<()> {
        self.write_ip(interface, timestamp_ns, Some(direction), |out| {
            push_segment(out, segment)
        })
    }

    fn write_ip(
        &mut self,
        interface: u32,
        timestamp_ns: u64,
        direction: Option<Direction>,
        push: impl FnOnce(&mut Vec<u8>) -> io::Result<()>,
    ) -> io::Result<()> {
        self.begin(ENHANCED_PACKET);
        // The interface, the stamp (high half first), then the captured and the original length.
        let [low, high] = [timestamp_ns as u32, (timestamp_ns >> 32) as u32];
        for field in [interface, high, low, 0, 0] {
            self.block.extend_from_slice(&field.to_le_bytes());
        }
        let start = self.block.len();
        push(&mut self.block)?;
        let len = ((self.block.len() - start) as u32).to_le_bytes();
        self.block[start - 8..start - 4].copy_from_slice(&len);
        self.block[start - 4..start].copy_from_slice(&len);
        if let Some(direction) = direction {
            let flags: u32 = match direction {
                Direction::Inbound => 1,
                Direction::Outbound => 2,
            };
            self.pad();
            self.option(OPTION_PACKET_FLAGS, &flags.to_le_bytes());
            self.end_options();
        }
        self.finish()
    }

    /// Flushes the writer underneath.
    pub fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }

    /// Gives the writer underneath back.
    pub fn into_inner(self) -> W {
        self.inner
    }

    fn begin(&mut self, kind: u32) {
        self.block.clear();
        self.block.extend_from_slice(&kind.to_le_bytes());
        // The total length, known only at the end.
        self.block.extend_from_slice(&[0; 4]);
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        // Names longer than that are no names.
        let value = &value[..value.len().min(usize::from(u8::MAX))];
        self.block.extend_from_slice(&code.to_le_bytes());
        self.block.extend_from_slice(&(value.len() as u16).to_le_bytes());
        self.block.extend_from_slice(value);
        self.pad();
    }

    fn end_options(&mut self) {
        self.block.extend_from_slice(&[0; 4]);
    }

    fn pad(&mut self) {
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    fn finish(&mut self) -> io::Result<()> {
        self.pad();
        let total_len = (self.block.len() as u32 + 4).to_le_bytes();
        self.block[4..8].copy_from_slice(&total_len);
        self.block.extend_from_slice(&total_len);
        self.inner.write_all(&self.block)
    }
}

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const LINK_RAW_IP: u16 = 101;
const OPTION_INTERFACE_NAME: u16 = 2;
const OPTION_TIME_RESOLUTION: u16 = 9;
const OPTION_PACKET_FLAGS: u16 = 2;

const UDP: u8 = 17;
const UDP_LEN: usize = 8;
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
const HOP_LIMIT: u8 = 64;

/// Appends IP header, UDP header and `packet`.
fn push_datagram(out: &mut Vec<u8>, flow: &Flow, identification: u16, packet: &[u8]) -> io::Result<()> {
    let udp_len = u16::try_from(UDP_LEN + packet.len()).map_err(too_long)?;
    let mut udp = [0; UDP_LEN];
    udp[0..2].copy_from_slice(&flow.src_port.to_be_bytes());
    udp[2..4].copy_from_slice(&flow.dst_port.to_be_bytes());
    udp[4..6].copy_from_slice(&udp_len.to_be_bytes());
    if let (IpAddr::V4(src), IpAddr::V4(dst)) = (flow.src, flow.dst) {
        let total_len = u16::try_from(IPV4_LEN + UDP_LEN + packet.len()).map_err(too_long)?;
        out.extend_from_slice(&ipv4_header(src, dst, total_len, identification, UDP));
        // IPv4 allows a UDP checksum of zero, "none", and RoCEv2 senders make use of it.
    } else {
        let header = ipv6_header(to_ipv6(flow.src), to_ipv6(flow.dst), udp_len, UDP);
        // Linux rxe sends zero here too, but IPv6 forbids that and Wireshark says so. A UDP socket fills it in.
        let sum = one_complement_sum(&header[8..])
            + u64::from(udp_len)
            + u64::from(UDP)
            + one_complement_sum(&udp)
            + one_complement_sum(packet);
        let checksum = match fold(sum) {
            0 => 0xffff,
            other => other,
        };
        udp[6..8].copy_from_slice(&checksum.to_be_bytes());
        out.extend_from_slice(&header);
    }
    out.extend_from_slice(&udp);
    out.extend_from_slice(packet);
    Ok(())
}

/// Appends IP header, TCP header and payload.
fn push_segment(out: &mut Vec<u8>, segment: &TcpSegment<'_>) -> io::Result<()> {
    let tcp_len = u16::try_from(TCP_LEN + segment.payload.len()).map_err(too_long)?;
    let (src, dst) = (segment.src.ip(), segment.dst.ip());
    let addresses = if let (IpAddr::V4(src), IpAddr::V4(dst)) = (src, dst) {
        let total_len = tcp_len.checked_add(IPV4_LEN as u16);
        let total_len = total_len.ok_or(io::ErrorKind::InvalidInput)?;
        out.extend_from_slice(&ipv4_header(src, dst, total_len, 0, TCP));
        one_complement_sum(&src.octets()) + one_complement_sum(&dst.octets())
    } else {
        let header = ipv6_header(to_ipv6(src), to_ipv6(dst), tcp_len, TCP);
        out.extend_from_slice(&header);
        one_complement_sum(&header[8..])
    };
    let mut header = segment.header();
    let sum = addresses
        + u64::from(tcp_len)
        + u64::from(TCP)
        + one_complement_sum(&header)
        + one_complement_sum(segment.payload);
    header[16..18].copy_from_slice(&fold(sum).to_be_bytes());
    out.extend_from_slice(&header);
    out.extend_from_slice(segment.payload);
    Ok(())
}

fn too_long(_: TryFromIntError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it does not fit an IP packet")
}

fn ipv4_header(
    src: Ipv4Addr,
    dst: Ipv4Addr,
    total_len: u16,
    identification: u16,
    protocol: u8,
) -> [u8; IPV4_LEN] {
    let mut header = [0; IPV4_LEN];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&total_len.to_be_bytes());
    header[4..6].copy_from_slice(&identification.to_be_bytes());
    // Don't fragment: the ICRC counts on it.
    header[6] = 0x40;
    header[8] = HOP_LIMIT;
    header[9] = protocol;
    header[12..16].copy_from_slice(&src.octets());
    header[16..20].copy_from_slice(&dst.octets());
    let checksum = fold(one_complement_sum(&header));
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    header
}

fn ipv6_header(src: Ipv6Addr, dst: Ipv6Addr, payload_len: u16, protocol: u8) -> [u8; IPV6_LEN] {
    let mut header = [0; IPV6_LEN];
    header[0] = 0x60;
    header[4..6].copy_from_slice(&payload_len.to_be_bytes());
    header[6] = protocol;
    header[7] = HOP_LIMIT;
    header[8..24].copy_from_slice(&src.octets());
    header[24..40].copy_from_slice(&dst.octets());
    header
}

/// Sum of big-endian 16-bit words (RFC 1071), carries not yet folded; an odd byte counts as the upper half.
fn one_complement_sum(bytes: &[u8]) -> u64 {
    bytes
        .chunks(2)
        .map(|pair| u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or_default()))
        .sum()
}

/// Adds the carries back in and inverts: the checksum as it stands in the header.
fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
