//! Messages of the connection manager: management class 7, version 2.
//!
//! Each message is a value with every field of the wire; [`CmMad`] is one of them with the transaction it belongs to.
//! Parsing takes any 256 bytes and never panics; reserved bits are ignored and sent as zero. What the messages *mean*
//! is decided in `nonic_core::cm`.
//!
//! Read first: [`CmMad`], [`Message`], then [`Req`], which says most of what there is to say.

mod alternate;
mod bytes;
mod connect;
mod end;
mod ip;
mod reason;
mod sidr;

pub use alternate::{Apr, Lap};
pub use bytes::PrivateData;
pub use connect::{Rep, Req, ReqPath, Rtu};
pub use end::{Drep, Dreq, Mra, Rej, Subject};
pub use ip::{IpHeader, IpHeaderError, PortSpace, ServiceId, gid_of, ip_of_gid};
pub use reason::RejectReason;
pub use sidr::{SidrRep, SidrReq, SidrStatus};

use crate::mad::{MAD_DATA_LEN, MAD_LEN, MadHeader};
use bytes::Block;
use thiserror::Error;

/// The management class of the connection manager.
pub const CM_CLASS: u8 = 0x07;
/// The version of that class in use.
pub const CM_CLASS_VERSION: u8 = 2;
/// The version of the header in front of it.
const BASE_VERSION: u8 = 1;
/// The only method the class has: an answer is a message of its own, not a response.
const SEND: u8 = 3;

/// Additional information that some refusals and answers carry.
pub const INFO_LEN: usize = 72;

/// A message and its transaction.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct CmMad {
    /// Ties the messages of one exchange together; chosen by the side that began it.
    pub transaction_id: u64,
    /// The message.
    pub message: Message,
}

/// Every message of the class.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "each holds the message of its name")]
pub enum Message {
    Req(Req),
    Mra(Mra),
    Rej(Rej),
    Rep(Rep),
    Rtu(Rtu),
    Dreq(Dreq),
    Drep(Drep),
    SidrReq(SidrReq),
    SidrRep(SidrRep),
    Lap(Lap),
    Apr(Apr),
}

/// Why bytes are not a message of the connection manager.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Error)]
pub enum CmParseError {
    /// Not 256 bytes.
    #[error("a management datagram has {MAD_LEN} bytes, not {0}")]
    Length(usize),
    /// Another header version, class or class version.
    #[error(
        "not a connection management datagram (base version {base}, class {class:#04x} version {version})"
    )]
    Class {
        /// Version of the header.
        base: u8,
        /// The class.
        class: u8,
        /// Its version.
        version: u8,
    },
    /// A method the class does not have.
    #[error("connection management has no method {0:#04x}")]
    Method(u8),
    /// A message the class does not have.
    #[error("connection management has no attribute {0:#06x}")]
    Attribute(u16),
}

impl CmMad {
    /// Reads a message.
    pub fn parse(bytes: &[u8]) -> Result<Self, CmParseError> {
        let bytes: &[u8; MAD_LEN] = bytes.try_into().map_err(|_| CmParseError::Length(bytes.len()))?;
        let (header, rest) = bytes.split_first_chunk().expect("shorter than a datagram");
        let block: &Block = rest.try_into().expect("the rest of a datagram");
        let header = MadHeader::parse(header);
        let version = (header.base_version, header.class, header.class_version);
        if version != (BASE_VERSION, CM_CLASS, CM_CLASS_VERSION) {
            return Err(CmParseError::Class {
                base: header.base_version,
                class: header.class,
                version: header.class_version,
            });
        }
        if header.method != SEND {
            return Err(CmParseError::Method(header.method));
        }
        let message =
            Message::parse(header.attribute_id, block).ok_or(CmParseError::Attribute(header.attribute_id))?;
        Ok(Self {
            transaction_id: header.transaction_id,
            message,
        })
    }

