//! The messages that delay, refuse or end a connection: MRA, REJ, DREQ, DREP.

use super::INFO_LEN;
use super::bytes::{self, Block, PrivateData, put, put_triple};
use super::reason::RejectReason;
use crate::Qpn;

/// Which message an MRA delays or a REJ refuses. Two bits on the wire.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Default, Debug)]
#[repr(u8)]
pub enum Subject {
    /// The request.
    #[default]
    Req = 0,
    /// The reply.
    Rep = 1,
    /// In an MRA: the request for an alternate path. In a REJ: none in particular.
    Other = 2,
    /// Not assigned.
    Reserved = 3,
}

impl Subject {
    fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Subject::Req,
            1 => Subject::Rep,
            2 => Subject::Other,
            _ => Subject::Reserved,
        }
    }
}

/// Message receipt acknowledged: an answer will come, but not soon.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Mra {
    /// The sender's identifier of the connection.
    pub local_comm_id: u32,
    /// The receiver's.
    pub remote_comm_id: u32,
    /// What was received.
    pub subject: Subject,
    /// How long the answer may take, as an exponent (5 bits).
    pub service_timeout: u8,
    /// For the users.
    pub private_data: PrivateData<222>,
}

impl Mra {
    pub(super) fn parse(b: &Block) -> Self {
        Self {
            local_comm_id: bytes::word(b, 0),
            remote_comm_id: bytes::word(b, 4),
            subject: Subject::from_bits(b[8] >> 6),
            service_timeout: b[9] >> 3,
            private_data: PrivateData::read(b, 10),
        }
    }

    pub(super) fn emit(&self, b: &mut Block) {
        put(b, 0, &self.local_comm_id.to_be_bytes());
        put(b, 4, &self.remote_comm_id.to_be_bytes());
        b[8] = (self.subject as u8) << 6;
        b[9] = self.service_timeout << 3;
        self.private_data.write(b, 10);
    }
}

/// Reject: no, and why.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Rej {
    /// The sender's identifier of the connection; zero if it gave it none.
    pub local_comm_id: u32,
    /// The receiver's; zero if the sender was not told.
    pub remote_comm_id: u32,
    /// What is refused.
    pub subject: Subject,
    /// How many bytes of `info` count (7 bits).
    pub info_len: u8,
    /// Why.
    pub reason: RejectReason,
    /// More about why, depending on the reason.
    pub info: [u8; INFO_LEN],
    /// For the users.
    pub private_data: PrivateData<148>,
}

impl Rej {
    /// A refusal without additional information.
    pub fn new(local_comm_id: u32, remote_comm_id: u32, subject: Subject, reason: RejectReason) -> Self {
        Self {
            local_comm_id,
            remote_comm_id,
            subject,
            info_len: 0,
            reason,
            info: [0; INFO_LEN],
            private_data: PrivateData::default(),
        }
    }

    /// The part of `info` that counts.
    pub fn info(&self) -> &[u8] {
        &self.info[..usize::from(self.info_len).min(INFO_LEN)]
    }

    pub(super) fn parse(b: &Block) -> Self {
        Self {
            local_comm_id: bytes::word(b, 0),
            remote_comm_id: bytes::word(b, 4),
            subject: Subject::from_bits(b[8] >> 6),
            info_len: b[9] >> 1,
            reason: RejectReason(bytes::half(b, 10)),
            info: bytes::array(b, 12),
            private_data: PrivateData::read(b, 84),
        }
    }

    pub(super) fn emit(&self, b: &mut Block) {
        put(b, 0, &self.local_comm_id.to_be_bytes());
        put(b, 4, &self.remote_comm_id.to_be_bytes());
        b[8] = (self.subject as u8) << 6;
        b[9] = self.info_len << 1;
        put(b, 10, &self.reason.0.to_be_bytes());
        put(b, 12, &self.info);
        self.private_data.write(b, 84);
    }
}

/// Request to end the connection.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Dreq {
    /// The sender's identifier of the connection.
    pub local_comm_id: u32,
    /// The receiver's.
    pub remote_comm_id: u32,
    /// The receiver's queue pair.
    pub remote_qpn: Qpn,
    /// For the users.
    pub private_data: PrivateData<220>,
}

impl Dreq {
    pub(super) fn parse(b: &Block) -> Self {
        Self {
            local_comm_id: bytes::word(b, 0),
            remote_comm_id: bytes::word(b, 4),
            remote_qpn: Qpn::new(bytes::triple(b, 8)),
            private_data: PrivateData::read(b, 12),
        }
    }

    pub(super) fn emit(&self, b: &mut Block) {
        put(b, 0, &self.local_comm_id.to_be_bytes());
        put(b, 4, &self.remote_comm_id.to_be_bytes());
        put_triple(b, 8, self.remote_qpn.value());
        self.private_data.write(b, 12);
    }
}

/// Reply to a request to end the connection.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Drep {
    /// The sender's identifier of the connection.
    pub local_comm_id: u32,
    /// The receiver's.
    pub remote_comm_id: u32,
    /// For the users.
    pub private_data: PrivateData<224>,
}

impl Drep {
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
