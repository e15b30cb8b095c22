//! CRC-32C, the checksum at the end of every frame.

use crc_fast::{CrcAlgorithm, Digest};

/// The checksum of bytes that come in pieces.
///
/// ```
/// use nonic_wire::iwarp::Crc32c;
/// let mut crc = Crc32c::new();
/// crc.update(b"1234");
/// crc.update(b"56789");
/// assert_eq!(crc.finish(), Crc32c::of(b"123456789"));
/// assert_eq!(crc.finish(), 0xe306_9283u32.to_le_bytes());
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Crc32c {
    /// The register, before the final inversion. Four bytes, because every connection may have one.
    state: u32,
}

impl Crc32c {
    /// Of no bytes yet.
    pub const fn new() -> Self {
        Self { state: u32::MAX }
    }

    /// Of these bytes, as it stands on the wire: least significant byte first.
    #[inline]
    pub fn of(bytes: &[u8]) -> [u8; 4] {
        crc_fast::crc32_iscsi(bytes).to_le_bytes()
    }

    /// Takes in the next piece.
    #[inline]
    pub fn update(&mut self, piece: &[u8]) {
        let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(self.state));
        digest.update(piece);
        // The upper half is for 64-bit algorithms and always zero here.
        self.state = digest.get_state() as u32;
    }

    /// Of all pieces so far, as it stands on the wire.
    #[inline]
    pub const fn finish(&self) -> [u8; 4] {
        (!self.state).to_le_bytes()
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}
