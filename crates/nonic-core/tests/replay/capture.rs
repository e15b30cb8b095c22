//! A recorded conversation and the two hosts in it.

use nonic_core::{PathMtu, Qpn, Service};
use nonic_wire::{Flow, Packet, ROCE_PORT, pcap};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

pub(crate) const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1));
pub(crate) const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2));
pub(crate) const SERVER_PSN: u32 = 0x20_0000;
pub(crate) const QKEY: u32 = 0x1111_1111;

/// Bytes of memory on each side. Sends and writes start at its beginning, receives at its middle.
pub(crate) const MEMORY: usize = 1 << 17;

/// What the two sides told each other before the recording: numbers, keys, addresses.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Cast {
    pub(crate) name: &'static str,
    pub(crate) service: Service,
    pub(crate) mtu: PathMtu,
    pub(crate) client_qpn: u32,
    pub(crate) client_psn: u32,
    pub(crate) server_qpn: u32,
    pub(crate) server_rkey: u32,
    pub(crate) server_addr: u64,
    pub(crate) retry_count: u8,
    pub(crate) rnr_timer_code: u8,
}

const fn cast(name: &'static str, qpns: (u32, u32), server_rkey: u32, server_addr: u64) -> Cast {
    Cast {
        name,
        service: Service::Rc,
        mtu: PathMtu::Mtu1024,
        client_qpn: qpns.0,
        client_psn: 0x10_0000,
        server_qpn: qpns.1,
        server_rkey,
        server_addr,
        retry_count: 7,
        rnr_timer_code: 12,
    }
}

pub(crate) const RC_SEND: Cast = cast("rc_send", (38, 98), 0x5788, 0x1658_9000);
pub(crate) const RC_WRITE: Cast = cast("rc_write", (39, 99), 0x59a2, 0x17ac_9000);
pub(crate) const RC_READ: Cast = cast("rc_read", (40, 100), 0x5b50, 0x03d7_b000);
pub(crate) const RC_ATOMIC: Cast = cast("rc_atomic", (41, 101), 0x5d3f, 0x2657_9000);
pub(crate) const RC_INV: Cast = cast("rc_inv", (46, 106), 0x67a6, 0x1876_9000);
pub(crate) const RC_SRQ: Cast = cast("rc_srq", (47, 107), 0x6a33, 0x4008_2000);
pub(crate) const RC_PSNWRAP: Cast = Cast {
    client_psn: 0xff_fffe,
    ..cast("rc_psnwrap", (48, 108), 0x6c1f, 0x0e89_2000)
};
pub(crate) const RC_MTU256: Cast = Cast {
    mtu: PathMtu::Mtu256,
    ..cast("rc_mtu256", (49, 109), 0x6e5f, 0x333b_d000)
};
pub(crate) const RC_MTU4096: Cast = Cast {
    mtu: PathMtu::Mtu4096,
    ..cast("rc_mtu4096", (17, 17), 0x236, 0x273e_a000)
};
pub(crate) const RC_RNR: Cast = Cast {
    rnr_timer_code: 26,
    ..cast("rc_rnr", (45, 105), 0x6526, 0x37d0_f000)
};
pub(crate) const RC_TIMEOUT: Cast = Cast {
    retry_count: 2,
    ..cast("rc_timeout", (50, 110), 0x7007, 0x30fa_b000)
};
pub(crate) const NAK_BADRKEY: Cast = cast("rc_nak_badrkey", (51, 111), 0x724e, 0x0298_b000);
pub(crate) const NAK_READBADRKEY: Cast = cast("rc_nak_readbadrkey", (52, 112), 0x7438, 0x1e5f_5000);
pub(crate) const NAK_NOACCESS: Cast = cast("rc_nak_noaccess", (53, 113), 0x76f7, 0x03eb_e000);
pub(crate) const NAK_OOB: Cast = cast("rc_nak_oob", (54, 114), 0x785f, 0x3fe1_d000);
pub(crate) const NAK_TOOLONG: Cast = cast("rc_nak_toolong", (55, 115), 0x7a83, 0x06cc_6000);
pub(crate) const BURST_LOSS5: Cast = cast("rc_burst_loss5", (72, 131), 0x8d58, 0x3967_e000);
pub(crate) const BURST_DUP: Cast = cast("rc_burst_dup", (74, 133), 0x91fc, 0x291e_6000);
pub(crate) const BURST_CORRUPT: Cast = cast("rc_burst_corrupt", (75, 134), 0x93ad, 0x1cc7_9000);
pub(crate) const BURST_LOSS10_ACKS: Cast = cast("rc_burst_loss10_acks", (76, 135), 0x9570, 0x3e41_3000);
pub(crate) const UC_SEND: Cast = Cast {
    service: Service::Uc,
    ..cast("uc_send", (42, 102), 0x5ff5, 0x0ab2_3000)
};
pub(crate) const UC_WRITE: Cast = Cast {
    service: Service::Uc,
    ..cast("uc_write", (43, 103), 0x61c7, 0x115f_f000)
};
pub(crate) const UD_ALL: Cast = Cast {
    service: Service::Ud,
    ..cast("ud_all", (44, 104), 0x6340, 0x0198_c000)
};

impl Cast {
    pub(crate) fn client(&self) -> Qpn {
        Qpn::new(self.client_qpn)
    }

    pub(crate) fn server(&self) -> Qpn {
        Qpn::new(self.server_qpn)
    }

    /// The packets, in the order of the wire.
    pub(crate) fn packets(&self) -> Vec<Recorded> {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/data/captures")
            .join(format!("rxe_{}.pcap", self.name));
        let file = std::fs::read(path).expect("the captures are part of the repository");
        let reader = pcap::Reader::new(&file).expect("a classic pcap file");
        let packets: Vec<Recorded> = reader
            .map(|frame| {
                let frame = frame.expect("the capture is whole");
                let datagram = frame.datagram().expect("the capture holds UDP only");
                assert_eq!(datagram.flow.dst_port, ROCE_PORT);
                Recorded {
                    at_ns: frame.timestamp_ns,
                    flow: datagram.flow,
                    bytes: datagram.payload.to_vec(),
                }
            })
            .collect();
        assert!(!packets.is_empty(), "{} is empty", self.name);
        packets
    }
}

/// One packet of a capture.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub(crate) at_ns: u64,
    pub(crate) flow: Flow,
    pub(crate) bytes: Vec<u8>,
}

impl Recorded {
    pub(crate) fn is_clients(&self) -> bool {
        self.flow.src == CLIENT
    }

    pub(crate) fn packet(&self) -> Packet<'_> {
        Packet::parse(&self.bytes).expect("only damaged packets do not parse")
    }
}
