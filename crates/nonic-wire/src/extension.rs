//! Extension headers of requests: datagram, RDMA, atomic and flush.
//!
//! Reserved bits of extension headers are ignored on receipt and sent as zero.

use crate::Qpn;

/// Datagram extended transport header: the queue pair that sent a UD packet, and the key it shows.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Deth {
    /// Must equal the queue key of the receiving queue pair.
    pub qkey: u32,
    /// Queue pair of the sender.
    pub src_qp: Qpn,
}

impl Deth {
    /// Bytes on the wire.
    pub const LEN: usize = 8;

    /// Reads a header.
    pub fn parse(bytes: &[u8; Self::LEN]) -> Self {
        Self {
            qkey: word(bytes, 0),
            src_qp: Qpn::new(word(bytes, 4)),
        }
    }

    /// Writes the header to the first [`Deth::LEN`] bytes of `out`.
    ///
    /// # Panics
    /// If `out` is shorter than that.
    pub fn emit(&self, out: &mut [u8]) {
        out[0..4].copy_from_slice(&self.qkey.to_be_bytes());
        out[4..8].copy_from_slice(&self.src_qp.value().to_be_bytes());
    }
}

/// RDMA extended transport header: the remote memory a WRITE or READ is about.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Reth {
    /// Address of the first byte, in the responder's terms.
    pub va: u64,
    /// Key that grants access.
    pub rkey: u32,
    /// Length of the whole message, not of this packet.
    pub dma_len: u32,
}

impl Reth {
    /// Bytes on the wire.
    pub const LEN: usize = 16;

    /// Reads a header.
    pub fn parse(bytes: &[u8; Self::LEN]) -> Self {
        Self {
            va: double_word(bytes, 0),
            rkey: word(bytes, 8),
            dma_len: word(bytes, 12),
        }
    }

    /// Writes the header to the first [`Reth::LEN`] bytes of `out`.
    ///
    /// # Panics
    /// If `out` is shorter than that.
    pub fn emit(&self, out: &mut [u8]) {
        let out = &mut out[..Self::LEN];
        out[0..8].copy_from_slice(&self.va.to_be_bytes());
        out[8..12].copy_from_slice(&self.rkey.to_be_bytes());
        out[12..16].copy_from_slice(&self.dma_len.to_be_bytes());
    }
}

/// Atomic extended transport header.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct AtomicEth {
    /// Address of the eight bytes operated on.
    pub va: u64,
    /// Key that grants access.
    pub rkey: u32,
    /// Value to store (compare and swap) or to add (fetch and add).
    pub swap_add: u64,
    /// Value expected in memory; only compare and swap looks at it.
    pub compare: u64,
}

impl AtomicEth {
    /// Bytes on the wire.
    pub const LEN: usize = 28;

    /// Reads a header.
    pub fn parse(bytes: &[u8; Self::LEN]) -> Self {
        Self {
            va: double_word(bytes, 0),
            rkey: word(bytes, 8),
            swap_add: double_word(bytes, 12),
            compare: double_word(bytes, 20),
        }
    }

    /// Writes the header to the first [`AtomicEth::LEN`] bytes of `out`.
    ///
    /// # Panics
    /// If `out` is shorter than that.
    pub fn emit(&self, out: &mut [u8]) {
        let out = &mut out[..Self::LEN];
        out[0..8].copy_from_slice(&self.va.to_be_bytes());
        out[8..12].copy_from_slice(&self.rkey.to_be_bytes());
        out[12..20].copy_from_slice(&self.swap_add.to_be_bytes());
        out[20..28].copy_from_slice(&self.compare.to_be_bytes());
    }
}

/// Flush extended transport header: which memory to make visible, and how durably.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Feth {
    /// Placement type, four bits: bit 0 asks for global visibility, bit 1 for persistence.
    pub placement: u8,
    /// Selectivity level, two bits: 0 flushes the range in the RETH, 1 the whole memory region.
    pub selectivity: u8,
}

impl Feth {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// Reads a header.
    pub fn parse(bytes: &[u8; Self::LEN]) -> Self {
        Self {
            placement: bytes[3] & 0x0f,
            selectivity: bytes[3] >> 4 & 0x03,
        }
    }

    /// Writes the header to the first [`Feth::LEN`] bytes of `out`.
    ///
    /// # Panics
    /// If `out` is shorter than that.
    pub fn emit(&self, out: &mut [u8]) {
        let low = (self.selectivity & 0x03) << 4 | self.placement & 0x0f;
        out[..Self::LEN].copy_from_slice(&[0, 0, 0, low]);
    }
}

/// Big-endian 32-bit word; `at` is a constant in every call, so the bound check vanishes.
fn word<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn double_word<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    u64::from(word(bytes, at)) << 32 | u64::from(word(bytes, at + 4))
}
