//! A command: 64 bytes, of which the meaning of the last 24 depends on the opcode.

use super::sgl::SGL_LENGTH;
use super::{COMMAND_LENGTH, put, read_u16, read_u32};

/// Opcodes of the admin queue.
pub mod admin {
    /// Get Log Page.
    pub const GET_LOG_PAGE: u8 = 0x02;
    /// Identify.
    pub const IDENTIFY: u8 = 0x06;
    /// Abort.
    pub const ABORT: u8 = 0x08;
    /// Set Features.
    pub const SET_FEATURES: u8 = 0x09;
    /// Get Features.
    pub const GET_FEATURES: u8 = 0x0a;
    /// Asynchronous Event Request.
    pub const ASYNC_EVENT_REQUEST: u8 = 0x0c;
    /// Keep Alive.
    pub const KEEP_ALIVE: u8 = 0x18;
}

/// Opcodes of the I/O queues.
pub mod nvm {
    /// Flush.
    pub const FLUSH: u8 = 0x00;
    /// Write.
    pub const WRITE: u8 = 0x01;
    /// Read.
    pub const READ: u8 = 0x02;
}

/// The opcode that all commands of the fabric have, on either kind of queue.
const FABRICS: u8 = 0x7f;

/// In the flags: the data is described by a descriptor and not by addresses of pages, as always over a fabric.
const FLAGS_SGL: u8 = 0x40;

/// What a command of the fabric is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum FabricsType {
    /// Property Set.
    PropertySet,
    /// Connect.
    Connect,
    /// Property Get.
    PropertyGet,
    /// Any other.
    Other(u8),
}

impl From<u8> for FabricsType {
    fn from(value: u8) -> Self {
        match value {
            0x00 => FabricsType::PropertySet,
            0x01 => FabricsType::Connect,
            0x04 => FabricsType::PropertyGet,
            other => FabricsType::Other(other),
        }
    }
}

impl From<FabricsType> for u8 {
    fn from(value: FabricsType) -> Self {
        match value {
            FabricsType::PropertySet => 0x00,
            FabricsType::Connect => 0x01,
            FabricsType::PropertyGet => 0x04,
            FabricsType::Other(other) => other,
        }
    }
}

/// Features that can be set and asked for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Feature {
    /// Whether writes may stay in a volatile cache until they are flushed.
    VolatileWriteCache,
    /// How many I/O queues a host may have.
    NumberOfQueues,
    /// Which events the host wants to hear of.
    AsyncEvents,
    /// After how long without a Keep Alive the host is taken for dead.
    KeepAliveTimer,
    /// Any other.
    Other(u8),
}

impl From<u8> for Feature {
    fn from(value: u8) -> Self {
        match value {
            0x06 => Feature::VolatileWriteCache,
            0x07 => Feature::NumberOfQueues,
            0x0b => Feature::AsyncEvents,
            0x0f => Feature::KeepAliveTimer,
            other => Feature::Other(other),
        }
    }
}

impl From<Feature> for u8 {
    fn from(value: Feature) -> Self {
        match value {
            Feature::VolatileWriteCache => 0x06,
            Feature::NumberOfQueues => 0x07,
            Feature::AsyncEvents => 0x0b,
            Feature::KeepAliveTimer => 0x0f,
            Feature::Other(other) => other,
        }
    }
}

/// A command. Its metadata pointer is not kept: there is no metadata.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Command {
    /// What to do.
    pub opcode: u8,
    /// How the data is described, and whether the command is fused with the next.
    pub flags: u8,
    /// The number that the completion repeats.
    pub cid: u16,
    /// The namespace; for a command of the fabric its type.
    pub nsid: u32,
    /// Where the data is: see [`super::Sgl`].
    pub sgl: [u8; SGL_LENGTH],
    /// Words 10 to 15.
    pub words: [u32; 6],
}

/// The fields of a Connect command.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ConnectFields {
    /// The format of the command; there is one, 0.
    pub record_format: u16,
    /// Which queue is connected; 0 is the admin queue.
    pub qid: u16,
    /// The last entry of the queue, so one less than its size.
    pub sqsize: u16,
    /// Bit 2: the host does not want to be told the head of the queue.
    pub attributes: u8,
    /// The keep-alive timeout in milliseconds; 0 is none.
    pub kato_ms: u32,
}

/// The fields of Property Get and Property Set.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PropertyFields {
    /// Whether the property has 8 bytes instead of 4.
    pub is_wide: bool,
    /// Which one: its offset among the registers of a controller on PCI.
    pub offset: u32,
    /// What it shall be.
    pub value: u64,
}

