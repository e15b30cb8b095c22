//! Deframing: finds the frames in a stream of bytes that is cut anywhere.

use thiserror::Error;

use super::TerminateCode;
use super::crc::Crc32c;
use super::fpdu::{CRC_LEN, Framing, LENGTH_LEN, fpdu_len};
use super::markers::{MarkerMismatch, MarkerReader, Piece};

/// Finds the frames of one direction of a connection and gives out their ULPDUs.
///
/// What comes out depends on the bytes alone, not on how they are cut into chunks. A frame that lies whole in
/// a chunk is borrowed from it; one that does not, or has markers in it, is collected in memory of the deframer,
/// which holds at most one frame and grows only with what has arrived, not with what was announced.
///
/// Padding is not looked at: Linux siw does not zero it. [`super::Segment::parse`] checks whether a ULPDU is long
/// enough for what it claims to be: to this layer its content means nothing.
#[derive(Debug)]
pub struct Deframer {
    framing: Framing,
    /// The frame in progress, without markers.
    partial: Vec<u8>,
    /// `partial` is whole and was given out; the next call begins anew.
    yielded: bool,
    /// Only used if there are markers.
    markers: MarkerReader,
    /// Of the frame in progress, markers included. Only used if there are markers.
    crc: Crc32c,
    failed: Option<FramingError>,
}

impl Deframer {
    /// For a direction that has just entered full operation.
    pub const fn new(framing: Framing) -> Self {
        Self {
            framing,
            partial: Vec::new(),
            yielded: false,
            markers: MarkerReader::new(),
            crc: Crc32c::new(),
            failed: None,
        }
    }

    /// The next ULPDU in the stream. Its bytes are taken off the front of `chunk`; if there is none yet, all are.
    ///
    /// After an error there is no telling where frames begin: every further call returns the same error.
    ///
    /// ```
    /// # use nonic_wire::iwarp::{Deframer, Framing, FramingError};
    /// fn receive(deframer: &mut Deframer, mut chunk: &[u8]) -> Result<(), FramingError> {
    ///     while let Some(ulpdu) = deframer.next(&mut chunk)? {
    ///         println!("{} bytes", ulpdu.len());
    ///     }
    ///     Ok(())
    /// }
    /// ```
    #[inline]
    pub fn next<'d, 'c: 'd>(&'d mut self, chunk: &mut &'c [u8]) -> Result<Option<&'d [u8]>, FramingError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if self.yielded {
            self.yielded = false;
            self.partial.clear();
        }
        if self.framing.markers {
            return self.next_with_markers(chunk);
        }
        if !self.partial.is_empty() {
            return self.collect(chunk);
        }
        match announced_len(chunk).and_then(|len| chunk.split_at_checked(len)) {
            Some((fpdu, rest)) => {
                *chunk = rest;
                self.checked(fpdu).map(Some)
            }
            None => self.collect(chunk),
        }
    }

    /// Whether the stream may end here: no byte of an unfinished frame has come.
    pub fn is_at_boundary(&self) -> bool {
        let frame_open = !self.partial.is_empty() && !self.yielded;
        self.failed.is_none() && !frame_open && (!self.framing.markers || self.markers.is_between_markers())
    }

    /// At least so many bytes must come before there can be another ULPDU.
    pub fn missing(&self) -> usize {
        if self.yielded {
            return fpdu_len(0);
        }
        let expected = announced_len(&self.partial).unwrap_or(fpdu_len(0));
        expected.saturating_sub(self.partial.len())
    }

    /// Bytes of memory held for frames that are cut.
    pub fn capacity(&self) -> usize {
        self.partial.capacity()
    }

    /// Gives memory back that no frame needs at the moment; for connections that have fallen silent.
    pub fn release_memory(&mut self) {
        if self.yielded {
            self.yielded = false;
            self.partial.clear();
        }
        self.partial.shrink_to_fit();
    }

    /// A stream without markers, from the first byte that does not lie in one chunk with the rest of its frame.
    fn collect(&mut self, chunk: &mut &[u8]) -> Result<Option<&[u8]>, FramingError> {
        // First up to the length field, then, knowing it, up to the end.
        for _ in 0..2 {
            let wanted = announced_len(&self.partial).unwrap_or(LENGTH_LEN);
            let (now, later) = chunk.split_at(chunk.len().min(wanted - self.partial.len()));
            self.partial.extend_from_slice(now);
            *chunk = later;
        }
        if Some(self.partial.len()) != announced_len(&self.partial) {
            return Ok(None);
        }
        self.yielded = true;
        if self.framing.crc {
            let (covered, found) = split_crc(&self.partial);
            let computed = Crc32c::of(covered);
            if found != computed {
                return Err(self.fail(FramingError::Crc { found, computed }));
            }
        }
        Ok(Some(ulpdu(&self.partial)))
    }

    fn next_with_markers(&mut self, chunk: &mut &[u8]) -> Result<Option<&[u8]>, FramingError> {
        loop {
            let announced = announced_len(&self.partial);
            // The CRC does not cover itself, so the bytes before it are a step of their own.
            let steps = [
                LENGTH_LEN,
                announced.map_or(LENGTH_LEN, |len| len - CRC_LEN),
                announced.unwrap_or(LENGTH_LEN),
            ];
            let have = self.partial.len();
            let Some(step) = steps.into_iter().find(|&step| step > have) else {
                break;
            };
            match self.markers.next(chunk, step - have) {
                Ok(None) => return Ok(None),
                Ok(Some(Piece::Marker(marker))) => self.crc.update(&marker),
                Ok(Some(Piece::Bytes(bytes))) => {
                    self.partial.extend_from_slice(bytes);
                    if announced.is_none_or(|len| have < len - CRC_LEN) {
                        self.crc.update(bytes);
                    }
                }
                Err(mismatch) => return Err(self.fail(mismatch.into())),
            }
        }
        self.yielded = true;
        self.markers.end_frame();
        let computed = std::mem::take(&mut self.crc).finish();
        let (_, found) = split_crc(&self.partial);
        if self.framing.crc && found != computed {
            return Err(self.fail(FramingError::Crc { found, computed }));
        }
        Ok(Some(ulpdu(&self.partial)))
    }

    /// The ULPDU of a frame in one piece.
    #[inline]
    fn checked<'c>(&mut self, fpdu: &'c [u8]) -> Result<&'c [u8], FramingError> {
        if self.framing.crc {
            let (covered, found) = split_crc(fpdu);
            let computed = Crc32c::of(covered);
            if found != computed {
                return Err(self.fail(FramingError::Crc { found, computed }));
            }
        }
        Ok(ulpdu(fpdu))
    }

    fn fail(&mut self, error: FramingError) -> FramingError {
        self.failed = Some(error);
        error
    }
}

