//! Frames in the stream: two bytes of length, the ULPDU, padding to a multiple of four, a CRC (RFC 5044 §4).
//!
//! There are two ways to send. [`FpduHead`] and [`Trailer`] are the small pieces round a payload that stays
//! where it is, for a gathering system call. [`Framer`] completes a frame in a buffer, and is the only way if
//! the peer wants markers, which can fall on any multiple of four bytes. Receiving is [`super::Deframer`].
//!
//! Nothing here decides how long a frame should be; [`mulpdu`] says how long it may.

use std::ops::Deref;

use super::crc::Crc32c;
use super::markers::{self, MarkerWriter};
use super::rdmap::{Header, Segment};

/// Bytes of the length field.
pub const LENGTH_LEN: usize = 2;
/// Bytes of the CRC field, which is there even if CRCs are not used.
pub const CRC_LEN: usize = 4;
/// Longest ULPDU that the length field can express, and that a receiver must therefore expect.
pub const MAX_ULPDU: usize = u16::MAX as usize;
/// Longest ULPDU that may be sent (RFC 5044 §3).
pub const MAX_MULPDU: usize = 64_768;
/// However small the segments of TCP are, a ULPDU may be so long.
pub const MIN_MULPDU: usize = 128;

/// What both sides agreed on for one direction of a connection.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct Framing {
    /// CRCs are made and checked. Without, the field is sent as zero and not looked at.
    pub crc: bool,
    /// Markers are in the stream.
    pub markers: bool,
}

/// Zero bytes behind a ULPDU of this length, 0 to 3.
pub const fn pad_len(ulpdu_len: usize) -> usize {
    (LENGTH_LEN + ulpdu_len).wrapping_neg() & 3
}

/// Length of the whole frame, without markers.
pub const fn fpdu_len(ulpdu_len: usize) -> usize {
    LENGTH_LEN + ulpdu_len + pad_len(ulpdu_len) + CRC_LEN
}

/// The longest ULPDU whose frame fits into one TCP segment of `emss` bytes (RFC 5044 §4.5).
///
/// ```
/// use nonic_wire::iwarp::fpdu::mulpdu;
/// assert_eq!(mulpdu(1448, false), 1442);
/// assert_eq!(mulpdu(1448, true), 1430);
/// ```
pub const fn mulpdu(emss: usize, markers: bool) -> usize {
    let markers = if markers {
        emss.div_ceil(markers::INTERVAL) * markers::LEN
    } else {
        0
    };
    let ulpdu = emss.saturating_sub(LENGTH_LEN + CRC_LEN + markers + emss % 4);
    if ulpdu < MIN_MULPDU {
        MIN_MULPDU
    } else if ulpdu > MAX_MULPDU {
        MAX_MULPDU
    } else {
        ulpdu
    }
}

/// What stands before the payload: length field and header.
#[derive(Copy, Clone, Debug)]
pub struct FpduHead {
    bytes: [u8; Self::MAX_LEN],
    len: u8,
}

impl FpduHead {
    /// Length of the longest.
    pub const MAX_LEN: usize = LENGTH_LEN + Header::MAX_LEN;

    /// For a segment with so many bytes of payload.
    ///
    /// # Panics
    /// If the ULPDU is longer than [`MAX_ULPDU`].
    #[inline]
    pub fn new(header: &Header, payload_len: usize) -> Self {
        let mut bytes = [0; Self::MAX_LEN];
        let ulpdu_len = header.len() + payload_len;
        bytes[..LENGTH_LEN].copy_from_slice(&length_field(ulpdu_len));
        let len = LENGTH_LEN + header.emit(&mut bytes[LENGTH_LEN..]);
        Self {
            bytes,
            len: len as u8,
        }
    }
}

impl Deref for FpduHead {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// What stands behind the payload: padding and CRC.
#[derive(Copy, Clone, Debug)]
pub struct Trailer {
    bytes: [u8; Self::MAX_LEN],
    len: u8,
}

impl Trailer {
    /// Length of the longest.
    pub const MAX_LEN: usize = 3 + CRC_LEN;

    /// Without a CRC: as many zero bytes as there must be.
    #[inline]
    pub const fn unchecked(ulpdu_len: usize) -> Self {
        Self {
            bytes: [0; Self::MAX_LEN],
            len: (pad_len(ulpdu_len) + CRC_LEN) as u8,
        }
    }

    /// With a CRC, which has taken in the head and all pieces of the payload.
    #[inline]
    pub fn sealed(ulpdu_len: usize, mut crc: Crc32c) -> Self {
        let mut trailer = Self::unchecked(ulpdu_len);
        let pad = pad_len(ulpdu_len);
        crc.update(&trailer.bytes[..pad]);
        trailer.bytes[pad..pad + CRC_LEN].copy_from_slice(&crc.finish());
        trailer
    }
}

impl Deref for Trailer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Completes frames in a buffer. Keeps what one direction of a connection needs: the place of the next marker.
#[derive(Clone, Debug)]
pub struct Framer {
    framing: Framing,
    markers: MarkerWriter,
}

impl Framer {
    /// For a direction that has just entered full operation.
    pub const fn new(framing: Framing) -> Self {
        Self {
            framing,
            markers: MarkerWriter::new(),
        }
    }

    /// What was agreed on.
    pub const fn framing(&self) -> Framing {
        self.framing
    }

    /// Appends the frame of `segment` to `out`.
    ///
    /// # Panics
    /// If the segment is longer than [`MAX_ULPDU`].
    pub fn frame(&mut self, segment: &Segment<'_>, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&FpduHead::new(&segment.header, segment.carried().len()));
        out.extend_from_slice(segment.carried());
        self.seal(out, start);
    }

    /// Completes the frame that begins at `start`: `out` ends with an [`FpduHead`] and the payload, and then also
    /// with padding, CRC and, spread over all of it, markers.
    ///
    /// Frames must be sealed in the order in which they are sent, all that are sent, and each once.
    ///
    /// # Panics
    /// If there is no length field at `start`, or more than [`MAX_ULPDU`] bytes behind it.
    pub fn seal(&mut self, out: &mut Vec<u8>, start: usize) {
        let ulpdu_len = out.len() - (start + LENGTH_LEN);
        debug_assert_eq!(
            out[start..start + LENGTH_LEN],
            length_field(ulpdu_len),
            "the head announced another length"
        );
        out.extend_from_slice(&Trailer::unchecked(ulpdu_len));
        if self.framing.markers {
            self.markers.insert(out, start);
        }
        if self.framing.crc {
            let crc_at = out.len() - CRC_LEN;
            let crc = Crc32c::of(&out[start..crc_at]);
            out[crc_at..].copy_from_slice(&crc);
        }
    }
}

fn length_field(ulpdu_len: usize) -> [u8; LENGTH_LEN] {
    u16::try_from(ulpdu_len)
        .expect("callers keep to the length that `mulpdu` allows")
        .to_be_bytes()
}
