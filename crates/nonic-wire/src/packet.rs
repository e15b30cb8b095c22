//! One packet as a value: headers, payload, ICRC.
//!
//! [`Headers`] has a place for every extension header; the opcode decides which of them are on the wire. There is
//! therefore no combination of values that cannot be emitted. The ICRC is not checked here: see [`crate::icrc`].

use crate::{Aeth, AtomicEth, Bth, Deth, Feth, HeaderSet, ICRC_LEN, Opcode, ParseError, Reth};

/// All headers of one packet. Which extension fields mean anything is decided by `bth.opcode`; the others
/// are left at their default by [`Packet::parse`] and ignored by [`Headers::emit`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Headers {
    /// Base transport header.
    pub bth: Bth,
    /// Datagram header.
    pub deth: Deth,
    /// XRC header: the shared receive queue a request is for, 24 bits.
    pub xrc_srqn: u32,
    /// Flush header.
    pub feth: Feth,
    /// RDMA header.
    pub reth: Reth,
    /// Atomic request header.
    pub atomic: AtomicEth,
    /// Acknowledge header.
    pub aeth: Aeth,
    /// Atomic acknowledge header: the value in memory before the operation.
    pub atomic_original: u64,
    /// Immediate data: the four bytes on the wire read as a big-endian number.
    pub immediate: u32,
    /// Invalidate header: the key to invalidate.
    pub invalidate_rkey: u32,
}

impl Headers {
    /// Length of the longest header combination in the opcode table.
    pub const MAX_LEN: usize = {
        let mut longest = 0;
        let mut index = 0;
        while index < Opcode::ALL.len() {
            if Opcode::ALL[index].header_len() > longest {
                longest = Opcode::ALL[index].header_len();
            }
            index += 1;
        }
        longest
    };

    /// The given BTH with all extension fields at their default.
    #[inline]
    pub fn new(bth: Bth) -> Self {
        Self {
            bth,
            deth: Deth::default(),
            xrc_srqn: 0,
            feth: Feth::default(),
            reth: Reth::default(),
            atomic: AtomicEth::default(),
            aeth: Aeth::default(),
            atomic_original: 0,
            immediate: 0,
            invalidate_rkey: 0,
        }
    }

    /// Bytes on the wire: BTH and the extension headers of its opcode.
    #[expect(clippy::len_without_is_empty, reason = "there is always a BTH")]
    #[inline]
    pub fn len(&self) -> usize {
        self.bth.opcode.header_len()
    }

    /// Reads the headers at the start of `bytes` and returns what follows them.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let (first, mut rest) = bytes.split_first_chunk().ok_or(ParseError::TooShort)?;
        let mut headers = Self::new(Bth::parse(first)?);
        let set = headers.bth.opcode.headers();
        if set.is_empty() {
            return Ok((headers, rest));
        }
        if set.contains(HeaderSet::DETH) {
            headers.deth = Deth::parse(take(&mut rest)?);
        }
        if set.contains(HeaderSet::XRCETH) {
            headers.xrc_srqn = u32::from_be_bytes(*take(&mut rest)?) & XRC_SRQN_MASK;
        }
        if set.contains(HeaderSet::FETH) {
            headers.feth = Feth::parse(take(&mut rest)?);
        }
        if set.contains(HeaderSet::RETH) {
            headers.reth = Reth::parse(take(&mut rest)?);
        }
        if set.contains(HeaderSet::ATOMIC) {
            headers.atomic = AtomicEth::parse(take(&mut rest)?);
        }
        if set.contains(HeaderSet::AETH) {
            headers.aeth = Aeth::parse(take(&mut rest)?);
        }
        if set.contains(HeaderSet::ATOMIC_ACK) {
            headers.atomic_original = u64::from_be_bytes(*take(&mut rest)?);
        }
        if set.contains(HeaderSet::IMMEDIATE) {
            headers.immediate = u32::from_be_bytes(*take(&mut rest)?);
        }
        if set.contains(HeaderSet::IETH) {
            headers.invalidate_rkey = u32::from_be_bytes(*take(&mut rest)?);
        }
        Ok((headers, rest))
    }

    /// Writes BTH and extension headers to the start of `out` and returns their length.
    ///
    /// # Panics
    /// If `out` is shorter than [`Headers::len`]; [`Headers::MAX_LEN`] is always enough.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let set = self.bth.opcode.headers();
        self.bth.emit(out);
        let mut at = Bth::LEN;
        if set.is_empty() {
            return at;
        }
        if set.contains(HeaderSet::DETH) {
            self.deth.emit(next(out, &mut at, Deth::LEN));
        }
        if set.contains(HeaderSet::XRCETH) {
            next(out, &mut at, 4).copy_from_slice(&(self.xrc_srqn & XRC_SRQN_MASK).to_be_bytes());
        }
        if set.contains(HeaderSet::FETH) {
            self.feth.emit(next(out, &mut at, Feth::LEN));
        }
        if set.contains(HeaderSet::RETH) {
            self.reth.emit(next(out, &mut at, Reth::LEN));
        }
        if set.contains(HeaderSet::ATOMIC) {
            self.atomic.emit(next(out, &mut at, AtomicEth::LEN));
        }
        if set.contains(HeaderSet::AETH) {
            self.aeth.emit(next(out, &mut at, Aeth::LEN));
        }
        if set.contains(HeaderSet::ATOMIC_ACK) {
            next(out, &mut at, 8).copy_from_slice(&self.atomic_original.to_be_bytes());
        }
        if set.contains(HeaderSet::IMMEDIATE) {
            next(out, &mut at, 4).copy_from_slice(&self.immediate.to_be_bytes());
        }
        if set.contains(HeaderSet::IETH) {
            next(out, &mut at, 4).copy_from_slice(&self.invalidate_rkey.to_be_bytes());
        }
        at
    }
}

