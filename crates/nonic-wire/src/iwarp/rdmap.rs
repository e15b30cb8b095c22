//! The messages of RDMA over DDP: what a segment is part of, and what its header says (RFC 5040, RFC 7306).
//!
//! [`Header`] is one enum for all messages; what a message does not have, its variant does not have, so every value can
//! be emitted. Parsing checks what can be judged by looking at one segment: versions, the opcode, the queue it uses,
//! the length of fixed bodies. Order, keys and bounds need a connection and are not checked here.
//!
//! Read [`Segment`] and [`Header`] first; the fixed bodies are in `rdmap/body.rs`.

mod body;
mod error;

pub use body::{AtomicOperation, AtomicRequest, ReadRequest};
pub use error::SegmentError;

use super::ddp::{Control, DdpHeader, VERSION};

/// One segment, the content of one FPDU: a message or a part of one.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Segment<'a> {
    /// DDP and RDMAP header, with the body of messages that have a fixed one.
    pub header: Header,
    /// The bytes to place; in a Terminate its body, see [`super::Terminate`]; else empty.
    pub payload: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Takes a ULPDU apart.
    #[inline]
    pub fn parse(ulpdu: &'a [u8]) -> Result<Self, SegmentError> {
        let (header, payload) = Header::parse(ulpdu)?;
        Ok(Self { header, payload })
    }

    /// Bytes on the wire, without those of the FPDU around it.
    #[expect(clippy::len_without_is_empty, reason = "there is always a header")]
    pub fn len(&self) -> usize {
        self.header.len() + self.carried().len()
    }

    /// The payload, unless such a message has none: then it is never emitted, whatever it is.
    pub(super) fn carried(&self) -> &'a [u8] {
        match self.header.carries_payload() {
            true => self.payload,
            false => &[],
        }
    }

    /// Appends the ULPDU to `out`. A payload of a message that has none is left out.
    pub fn emit_into(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + self.header.len(), 0);
        self.header.emit(&mut out[start..]);
        out.extend_from_slice(self.carried());
    }
}

/// The header of a segment, with the fixed body if the message has one.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Header {
    /// RDMA Write: place the payload.
    Write(Tagged),
    /// RDMA Read Request: send that memory.
    ReadRequest {
        /// Sequence number in queue 1, which atomics share.
        msn: u32,
        /// What to read.
        request: ReadRequest,
    },
    /// RDMA Read Response: the payload is what was asked for; STag and offset are the sink of the request.
    ReadResponse(Tagged),
    /// Send: place the payload in the next receive buffer.
    Send {
        /// Which of the four.
        kind: SendKind,
        /// Sequence number in queue 0, which immediates share.
        msn: u32,
        /// Offset of this segment in the message.
        mo: u32,
        /// The message ends with this segment.
        last: bool,
    },
    /// Terminate: the connection ends; the payload says why.
    Terminate {
        /// Sequence number in queue 2; there can only be one message.
        msn: u32,
    },
    /// Immediate Data: completes a receive without placing anything (RFC 7306 §6).
    Immediate {
        /// With solicited event.
        solicited: bool,
        /// Sequence number in queue 0, which SENDs share.
        msn: u32,
        /// The eight bytes, read as a big-endian number.
        data: u64,
    },
    /// Atomic Request (RFC 7306 §5).
    AtomicRequest {
        /// Sequence number in queue 1, which READs share.
        msn: u32,
        /// What to do.
        request: AtomicRequest,
    },
    /// Atomic Response.
    AtomicResponse {
        /// Sequence number in queue 3.
        msn: u32,
        /// Identifier of the request this answers.
        request_id: u32,
        /// The value in memory before the operation.
        original: u64,
    },
}

/// Where the payload of a tagged segment goes.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct Tagged {
    /// The message ends with this segment.
    pub last: bool,
    /// Key of the memory.
    pub stag: u32,
    /// Tagged offset: where the first byte of this segment goes.
    pub to: u64,
}

/// What a SEND does besides sending.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct SendKind {
    /// With solicited event.
    pub solicited: bool,
    /// With invalidate: this STag is invalid before the receive completes.
    pub invalidate_stag: Option<u32>,
}

/// The message a segment belongs to, four bits on the wire.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[expect(
    missing_docs,
    reason = "the names are those of the specifications; see `Header`"
)]
pub enum Opcode {
    Write = 0,
    ReadRequest = 1,
    ReadResponse = 2,
    Send = 3,
    SendInvalidate = 4,
    SendSolicited = 5,
    SendSolicitedInvalidate = 6,
    Terminate = 7,
    Immediate = 8,
    ImmediateSolicited = 9,
    AtomicRequest = 10,
    AtomicResponse = 11,
}

impl Opcode {
    /// All that have a meaning, in the order of their numbers.
    pub const ALL: [Opcode; 12] = [
        Opcode::Write,
        Opcode::ReadRequest,
        Opcode::ReadResponse,
        Opcode::Send,
        Opcode::SendInvalidate,
        Opcode::SendSolicited,
        Opcode::SendSolicitedInvalidate,
        Opcode::Terminate,
        Opcode::Immediate,
        Opcode::ImmediateSolicited,
        Opcode::AtomicRequest,
        Opcode::AtomicResponse,
    ];

