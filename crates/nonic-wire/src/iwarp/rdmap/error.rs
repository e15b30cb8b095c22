//! Errors of a segment, and the Terminate codes for them.

use thiserror::Error;

use super::super::TerminateCode;
use super::Opcode;

/// Why a ULPDU is not a segment. All of these are the peer's fault, and end the connection.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// It ends inside its DDP header.
    #[error("a segment of {0} bytes is shorter than its header")]
    TooShort(usize),
    /// The version of DDP is not 1.
    #[error("unsupported DDP version {version}")]
    DdpVersion {
        /// The T bit, which decides the code.
        tagged: bool,
        /// The version.
        version: u8,
    },
    /// The version of RDMAP is not 1.
    #[error("unsupported RDMAP version {0}")]
    RdmapVersion(u8),
    /// The opcode has no meaning.
    #[error("unknown RDMAP opcode {0:#x}")]
    UnknownOpcode(u8),
    /// An untagged message in a tagged segment or the other way round.
    #[error("{0:?} with the wrong tagged flag")]
    WrongTag(Opcode),
    /// Such a message does not belong in that queue.
    #[error("{opcode:?} in queue {qn}")]
    WrongQueue {
        /// The message.
        opcode: Opcode,
        /// The queue.
        qn: u32,
    },
    /// A message of one segment that does not begin at its beginning.
    #[error("{opcode:?} at offset {mo}")]
    OffsetInSingleSegment {
        /// The message.
        opcode: Opcode,
        /// Its offset.
        mo: u32,
    },
    /// A message of one segment that claims to go on.
    #[error("{0:?} that does not end with its first segment")]
    NotLast(Opcode),
    /// The body is shorter than such a message's body always is.
    #[error("{opcode:?} with a body of {len} bytes is too short")]
    BodyTooShort {
        /// The message.
        opcode: Opcode,
        /// Length of the body.
        len: usize,
    },
    /// The body is longer than such a message's body always is.
    #[error("{opcode:?} with a body of {len} bytes is too long")]
    BodyTooLong {
        /// The message.
        opcode: Opcode,
        /// Length of the body.
        len: usize,
    },
    /// An atomic operation without a meaning.
    #[error("unknown atomic operation {0}")]
    UnknownAtomic(u8),
}

impl SegmentError {
    /// The code that a Terminate names this error with.
    ///
    /// The specifications have none for bodies and segments that are too short. The first is called an
    /// unspecified operation error; the second a disagreement about the framing, since the length came from there.
    pub const fn terminate_code(self) -> TerminateCode {
        match self {
            SegmentError::TooShort(_) => TerminateCode::MPA_MARKER,
            SegmentError::DdpVersion { tagged: true, .. } => TerminateCode::DDP_TAGGED_VERSION,
            SegmentError::DdpVersion { tagged: false, .. } => TerminateCode::DDP_UNTAGGED_VERSION,
            SegmentError::RdmapVersion(_) => TerminateCode::RDMAP_VERSION,
            SegmentError::UnknownOpcode(_)
            | SegmentError::WrongTag(_)
            | SegmentError::NotLast(_)
            | SegmentError::UnknownAtomic(_) => TerminateCode::RDMAP_UNEXPECTED_OPCODE,
            SegmentError::WrongQueue { .. } => TerminateCode::DDP_UNTAGGED_INVALID_QN,
            SegmentError::OffsetInSingleSegment { .. } => TerminateCode::DDP_UNTAGGED_INVALID_MO,
            SegmentError::BodyTooShort { .. } => TerminateCode::RDMAP_UNSPECIFIED,
            SegmentError::BodyTooLong { .. } => TerminateCode::DDP_UNTAGGED_TOO_LONG,
        }
    }
}
