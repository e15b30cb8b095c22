//! Reads classic pcap captures held in memory, for tests and tools.
//!
//! Understands both byte orders, micro- and nanosecond stamps, and the link types Ethernet and raw IP.
//! Does not read pcapng, does not reassemble fragments, does not open files. A damaged capture ends in an
//! error, never in a panic.
//!
//! Read [`Reader`] first, then [`Frame::datagram`].
//!
//! ```no_run
//! use nonic_wire::{Packet, pcap};
//! let file = std::fs::read("capture.pcap").unwrap();
//! for frame in pcap::Reader::new(&file).unwrap() {
//!     if let Some(datagram) = frame.unwrap().datagram() {
//!         println!("{:?} {:?}", datagram.flow, Packet::parse(datagram.payload));
//!     }
//! }
//! ```

mod datagram;

use thiserror::Error;

pub use datagram::{Datagram, Fragmentation};

/// Walks over the frames of a capture.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    big_endian: bool,
    fraction_ns: u64,
    link: Link,
}

impl<'a> Reader<'a> {
    /// Looks at the file header of a whole capture.
    pub fn new(file: &'a [u8]) -> Result<Self, PcapError> {
        let (header, rest) = file
            .split_first_chunk::<FILE_HEADER_LEN>()
            .ok_or(PcapError::Truncated)?;
        let (big_endian, fraction_ns) = match header[..4] {
            [0xd4, 0xc3, 0xb2, 0xa1] => (false, 1_000),
            [0x4d, 0x3c, 0xb2, 0xa1] => (false, 1),
            [0xa1, 0xb2, 0xc3, 0xd4] => (true, 1_000),
            [0xa1, 0xb2, 0x3c, 0x4d] => (true, 1),
            _ => return Err(PcapError::NotPcap),
        };
        // The upper half of the word holds flags about checksums at the end of frames.
        let link = match word(header, 20, big_endian) & 0xffff {
            1 => Link::Ethernet,
            101 => Link::RawIp,
            other => return Err(PcapError::UnsupportedLink(other)),
        };
        Ok(Self {
            rest,
            big_endian,
            fraction_ns,
            link,
        })
    }

    fn read_frame(&mut self) -> Result<Frame<'a>, PcapError> {
        let (header, rest) = self
            .rest
            .split_first_chunk::<RECORD_HEADER_LEN>()
            .ok_or(PcapError::Truncated)?;
        let field = |index: usize| word(header, index * 4, self.big_endian);
        let captured_len = field(2) as usize;
        if captured_len > rest.len() {
            return Err(PcapError::Truncated);
        }
        let (bytes, rest) = rest.split_at(captured_len);
        self.rest = rest;
        Ok(Frame {
            timestamp_ns: u64::from(field(0)) * 1_000_000_000 + u64::from(field(1)) * self.fraction_ns,
            original_len: field(3),
            bytes,
            link: self.link,
        })
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<Frame<'a>, PcapError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let frame = self.read_frame();
        if frame.is_err() {
            // Without a length there is no next frame to find.
            self.rest = &[];
        }
        Some(frame)
    }
}

/// One captured frame.
#[derive(Copy, Clone, Debug)]
pub struct Frame<'a> {
    /// When it was captured, since 1970.
    pub timestamp_ns: u64,
    /// Its length on the wire; more than `bytes` holds if the capture was cut short.
    pub original_len: u32,
    /// What was captured, from the link layer header on.
    pub bytes: &'a [u8],
    link: Link,
}

impl<'a> Frame<'a> {
    /// The UDP datagram in the frame, or `None` if it is something else, cut short or a fragment.
    pub fn datagram(&self) -> Option<Datagram<'a>> {
        match self.link {
            Link::Ethernet => Datagram::in_ethernet(self.bytes),
            Link::RawIp => Datagram::in_ip(self.bytes),
        }
    }
}

/// Why a capture cannot be read (further).
#[derive(Copy, Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum PcapError {
    /// The magic number is not that of a classic pcap file.
    #[error("not a classic pcap capture")]
    NotPcap,
    /// The frames are neither Ethernet nor raw IP.
    #[error("unsupported link type {0}")]
    UnsupportedLink(u32),
    /// The file ends inside a header or frame.
    #[error("capture ends inside a record")]
    Truncated,
}

/// What the frames of a capture start with.
#[derive(Copy, Clone, Debug)]
enum Link {
    Ethernet,
    RawIp,
}

const FILE_HEADER_LEN: usize = 24;
const RECORD_HEADER_LEN: usize = 16;

fn word<const N: usize>(bytes: &[u8; N], at: usize, big_endian: bool) -> u32 {
    let word = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
    if big_endian {
        u32::from_be_bytes(word)
    } else {
        u32::from_le_bytes(word)
    }
}
