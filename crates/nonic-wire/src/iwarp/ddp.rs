//! Direct data placement: the header that says where the bytes of a segment belong (RFC 5041 §4).
//!
//! This is the header as it stands on the wire, reserved bits and wrong versions included, because a Terminate
//! must be able to carry back what could not be understood. [`super::Header`] is the understood form.

use super::bytes::{double_word, put, word};

/// Version of DDP and of RDMAP that this crate speaks.
pub const VERSION: u8 = 1;

/// The DDP header of one segment, uninterpreted: it can hold, and emits unchanged, any bytes.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum DdpHeader {
    /// Placed by key and offset.
    Tagged {
        /// The two bytes that all segments begin with.
        control: Control,
        /// Key of the memory.
        stag: u32,
        /// Where in it the first byte of this segment goes.
        to: u64,
    },
    /// Placed in the next buffer of a queue.
    Untagged {
        /// The two bytes that all segments begin with.
        control: Control,
        /// Room for the upper layer: the STag to invalidate, if the opcode has one.
        invalidate_stag: u32,
        /// Queue number.
        qn: u32,
        /// Message sequence number in that queue.
        msn: u32,
        /// Offset of this segment in its message.
        mo: u32,
    },
}

impl DdpHeader {
    /// Bytes of a tagged header on the wire.
    pub const TAGGED_LEN: usize = 14;
    /// Bytes of an untagged header on the wire.
    pub const UNTAGGED_LEN: usize = 18;

    /// Reads the header at the start of `bytes` and returns what follows it; `None` if they end inside it.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let control = Control(*bytes.first_chunk()?);
        if control.tagged() {
            let (b, rest) = bytes.split_first_chunk::<{ Self::TAGGED_LEN }>()?;
            let header = DdpHeader::Tagged {
                control,
                stag: word(b, 2),
                to: double_word(b, 6),
            };
            Some((header, rest))
        } else {
            let (b, rest) = bytes.split_first_chunk::<{ Self::UNTAGGED_LEN }>()?;
            let header = DdpHeader::Untagged {
                control,
                invalidate_stag: word(b, 2),
                qn: word(b, 6),
                msn: word(b, 10),
                mo: word(b, 14),
            };
            Some((header, rest))
        }
    }

    /// Writes the header to the start of `out` and returns its length. The T bit is that of the variant,
    /// whatever `control` says.
    ///
    /// # Panics
    /// If `out` is shorter than that; [`DdpHeader::UNTAGGED_LEN`] is always enough.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        match *self {
            DdpHeader::Tagged { control, stag, to } => {
                let [first, second] = control.0;
                put(out, 0, [first | Control::TAGGED, second]);
                put(out, 2, stag.to_be_bytes());
                put(out, 6, to.to_be_bytes());
                Self::TAGGED_LEN
            }
            DdpHeader::Untagged {
                control,
                invalidate_stag,
                qn,
                msn,
                mo,
            } => {
                let [first, second] = control.0;
                put(out, 0, [first & !Control::TAGGED, second]);
                put(out, 2, invalidate_stag.to_be_bytes());
                put(out, 6, qn.to_be_bytes());
                put(out, 10, msn.to_be_bytes());
                put(out, 14, mo.to_be_bytes());
                Self::UNTAGGED_LEN
            }
        }
    }

    /// The two bytes that all segments begin with.
    pub const fn control(&self) -> Control {
        match *self {
            DdpHeader::Tagged { control, .. } | DdpHeader::Untagged { control, .. } => control,
        }
    }
}

/// The first two bytes of a segment: the control fields of DDP and of RDMAP.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Control(pub [u8; 2]);

impl Control {
    const TAGGED: u8 = 0x80;
    const LAST: u8 = 0x40;

    /// Control fields with the versions of today and all reserved bits zero. Four bits of `opcode` count.
    pub const fn new(tagged: bool, last: bool, opcode: u8) -> Self {
        let tagged = if tagged { Self::TAGGED } else { 0 };
        let last = if last { Self::LAST } else { 0 };
        Self([tagged | last | VERSION, VERSION << 6 | opcode & 0x0f])
    }

    /// T: a tagged header follows.
    pub const fn tagged(self) -> bool {
        self.0[0] & Self::TAGGED != 0
    }

    /// L: the last segment of its message.
    pub const fn last(self) -> bool {
        self.0[0] & Self::LAST != 0
    }

    /// Version of DDP.
    pub const fn ddp_version(self) -> u8 {
        self.0[0] & 0x03
    }

    /// Version of RDMAP; 0 is that of the RDMA Consortium.
    pub const fn rdmap_version(self) -> u8 {
        self.0[1] >> 6
    }

    /// What the message is, see [`super::Opcode`].
    pub const fn opcode(self) -> u8 {
        self.0[1] & 0x0f
    }
}