    /// Writes the message.
    pub fn emit(&self) -> [u8; MAD_LEN] {
        let mut bytes = [0; MAD_LEN];
        let header = MadHeader {
            base_version: BASE_VERSION,
            class: CM_CLASS,
            class_version: CM_CLASS_VERSION,
            method: SEND,
            status: 0,
            class_specific: 0,
            transaction_id: self.transaction_id,
            attribute_id: self.message.attribute_id(),
            attribute_modifier: 0,
        };
        header.emit(&mut bytes);
        let mut block = [0; MAD_DATA_LEN];
        self.message.emit(&mut block);
        bytes[MadHeader::LEN..].copy_from_slice(&block);
        bytes
    }
}

impl Message {
    /// The number of the message on the wire.
    pub fn attribute_id(&self) -> u16 {
        match self {
            Message::Req(_) => 0x10,
            Message::Mra(_) => 0x11,
            Message::Rej(_) => 0x12,
            Message::Rep(_) => 0x13,
            Message::Rtu(_) => 0x14,
            Message::Dreq(_) => 0x15,
            Message::Drep(_) => 0x16,
            Message::SidrReq(_) => 0x17,
            Message::SidrRep(_) => 0x18,
            Message::Lap(_) => 0x19,
            Message::Apr(_) => 0x1a,
        }
    }

    /// The identifier its receiver gave the exchange: it tells which of the processes that share an address the message
    /// is for. `None` for requests, which are for the listener of their service, and for messages whose sender was
    /// never told one.
    pub fn receiver_id(&self) -> Option<u32> {
        let id = match self {
            Message::Req(_) | Message::SidrReq(_) => return None,
            Message::Mra(m) => m.remote_comm_id,
            Message::Rej(m) => m.remote_comm_id,
            Message::Rep(m) => m.remote_comm_id,
            Message::Rtu(m) => m.remote_comm_id,
            Message::Dreq(m) => m.remote_comm_id,
            Message::Drep(m) => m.remote_comm_id,
            Message::SidrRep(m) => m.request_id,
            Message::Lap(m) => m.remote_comm_id,
            Message::Apr(m) => m.remote_comm_id,
        };
        (id != 0).then_some(id)
    }

    /// The service a request asks for.
    pub fn service_id(&self) -> Option<ServiceId> {
        match self {
            Message::Req(m) => Some(m.service_id),
            Message::SidrReq(m) => Some(m.service_id),
            _ => None,
        }
    }

    fn parse(attribute_id: u16, block: &Block) -> Option<Self> {
        Some(match attribute_id {
            0x10 => Message::Req(Req::parse(block)),
            0x11 => Message::Mra(Mra::parse(block)),
            0x12 => Message::Rej(Rej::parse(block)),
            0x13 => Message::Rep(Rep::parse(block)),
            0x14 => Message::Rtu(Rtu::parse(block)),
            0x15 => Message::Dreq(Dreq::parse(block)),
            0x16 => Message::Drep(Drep::parse(block)),
            0x17 => Message::SidrReq(SidrReq::parse(block)),
            0x18 => Message::SidrRep(SidrRep::parse(block)),
            0x19 => Message::Lap(Lap::parse(block)),
            0x1a => Message::Apr(Apr::parse(block)),
            _ => return None,
        })
    }

    fn emit(&self, block: &mut Block) {
        match self {
            Message::Req(m) => m.emit(block),
            Message::Mra(m) => m.emit(block),
            Message::Rej(m) => m.emit(block),
            Message::Rep(m) => m.emit(block),
            Message::Rtu(m) => m.emit(block),
            Message::Dreq(m) => m.emit(block),
            Message::Drep(m) => m.emit(block),
            Message::SidrReq(m) => m.emit(block),
            Message::SidrRep(m) => m.emit(block),
            Message::Lap(m) => m.emit(block),
            Message::Apr(m) => m.emit(block),
        }
    }
}
