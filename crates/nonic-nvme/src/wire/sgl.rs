//! The descriptor of a command's data (SGL): 16 bytes, in the command itself.
//!
//! Two kinds are used on RDMA: data behind the command in the same capsule, and memory of the host by address, length and key.
//! Lists of descriptors are not supported, and the controller says so.

use super::{put, read_u32, read_u64};

/// Bytes of a descriptor.
pub const SGL_LENGTH: usize = 16;

/// Type 0 (data block), subtype 1 (offset into the capsule).
const IN_CAPSULE: u8 = 0x01;
/// Type 4 (keyed data block), subtype 0 (address).
const KEYED: u8 = 0x40;
/// Type 4, subtype 15: and the key is of no use to the host after the answer.
const KEYED_INVALIDATE: u8 = 0x4f;

/// Memory of the host.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct KeyedSgl {
    /// The first byte's address in the key's address space.
    pub address: u64,
    /// Its length, of 24 bits.
    pub length: u32,
    /// The key.
    pub key: u32,
    /// Whether the answer shall revoke the key.
    pub invalidate: bool,
}

/// Where the data of a command is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Sgl {
    /// Behind the command.
    InCapsule {
        /// Where, counting from the end of the command.
        offset: u64,
        /// How many bytes.
        length: u32,
    },
    /// In the host's memory.
    Keyed(KeyedSgl),
}

/// A descriptor of another kind.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a descriptor of type {0:#04x} is not supported")]
pub struct SglError(pub u8);

impl Sgl {
    /// Reads it.
    pub fn parse(bytes: &[u8; SGL_LENGTH]) -> Result<Self, SglError> {
        match bytes[15] {
            IN_CAPSULE => Ok(Sgl::InCapsule {
                offset: read_u64(bytes, 0),
                length: read_u32(bytes, 8),
            }),
            kind @ (KEYED | KEYED_INVALIDATE) => Ok(Sgl::Keyed(KeyedSgl {
                address: read_u64(bytes, 0),
                length: read_u32(bytes, 8) & 0x00ff_ffff,
                key: read_u32(bytes, 11),
                invalidate: kind == KEYED_INVALIDATE,
            })),
            other => Err(SglError(other)),
        }
    }

    /// Its bytes. Of a keyed length, 24 bits are written.
    pub fn emit(&self) -> [u8; SGL_LENGTH] {
        let mut bytes = [0; SGL_LENGTH];
        match self {
            Sgl::InCapsule { offset, length } => {
                put(&mut bytes, 0, &offset.to_le_bytes());
                put(&mut bytes, 8, &length.to_le_bytes());
                bytes[15] = IN_CAPSULE;
            }
            Sgl::Keyed(keyed) => {
                put(&mut bytes, 0, &keyed.address.to_le_bytes());
                put(&mut bytes, 8, &keyed.length.to_le_bytes()[..3]);
                put(&mut bytes, 11, &keyed.key.to_le_bytes());
                bytes[15] = if keyed.invalidate { KEYED_INVALIDATE } else { KEYED };
            }
        }
        bytes
    }

    /// How many bytes it describes.
    pub fn length(&self) -> u32 {
        match self {
            Sgl::InCapsule { length, .. } => *length,
            Sgl::Keyed(keyed) => keyed.length,
        }
    }

    /// The key that the answer shall revoke.
    pub fn invalidate(&self) -> Option<u32> {
        match self {
            Sgl::Keyed(keyed) if keyed.invalidate => Some(keyed.key),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_follows_a_length_of_three_bytes() {
        let sgl = Sgl::Keyed(KeyedSgl {
            address: 0x1000,
            length: 0x0012_3456,
            key: 0xdead_beef,
            invalidate: true,
        });
        let bytes = sgl.emit();
        assert_eq!(bytes[8..], [0x56, 0x34, 0x12, 0xef, 0xbe, 0xad, 0xde, 0x4f]);
        assert_eq!(Sgl::parse(&bytes), Ok(sgl));
        assert_eq!(sgl.invalidate(), Some(0xdead_beef));
    }

    #[test]
    fn other_types_are_refused_by_name() {
        let mut bytes = [0; SGL_LENGTH];
        // A segment of descriptors.
        bytes[15] = 0x20;
        assert_eq!(Sgl::parse(&bytes), Err(SglError(0x20)));
        bytes[15] = IN_CAPSULE;
        assert_eq!(Sgl::parse(&bytes), Ok(Sgl::InCapsule { offset: 0, length: 0 }));
    }
}
