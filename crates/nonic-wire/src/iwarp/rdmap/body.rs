//! The bodies of fixed length: Read Request, Atomic Request and Response, Immediate Data.

use super::super::bytes::{double_word, put, word};
use super::{Opcode, SegmentError};

/// The body of a Read Request: what to read and where the requester wants it.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct ReadRequest {
    /// Key of the requester's memory; comes back in the response.
    pub sink_stag: u32,
    /// Offset in it; comes back in the response.
    pub sink_to: u64,
    /// Bytes to read.
    pub size: u32,
    /// Key of the memory to read.
    pub source_stag: u32,
    /// Offset in it.
    pub source_to: u64,
}

impl ReadRequest {
    /// Bytes on the wire.
    pub const LEN: usize = 28;

    /// Reads a body.
    pub fn parse(b: &[u8; Self::LEN]) -> Self {
        Self {
            sink_stag: word(b, 0),
            sink_to: double_word(b, 4),
            size: word(b, 12),
            source_stag: word(b, 16),
            source_to: double_word(b, 20),
        }
    }

    /// Writes the body to the start of `out` and returns its length.
    ///
    /// # Panics
    /// If `out` is shorter than [`ReadRequest::LEN`].
    pub fn emit(&self, out: &mut [u8]) -> usize {
        put(out, 0, self.sink_stag.to_be_bytes());
        put(out, 4, self.sink_to.to_be_bytes());
        put(out, 12, self.size.to_be_bytes());
        put(out, 16, self.source_stag.to_be_bytes());
        put(out, 20, self.source_to.to_be_bytes());
        Self::LEN
    }
}

/// What an atomic does.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Default, Debug)]
#[repr(u8)]
pub enum AtomicOperation {
    /// Adds, field by field if the mask says so.
    #[default]
    FetchAdd = 0,
    /// Swaps if what is compared is equal.
    CompareSwap = 2,
}

/// The body of an Atomic Request. Values are numbers here and big-endian on the wire.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct AtomicRequest {
    /// What to do.
    pub operation: AtomicOperation,
    /// Chosen by the requester; comes back in the response.
    pub request_id: u32,
    /// Key of the memory.
    pub stag: u32,
    /// Offset of the eight bytes.
    pub to: u64,
    /// Value to add or to store.
    pub add_swap: u64,
    /// FetchAdd: a one bit is the top of a field, where no carry passes. CompareSwap: bits to store.
    pub add_swap_mask: u64,
    /// CompareSwap: the value expected.
    pub compare: u64,
    /// CompareSwap: bits to compare.
    pub compare_mask: u64,
}

impl AtomicRequest {
    /// Bytes on the wire.
    pub const LEN: usize = 52;

    /// A FetchAdd of all 64 bits, as the verbs have it (RFC 7306 §5.2.1).
    pub const fn fetch_add(request_id: u32, stag: u32, to: u64, add: u64) -> Self {
        Self {
            operation: AtomicOperation::FetchAdd,
            request_id,
            stag,
            to,
            add_swap: add,
            add_swap_mask: 0,
            compare: 0,
            compare_mask: u64::MAX,
        }
    }

    /// A CompareSwap of all 64 bits, as the verbs have it.
    pub const fn compare_swap(request_id: u32, stag: u32, to: u64, compare: u64, swap: u64) -> Self {
        Self {
            operation: AtomicOperation::CompareSwap,
            request_id,
            stag,
            to,
            add_swap: swap,
            add_swap_mask: u64::MAX,
            compare,
            compare_mask: u64::MAX,
        }
    }

    /// Reads a body; only an operation without a meaning is refused.
    pub fn parse(b: &[u8; Self::LEN]) -> Result<Self, SegmentError> {
        let operation = match b[3] & 0x0f {
            0 => AtomicOperation::FetchAdd,
            2 => AtomicOperation::CompareSwap,
            other => return Err(SegmentError::UnknownAtomic(other)),
        };
        Ok(Self {
            operation,
            request_id: word(b, 4),
            stag: word(b, 8),
            to: double_word(b, 12),
            add_swap: double_word(b, 20),
            add_swap_mask: double_word(b, 28),
            compare: double_word(b, 36),
            compare_mask: double_word(b, 44),
        })
    }

    /// Writes the body to the start of `out` and returns its length.
    ///
    /// # Panics
    /// If `out` is shorter than [`AtomicRequest::LEN`].
    pub fn emit(&self, out: &mut [u8]) -> usize {
        put(out, 0, [0, 0, 0, self.operation as u8]);
        put(out, 4, self.request_id.to_be_bytes());
        put(out, 8, self.stag.to_be_bytes());
        put(out, 12, self.to.to_be_bytes());
        put(out, 20, self.add_swap.to_be_bytes());
        put(out, 28, self.add_swap_mask.to_be_bytes());
        put(out, 36, self.compare.to_be_bytes());
        put(out, 44, self.compare_mask.to_be_bytes());
        Self::LEN
    }
}

/// Bytes of an Atomic Response. RFC 7306 §4 speaks of 32 in passing; its figure 8 has these.
pub(super) const ATOMIC_RESPONSE_LEN: usize = 12;
/// Bytes of Immediate Data.
pub(super) const IMMEDIATE_LEN: usize = 8;

pub(super) fn parse_atomic_response(b: &[u8; ATOMIC_RESPONSE_LEN]) -> (u32, u64) {
    (word(b, 0), double_word(b, 4))
}

pub(super) fn emit_atomic_response(request_id: u32, original: u64, out: &mut [u8]) -> usize {
    put(out, 0, request_id.to_be_bytes());
    put(out, 4, original.to_be_bytes());
    ATOMIC_RESPONSE_LEN
}

/// A body that must have exactly `N` bytes.
pub(super) fn fixed<const N: usize>(opcode: Opcode, body: &[u8]) -> Result<&[u8; N], SegmentError> {
    let len = body.len();
    body.try_into().map_err(|_| match len < N {
        true => SegmentError::BodyTooShort { opcode, len },
        false => SegmentError::BodyTooLong { opcode, len },
    })
}
