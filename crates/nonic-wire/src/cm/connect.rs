//! The three messages that make a connection: REQ, REP, RTU.

use super::bytes::{self, Block, PrivateData, put, put_triple};
use super::ip::ServiceId;
use crate::{Psn, Qpn};
use std::net::Ipv6Addr;

/// Request for communication: what is asked for, by which queue pair, over which path.
///
/// Fields narrower than their type keep only the low bits that the wire has room for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Req {
    /// The sender's identifier of the connection.
    pub local_comm_id: u32,
    /// What is asked for.
    pub service_id: ServiceId,
    /// Names the sender's adapter.
    pub local_ca_guid: u64,
    /// Key of a datagram queue pair; zero for connections.
    pub local_qkey: u32,
    /// The sender's queue pair.
    pub local_qpn: Qpn,
    /// READs and atomics the sender can answer at a time.
    pub responder_resources: u8,
    /// End-to-end context, of a service that no implementation offers.
    pub local_eecn: u32,
    /// READs and atomics the sender wants to have under way at a time.
    pub initiator_depth: u8,
    /// End-to-end context of the receiver.
    pub remote_eecn: u32,
    /// How long the receiver may take to answer, as an exponent (5 bits).
    pub remote_cm_response_timeout: u8,
    /// 0 is RC, 1 UC, 2 RD, 3 see `extended_transport` (2 bits).
    pub transport: u8,
    /// Whether the sender does end-to-end flow control.
    pub flow_control: bool,
    /// The sender's first sequence number.
    pub starting_psn: Psn,
    /// How long the sender may take to answer, as an exponent (5 bits).
    pub local_cm_response_timeout: u8,
    /// Retries for the receiver's queue pair (3 bits).
    pub retry_count: u8,
    /// Partition.
    pub pkey: u16,
    /// Path MTU, as its code (4 bits).
    pub path_mtu: u8,
    /// Whether a reliable datagram channel exists already.
    pub rdc_exists: bool,
    /// Retries after "receiver not ready" for the receiver's queue pair (3 bits).
    pub rnr_retry_count: u8,
    /// How often either side may repeat a message (4 bits).
    pub max_cm_retries: u8,
    /// Whether the sender's queue pair takes its receives from a shared queue.
    pub srq: bool,
    /// With transport 3: 1 is XRC (3 bits).
    pub extended_transport: u8,
    /// The path to use.
    pub primary: ReqPath,
    /// The path to fall back on; all zero if there is none.
    pub alternate: ReqPath,
    /// For the users. Connections by IP address begin it with an [`IpHeader`](super::IpHeader).
    pub private_data: PrivateData<92>,
}

impl Req {
    pub(super) fn parse(b: &Block) -> Self {
        Self {
            local_comm_id: bytes::word(b, 0),
            service_id: ServiceId(bytes::double(b, 8)),
            local_ca_guid: bytes::double(b, 16),
            local_qkey: bytes::word(b, 28),
            local_qpn: Qpn::new(bytes::triple(b, 32)),
            responder_resources: b[35],
            local_eecn: bytes::triple(b, 36),
            initiator_depth: b[39],
            remote_eecn: bytes::triple(b, 40),
            remote_cm_response_timeout: b[43] >> 3,
            transport: b[43] >> 1 & 3,
            flow_control: b[43] & 1 != 0,
            starting_psn: Psn::new(bytes::triple(b, 44)),
            local_cm_response_timeout: b[47] >> 3,
            retry_count: b[47] & 7,
            pkey: bytes::half(b, 48),
            path_mtu: b[50] >> 4,
            rdc_exists: b[50] & 8 != 0,
            rnr_retry_count: b[50] & 7,
            max_cm_retries: b[51] >> 4,
            srq: b[51] & 8 != 0,
            extended_transport: b[51] & 7,
            primary: ReqPath::parse(b, 52),
            alternate: ReqPath::parse(b, 96),
            private_data: PrivateData::read(b, 140),
        }
    }

