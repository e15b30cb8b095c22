//! A reader of captures, for tests and tools.
//!
//! [`Reader`] walks over a classic pcap file held in memory; [`CaptureReader`] takes pcap or pcapng as it comes, also from
//! a file that is still being written. Both understand either byte order, micro- and nanosecond stamps, and the link
//! types that `tcpdump` and Wireshark write for IP: Ethernet, raw IP, BSD loopback and Linux "cooked" headers of both
//! versions. Fragments are not reassembled and no file is opened. A damaged capture ends in an error, never in a panic.
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
mod link;
mod reader;
mod segment;

use thiserror::Error;

pub use datagram::{Datagram, Fragmentation};
use link::LinkType;
pub use reader::CaptureReader;
pub use segment::TcpSegment;
pub(crate) use segment::{TCP, TCP_LEN};

/// Walks over the frames of a classic capture.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    format: Classic,
}

impl<'a> Reader<'a> {
    /// Looks at the file header of a whole capture.
    pub fn new(file: &'a [u8]) -> Result<Self, PcapError> {
        let (header, rest) = file
            .split_first_chunk::<FILE_HEADER_LEN>()
            .ok_or(PcapError::Truncated)?;
        Ok(Self {
            rest,
            format: Classic::parse(header)?,
        })
    }

    fn read_frame(&mut self) -> Result<Frame<'a>, PcapError> {
        let (place, len) = self.format.first_record(self.rest).ok_or(PcapError::Truncated)?;
        let frame = place.frame(self.rest);
        self.rest = &self.rest[len..];
        Ok(frame)
    }
}

/// What the header of a classic file says about its records.
#[derive(Copy, Clone, Debug)]
struct Classic {
    big_endian: bool,
    fraction_ns: u64,
    link: LinkType,
}

impl Classic {
    fn parse(header: &[u8; FILE_HEADER_LEN]) -> Result<Self, PcapError> {
        let (big_endian, fraction_ns) = match header[..4] {
            [0xd4, 0xc3, 0xb2, 0xa1] => (false, 1_000),
            [0x4d, 0x3c, 0xb2, 0xa1] => (false, 1),
            [0xa1, 0xb2, 0xc3, 0xd4] => (true, 1_000),
            [0xa1, 0xb2, 0x3c, 0x4d] => (true, 1),
            _ => return Err(PcapError::NotPcap),
        };
        // The upper half of the word holds flags about checksums at the end of frames.
        let number = word(header, 20, big_endian) & 0xffff;
        Ok(Classic {
            big_endian,
            fraction_ns,
            link: LinkType::from_number(number).ok_or(PcapError::UnsupportedLink(number))?,
        })
    }

    /// Where the frame is in the record that `bytes` begin with, and how long the record is; `None` if it has not ended.
    fn first_record(&self, bytes: &[u8]) -> Option<(Place, usize)> {
        let header = bytes.first_chunk::<RECORD_HEADER_LEN>()?;
        let field = |index: usize| word(header, index * 4, self.big_endian);
        let end = RECORD_HEADER_LEN + field(2) as usize;
        let place = Place {
            timestamp_ns: u64::from(field(0)) * 1_000_000_000 + u64::from(field(1)) * self.fraction_ns,
            original_len: field(3),
            start: RECORD_HEADER_LEN,
            end,
            link: self.link,
            direction: None,
        };
        (end <= bytes.len()).then_some((place, end))
    }
}

/// Where a frame is in a record or block, and what its headers say.
#[derive(Copy, Clone, Debug)]
struct Place {
    timestamp_ns: u64,
    original_len: u32,
    start: usize,
    end: usize,
    link: LinkType,
    direction: Option<Direction>,
}

impl Place {
    /// The frame, in the bytes that the place is of.
    fn frame(self, bytes: &[u8]) -> Frame<'_> {
        let bytes = &bytes[self.start..self.end];
        Frame {
            timestamp_ns: self.timestamp_ns,
            original_len: self.original_len,
            direction: self.direction.or_else(|| self.link.direction(bytes)),
            bytes,
            link: self.link,
        }
    }
}

/// Which way a frame went, seen from where it was captured.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// It was received.
    Inbound,
    /// It was sent.
    Outbound,
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
    /// Which way it went, if the capture says so.
    pub direction: Option<Direction>,
    /// What was captured, from the link layer header on.
    pub bytes: &'a [u8],
    link: LinkType,
}

impl<'a> Frame<'a> {
    /// The UDP datagram in the frame, or `None` if it is something else, cut short or a fragment.
    pub fn datagram(&self) -> Option<Datagram<'a>> {
        Datagram::in_ip(self.link.ip_packet(self.bytes)?)
    }

    /// The TCP segment in the frame, or `None` if it is something else, cut short or a fragment.
    pub fn tcp_segment(&self) -> Option<TcpSegment<'a>> {
        TcpSegment::in_ip(self.link.ip_packet(self.bytes)?)
    }
}

/// Why a capture cannot be read (further).
#[derive(Copy, Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum PcapError {
    /// The magic number is not that of a classic pcap file.
    #[error("not a classic pcap capture")]
    NotPcap,
    /// The beginning is that of neither format.
    #[error("not a capture: the file is neither pcap nor pcapng")]
    NotACapture,
    /// A block of a pcapng file whose lengths contradict each other.
    #[error("the capture is damaged: a block says it has {0} bytes")]
    DamagedBlock(u32),
    /// The frames have headers that are not known here.
    #[error("unsupported link type {0}")]
    UnsupportedLink(u32),
    /// The file ends inside a header or frame.
    #[error("capture ends inside a record")]
    Truncated,
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
