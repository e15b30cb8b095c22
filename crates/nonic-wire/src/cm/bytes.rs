//! Fields of a message by their offset, big-endian, and the private data at the end of a message.

use crate::mad::MAD_DATA_LEN;
use std::fmt;
use std::net::Ipv6Addr;

/// The part of a management datagram that a message describes.
pub(super) type Block = [u8; MAD_DATA_LEN];

pub(super) fn half(block: &Block, at: usize) -> u16 {
    u16::from_be_bytes([block[at], block[at + 1]])
}

pub(super) fn word(block: &Block, at: usize) -> u32 {
    u32::from(half(block, at)) << 16 | u32::from(half(block, at + 2))
}

pub(super) fn double(block: &Block, at: usize) -> u64 {
    u64::from(word(block, at)) << 32 | u64::from(word(block, at + 4))
}

/// Three bytes; the fourth usually holds something else.
pub(super) fn triple(block: &Block, at: usize) -> u32 {
    word(block, at) >> 8
}

pub(super) fn gid(block: &Block, at: usize) -> Ipv6Addr {
    Ipv6Addr::from(array::<16>(block, at))
}

pub(super) fn array<const N: usize>(block: &Block, at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&block[at..at + N]);
    out
}

pub(super) fn put(block: &mut Block, at: usize, bytes: &[u8]) {
    block[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Three bytes; leaves the fourth alone.
pub(super) fn put_triple(block: &mut Block, at: usize, value: u32) {
    put(block, at, &value.to_be_bytes()[1..]);
}

/// The bytes at the end of a message that belong to its users. There is no length on the wire: what is not
/// used is zero.
#[derive(Copy, Clone, PartialEq, Eq, Hash)]
pub struct PrivateData<const N: usize>(pub [u8; N]);

impl<const N: usize> PrivateData<N> {
    /// Bytes there are.
    pub const LEN: usize = N;

    /// Takes `bytes` and fills up with zeros; `None` if there are too many.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut data = [0; N];
        data.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self(data))
    }

    pub(super) fn read(block: &Block, at: usize) -> Self {
        Self(array(block, at))
    }

    pub(super) fn write(&self, block: &mut Block, at: usize) {
        put(block, at, &self.0);
    }
}

impl<const N: usize> Default for PrivateData<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

impl<const N: usize> fmt::Debug for PrivateData<N> {
    /// Without the zeros at the end, which are most of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = self
            .0
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |last| last + 1);
        write!(f, "{:02x?} of {N}", &self.0[..used])
    }
}
