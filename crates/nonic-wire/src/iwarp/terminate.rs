//! The message that ends a connection and says why: what is written, and the two ways to read it.
//!
//! The writer follows RFC 5040 §4.8. Linux siw fills the same fields with C bit-fields on a little-endian
//! machine: layer and error type change places in the first byte, and the three flags stand at the wrong end
//! of the third, in reverse order. The reader recognises that form by its flags. Without flags both readings
//! may be possible; then the one wins that is in the table of codes, and if both are, what the time of arrival
//! allows. Whatever was read is good for a report and for choosing a status, and should not be trusted further.

use super::TerminateCode as Code;
use super::ddp::DdpHeader;
use super::rdmap::{Opcode, ReadRequest};

pub use super::code::{Layer, TerminateCode};

/// A Terminate message without its DDP header.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Terminate {
    /// What went wrong, and in which layer.
    pub code: TerminateCode,
    /// M: length of the segment that is complained about. Linux siw counts its payload only.
    pub segment_len: Option<u16>,
    /// D: the DDP header of that segment.
    pub ddp: Option<DdpHeader>,
    /// R: its Read Request header, in the state that the READ had reached.
    pub read_request: Option<ReadRequest>,
}

/// In which form a Terminate arrived.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum TerminateForm {
    /// As RFC 5040 has it, or the same in both forms.
    Rfc,
    /// As Linux siw sends it.
    Siw,
}

impl Terminate {
    /// Bytes before the optional parts.
    pub const HEADER_LEN: usize = 4;
    /// Length of the longest message.
    pub const MAX_LEN: usize = Self::HEADER_LEN + 2 + DdpHeader::UNTAGGED_LEN + ReadRequest::LEN;

    const M: u8 = 0x80;
    const D: u8 = 0x40;
    const R: u8 = 0x20;

    /// A complaint about nothing that was received.
    pub const fn new(code: TerminateCode) -> Self {
        Self {
            code,
            segment_len: None,
            ddp: None,
            read_request: None,
        }
    }

    /// A complaint about a segment: carries back as much of its headers as the kind of error calls for (RFC
    /// 5040, figure 10).
    pub fn about(code: TerminateCode, ulpdu: &[u8]) -> Self {
        let mut terminate = Self::new(code);
        let Some((ddp, rest)) = DdpHeader::parse(ulpdu) else {
            return terminate;
        };
        if !code.has_ddp_header() {
            return terminate;
        }
        terminate.segment_len = u16::try_from(ulpdu.len()).ok();
        terminate.ddp = Some(ddp);
        let control = ddp.control();
        let is_read = !control.tagged() && control.opcode() == Opcode::ReadRequest as u8;
        if is_read && code.has_read_request_header() {
            terminate.read_request = rest.first_chunk().map(ReadRequest::parse);
        }
        terminate
    }

    /// Writes the message in the form of the RFC to the start of `out` and returns its length.
    ///
    /// # Panics
    /// If `out` is shorter than that; [`Terminate::MAX_LEN`] is always enough.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let bit = |set: bool, flag: u8| if set { flag } else { 0 };
        // The RFC has a place for the third header only behind the second.
        let read_request = self.read_request.filter(|_| self.ddp.is_some());
        let flags = bit(self.segment_len.is_some(), Self::M)
            | bit(self.ddp.is_some(), Self::D)
            | bit(read_request.is_some(), Self::R);
        let layer_and_type = self.code.layer << 4 | self.code.etype & 0x0f;
        out[..Self::HEADER_LEN].copy_from_slice(&[layer_and_type, self.code.code, flags, 0]);
        let mut at = Self::HEADER_LEN;
        if self.segment_len.is_some() || self.ddp.is_some() {
            out[at..at + 2].copy_from_slice(&self.segment_len.unwrap_or(0).to_be_bytes());
            at += 2;
        }
        if let Some(ddp) = self.ddp {
            at += ddp.emit(&mut out[at..]);
        }
        if let Some(read_request) = read_request {
            read_request.emit(&mut out[at..]);
            at += ReadRequest::LEN;
        }
        at
    }

    /// Reads the body of a Terminate message in either form. `full_operation`: whether FPDUs have come from this
    /// peer before, which rules out the errors of the start-up phase.
    ///
    /// Headers that are announced but cut short are left out; `None` only if not even the code is there.
    pub fn parse(body: &[u8], full_operation: bool) -> Option<(Self, TerminateForm)> {
        let ([first, code, flags, _], rest) = body.split_first_chunk::<{ Self::HEADER_LEN }>()?;
        let as_rfc = Code::new(first >> 4, first & 0x0f, *code);
        let as_siw = Code::new(first & 0x0f, first >> 4, *code);
        let form = match (flags & 0xe0 != 0, flags & 0x07 != 0) {
            (false, true) => TerminateForm::Siw,
            (true, _) => TerminateForm::Rfc,
            (false, false) => choose(as_rfc, as_siw, full_operation),
        };
        let (code, m, d, r) = match form {
            TerminateForm::Rfc => (as_rfc, Self::M, Self::D, Self::R),
            TerminateForm::Siw => (as_siw, 0x01, 0x02, 0x04),
        };
        let mut terminate = Self::new(code);
        let length = if flags & (m | d) != 0 {
            rest.split_first_chunk()
        } else {
            None
        };
        if let Some((length, behind)) = length {
            terminate.segment_len = (flags & m != 0).then_some(u16::from_be_bytes(*length));
            let ddp = if flags & d != 0 {
                DdpHeader::parse(behind)
            } else {
                None
            };
            if let Some((ddp, behind)) = ddp {
                terminate.ddp = Some(ddp);
                if flags & r != 0 {
                    terminate.read_request = behind.first_chunk().map(ReadRequest::parse);
                }
            }
        }
        Some((terminate, form))
    }
}

/// Which reading of a Terminate without flags is meant.
fn choose(as_rfc: Code, as_siw: Code, full_operation: bool) -> TerminateForm {
    let possible = |code: Code| code.is_assigned() && !(full_operation && code.is_only_at_startup());
    if !possible(as_rfc) && possible(as_siw) {
        TerminateForm::Siw
    } else {
        TerminateForm::Rfc
    }
}
