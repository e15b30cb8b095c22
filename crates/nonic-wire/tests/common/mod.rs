//! Shared parts of the tests: the captures, and one packet of every kind.
#![allow(dead_code, reason = "each test file uses a part of this module")]

use std::net::IpAddr;
use std::path::PathBuf;

use nonic_wire::{
    Aeth, AtomicEth, Bth, Deth, Feth, Flow, Headers, NakCode, Opcode, Packet, Psn, Qpn, ROCE_PORT, Reth,
    Syndrome, icrc, pcap,
};

/// A capture file of Linux rxe traffic.
pub(crate) struct Capture {
    pub(crate) name: String,
    bytes: Vec<u8>,
}

impl Capture {
    /// Every capture in the repository, by name.
    pub(crate) fn all() -> Vec<Capture> {
        let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/captures");
        let entries = std::fs::read_dir(&directory).expect("the captures are part of the repository");
        let mut captures: Vec<Capture> = entries
            .map(|entry| entry.expect("directory entries are readable").path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "pcap"))
            .map(|path| Capture {
                name: path
                    .file_stem()
                    .expect("a capture has a name")
                    .to_string_lossy()
                    .into_owned(),
                bytes: std::fs::read(&path).expect("captures are readable"),
            })
            .collect();
        captures.sort_by(|a, b| a.name.cmp(&b.name));
        captures
    }

    /// The RoCEv2 datagrams. Every frame of these captures must hold one.
    pub(crate) fn datagrams(&self) -> impl Iterator<Item = pcap::Datagram<'_>> {
        pcap::Reader::new(&self.bytes)
            .expect("a classic pcap file")
            .map(|frame| {
                let frame = frame.expect("the capture is whole");
                let datagram = frame.datagram().expect("the capture holds UDP only");
                assert_eq!(datagram.flow.dst_port, ROCE_PORT);
                datagram
            })
    }
}

/// Two hosts talking IPv4.
pub(crate) fn flow_v4() -> Flow {
    flow("192.168.7.1", "192.168.7.2")
}

/// Two hosts talking IPv6.
pub(crate) fn flow_v6() -> Flow {
    flow("fd00:6e6f::1", "fd00:6e6f::2")
}

fn flow(src: &str, dst: &str) -> Flow {
    let address = |text: &str| -> IpAddr { text.parse().expect("an address") };
    Flow {
        src: address(src),
        dst: address(dst),
        src_port: 0xc351,
        dst_port: ROCE_PORT,
    }
}

/// Headers in which every field has a value that shows up when it goes astray.
pub(crate) fn sample_headers(opcode: Opcode) -> Headers {
    let mut headers = Headers::new(Bth::new(opcode, Qpn::new(0x12_3456), Psn::new(0xab_cdef)));
    headers.bth.ack_request = opcode.operation().is_request();
    let set = opcode.headers();
    let has = |header| set.contains(header);
    use nonic_wire::HeaderSet as Set;
    if has(Set::DETH) {
        headers.deth = Deth {
            qkey: 0x1122_3344,
            src_qp: Qpn::new(0x55_6677),
        };
    }
    if has(Set::XRCETH) {
        headers.xrc_srqn = 0x98_7654;
    }
    if has(Set::FETH) {
        headers.feth = Feth {
            placement: 2,
            selectivity: 1,
        };
    }
    if has(Set::RETH) {
        headers.reth = Reth {
            va: 0x7f01_0203_0405_0607,
            rkey: 0x8899_aabb,
            dma_len: 0x0102_0304,
        };
    }
    if has(Set::ATOMIC) {
        headers.atomic = AtomicEth {
            va: 0x7f11_1213_1415_1618,
            rkey: 0x2122_2324,
            swap_add: 0x3132_3334_3536_3738,
            compare: 0x4142_4344_4546_4748,
        };
    }
    if has(Set::AETH) {
        headers.aeth = Aeth {
            syndrome: Syndrome::nak(NakCode::RemoteAccessError),
            msn: 0x61_6263,
        };
    }
    if has(Set::ATOMIC_ACK) {
        headers.atomic_original = 0x7172_7374_7576_7778;
    }
    if has(Set::IMMEDIATE) {
        headers.immediate = 0x8182_8384;
    }
    if has(Set::IETH) {
        headers.invalidate_rkey = 0x9192_9394;
    }
    headers
}

/// A sealed packet of the given kind; its payload, if it may have one, is odd so that there is padding.
pub(crate) fn sample_packet(opcode: Opcode, flow: &Flow, identification: u16) -> Vec<u8> {
    let payload: &[u8] = match opcode {
        // A fixed block of reserved bytes follows the header.
        Opcode::CNP => &[0; 16],
        Opcode::RC_ATOMIC_WRITE => &[1, 2, 3, 4, 5, 6, 7, 8],
        _ if opcode.operation().carries_payload() => b"seven bytes and a few more, odd",
        _ => &[],
    };
    let mut datagram = Vec::new();
    Packet {
        headers: sample_headers(opcode),
        payload,
        icrc: [0; 4],
    }
    .emit_into(&mut datagram);
    icrc::seal(flow, identification, &mut datagram);
    datagram
}

/// A small generator with a fixed algorithm (SplitMix64), so that a seed means the same for ever.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}