    /// The opcode with this number. 12 to 14 are not assigned, 15 is for experiments (RFC 6580).
    pub fn from_bits(bits: u8) -> Option<Self> {
        Self::ALL.get(usize::from(bits)).copied()
    }

    /// The queue that untagged messages of this kind use; `None` if they are tagged.
    pub const fn queue(self) -> Option<u32> {
        match self {
            Opcode::Write | Opcode::ReadResponse => None,
            Opcode::ReadRequest | Opcode::AtomicRequest => Some(QUEUE_REQUEST),
            Opcode::Terminate => Some(QUEUE_TERMINATE),
            Opcode::AtomicResponse => Some(QUEUE_ATOMIC_RESPONSE),
            _ => Some(QUEUE_SEND),
        }
    }

    /// Whether a message may have more than one segment.
    pub const fn may_be_segmented(self) -> bool {
        matches!(
            self,
            Opcode::Write
                | Opcode::ReadResponse
                | Opcode::Send
                | Opcode::SendInvalidate
                | Opcode::SendSolicited
                | Opcode::SendSolicitedInvalidate
        )
    }
}

/// Queue number of SENDs and immediates.
pub const QUEUE_SEND: u32 = 0;
/// Queue number of Read Requests and Atomic Requests.
pub const QUEUE_REQUEST: u32 = 1;
/// Queue number of the Terminate.
pub const QUEUE_TERMINATE: u32 = 2;
/// Queue number of Atomic Responses.
pub const QUEUE_ATOMIC_RESPONSE: u32 = 3;

impl Header {
    /// Length of the longest header with its body, that of an Atomic Request.
    pub const MAX_LEN: usize = DdpHeader::UNTAGGED_LEN + AtomicRequest::LEN;

    /// Reads the header at the start of a ULPDU and returns the payload behind it.
    ///
    /// For messages with a payload the bytes may end anywhere behind the header: a receiver that wants to know
    /// where to place a long segment need not wait for all of it.
    #[inline]
    pub fn parse(ulpdu: &[u8]) -> Result<(Self, &[u8]), SegmentError> {
        let (ddp, rest) = DdpHeader::parse(ulpdu).ok_or(SegmentError::TooShort(ulpdu.len()))?;
        let opcode = checked_opcode(ddp.control())?;
        let last = ddp.control().last();
        match ddp {
            DdpHeader::Tagged { stag, to, .. } => {
                let tagged = Tagged { last, stag, to };
                match opcode {
                    Opcode::Write => Ok((Header::Write(tagged), rest)),
                    Opcode::ReadResponse => Ok((Header::ReadResponse(tagged), rest)),
                    _ => Err(SegmentError::WrongTag(opcode)),
                }
            }
            DdpHeader::Untagged {
                invalidate_stag,
                qn,
                msn,
                mo,
                ..
            } => {
                let queue = opcode.queue().ok_or(SegmentError::WrongTag(opcode))?;
                if qn != queue {
                    return Err(SegmentError::WrongQueue { opcode, qn });
                }
                if opcode.may_be_segmented() {
                    let kind = SendKind::from_opcode(opcode, invalidate_stag);
                    return Ok((Header::Send { kind, msn, mo, last }, rest));
                }
                if mo != 0 {
                    return Err(SegmentError::OffsetInSingleSegment { opcode, mo });
                }
                if !last {
                    return Err(SegmentError::NotLast(opcode));
                }
                Self::parse_body(opcode, msn, rest)
            }
        }
    }

    /// Messages of one untagged segment.
    fn parse_body(opcode: Opcode, msn: u32, body: &[u8]) -> Result<(Self, &[u8]), SegmentError> {
        let header = match opcode {
            Opcode::Terminate => return Ok((Header::Terminate { msn }, body)),
            Opcode::ReadRequest => Header::ReadRequest {
                msn,
                request: ReadRequest::parse(body::fixed(opcode, body)?),
            },
            Opcode::AtomicRequest => Header::AtomicRequest {
                msn,
                request: AtomicRequest::parse(body::fixed(opcode, body)?)?,
            },
            Opcode::AtomicResponse => {
                let (request_id, original) = body::parse_atomic_response(body::fixed(opcode, body)?);
                Header::AtomicResponse {
                    msn,
                    request_id,
                    original,
                }
            }
            _ => Header::Immediate {
                solicited: opcode == Opcode::ImmediateSolicited,
                msn,
                data: u64::from_be_bytes(*body::fixed(opcode, body)?),
            },
        };
        Ok((header, &[]))
    }