/// One packet: what a UDP datagram to port 4791 carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// BTH and extension headers.
    pub headers: Headers,
    /// Payload without padding.
    pub payload: &'a [u8],
    /// The invariant CRC as it stands on the wire.
    pub icrc: [u8; ICRC_LEN],
}

impl<'a> Packet<'a> {
    /// Takes a datagram apart: `datagram` is the UDP payload including the ICRC. The ICRC is not checked.
    #[inline]
    pub fn parse(datagram: &'a [u8]) -> Result<Packet<'a>, ParseError> {
        let (body, icrc) = datagram.split_last_chunk().ok_or(ParseError::TooShort)?;
        let (headers, padded) = Headers::parse(body)?;
        if padded.len() % 4 != 0 {
            return Err(ParseError::Misaligned(padded.len()));
        }
        let payload_len = padded
            .len()
            .checked_sub(usize::from(headers.bth.pad))
            .ok_or(ParseError::BadPad(headers.bth.pad))?;
        Ok(Packet {
            headers,
            payload: &padded[..payload_len],
            icrc: *icrc,
        })
    }

    /// Appends the packet to `out`. The pad count is derived from the payload, whatever `bth.pad` says;
    /// the ICRC is written as it is ([`crate::icrc::seal`] fills it in).
    pub fn emit_into(&self, out: &mut Vec<u8>) {
        let pad = pad_len(self.payload.len());
        let mut headers = self.headers;
        headers.bth.pad = pad as u8;
        let start = out.len();
        out.resize(start + headers.len(), 0);
        headers.emit(&mut out[start..]);
        out.extend_from_slice(self.payload);
        out.extend_from_slice(&[0; 3][..pad]);
        out.extend_from_slice(&self.icrc);
    }
}

/// Zero bytes needed behind a payload of this length, 0 to 3.
pub const fn pad_len(payload_len: usize) -> usize {
    payload_len.wrapping_neg() & 3
}

const XRC_SRQN_MASK: u32 = 0x00ff_ffff;

/// Splits the next `N` bytes off the front of `rest`.
#[inline]
fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Result<&'a [u8; N], ParseError> {
    let (first, remaining) = rest.split_first_chunk().ok_or(ParseError::TooShort)?;
    *rest = remaining;
    Ok(first)
}

/// The next `len` bytes of `out`, starting at `at`, which moves behind them.
#[inline]
fn next<'a>(out: &'a mut [u8], at: &mut usize, len: usize) -> &'a mut [u8] {
    let start = *at;
    *at += len;
    &mut out[start..start + len]
}
