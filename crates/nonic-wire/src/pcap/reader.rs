//! A streaming reader of captures of either format: `tcpdump`, Wireshark and [`crate::pcapng`] wrote them, or still do.
//!
//! Feed [`CaptureReader`] with [`CaptureReader::handle`] and take frames with [`CaptureReader::next`]. Blocks of pcapng
//! that it does not know are skipped, and so are frames of interfaces whose link type it does not know. It holds what
//! has not been taken yet and no more; a block longer than any writer makes is taken for damage.

use super::{Classic, Direction, FILE_HEADER_LEN, Frame, LinkType, PcapError, Place, word};

/// The longest block that is believed in.
const MAX_BLOCK_LEN: u32 = 16 << 20;
/// More interfaces than a capture has; further ones are not known.
const MAX_INTERFACES: usize = 4096;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
const OPTION_TIME_RESOLUTION: u16 = 9;
const OPTION_PACKET_FLAGS: u16 = 2;

/// Reads a capture piece by piece.
#[derive(Clone, Debug, Default)]
pub struct CaptureReader {
    buffer: Vec<u8>,
    /// Where in the buffer the next record or block begins.
    start: usize,
    format: Format,
}

#[derive(Clone, Debug, Default)]
enum Format {
    #[default]
    Unknown,
    Classic(Classic),
    Blocks {
        big_endian: bool,
        interfaces: Vec<Interface>,
    },
}

#[derive(Copy, Clone, Debug)]
struct Interface {
    link: Option<LinkType>,
    ticks_per_second: u64,
}

impl CaptureReader {
    /// A reader that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes of the file.
    pub fn handle(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next frame; `None` until more bytes have come. After an error there is no next frame to find.
    ///
    /// # Errors
    /// What has come is not a capture, or damaged.
    #[expect(clippy::should_implement_trait, reason = "a frame borrows the reader")]
    pub fn next(&mut self) -> Result<Option<Frame<'_>>, PcapError> {
        loop {
            let rest = &self.buffer[self.start..];
            let (place, len) = match &mut self.format {
                Format::Unknown => {
                    let Some((format, len)) = begin(rest)? else {
                        return Ok(None);
                    };
                    self.format = format;
                    (None, len)
                }
                Format::Classic(classic) => match classic.first_record(rest) {
                    Some((place, len)) => (Some(place), len),
                    None => return Ok(None),
                },
                Format::Blocks {
                    big_endian,
                    interfaces,
                } => match take_block(rest, big_endian, interfaces)? {
                    Some((place, len)) => (place, len),
                    None => return Ok(None),
                },
            };
            let at = self.start;
            self.start += len;
            if let Some(place) = place {
                return Ok(Some(place.frame(&self.buffer[at..])));
            }
        }
    }

    /// Bytes that have come and belong to a record that has not ended. At the end of a file there are none, or it was cut.
    pub fn pending(&self) -> usize {
        self.buffer.len() - self.start
    }
}

/// Which format begins like this, and how much of it is read with that.
fn begin(bytes: &[u8]) -> Result<Option<(Format, usize)>, PcapError> {
    if bytes.len() >= 4 && bytes[..4] == SECTION_HEADER.to_le_bytes() {
        let blocks = Format::Blocks {
            big_endian: false,
            interfaces: Vec::new(),
        };
        return Ok(Some((blocks, 0)));
    }
    let Some(header) = bytes.first_chunk::<FILE_HEADER_LEN>() else {
        return Ok(None);
    };
    match Classic::parse(header) {
        Ok(classic) => Ok(Some((Format::Classic(classic), FILE_HEADER_LEN))),
        Err(PcapError::NotPcap) => Err(PcapError::NotACapture),
        Err(error) => Err(error),
    }
}

type Block = (Option<Place>, usize);