    pub(super) fn emit(&self, b: &mut Block) {
        put(b, 0, &self.local_comm_id.to_be_bytes());
        put(b, 8, &self.service_id.0.to_be_bytes());
        put(b, 16, &self.local_ca_guid.to_be_bytes());
        put(b, 28, &self.local_qkey.to_be_bytes());
        put_triple(b, 32, self.local_qpn.value());
        b[35] = self.responder_resources;
        put_triple(b, 36, self.local_eecn);
        b[39] = self.initiator_depth;
        put_triple(b, 40, self.remote_eecn);
        b[43] =
            self.remote_cm_response_timeout << 3 | (self.transport & 3) << 1 | u8::from(self.flow_control);
        put_triple(b, 44, self.starting_psn.value());
        b[47] = self.local_cm_response_timeout << 3 | self.retry_count & 7;
        put(b, 48, &self.pkey.to_be_bytes());
        b[50] = self.path_mtu << 4 | u8::from(self.rdc_exists) << 3 | self.rnr_retry_count & 7;
        b[51] = self.max_cm_retries << 4 | u8::from(self.srq) << 3 | self.extended_transport & 7;
        self.primary.emit(b, 52);
        self.alternate.emit(b, 96);
        self.private_data.write(b, 140);
    }
}

/// A path as a [`Req`] describes it, seen from its sender.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ReqPath {
    /// Local identifier of the sender's port; all ones on RoCE, which has none.
    pub local_lid: u16,
    /// The same of the receiver.
    pub remote_lid: u16,
    /// Address of the sender.
    pub local_gid: Ipv6Addr,
    /// Address of the receiver.
    pub remote_gid: Ipv6Addr,
    /// Flow label (20 bits).
    pub flow_label: u32,
    /// Static rate (6 bits).
    pub packet_rate: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Service level (4 bits).
    pub service_level: u8,
    /// Whether both ends are in one subnet.
    pub subnet_local: bool,
    /// Acknowledgement timeout for the queue pairs, as an exponent (5 bits).
    pub local_ack_timeout: u8,
}

impl Default for ReqPath {
    /// No path at all.
    fn default() -> Self {
        Self {
            local_lid: 0,
            remote_lid: 0,
            local_gid: Ipv6Addr::UNSPECIFIED,
            remote_gid: Ipv6Addr::UNSPECIFIED,
            flow_label: 0,
            packet_rate: 0,
            traffic_class: 0,
            hop_limit: 0,
            service_level: 0,
            subnet_local: false,
            local_ack_timeout: 0,
        }
    }
}

impl ReqPath {
    fn parse(b: &Block, at: usize) -> Self {
        let flow = bytes::word(b, at + 36);
        Self {
            local_lid: bytes::half(b, at),
            remote_lid: bytes::half(b, at + 2),
            local_gid: bytes::gid(b, at + 4),
            remote_gid: bytes::gid(b, at + 20),
            flow_label: flow >> 12,
            packet_rate: flow as u8 & 0x3f,
            traffic_class: b[at + 40],
            hop_limit: b[at + 41],
            service_level: b[at + 42] >> 4,
            subnet_local: b[at + 42] & 8 != 0,
            local_ack_timeout: b[at + 43] >> 3,
        }
    }

    fn emit(&self, b: &mut Block, at: usize) {
        put(b, at, &self.local_lid.to_be_bytes());
        put(b, at + 2, &self.remote_lid.to_be_bytes());
        put(b, at + 4, &self.local_gid.octets());
        put(b, at + 20, &self.remote_gid.octets());
        let flow = self.flow_label << 12 | u32::from(self.packet_rate & 0x3f);
        put(b, at + 36, &flow.to_be_bytes());
        b[at + 40] = self.traffic_class;
        b[at + 41] = self.hop_limit;
        b[at + 42] = self.service_level << 4 | u8::from(self.subnet_local) << 3;
        b[at + 43] = self.local_ack_timeout << 3;
    }
}

