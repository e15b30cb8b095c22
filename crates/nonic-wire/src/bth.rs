//! The base transport header, which opens every packet.

use crate::{HeaderSet, Opcode, ParseError, Psn, Qpn};

/// Base transport header.
///
/// Reserved bits are kept, so that what was parsed is emitted byte for byte.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Bth {
    /// What kind of packet this is.
    pub opcode: Opcode,
    /// Solicited event: the responder's completion should wake a waiting program.
    pub solicited: bool,
    /// Path migration state; always set by peers that do not migrate.
    pub migrated: bool,
    /// Zero bytes between payload and ICRC, 0 to 3.
    pub pad: u8,
    /// Header version, four bits; the only one in existence is 0.
    pub version: u8,
    /// Partition key.
    pub pkey: u16,
    /// Forward congestion notification. Not covered by the ICRC.
    pub fecn: bool,
    /// Backward congestion notification. Not covered by the ICRC.
    pub becn: bool,
    /// Reserved six bits beside FECN and BECN. Not covered by the ICRC.
    pub resv6: u8,
    /// Destination queue pair.
    pub dest_qp: Qpn,
    /// The responder should acknowledge this packet.
    pub ack_request: bool,
    /// Reserved seven bits beside the acknowledge request; see [`Bth::SELECTIVE`].
    pub resv7: u8,
    /// Packet sequence number.
    pub psn: Psn,
}

impl Bth {
    /// Bytes on the wire.
    pub const LEN: usize = HeaderSet::BTH_LEN;
    /// The partition key every RoCE port has: the default partition, full member.
    pub const DEFAULT_PKEY: u16 = 0xffff;

    /// The bit of `resv7` that nonic uses. On a request: the requester understands selective acknowledgements. On an
    /// acknowledgement: it is one ([`SelectiveAck`](crate::SelectiveAck)). On a NAK that says *remote operational
    /// error*: the queue pair was destroyed. Both are sent only to peers known to understand them.
    pub const SELECTIVE: u8 = 0x40;

    /// Whether [`Bth::SELECTIVE`] is set.
    pub const fn is_selective(&self) -> bool {
        self.resv7 & Self::SELECTIVE != 0
    }

    /// Whether it is of the default partition, whose full members talk to full and limited ones. A limited one sets
    /// the top bit to 0.
    pub const fn is_default_partition(&self) -> bool {
        self.pkey & 0x7fff == Self::DEFAULT_PKEY & 0x7fff
    }

    /// A header with the usual values: default partition, migrated, version 0, no pad, no flags.
    pub const fn new(opcode: Opcode, dest_qp: Qpn, psn: Psn) -> Self {
        Self {
            opcode,
            solicited: false,
            migrated: true,
            pad: 0,
            version: 0,
            pkey: Self::DEFAULT_PKEY,
            fecn: false,
            becn: false,
            resv6: 0,
            dest_qp,
            ack_request: false,
            resv7: 0,
            psn,
        }
    }

    /// Reads a header. Refuses unknown opcodes and versions.
    #[inline]
    pub fn parse(bytes: &[u8; Self::LEN]) -> Result<Self, ParseError> {
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let opcode = Opcode::from_byte(bytes[0]).ok_or(ParseError::UnknownOpcode(bytes[0]))?;
        let version = bytes[1] & 0x0f;
        if version != 0 {
            return Err(ParseError::UnsupportedVersion(version));
        }
        Ok(Self {
            opcode,
            solicited: bytes[1] & 0x80 != 0,
            migrated: bytes[1] & 0x40 != 0,
            pad: bytes[1] >> 4 & 0x03,
            version,
            pkey: u16::from_be_bytes([bytes[2], bytes[3]]),
            fecn: bytes[4] & 0x80 != 0,
            becn: bytes[4] & 0x40 != 0,
            resv6: bytes[4] & 0x3f,
            dest_qp: Qpn::new(word(4)),
            ack_request: bytes[8] & 0x80 != 0,
            resv7: bytes[8] & 0x7f,
            psn: Psn::new(word(8)),
        })
    }

    /// Writes the header to the first [`Bth::LEN`] bytes of `out`. Fields wider than on the wire are cut.
    ///
    /// # Panics
    /// If `out` is shorter than that.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let flags = u8::from(self.solicited) << 7
            | u8::from(self.migrated) << 6
            | (self.pad & 0x03) << 4
            | self.version & 0x0f;
        let congestion = u8::from(self.fecn) << 7 | u8::from(self.becn) << 6 | self.resv6 & 0x3f;
        let acknowledge = u8::from(self.ack_request) << 7 | self.resv7 & 0x7f;
        let [pkey_high, pkey_low] = self.pkey.to_be_bytes();
        let first = [self.opcode.byte(), flags, pkey_high, pkey_low];
        let second = u32::from(congestion) << 24 | self.dest_qp.value();
        let third = u32::from(acknowledge) << 24 | self.psn.value();

        let out = &mut out[..Self::LEN];
        out[0..4].copy_from_slice(&first);
        out[4..8].copy_from_slice(&second.to_be_bytes());
        out[8..12].copy_from_slice(&third.to_be_bytes());
    }
}

impl Default for Bth {
    /// An empty RC SEND to queue pair 0: a neutral value to fill in.
    fn default() -> Self {
        Self::new(Opcode::RC_SEND_ONLY, Qpn::default(), Psn::default())
    }
}
