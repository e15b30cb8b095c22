//! The options of a test's queue pairs; the defaults fit most.

use nonic_core::{
    Access, AckTimeout, NicConfig, PathMtu, Psn, QpAttributes, QpCapacity, QpState, ReorderConfig, RnrTimer,
    Service, WindowConfig,
};

#[derive(Clone, Debug)]
pub struct Setup {
    pub service: Service,
    pub mtu: PathMtu,
    pub window: WindowConfig,
    pub reorder: ReorderConfig,
    pub lenient_icrc: bool,
    pub ipv6: bool,
    /// 4.096 µs × 2^exponent.
    pub timeout_exponent: u8,
    pub retry_count: u8,
    pub rnr_retry: u8,
    pub rnr_timer_code: u8,
    /// First PSN of the first node's requests.
    pub first_psn: u32,
    /// First PSN of the second node's requests.
    pub second_psn: u32,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub access: Access,
    pub qkey: u32,
    pub capacity: QpCapacity,
    pub signal_all: bool,
    pub cq_capacity: usize,
    /// Bytes of memory per node.
    pub memory: usize,
    /// Packets per batch that a node may transmit.
    pub max_segments: usize,
    pub srq: bool,
    /// Bytes that go into a peer's memory at once.
    pub direct_piece: u32,
    /// From so many bytes on, a request waits until they can.
    pub direct_worth: u32,
    /// From so many bytes on, the receiver of a SEND fetches them.
    pub pull_worth: u32,
    /// Whether lanes lead from each node to the other, and the bytes of payload that a record has.
    pub lanes: bool,
    pub record_piece: u32,
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            service: Service::Rc,
            mtu: PathMtu::Mtu1024,
            window: WindowConfig::default(),
            reorder: ReorderConfig::default(),
            lenient_icrc: true,
            ipv6: false,
            timeout_exponent: 14,
            retry_count: 3,
            rnr_retry: 3,
            rnr_timer_code: 12,
            first_psn: 0x10_0000,
            second_psn: 0x20_0000,
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            access: Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC,
            qkey: 0x1111_1111,
            capacity: QpCapacity {
                max_send_wr: 64,
                max_recv_wr: 64,
                max_send_sge: 32,
                max_recv_sge: 32,
                max_inline_data: 512,
            },
            signal_all: true,
            cq_capacity: 1024,
            memory: 256 << 10,
            max_segments: 8,
            srq: false,
            direct_piece: 1 << 20,
            direct_worth: 1 << 20,
            pull_worth: 1 << 20,
            lanes: false,
            record_piece: 1024,
        }
    }
}

impl Setup {
    pub fn rc() -> Self {
        Setup::default()
    }

    /// Reliable connections between processes of one host.
    pub fn local() -> Self {
        Setup {
            lanes: true,
            ..Setup::default()
        }
    }

    pub fn uc() -> Self {
        Setup {
            service: Service::Uc,
            ..Setup::default()
        }
    }

    pub fn ud() -> Self {
        Setup {
            service: Service::Ud,
            ..Setup::default()
        }
    }

    pub fn nic_config(&self) -> NicConfig {
        NicConfig {
            window: self.window,
            reorder: self.reorder,
            lenient_icrc: self.lenient_icrc,
            direct_piece: self.direct_piece,
            direct_worth: self.direct_worth,
            pull_worth: self.pull_worth,
            record_piece: self.record_piece,
            ..NicConfig::default()
        }
    }

    pub fn timeout(&self) -> AckTimeout {
        AckTimeout::from_exponent(self.timeout_exponent).expect("a five-bit exponent")
    }

    pub fn to_init(&self) -> QpAttributes {
        let datagram = self.service == Service::Ud;
        QpAttributes {
            state: Some(QpState::Init),
            pkey_index: Some(0),
            port: Some(1),
            access: (!datagram).then_some(self.access),
            qkey: datagram.then_some(self.qkey),
            ..QpAttributes::default()
        }
    }

    pub fn to_rtr(&self, peer: &super::node::Remote) -> QpAttributes {
        let rtr = QpAttributes {
            state: Some(QpState::Rtr),
            ..QpAttributes::default()
        };
        if self.service == Service::Ud {
            return rtr;
        }
        let reliable = matches!(self.service, Service::Rc | Service::Xrc);
        QpAttributes {
            path: Some(nonic_core::Path {
                gid_index: 0,
                remote: peer.ip,
            }),
            path_mtu: Some(self.mtu),
            dest_qpn: Some(peer.qpn),
            rq_psn: Some(peer.psn),
            max_dest_rd_atomic: reliable.then_some(self.max_dest_rd_atomic),
            min_rnr_timer: if reliable {
                RnrTimer::from_code(self.rnr_timer_code)
            } else {
                None
            },
            ..rtr
        }
    }

    pub fn to_rts(&self, sq_psn: Psn) -> QpAttributes {
        let reliable = matches!(self.service, Service::Rc | Service::Xrc);
        QpAttributes {
            state: Some(QpState::Rts),
            sq_psn: Some(sq_psn),
            timeout: reliable.then_some(self.timeout()),
            retry_count: reliable.then_some(self.retry_count),
            rnr_retry: reliable.then_some(self.rnr_retry),
            max_rd_atomic: reliable.then_some(self.max_rd_atomic),
            ..QpAttributes::default()
        }
    }
}
