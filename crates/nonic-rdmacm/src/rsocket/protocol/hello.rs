//! The greeting that both sides send when they connect, and the records they write into each other's memory later.

use super::TARGETS;

const VERSION: u8 = 1;
const FLAG_BIG_ENDIAN: u8 = 1;
const FLAG_IOMAP: u8 = 1 << 1;

/// Sizes of mapping lists up to this are said as they are, larger ones in units of 256.
const LARGEST_EXACT: u16 = 128;

/// A piece of memory at the other side.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) address: u64,
    pub(crate) key: u32,
    pub(crate) length: u32,
}

impl Segment {
    pub(crate) const LEN: usize = 16;

    /// Where the length is.
    pub(crate) const LENGTH_OFFSET: usize = 12;

    /// For the memory of a peer with this byte order.
    pub(crate) fn emit(self, big_endian: bool) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&long(self.address, big_endian));
        bytes[8..12].copy_from_slice(&word(self.key, big_endian));
        bytes[12..].copy_from_slice(&word(self.length, big_endian));
        bytes
    }

    pub(crate) fn parse(bytes: &[u8; Self::LEN], big_endian: bool) -> Self {
        Segment {
            address: parse_long(&bytes[..8], big_endian),
            key: parse_word(&bytes[8..12], big_endian),
            length: parse_word(&bytes[12..], big_endian),
        }
    }
}

/// A buffer of the other side that may be written to at an offset both know.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Iomapping {
    pub(crate) offset: u64,
    pub(crate) buffer: Segment,
}

impl Iomapping {
    pub(crate) const LEN: usize = 8 + Segment::LEN;

    pub(crate) fn emit(self, big_endian: bool) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&long(self.offset, big_endian));
        bytes[8..].copy_from_slice(&self.buffer.emit(big_endian));
        bytes
    }

    pub(crate) fn parse(bytes: &[u8; Self::LEN], big_endian: bool) -> Self {
        let mut buffer = [0; Segment::LEN];
        buffer.copy_from_slice(&bytes[8..]);
        Iomapping {
            offset: parse_long(&bytes[..8], big_endian),
            buffer: Segment::parse(&buffer, big_endian),
        }
    }
}

/// The private data of the request and of the reply.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// How numbers are to be written into the sender's memory.
    pub(crate) big_endian: bool,
    /// How many messages the sender has room for.
    pub(crate) credits: u16,
    /// How many mapped buffers the sender has room to know of.
    pub(crate) iomap_size: u16,
    /// The list where the sender wants to find targets; its length is counted in entries.
    pub(crate) targets: Segment,
    /// The first target.
    pub(crate) buffer: Segment,
}

impl Hello {
    pub(crate) const LEN: usize = 8 + 2 * Segment::LEN;

    pub(crate) fn emit(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = VERSION;
        bytes[1] = FLAG_IOMAP | if self.big_endian { FLAG_BIG_ENDIAN } else { 0 };
        bytes[2..4].copy_from_slice(&self.credits.to_be_bytes());
        bytes[7] = scaled(self.iomap_size);
        bytes[8..24].copy_from_slice(&self.targets.emit(true));
        bytes[24..].copy_from_slice(&self.buffer.emit(true));
        bytes
    }

    /// `None`: no greeting of a version known here, or one that leaves nothing to work with.
    pub(crate) fn parse(data: &[u8]) -> Option<Self> {
        let bytes = data.get(..Self::LEN)?;
        let segment = |at: usize| -> Option<Segment> {
            Some(Segment::parse(
                bytes.get(at..at + Segment::LEN)?.try_into().ok()?,
                true,
            ))
        };
        let has_iomap = bytes[1] & FLAG_IOMAP != 0;
        let hello = Hello {
            big_endian: bytes[1] & FLAG_BIG_ENDIAN != 0,
            credits: u16::from_be_bytes([bytes[2], bytes[3]]),
            iomap_size: if has_iomap { unscaled(bytes[7]) } else { 0 },
            targets: segment(8)?,
            buffer: segment(24)?,
        };
        let fits = bytes[0] == VERSION && hello.credits > 0 && hello.targets.length as usize >= TARGETS;
        fits.then_some(hello)
    }

    /// Where in the sender's memory the list of mapped buffers has an entry: right behind the targets.
    pub(crate) fn iomap_entry(&self, index: u16) -> u64 {
        let targets = u64::from(self.targets.length) * Segment::LEN as u64;
        let entries = u64::from(index) * Iomapping::LEN as u64;
        self.targets.address.wrapping_add(targets).wrapping_add(entries)
    }
}

/// What is left of a size when one byte has told it.
pub(crate) fn nearest_iomap_size(size: u16) -> u16 {
    unscaled(scaled(size))
}

fn scaled(size: u16) -> u8 {
    if size <= LARGEST_EXACT {
        size as u8
    } else {
        LARGEST_EXACT as u8 | (size >> 8) as u8
    }
}

fn unscaled(scaled: u8) -> u16 {
    let scaled = u16::from(scaled);
    if scaled <= LARGEST_EXACT {
        scaled
    } else {
        (scaled & !LARGEST_EXACT) << 8
    }
}

fn long(value: u64, big_endian: bool) -> [u8; 8] {
    if big_endian {
        value.to_be_bytes()
    } else {
        value.to_le_bytes()
    }
}

fn word(value: u32, big_endian: bool) -> [u8; 4] {
    if big_endian {
        value.to_be_bytes()
    } else {
        value.to_le_bytes()
    }
}

fn parse_long(bytes: &[u8], big_endian: bool) -> u64 {
    let mut array = [0; 8];
    array.copy_from_slice(bytes);
    if big_endian {
        u64::from_be_bytes(array)
    } else {
        u64::from_le_bytes(array)
    }
}

fn parse_word(bytes: &[u8], big_endian: bool) -> u32 {
    let mut array = [0; 4];
    array.copy_from_slice(bytes);
    if big_endian {
        u32::from_be_bytes(array)
    } else {
        u32::from_le_bytes(array)
    }
}