/// Takes the block that `bytes` begin with: the frame in it, if it has one, and its length.
fn take_block(
    bytes: &[u8],
    big_endian: &mut bool,
    interfaces: &mut Vec<Interface>,
) -> Result<Option<Block>, PcapError> {
    let Some(head) = bytes.first_chunk::<12>() else {
        return Ok(None);
    };
    // The number of this block reads the same either way round; the word behind its length tells the byte order.
    let is_section = head[..4] == SECTION_HEADER.to_le_bytes();
    if is_section {
        *big_endian = head[8..] == [0x1a, 0x2b, 0x3c, 0x4d];
    }
    let len = word(head, 4, *big_endian);
    if len < 12 || len % 4 != 0 || len > MAX_BLOCK_LEN {
        return Err(PcapError::DamagedBlock(len));
    }
    let Some(block) = bytes.get(..len as usize) else {
        return Ok(None);
    };
    let body = &block[8..block.len() - 4];
    let place = match word(head, 0, *big_endian) {
        _ if is_section => {
            interfaces.clear();
            None
        }
        INTERFACE_DESCRIPTION => {
            if interfaces.len() < MAX_INTERFACES {
                interfaces.push(Interface::parse(body, *big_endian));
            }
            None
        }
        ENHANCED_PACKET => enhanced_packet(body, *big_endian, interfaces),
        SIMPLE_PACKET => simple_packet(body, *big_endian, interfaces),
        _ => None,
    };
    Ok(Some((place, len as usize)))
}

impl Interface {
    fn parse(body: &[u8], big_endian: bool) -> Self {
        let number = body.first_chunk().map(|bytes| half(bytes, big_endian));
        let resolution = option(
            body.get(8..).unwrap_or_default(),
            OPTION_TIME_RESOLUTION,
            big_endian,
        );
        let ticks_per_second = match resolution.and_then(|value| value.first()) {
            None => Some(1_000_000),
            Some(power) if power & 0x80 != 0 => 1_u64.checked_shl(u32::from(power & 0x7f)),
            Some(power) => 10_u64.checked_pow(u32::from(*power)),
        };
        Interface {
            link: number.and_then(|number| LinkType::from_number(u32::from(number))),
            // A resolution that no clock has is taken for the usual one.
            ticks_per_second: ticks_per_second.unwrap_or(1_000_000),
        }
    }

    fn nanoseconds(&self, ticks: u64) -> u64 {
        let ns = u128::from(ticks) * 1_000_000_000 / u128::from(self.ticks_per_second);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

fn enhanced_packet(body: &[u8], big_endian: bool, interfaces: &[Interface]) -> Option<Place> {
    let head = body.first_chunk::<20>()?;
    let field = |index: usize| word(head, index * 4, big_endian);
    let interface = interfaces.get(field(0) as usize)?;
    let end = head.len().checked_add(field(3) as usize)?;
    body.get(..end)?;
    let options = body.get(end.next_multiple_of(4)..).unwrap_or_default();
    let flags = option(options, OPTION_PACKET_FLAGS, big_endian).and_then(|value| value.first_chunk::<4>());
    let direction = match flags.map(|flags| word(flags, 0, big_endian) & 3) {
        Some(1) => Some(Direction::Inbound),
        Some(2) => Some(Direction::Outbound),
        _ => None,
    };
    Some(Place {
        timestamp_ns: interface.nanoseconds(u64::from(field(1)) << 32 | u64::from(field(2))),
        original_len: field(4),
        start: 8 + head.len(),
        end: 8 + end,
        link: interface.link?,
        direction,
    })
}

/// A packet without a time: of the first interface.
fn simple_packet(body: &[u8], big_endian: bool, interfaces: &[Interface]) -> Option<Place> {
    let head = body.first_chunk::<4>()?;
    let original_len = word(head, 0, big_endian);
    let captured_len = (original_len as usize).min(body.len() - head.len());
    Some(Place {
        timestamp_ns: 0,
        original_len,
        start: 8 + head.len(),
        end: 8 + head.len() + captured_len,
        link: interfaces.first()?.link?,
        direction: None,
    })
}

/// The value of an option in a list of them.
fn option(mut list: &[u8], wanted: u16, big_endian: bool) -> Option<&[u8]> {
    loop {
        let (head, rest) = list.split_first_chunk::<4>()?;
        let (code, len) = (
            half(&[head[0], head[1]], big_endian),
            usize::from(half(&[head[2], head[3]], big_endian)),
        );
        if code == wanted {
            return rest.get(..len);
        }
        if code == 0 {
            return None;
        }
        list = rest.get(len.next_multiple_of(4)..)?;
    }
}

fn half(bytes: &[u8; 2], big_endian: bool) -> u16 {
    match big_endian {
        true => u16::from_be_bytes(*bytes),
        false => u16::from_le_bytes(*bytes),
    }
}
