//! Why bytes are not a packet.

use thiserror::Error;

/// Why a datagram is not a packet. All of these are the peer's fault, never ours.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum ParseError {
    /// It ends inside the headers its opcode calls for, or has no room for an ICRC.
    #[error("packet ends inside its headers")]
    TooShort,
    /// The opcode is not in the table.
    #[error("unknown opcode {0:#04x}")]
    UnknownOpcode(u8),
    /// The header version is not 0.
    #[error("unsupported transport header version {0}")]
    UnsupportedVersion(u8),
    /// It claims more padding than it has bytes behind its headers.
    #[error("{0} bytes of padding in an empty packet")]
    BadPad(u8),
    /// Payload and padding together are not a multiple of four bytes.
    #[error("payload and padding are {0} bytes, not a multiple of four")]
    Misaligned(usize),
}