impl Command {
    /// Reads the first 64 bytes; nothing if there are fewer.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.first_chunk::<COMMAND_LENGTH>()?;
        Some(Command {
            opcode: bytes[0],
            flags: bytes[1],
            cid: read_u16(bytes, 2),
            nsid: read_u32(bytes, 4),
            sgl: *bytes[24..].first_chunk()?,
            words: std::array::from_fn(|index| read_u32(bytes, 40 + 4 * index)),
        })
    }

    /// Its bytes.
    pub fn emit(&self) -> [u8; COMMAND_LENGTH] {
        let mut bytes = [0; COMMAND_LENGTH];
        bytes[0] = self.opcode;
        bytes[1] = self.flags;
        put(&mut bytes, 2, &self.cid.to_le_bytes());
        put(&mut bytes, 4, &self.nsid.to_le_bytes());
        put(&mut bytes, 24, &self.sgl);
        for (index, word) in self.words.iter().enumerate() {
            put(&mut bytes, 40 + 4 * index, &word.to_le_bytes());
        }
        bytes
    }

    /// One that is not of the fabric, for the initiator.
    pub fn new(opcode: u8, nsid: u32) -> Self {
        Command {
            opcode,
            flags: FLAGS_SGL,
            nsid,
            ..Command::default()
        }
    }

    /// A Connect command.
    pub fn connect(fields: &ConnectFields) -> Self {
        let mut command = Self::fabrics(FabricsType::Connect);
        command.words[0] = u32::from(fields.record_format) | u32::from(fields.qid) << 16;
        command.words[1] = u32::from(fields.sqsize) | u32::from(fields.attributes) << 16;
        command.words[2] = fields.kato_ms;
        command
    }

    /// A Property Get or Set command.
    pub fn property(kind: FabricsType, fields: &PropertyFields) -> Self {
        let mut command = Self::fabrics(kind);
        command.words[0] = u32::from(fields.is_wide);
        command.words[1] = fields.offset;
        command.words[2] = fields.value as u32;
        command.words[3] = (fields.value >> 32) as u32;
        command
    }

    /// A Read or Write of `blocks` blocks, at least one.
    pub fn transfer(opcode: u8, nsid: u32, first: u64, blocks: u16) -> Self {
        let mut command = Self::new(opcode, nsid);
        command.words[0] = first as u32;
        command.words[1] = (first >> 32) as u32;
        command.words[2] = u32::from(blocks.saturating_sub(1));
        command
    }

    fn fabrics(kind: FabricsType) -> Self {
        Command::new(FABRICS, u32::from(u8::from(kind)))
    }

    /// What it is, if it is a command of the fabric.
    pub fn fabrics_type(&self) -> Option<FabricsType> {
        (self.opcode == FABRICS).then(|| FabricsType::from(self.nsid as u8))
    }

    /// Its fields, if it is a Connect command.
    pub fn connect_fields(&self) -> ConnectFields {
        ConnectFields {
            record_format: self.words[0] as u16,
            qid: (self.words[0] >> 16) as u16,
            sqsize: self.words[1] as u16,
            attributes: (self.words[1] >> 16) as u8,
            kato_ms: self.words[2],
        }
    }

    /// Its fields, if it is Property Get or Set.
    pub fn property_fields(&self) -> PropertyFields {
        PropertyFields {
            is_wide: self.words[0] & 7 == 1,
            offset: self.words[1],
            value: u64::from(self.words[2]) | u64::from(self.words[3]) << 32,
        }
    }

    /// The first block of a Read or Write.
    pub fn first_block(&self) -> u64 {
        u64::from(self.words[0]) | u64::from(self.words[1]) << 32
    }

    /// How many blocks a Read or Write has.
    pub fn blocks(&self) -> u32 {
        (self.words[2] & 0xffff) + 1
    }

    /// Whether a Write must be on stable storage before it is answered.
    pub fn force_unit_access(&self) -> bool {
        self.words[2] & (1 << 30) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_has_its_fields_where_the_specification_has_them() {
        let mut command = Command::transfer(nvm::WRITE, 1, 0x0102_0304_0506_0708, 8);
        command.cid = 0xabcd;
        let bytes = command.emit();
        assert_eq!(bytes[..8], [1, 0x40, 0xcd, 0xab, 1, 0, 0, 0]);
        assert_eq!(bytes[40..48], [8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(bytes[48..50], [7, 0]);
        assert_eq!(
            (command.first_block(), command.blocks()),
            (0x0102_0304_0506_0708, 8)
        );
        assert!(!command.force_unit_access());
        let mut forced = bytes;
        forced[51] = 0x40;
        assert!(Command::parse(&forced).expect("64 bytes").force_unit_access());
    }

    #[test]
    fn connect_and_property_fields_come_back() {
        let connect = ConnectFields {
            record_format: 0,
            qid: 3,
            sqsize: 127,
            attributes: 4,
            kato_ms: 5000,
        };
        let bytes = Command::connect(&connect).emit();
        assert_eq!(bytes[0], 0x7f);
        assert_eq!(bytes[4], 1);
        assert_eq!(bytes[42..47], [3, 0, 127, 0, 4]);
        assert_eq!(
            Command::parse(&bytes).expect("64 bytes").connect_fields(),
            connect
        );
        let property = PropertyFields {
            is_wide: true,
            offset: 0x1c,
            value: 0x1122_3344_5566_7788,
        };
        let command = Command::property(FabricsType::PropertySet, &property);
        assert_eq!(command.emit()[44], 0x1c);
        assert_eq!(command.property_fields(), property);
        assert_eq!(command.fabrics_type(), Some(FabricsType::PropertySet));
    }

    #[test]
    fn a_short_command_is_none() {
        assert_eq!(Command::parse(&[0; 63]), None);
    }
}