/// Why a stream cannot be read any further.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum FramingError {
    /// The CRC does not fit: bytes were damaged on the way, behind TCP's back.
    #[error("CRC is {found:02x?}, should be {computed:02x?}")]
    Crc {
        /// As received.
        found: [u8; CRC_LEN],
        /// Of what was received.
        computed: [u8; CRC_LEN],
    },
    /// A marker does not point to where the frame began by its length field.
    #[error("marker points {found} bytes back, the frame began {expected} bytes before it")]
    Marker {
        /// The distance in the marker.
        found: u16,
        /// The distance by length fields.
        expected: u16,
    },
}

impl FramingError {
    /// The code that a Terminate names this error with.
    pub const fn terminate_code(self) -> TerminateCode {
        match self {
            FramingError::Crc { .. } => TerminateCode::MPA_CRC,
            FramingError::Marker { .. } => TerminateCode::MPA_MARKER,
        }
    }
}

impl From<MarkerMismatch> for FramingError {
    fn from(MarkerMismatch { found, expected }: MarkerMismatch) -> Self {
        FramingError::Marker { found, expected }
    }
}

/// Length of the frame at the start of `bytes`, if its length field is there.
#[inline]
fn announced_len(bytes: &[u8]) -> Option<usize> {
    let field = bytes.first_chunk::<LENGTH_LEN>()?;
    Some(fpdu_len(usize::from(u16::from_be_bytes(*field))))
}

/// What the CRC of a whole frame covers, and the CRC.
fn split_crc(fpdu: &[u8]) -> (&[u8], [u8; CRC_LEN]) {
    let (covered, crc) = fpdu.split_last_chunk().expect("a whole frame has a CRC field");
    (covered, *crc)
}

/// What a whole frame carries.
#[inline]
fn ulpdu(fpdu: &[u8]) -> &[u8] {
    let (field, rest) = fpdu
        .split_first_chunk::<LENGTH_LEN>()
        .expect("a whole frame has a length field");
    &rest[..usize::from(u16::from_be_bytes(*field))]
}
