//! Management datagrams: the 256 bytes that travel in UD SENDs between queue pairs 1.
//!
//! Only the header common to all classes is parsed here, not what a class puts behind it ([`crate::cm`] is the class
//! that RoCE uses). Reserved fields are ignored and sent as zero.

/// Bytes of a management datagram. There is no other length.
pub const MAD_LEN: usize = 256;

/// Bytes behind the header.
pub const MAD_DATA_LEN: usize = MAD_LEN - MadHeader::LEN;

/// The queue key that every queue pair 1 has.
pub const GSI_QKEY: u32 = 0x8001_0000;

/// The header common to all management classes.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct MadHeader {
    /// Version of this header: 1.
    pub base_version: u8,
    /// Management class.
    pub class: u8,
    /// Version of the class.
    pub class_version: u8,
    /// What is done with the attribute. Bit 7 marks a response.
    pub method: u8,
    /// Outcome, in responses.
    pub status: u16,
    /// For the class to use.
    pub class_specific: u16,
    /// Ties answers to questions.
    pub transaction_id: u64,
    /// Which attribute follows.
    pub attribute_id: u16,
    /// Further selects it.
    pub attribute_modifier: u32,
}

impl MadHeader {
    /// Bytes on the wire.
    pub const LEN: usize = 24;

    /// Reads a header.
    pub fn parse(bytes: &[u8; Self::LEN]) -> Self {
        let half = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let word = |at: usize| u32::from(half(at)) << 16 | u32::from(half(at + 2));
        Self {
            base_version: bytes[0],
            class: bytes[1],
            class_version: bytes[2],
            method: bytes[3],
            status: half(4),
            class_specific: half(6),
            transaction_id: u64::from(word(8)) << 32 | u64::from(word(12)),
            attribute_id: half(16),
            attribute_modifier: word(20),
        }
    }

    /// Writes the header to the first [`MadHeader::LEN`] bytes of `out`.
    ///
    /// # Panics
    /// If `out` is shorter than that.
    pub fn emit(&self, out: &mut [u8]) {
        let out = &mut out[..Self::LEN];
        out[..4].copy_from_slice(&[self.base_version, self.class, self.class_version, self.method]);
        out[4..6].copy_from_slice(&self.status.to_be_bytes());
        out[6..8].copy_from_slice(&self.class_specific.to_be_bytes());
        out[8..16].copy_from_slice(&self.transaction_id.to_be_bytes());
        out[16..18].copy_from_slice(&self.attribute_id.to_be_bytes());
        out[18..20].fill(0);
        out[20..24].copy_from_slice(&self.attribute_modifier.to_be_bytes());
    }
}
