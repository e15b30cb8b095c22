//! The two frames that open a connection: the initiator's Request and the responder's Reply.
//!
//! They travel as plain bytes, without markers and CRC, and agree on both (RFC 5044 §7.1). Revision 2 adds the numbers
//! of READs each side bears and which message the initiator sends first (RFC 6581). What to answer is not decided here.
//!
//! Read [`MpaFrame`] first.

use thiserror::Error;

use super::TerminateCode;
use super::bytes::half;

/// A Request or a Reply.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct MpaFrame<'a> {
    /// Which of the two.
    pub kind: FrameKind,
    /// M: the sender wants markers in what it *receives*.
    pub markers: bool,
    /// C: the sender wants CRCs. They are used in both directions if one side wants them.
    pub crc: bool,
    /// R: the connection is refused. Means nothing in a Request, where it is neither sent nor looked at.
    pub rejected: bool,
    /// The revision, and what the second adds.
    pub revision: Revision,
    /// For the users, without the bytes of [`Enhanced`].
    pub private_data: &'a [u8],
}

impl<'a> MpaFrame<'a> {
    /// Bytes before the private data.
    pub const HEADER_LEN: usize = HEADER_LEN;
    /// Most bytes behind the header, those of [`Enhanced`] included.
    pub const MAX_PRIVATE_DATA: usize = 512;
    /// Length of the longest frame. A caller that collects bytes for [`MpaFrame::parse`] needs no more.
    pub const MAX_LEN: usize = Self::HEADER_LEN + Self::MAX_PRIVATE_DATA;

    /// Reads the frame at the start of `bytes`, which may end inside it and may hold more than it.
    ///
    /// A wrong key is noticed at the first wrong byte, so that the caller does not wait for the rest of what is not a
    /// frame.
    pub fn parse(bytes: &'a [u8]) -> Result<ParsedMpa<'a>, MpaError> {
        let key_len = bytes.len().min(KEY_LEN);
        let kind = [FrameKind::Request, FrameKind::Reply]
            .into_iter()
            .find(|kind| kind.key()[..key_len] == bytes[..key_len])
            .ok_or(MpaError::WrongKey)?;
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER_LEN>() else {
            return Ok(ParsedMpa::Incomplete {
                missing: Self::HEADER_LEN - bytes.len(),
            });
        };
        let (flags, revision, length) = (header[16], header[17], half(header, 18));
        if !(1..=2).contains(&revision) {
            return Err(MpaError::UnsupportedRevision(revision));
        }
        let enhanced = revision == 2 && flags & FLAG_ENHANCED != 0;
        let data_len = usize::from(length);
        if data_len > Self::MAX_PRIVATE_DATA {
            return Err(MpaError::PrivateDataTooLong(data_len));
        }
        if enhanced && data_len < Enhanced::LEN {
            return Err(MpaError::EnhancedDataMissing(length));
        }
        let Some((data, _)) = rest.split_at_checked(data_len) else {
            return Ok(ParsedMpa::Incomplete {
                missing: data_len - rest.len(),
            });
        };
        let (revision, private_data) = match data.split_first_chunk() {
            Some((first, behind)) if enhanced => (Revision::Two(Some(Enhanced::parse(first))), behind),
            _ if revision == 2 => (Revision::Two(None), data),
            _ => (Revision::One, data),
        };
        Ok(ParsedMpa::Whole {
            frame: MpaFrame {
                kind,
                markers: flags & FLAG_MARKERS != 0,
                crc: flags & FLAG_CRC != 0,
                rejected: kind == FrameKind::Reply && flags & FLAG_REJECTED != 0,
                revision,
                private_data,
            },
            len: Self::HEADER_LEN + data_len,
        })
    }

    /// What revision 2 adds, if it is there.
    pub fn enhanced(&self) -> Option<Enhanced> {
        match self.revision {
            Revision::One => None,
            Revision::Two(enhanced) => enhanced,
        }
    }

    /// Appends the frame to `out`; fails, without a byte written, if there is too much private data.
    pub fn emit_into(&self, out: &mut Vec<u8>) -> Result<(), MpaError> {
        let enhanced = self.enhanced();
        let data_len = self.private_data.len() + enhanced.map_or(0, |_| Enhanced::LEN);
        if data_len > Self::MAX_PRIVATE_DATA {
            return Err(MpaError::PrivateDataTooLong(data_len));
        }
        let rejected = self.rejected && self.kind == FrameKind::Reply;
        let flags = [
            (self.markers, FLAG_MARKERS),
            (self.crc, FLAG_CRC),
            (rejected, FLAG_REJECTED),
            (enhanced.is_some(), FLAG_ENHANCED),
        ];
        out.extend_from_slice(self.kind.key());
        out.push(flags.iter().filter(|(set, _)| *set).map(|(_, flag)| flag).sum());
        out.push(self.revision.number());
        out.extend_from_slice(&(data_len as u16).to_be_bytes());
        if let Some(enhanced) = enhanced {
            out.extend_from_slice(&enhanced.emit());
        }
        out.extend_from_slice(self.private_data);
        Ok(())
    }
}

/// What [`MpaFrame::parse`] found.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ParsedMpa<'a> {
    /// The bytes so far fit a frame that has not ended.
    Incomplete {
        /// At least so many bytes are missing.
        missing: usize,
    },
    /// A whole frame.
    Whole {
        /// The frame.
        frame: MpaFrame<'a>,
        /// Bytes it took; what follows belongs to the stream of FPDUs.
        len: usize,
    },
}

