//! Service resolution for datagrams: SIDR_REQ asks for a service, SIDR_REP names the queue pair that offers it.

use super::INFO_LEN;
use super::bytes::{self, Block, PrivateData, put, put_triple};
use super::ip::ServiceId;
use crate::Qpn;

/// Which datagram queue pair offers this service?
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct SidrReq {
    /// The sender's identifier of the question.
    pub request_id: u32,
    /// Partition.
    pub pkey: u16,
    /// What is asked for.
    pub service_id: ServiceId,
    /// For the users. Services at IP addresses begin it with an [`IpHeader`](super::IpHeader).
    pub private_data: PrivateData<216>,
}

impl SidrReq {
    pub(super) fn parse(b: &Block) -> Self {
        Self {
            request_id: bytes::word(b, 0),
            pkey: bytes::half(b, 4),
            service_id: ServiceId(bytes::double(b, 8)),
            private_data: PrivateData::read(b, 16),
        }
    }

    pub(super) fn emit(&self, b: &mut Block) {
        put(b, 0, &self.request_id.to_be_bytes());
        put(b, 4, &self.pkey.to_be_bytes());
        put(b, 8, &self.service_id.0.to_be_bytes());
        self.private_data.write(b, 16);
    }
}

/// How a [`SidrReq`] was answered. Values of the wire that have no name are kept.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct SidrStatus(pub u8);

#[expect(missing_docs, reason = "the names are the specification's")]
impl SidrStatus {
    pub const VALID: SidrStatus = SidrStatus(0);
    pub const UNSUPPORTED: SidrStatus = SidrStatus(1);
    pub const REJECT: SidrStatus = SidrStatus(2);
    pub const NO_QP: SidrStatus = SidrStatus(3);
    pub const REDIRECT: SidrStatus = SidrStatus(4);
    pub const UNSUPPORTED_VERSION: SidrStatus = SidrStatus(5);
}

/// The answer to a [`SidrReq`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SidrRep {
    /// The receiver's identifier of the question.
    pub request_id: u32,
    /// Whether the rest counts.
    pub status: SidrStatus,
    /// How many bytes of `info` count.
    pub info_len: u8,
    /// The queue pair that serves.
    pub qpn: Qpn,
    /// What was asked for.
    pub service_id: ServiceId,
    /// The key of that queue pair.
    pub qkey: u32,
    /// More about a refusal.
    pub info: [u8; INFO_LEN],
    /// For the users.
    pub private_data: PrivateData<136>,
}

impl SidrRep {
    pub(super) fn parse(b: &Block) -> Self {
        Self {
            request_id: bytes::word(b, 0),
            status: SidrStatus(b[4]),
            info_len: b[5],
            qpn: Qpn::new(bytes::triple(b, 8)),
            service_id: ServiceId(bytes::double(b, 12)),
            qkey: bytes::word(b, 20),
            info: bytes::array(b, 24),
            private_data: PrivateData::read(b, 96),
        }
    }

    pub(super) fn emit(&self, b: &mut Block) {
        put(b, 0, &self.request_id.to_be_bytes());
        b[4] = self.status.0;
        b[5] = self.info_len;
        put_triple(b, 8, self.qpn.value());
        put(b, 12, &self.service_id.0.to_be_bytes());
        put(b, 20, &self.qkey.to_be_bytes());
        put(b, 24, &self.info);
        self.private_data.write(b, 96);
    }
}
