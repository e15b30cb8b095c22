//! The two messages about a second path: LAP and APR. Read and written for completeness; on RoCE the network
//! finds its own ways round a failure.

use super::INFO_LEN;
use super::bytes::{self, Block, PrivateData, put, put_triple};
use crate::Qpn;
use std::net::Ipv6Addr;

/// Load alternate path.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Lap {
    /// The sender's identifier of the connection.
    pub local_comm_id: u32,
    /// The receiver's.
    pub remote_comm_id: u32,
    /// The receiver's queue pair.
    pub remote_qpn: Qpn,
    /// How long the receiver may take to answer, as an exponent (5 bits).
    pub remote_cm_response_timeout: u8,
    /// Local identifier of the sender's port.
    pub local_lid: u16,
    /// The same of the receiver.
    pub remote_lid: u16,
    /// Address of the sender.
    pub local_gid: Ipv6Addr,
    /// Address of the receiver.
    pub remote_gid: Ipv6Addr,
    /// Flow label (20 bits).
    pub flow_label: u32,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Static rate (6 bits).
    pub packet_rate: u8,
    /// Service level (4 bits).
    pub service_level: u8,
    /// Whether both ends are in one subnet.
    pub subnet_local: bool,
    /// Acknowledgement timeout, as an exponent (5 bits).
    pub local_ack_timeout: u8,
    /// For the users.
    pub private_data: PrivateData<168>,
}

impl Lap {
    pub(super) fn parse(b: &Block) -> Self {
        let flow = bytes::word(b, 56);
        Self {
            local_comm_id: bytes::word(b, 0),
            remote_comm_id: bytes::word(b, 4),
            remote_qpn: Qpn::new(bytes::triple(b, 12)),
            remote_cm_response_timeout: b[15] >> 3,
            local_lid: bytes::half(b, 20),
            remote_lid: bytes::half(b, 22),
            local_gid: bytes::gid(b, 24),
            remote_gid: bytes::gid(b, 40),
            flow_label: flow >> 12,
            traffic_class: flow as u8,
            hop_limit: b[60],
            packet_rate: b[61] & 0x3f,
            service_level: b[62] >> 4,
            subnet_local: b[62] & 8 != 0,
            local_ack_timeout: b[63] >> 3,
            private_data: PrivateData::read(b, 64),
        }
    }

    pub(super) fn emit(&self, b: &mut Block) {
        put(b, 0, &self.local_comm_id.to_be_bytes());
        put(b, 4, &self.remote_comm_id.to_be_bytes());
        put_triple(b, 12, self.remote_qpn.value());
        b[15] = self.remote_cm_response_timeout << 3;
        put(b, 20, &self.local_lid.to_be_bytes());
        put(b, 22, &self.remote_lid.to_be_bytes());
        put(b, 24, &self.local_gid.octets());
        put(b, 40, &self.remote_gid.octets());
        let flow = self.flow_label << 12 | u32::from(self.traffic_class);
        put(b, 56, &flow.to_be_bytes());
        b[60] = self.hop_limit;
        b[61] = self.packet_rate & 0x3f;
        b[62] = self.service_level << 4 | u8::from(self.subnet_local) << 3;
        b[63] = self.local_ack_timeout << 3;
        self.private_data.write(b, 64);
    }
}

/// Alternate path response.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Apr {
    /// The sender's identifier of the connection.
    pub local_comm_id: u32,
    /// The receiver's.
    pub remote_comm_id: u32,
    /// How many bytes of `info` count.
    pub info_len: u8,
    /// Zero if the path was loaded.
    pub status: u8,
    /// More about why not.
    pub info: [u8; INFO_LEN],
    /// For the users.
    pub private_data: PrivateData<148>,
}

impl Apr {
    /// The status that says: no alternate paths here.
    pub const UNSUPPORTED: u8 = 2;

    pub(super) fn parse(b: &Block) -> Self {
        Self {
            local_comm_id: bytes::word(b, 0),
            remote_comm_id: bytes::word(b, 4),
            info_len: b[8],
            status: b[9],
            info: bytes::array(b, 12),
            private_data: PrivateData::read(b, 84),
        }
    }

    pub(super) fn emit(&self, b: &mut Block) {
        put(b, 0, &self.local_comm_id.to_be_bytes());
        put(b, 4, &self.remote_comm_id.to_be_bytes());
        b[8] = self.info_len;
        b[9] = self.status;
        put(b, 12, &self.info);
        self.private_data.write(b, 84);
    }
}