/// Request or Reply.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum FrameKind {
    /// From the side that connects.
    Request,
    /// From the side that listens.
    Reply,
}

impl FrameKind {
    const fn key(self) -> &'static [u8; KEY_LEN] {
        match self {
            FrameKind::Request => b"MPA ID Req Frame",
            FrameKind::Reply => b"MPA ID Rep Frame",
        }
    }
}

/// The revision of a frame.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Revision {
    /// RFC 5044.
    One,
    /// RFC 6581; with S, its additional data.
    Two(Option<Enhanced>),
}

impl Revision {
    /// The number on the wire.
    pub const fn number(self) -> u8 {
        match self {
            Revision::One => 1,
            Revision::Two(_) => 2,
        }
    }
}

/// What revision 2 can add to a frame (RFC 6581 §9).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct Enhanced {
    /// READs and atomics the sender serves at a time, 14 bits.
    pub ird: u16,
    /// READs and atomics the sender wants to have under way at a time, 14 bits.
    pub ord: u16,
    /// A, peer to peer: the initiator opens full operation with one of these messages, so that both sides may
    /// send from then on. `None`: only the initiator may send first.
    pub peer_to_peer: Option<Rtr>,
}

impl Enhanced {
    /// Bytes on the wire.
    pub const LEN: usize = 4;
    /// Instead of an IRD or ORD: this number is not negotiated.
    pub const NOT_NEGOTIATED: u16 = 0x3fff;

    const TOP: u16 = 0x8000;
    const NEXT: u16 = 0x4000;

    /// Reads the four bytes. The kinds of RTR mean nothing, and are left out, without peer-to-peer mode.
    pub fn parse(bytes: &[u8; Self::LEN]) -> Self {
        let (first, second) = (half(bytes, 0), half(bytes, 2));
        Self {
            ird: first & Self::NOT_NEGOTIATED,
            ord: second & Self::NOT_NEGOTIATED,
            peer_to_peer: (first & Self::TOP != 0).then_some(Rtr {
                send: first & Self::NEXT != 0,
                write: second & Self::TOP != 0,
                read: second & Self::NEXT != 0,
            }),
        }
    }

    /// The four bytes. IRD and ORD are cut to 14 bits.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let bit = |set: bool, value: u16| if set { value } else { 0 };
        let rtr = self.peer_to_peer.unwrap_or_default();
        let first = bit(self.peer_to_peer.is_some(), Self::TOP)
            | bit(rtr.send, Self::NEXT)
            | self.ird & Self::NOT_NEGOTIATED;
        let second = bit(rtr.write, Self::TOP) | bit(rtr.read, Self::NEXT) | self.ord & Self::NOT_NEGOTIATED;
        let ([a, b], [c, d]) = (first.to_be_bytes(), second.to_be_bytes());
        [a, b, c, d]
    }
}

/// Kinds of "ready to receive", the message that opens full operation in peer-to-peer mode: in a Request
/// those the initiator can send, in a Reply the one it shall send.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct Rtr {
    /// B: a SEND without payload.
    pub send: bool,
    /// C: an RDMA WRITE without payload.
    pub write: bool,
    /// D: an RDMA READ of no bytes.
    pub read: bool,
}

/// Why bytes are not a start-up frame. The connection is then closed without an answer (RFC 5044 §7.1.2).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum MpaError {
    /// They do not begin with either key: the peer speaks something else.
    #[error("not an MPA start-up frame")]
    WrongKey,
    /// The revision is neither 1 nor 2.
    #[error("unsupported MPA revision {0}")]
    UnsupportedRevision(u8),
    /// More than [`MpaFrame::MAX_PRIVATE_DATA`].
    #[error("{0} bytes of private data are more than a start-up frame may have")]
    PrivateDataTooLong(usize),
    /// S is set, but the length says that its four bytes are not there.
    #[error("enhanced start-up frame with only {0} bytes of data")]
    EnhancedDataMissing(u16),
}

impl MpaError {
    /// How this is called in a Terminate. Only for reports: there is no stream yet that could carry one.
    pub const fn terminate_code(self) -> TerminateCode {
        TerminateCode::MPA_BAD_FRAME
    }
}

const KEY_LEN: usize = 16;
const HEADER_LEN: usize = 20;
const FLAG_MARKERS: u8 = 0x80;
const FLAG_CRC: u8 = 0x40;
const FLAG_REJECTED: u8 = 0x20;
const FLAG_ENHANCED: u8 = 0x10;