    /// Writes the header to the start of `out` and returns its length.
    ///
    /// # Panics
    /// If `out` is shorter than [`Header::len`]; [`Header::MAX_LEN`] is always enough.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let at = self.ddp().emit(out);
        let body = &mut out[at..];
        at + match self {
            Header::Write(_) | Header::ReadResponse(_) | Header::Send { .. } | Header::Terminate { .. } => 0,
            Header::ReadRequest { request, .. } => request.emit(body),
            Header::AtomicRequest { request, .. } => request.emit(body),
            Header::AtomicResponse {
                request_id, original, ..
            } => body::emit_atomic_response(*request_id, *original, body),
            Header::Immediate { data, .. } => {
                body[..body::IMMEDIATE_LEN].copy_from_slice(&data.to_be_bytes());
                body::IMMEDIATE_LEN
            }
        }
    }

    /// Bytes on the wire.
    #[expect(clippy::len_without_is_empty, reason = "a header is never empty")]
    #[inline]
    pub const fn len(&self) -> usize {
        match self {
            Header::Write(_) | Header::ReadResponse(_) => DdpHeader::TAGGED_LEN,
            Header::Send { .. } | Header::Terminate { .. } => DdpHeader::UNTAGGED_LEN,
            Header::ReadRequest { .. } => DdpHeader::UNTAGGED_LEN + ReadRequest::LEN,
            Header::Immediate { .. } => DdpHeader::UNTAGGED_LEN + body::IMMEDIATE_LEN,
            Header::AtomicRequest { .. } => DdpHeader::UNTAGGED_LEN + AtomicRequest::LEN,
            Header::AtomicResponse { .. } => DdpHeader::UNTAGGED_LEN + body::ATOMIC_RESPONSE_LEN,
        }
    }

    /// Whether bytes may follow the header.
    pub const fn carries_payload(&self) -> bool {
        matches!(
            self,
            Header::Write(_) | Header::ReadResponse(_) | Header::Send { .. } | Header::Terminate { .. }
        )
    }

    /// The opcode on the wire.
    pub const fn opcode(&self) -> Opcode {
        match self {
            Header::Write(_) => Opcode::Write,
            Header::ReadRequest { .. } => Opcode::ReadRequest,
            Header::ReadResponse(_) => Opcode::ReadResponse,
            Header::Send { kind, .. } => kind.opcode(),
            Header::Terminate { .. } => Opcode::Terminate,
            Header::Immediate { solicited: false, .. } => Opcode::Immediate,
            Header::Immediate { solicited: true, .. } => Opcode::ImmediateSolicited,
            Header::AtomicRequest { .. } => Opcode::AtomicRequest,
            Header::AtomicResponse { .. } => Opcode::AtomicResponse,
        }
    }

    /// The last segment of its message. Messages that cannot have several are always at their end.
    pub const fn last(&self) -> bool {
        match self {
            Header::Write(tagged) | Header::ReadResponse(tagged) => tagged.last,
            Header::Send { last, .. } => *last,
            _ => true,
        }
    }

    /// The DDP header this begins with.
    #[inline]
    pub const fn ddp(&self) -> DdpHeader {
        let opcode = self.opcode();
        let control = Control::new(opcode.queue().is_none(), self.last(), opcode as u8);
        let (invalidate_stag, msn, mo) = match *self {
            Header::Write(Tagged { stag, to, .. }) | Header::ReadResponse(Tagged { stag, to, .. }) => {
                return DdpHeader::Tagged { control, stag, to };
            }
            Header::Send { kind, msn, mo, .. } => {
                let invalidate_stag = match kind.invalidate_stag {
                    Some(stag) => stag,
                    None => 0,
                };
                (invalidate_stag, msn, mo)
            }
            Header::ReadRequest { msn, .. }
            | Header::Terminate { msn }
            | Header::Immediate { msn, .. }
            | Header::AtomicRequest { msn, .. }
            | Header::AtomicResponse { msn, .. } => (0, msn, 0),
        };
        let qn = match opcode.queue() {
            Some(queue) => queue,
            None => QUEUE_SEND,
        };
        DdpHeader::Untagged {
            control,
            invalidate_stag,
            qn,
            msn,
            mo,
        }
    }
}

impl SendKind {
    const fn opcode(self) -> Opcode {
        match (self.solicited, self.invalidate_stag) {
            (false, None) => Opcode::Send,
            (false, Some(_)) => Opcode::SendInvalidate,
            (true, None) => Opcode::SendSolicited,
            (true, Some(_)) => Opcode::SendSolicitedInvalidate,
        }
    }

    /// The field of the STag is reserved, and not looked at, without invalidation.
    fn from_opcode(opcode: Opcode, stag: u32) -> Self {
        let invalidates = matches!(opcode, Opcode::SendInvalidate | Opcode::SendSolicitedInvalidate);
        Self {
            solicited: matches!(opcode, Opcode::SendSolicited | Opcode::SendSolicitedInvalidate),
            invalidate_stag: invalidates.then_some(stag),
        }
    }
}

/// Versions first: of another version not even the opcode can be relied on.
#[inline]
fn checked_opcode(control: Control) -> Result<Opcode, SegmentError> {
    if control.ddp_version() != VERSION {
        return Err(SegmentError::DdpVersion {
            tagged: control.tagged(),
            version: control.ddp_version(),
        });
    }
    if control.rdmap_version() != VERSION {
        return Err(SegmentError::RdmapVersion(control.rdmap_version()));
    }
    Opcode::from_bits(control.opcode()).ok_or(SegmentError::UnknownOpcode(control.opcode()))
}
