//! Markers: four bytes at every 512th byte of the stream that say how far back the current frame began.
//!
//! A receiver that sees TCP segments out of order can find frames by them. One that reads a stream in order
//! needs none, so nonic never asks for them; but a peer may, and then they must be sent (RFC 5044 §4.3).
//! Positions count from the first byte of full operation, and markers count as bytes of the stream.

use super::bytes::half;

/// Distance between the first bytes of two markers.
pub const INTERVAL: usize = 512;
/// Bytes of a marker: two reserved, two with the distance to the length field of the frame it is in.
pub const LEN: usize = 4;

/// Bytes of frames between two markers.
const RUN: usize = INTERVAL - LEN;

/// Puts markers into frames that are about to be sent.
#[derive(Clone, Debug)]
pub struct MarkerWriter {
    /// Place of the next byte of the stream between the markers; zero: a marker comes first.
    phase: usize,
}

impl MarkerWriter {
    /// At the beginning of full operation.
    pub const fn new() -> Self {
        Self { phase: 0 }
    }

    /// Opens gaps in the frame that begins at `start` and ends with `out`, and fills them with markers. A marker
    /// that would follow the last byte is left to the next frame.
    ///
    /// # Panics
    /// If `start` is behind the end of `out`.
    pub fn insert(&mut self, out: &mut Vec<u8>, start: usize) {
        let len = out.len() - start;
        // The first marker stands before this byte of the frame, the others before every 508th further on.
        let first = (INTERVAL - self.phase) % INTERVAL;
        let count = len.saturating_sub(first).div_ceil(RUN);
        out.resize(out.len() + count * LEN, 0);
        let mut end = len;
        for index in (0..count).rev() {
            let at = first + index * RUN;
            out.copy_within(start + at..start + end, start + at + (index + 1) * LEN);
            end = at;
            // A marker before the length field is not counted in the distance from there.
            let markers_behind_length = if first == 0 {
                index.saturating_sub(1)
            } else {
                index
            };
            let distance = at + markers_behind_length * LEN;
            let [high, low] = (distance as u16).to_be_bytes();
            let marker_at = start + at + index * LEN;
            out[marker_at..marker_at + LEN].copy_from_slice(&[0, 0, high, low]);
        }
        self.phase = (self.phase + len + count * LEN) % INTERVAL;
    }
}

impl Default for MarkerWriter {
    fn default() -> Self {
        Self::new()
    }
}

/// Tells markers from the bytes of frames in a stream that arrives in pieces, and checks where they point.
#[derive(Clone, Debug)]
pub struct MarkerReader {
    /// Place of the next byte of the stream between the markers; below [`LEN`]: inside one.
    phase: usize,
    /// What has come of a marker.
    marker: [u8; LEN],
    /// Bytes of the stream since the length field of the current frame began; zero: it has not.
    distance: usize,
}

impl MarkerReader {
    /// At the beginning of full operation.
    pub const fn new() -> Self {
        Self {
            phase: 0,
            marker: [0; LEN],
            distance: 0,
        }
    }

    /// Takes the next piece off the front of `chunk`: a marker, or at most `limit` bytes of a frame. `None` when
    /// the chunk is used up, perhaps inside a marker.
    pub fn next<'c>(
        &mut self,
        chunk: &mut &'c [u8],
        limit: usize,
    ) -> Result<Option<Piece<'c>>, MarkerMismatch> {
        while self.phase < LEN {
            let Some((&byte, rest)) = chunk.split_first() else {
                return Ok(None);
            };
            *chunk = rest;
            self.marker[self.phase] = byte;
            self.phase += 1;
            if self.phase == LEN {
                return self.check_marker().map(Some);
            }
        }
        let len = chunk.len().min(INTERVAL - self.phase).min(limit);
        if len == 0 {
            return Ok(None);
        }
        let (bytes, rest) = chunk.split_at(len);
        *chunk = rest;
        self.phase = (self.phase + len) % INTERVAL;
        self.distance += len;
        Ok(Some(Piece::Bytes(bytes)))
    }

    /// The frame has ended: the next byte that is not a marker begins another.
    pub const fn end_frame(&mut self) {
        self.distance = 0;
    }

    /// Whether the stream stands before a marker or behind a run of bytes, but not inside or behind a marker.
    pub const fn is_between_markers(&self) -> bool {
        self.phase == 0 || self.phase > LEN
    }

    fn check_marker(&mut self) -> Result<Piece<'static>, MarkerMismatch> {
        let found = half(&self.marker, 2);
        // A frame may be longer than the field can say; then the field has the low bits.
        let expected = self.distance as u16;
        if found != expected {
            return Err(MarkerMismatch { found, expected });
        }
        if self.distance != 0 {
            self.distance += LEN;
        }
        Ok(Piece::Marker(self.marker))
    }
}

impl Default for MarkerReader {
    fn default() -> Self {
        Self::new()
    }
}

/// What [`MarkerReader::next`] found in the stream.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Piece<'c> {
    /// A marker that points to the right place. It counts for the CRC.
    Marker([u8; LEN]),
    /// Bytes of a frame.
    Bytes(&'c [u8]),
}

/// A marker does not point to where the frame began by its length field.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct MarkerMismatch {
    /// The distance in the marker.
    pub found: u16,
    /// The distance by length fields.
    pub expected: u16,
}
