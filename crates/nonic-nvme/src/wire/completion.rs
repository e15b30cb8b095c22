//! A completion: 16 bytes that say how a command ended.

use super::{COMPLETION_LENGTH, put, read_u16, read_u64};

/// How a command ended: a type and a code, as `type << 8 | code`, and whether it is of no use to try again.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Status(pub u16);

impl Status {
    /// It was done.
    pub const SUCCESS: Status = Status(0);
    /// The opcode is not known.
    pub const INVALID_OPCODE: Status = Status(0x001);
    /// A field has a value that is not supported.
    pub const INVALID_FIELD: Status = Status(0x002);
    /// The data could not be moved.
    pub const DATA_TRANSFER_ERROR: Status = Status(0x004);
    /// The target failed.
    pub const INTERNAL_ERROR: Status = Status(0x006);
    /// There is no such namespace.
    pub const INVALID_NAMESPACE: Status = Status(0x00b);
    /// The command does not belong here, such as I/O before the controller was enabled.
    pub const COMMAND_SEQUENCE_ERROR: Status = Status(0x00c);
    /// The data described is shorter than the command's, or longer than the controller takes.
    pub const SGL_LENGTH_INVALID: Status = Status(0x00f);
    /// The descriptor is of a type that is not supported.
    pub const SGL_TYPE_INVALID: Status = Status(0x011);
    /// The data is not within the capsule.
    pub const SGL_OFFSET_INVALID: Status = Status(0x016);
    /// A block beyond the end of the namespace.
    pub const LBA_OUT_OF_RANGE: Status = Status(0x080);
    /// The disk has no room for the data, though the block is there.
    pub const CAPACITY_EXCEEDED: Status = Status(0x081);
    /// More events are asked for than the controller keeps.
    pub const ASYNC_EVENT_LIMIT: Status = Status(0x105);
    /// There is no such log page.
    pub const INVALID_LOG_PAGE: Status = Status(0x109);
    /// Connect: the format of the record is not known.
    pub const CONNECT_FORMAT: Status = Status(0x180);
    /// Connect: there are no resources for one more.
    pub const CONNECT_BUSY: Status = Status(0x181);
    /// Connect: a parameter is wrong; the result says which.
    pub const CONNECT_INVALID_PARAMETER: Status = Status(0x182);
    /// The disk did not take it.
    pub const WRITE_FAULT: Status = Status(0x280);
    /// The disk did not give it.
    pub const UNRECOVERED_READ: Status = Status(0x281);

    const DO_NOT_RETRY: u16 = 0x4000;

    /// The same, with the advice that trying again is of no use.
    #[must_use]
    pub fn finally(self) -> Status {
        Status(self.0 | Self::DO_NOT_RETRY)
    }

    /// Type and code alone, to be compared.
    #[must_use]
    pub fn code(self) -> Status {
        Status(self.0 & 0x7ff)
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = match self.code() {
            Status::SUCCESS => "success",
            Status::INVALID_OPCODE => "the opcode is not known",
            Status::INVALID_FIELD => "a field has an unsupported value",
            Status::INVALID_NAMESPACE => "there is no such namespace",
            Status::COMMAND_SEQUENCE_ERROR => "the command is not expected now",
            Status::SGL_LENGTH_INVALID => "the data has the wrong length",
            Status::LBA_OUT_OF_RANGE => "a block beyond the end of the namespace",
            Status::CAPACITY_EXCEEDED => "the disk has no room for it",
            Status::CONNECT_INVALID_PARAMETER => "a parameter of Connect is wrong",
            Status::CONNECT_BUSY => "no resources for one more",
            Status::WRITE_FAULT => "the disk failed to write",
            Status::UNRECOVERED_READ => "the disk failed to read",
            _ => return write!(f, "status {:#x}", self.code().0),
        };
        f.write_str(text)
    }
}

/// The answer to a command.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Completion {
    /// What the command asked for, if it is a number.
    pub result: u64,
    /// The head of the queue of commands, for hosts that want to know.
    pub sq_head: u16,
    /// Which queue the command came by.
    pub sq_id: u16,
    /// The command's number.
    pub cid: u16,
    /// How it ended.
    pub status: Status,
}

impl Completion {
    /// Its bytes. The phase tag is always zero: no memory is polled over a fabric.
    pub fn emit(&self) -> [u8; COMPLETION_LENGTH] {
        let mut bytes = [0; COMPLETION_LENGTH];
        put(&mut bytes, 0, &self.result.to_le_bytes());
        put(&mut bytes, 8, &self.sq_head.to_le_bytes());
        put(&mut bytes, 10, &self.sq_id.to_le_bytes());
        put(&mut bytes, 12, &self.cid.to_le_bytes());
        put(&mut bytes, 14, &(self.status.0 << 1).to_le_bytes());
        bytes
    }

    /// Reads it; nothing if it is too short.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.first_chunk::<COMPLETION_LENGTH>()?;
        Some(Completion {
            result: read_u64(bytes, 0),
            sq_head: read_u16(bytes, 8),
            sq_id: read_u16(bytes, 10),
            cid: read_u16(bytes, 12),
            status: Status(read_u16(bytes, 14) >> 1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_stands_above_the_phase_tag() {
        let completion = Completion {
            result: 7,
            sq_head: 3,
            sq_id: 1,
            cid: 0x1234,
            status: Status::LBA_OUT_OF_RANGE.finally(),
        };
        let bytes = completion.emit();
        assert_eq!(
            bytes,
            [7, 0, 0, 0, 0, 0, 0, 0, 3, 0, 1, 0, 0x34, 0x12, 0x00, 0x81]
        );
        assert_eq!(Completion::parse(&bytes), Some(completion));
        assert_eq!(completion.status.code(), Status::LBA_OUT_OF_RANGE);
        assert_eq!(Completion::parse(&bytes[..15]), None);
    }
}