/// Reply to a request: yes, and here is my side.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Rep {
    /// The sender's identifier of the connection.
    pub local_comm_id: u32,
    /// The receiver's.
    pub remote_comm_id: u32,
    /// Key of a datagram queue pair; zero for connections.
    pub local_qkey: u32,
    /// The sender's queue pair.
    pub local_qpn: Qpn,
    /// The sender's queue pair if the connection is XRC, which leaves `local_qpn` zero.
    pub local_eecn: u32,
    /// The sender's first sequence number.
    pub starting_psn: Psn,
    /// READs and atomics the sender answers at a time.
    pub responder_resources: u8,
    /// READs and atomics the sender will have under way at a time.
    pub initiator_depth: u8,
    /// How long the sender may take to acknowledge, as an exponent (5 bits).
    pub target_ack_delay: u8,
    /// What becomes of the alternate path (2 bits).
    pub failover_accepted: u8,
    /// Whether the sender does end-to-end flow control.
    pub flow_control: bool,
    /// Retries after "receiver not ready" for the receiver's queue pair (3 bits).
    pub rnr_retry_count: u8,
    /// Whether the sender's queue pair takes its receives from a shared queue.
    pub srq: bool,
    /// Names the sender's adapter.
    pub local_ca_guid: u64,
    /// For the users.
    pub private_data: PrivateData<196>,
}

impl Rep {
    pub(super) fn parse(b: &Block) -> Self {
        Self {
            local_comm_id: bytes::word(b, 0),
            remote_comm_id: bytes::word(b, 4),
            local_qkey: bytes::word(b, 8),
            local_qpn: Qpn::new(bytes::triple(b, 12)),
            local_eecn: bytes::triple(b, 16),
            starting_psn: Psn::new(bytes::triple(b, 20)),
            responder_resources: b[24],
            initiator_depth: b[25],
            target_ack_delay: b[26] >> 3,
            failover_accepted: b[26] >> 1 & 3,
            flow_control: b[26] & 1 != 0,
            rnr_retry_count: b[27] >> 5,
            srq: b[27] & 0x10 != 0,
            local_ca_guid: bytes::double(b, 28),
            private_data: PrivateData::read(b, 36),
        }
    }

    pub(super) fn emit(&self, b: &mut Block) {
        put(b, 0, &self.local_comm_id.to_be_bytes());
        put(b, 4, &self.remote_comm_id.to_be_bytes());
        put(b, 8, &self.local_qkey.to_be_bytes());
        put_triple(b, 12, self.local_qpn.value());
        put_triple(b, 16, self.local_eecn);
        put_triple(b, 20, self.starting_psn.value());
        b[24] = self.responder_resources;
        b[25] = self.initiator_depth;
        b[26] = self.target_ack_delay << 3 | (self.failover_accepted & 3) << 1 | u8::from(self.flow_control);
        b[27] = self.rnr_retry_count << 5 | u8::from(self.srq) << 4;
        put(b, 28, &self.local_ca_guid.to_be_bytes());
        self.private_data.write(b, 36);
    }
}

/// Ready to use: the reply arrived.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Rtu {
    /// The sender's identifier of the connection.
    pub local_comm_id: u32,
    /// The receiver's.
    pub remote_comm_id: u32,
    /// For the users.
    pub private_data: PrivateData<224>,
}

impl Rtu {
    pub(super) fn parse(b: &Block) -> Self {
        Self {
            local_comm_id: bytes::word(b, 0),
            remote_comm_id: bytes::word(b, 4),
            private_data: PrivateData::read(b, 8),
        }
    }

    pub(super) fn emit(&self, b: &mut Block) {
        put(b, 0, &self.local_comm_id.to_be_bytes());
        put(b, 4, &self.remote_comm_id.to_be_bytes());
        self.private_data.write(b, 8);
    }
}
