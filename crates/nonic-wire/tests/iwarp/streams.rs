//! Reads captures of TCP: one byte stream per direction of each connection.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use nonic_wire::pcap;

/// Both directions of one TCP connection, as bytes.
pub(crate) struct Connection {
    /// Capture and port, for messages.
    pub(crate) name: String,
    /// From the side that connected.
    pub(crate) from_initiator: Vec<u8>,
    /// From the side that listened.
    pub(crate) from_responder: Vec<u8>,
}

/// Every connection of every capture that carried at least one byte.
pub(crate) fn all() -> Vec<Connection> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/iwarp");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&directory)
        .expect("the captures are part of the repository")
        .map(|entry| entry.expect("directory entries are readable").path())
        .collect();
    paths.sort();
    paths.into_iter().flat_map(|path| connections(&path)).collect()
}

type Endpoint = (Ipv4Addr, u16);

/// What one endpoint sent to another.
#[derive(Default)]
struct Stream {
    /// Sequence number of the first byte; known from the SYN.
    first: u32,
    opened: bool,
    /// By distance from the first byte.
    segments: BTreeMap<u32, Vec<u8>>,
}

impl Stream {
    /// The bytes in order; retransmissions may overlap, gaps may not be.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (&at, segment) in &self.segments {
            let known = bytes
                .len()
                .checked_sub(at as usize)
                .expect("no segment is missing");
            bytes.extend_from_slice(segment.get(known..).unwrap_or(&[]));
        }
        bytes
    }
}

fn connections(path: &std::path::Path) -> Vec<Connection> {
    let file = std::fs::read(path).expect("captures are readable");
    let mut streams: BTreeMap<(Endpoint, Endpoint), Stream> = BTreeMap::new();
    let mut initiated = Vec::new();
    for frame in pcap::Reader::new(&file).expect("a classic pcap file") {
        let segment = TcpSegment::parse(frame.expect("the capture is whole").bytes);
        let key = (segment.src, segment.dst);
        let stream = streams.entry(key).or_default();
        if segment.syn {
            stream.first = segment.seq.wrapping_add(1);
            stream.opened = true;
            if !segment.ack {
                initiated.push(key);
            }
        } else if !segment.payload.is_empty() {
            assert!(stream.opened, "the capture shows connections from their start");
            let at = segment.seq.wrapping_sub(stream.first);
            stream.segments.insert(at, segment.payload.to_vec());
        }
    }
    let name = path.file_stem().expect("a capture has a name").to_string_lossy();
    let open = initiated.into_iter().map(|(initiator, responder)| Connection {
        name: format!("{name}:{}", initiator.1),
        from_initiator: streams[&(initiator, responder)].bytes(),
        from_responder: streams[&(responder, initiator)].bytes(),
    });
    open.filter(|connection| !connection.from_initiator.is_empty())
        .collect()
}

struct TcpSegment<'a> {
    src: Endpoint,
    dst: Endpoint,
    seq: u32,
    syn: bool,
    ack: bool,
    payload: &'a [u8],
}

impl<'a> TcpSegment<'a> {
    /// In an Ethernet frame with an IPv4 packet; the captures have nothing else.
    fn parse(frame: &'a [u8]) -> Self {
        let half = |bytes: &[u8], at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        assert_eq!(half(frame, 12), 0x0800, "IPv4");
        let ip = &frame[14..];
        let ip = &ip[..usize::from(half(ip, 2))];
        assert_eq!(ip[9], 6, "TCP");
        let address = |at: usize| Ipv4Addr::new(ip[at], ip[at + 1], ip[at + 2], ip[at + 3]);
        let tcp = &ip[usize::from(ip[0] & 0x0f) * 4..];
        Self {
            src: (address(12), half(tcp, 0)),
            dst: (address(16), half(tcp, 2)),
            seq: u32::from(half(tcp, 4)) << 16 | u32::from(half(tcp, 6)),
            syn: tcp[13] & 0x02 != 0,
            ack: tcp[13] & 0x10 != 0,
            payload: &tcp[usize::from(tcp[12] >> 4) * 4..],
        }
    }
}
