//! Frames outgoing segments as FPDUs, one at a time, in the form that the stream takes.
//!
//! [`Frame`] is what the two halves of a queue pair see. [`BufferFrame`] copies everything to one buffer, which is the
//! only way with CRCs (the bytes sent must be the bytes that the CRC was made of) and with markers. [`GatherFrame`]
//! copies headers only and names the memory that payload is to be sent from.

use crate::direct::{LocalBytes, LocalMemory};
use crate::placement::{OutboundRead, Refused};
use crate::verbs::memory::{Access, Region, SgFault};
use nonic_wire::iwarp::fpdu::{CRC_LEN, FpduHead, Trailer, fpdu_len, mulpdu, pad_len};
use nonic_wire::iwarp::{Crc32c, Framer, Framing, Header, markers};
use std::sync::Arc;

/// One FPDU after the other. What is begun and not ended leaves nothing behind.
pub(super) trait Frame {
    /// The longest ULPDU.
    fn max_ulpdu(&self) -> usize;

    /// Begins a segment with so many bytes of payload. Returns whether there is room for it; if not, nothing has
    /// happened.
    fn begin(&mut self, header: &Header, payload: usize) -> bool;

    /// The payload comes from a request's memory.
    fn payload(&mut self, payload: LocalBytes<'_>) -> Result<(), SgFault>;

    /// The payload comes from memory that a peer reads.
    fn read(&mut self, read: &mut OutboundRead, length: usize) -> Result<(), Refused>;

    /// The payload is here.
    fn bytes(&mut self, bytes: &[u8]);

    /// The segment is complete.
    fn end(&mut self);

    /// Bytes of complete FPDUs.
    fn len(&self) -> usize;
}

/// FPDUs one behind the other in a buffer.
pub(super) struct BufferFrame<'a> {
    out: &'a mut [u8],
    framer: &'a mut Framer,
    max_ulpdu: usize,
    /// Where the FPDU in progress begins, and how far it is written.
    start: usize,
    at: usize,
    /// With markers: the FPDU in progress.
    marked: Vec<u8>,
}

impl<'a> BufferFrame<'a> {
    /// FPDUs of at most `mss` bytes, as far as TCP's segments allow for.
    pub(super) fn new(out: &'a mut [u8], framer: &'a mut Framer, mss: usize) -> Self {
        let max_ulpdu = mulpdu(mss, framer.framing().markers);
        BufferFrame {
            out,
            framer,
            max_ulpdu,
            start: 0,
            at: 0,
            marked: Vec::new(),
        }
    }

    /// Room for the next bytes of the segment.
    fn take(&mut self, length: usize) -> &mut [u8] {
        let at = self.at;
        self.at += length;
        if self.framer.framing().markers {
            self.marked.resize(at - self.start + length, 0);
            &mut self.marked[at - self.start..]
        } else {
            &mut self.out[at..at + length]
        }
    }
}

impl Frame for BufferFrame<'_> {
    fn max_ulpdu(&self) -> usize {
        self.max_ulpdu
    }

    fn begin(&mut self, header: &Header, payload: usize) -> bool {
        let length = fpdu_len(header.len() + payload);
        let markers = match self.framer.framing().markers {
            true => (length / (markers::INTERVAL - markers::LEN) + 2) * markers::LEN,
            false => 0,
        };
        if length + markers > self.out.len() - self.start {
            return false;
        }
        self.at = self.start;
        self.marked.clear();
        let head = FpduHead::new(header, payload);
        self.take(head.len()).copy_from_slice(&head);
        true
    }

    fn payload(&mut self, payload: LocalBytes<'_>) -> Result<(), SgFault> {
        payload.memory.gather(payload.offset, self.take(payload.len()))
    }

    fn read(&mut self, read: &mut OutboundRead, length: usize) -> Result<(), Refused> {
        read.take(self.take(length))
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.take(bytes.len()).copy_from_slice(bytes);
    }

    fn end(&mut self) {
        let Framing { crc, markers } = self.framer.framing();
        if markers {
            self.framer.seal(&mut self.marked, 0);
            let end = self.start + self.marked.len();
            self.out[self.start..end].copy_from_slice(&self.marked);
            (self.start, self.at) = (end, end);
            return;
        }
        let pad = pad_len(self.at - self.start - 2);
        self.take(pad + CRC_LEN).fill(0);
        if crc {
            let crc_at = self.at - CRC_LEN;
            let crc = Crc32c::of(&self.out[self.start..crc_at]);
            self.out[crc_at..self.at].copy_from_slice(&crc);
        }
        self.start = self.at;
    }

    fn len(&self) -> usize {
        self.start
    }
}

/// Receives FPDUs in pieces: bytes to copy, and memory that payload is to be sent from.
pub trait StreamGather {
    /// How many bytes may still be added.
    fn room(&self) -> usize;

    /// How many pieces may still be added. An FPDU takes up to ten; with room for fewer, none is added.
    fn pieces(&self) -> usize;

    /// Adds bytes, which must be copied.
    fn bytes(&mut self, bytes: &[u8]);

    /// Adds memory. It may be read until the caller of [`Nic::gather_stream`](crate::Nic::gather_stream) releases the
    /// NIC; what has not been sent by then must have been copied, because the key may be revoked.
    fn memory(&mut self, region: &Arc<dyn Region>, offset: usize, length: usize);
}

/// FPDUs without CRCs and markers, payload where it is.
pub(super) struct GatherFrame<'a> {
    gather: &'a mut dyn StreamGather,
    max_ulpdu: usize,
    head: Option<FpduHead>,
    /// Memory of the segment in progress.
    parts: Vec<(Arc<dyn Region>, usize, usize)>,
    small: Vec<u8>,
    ulpdu: usize,
    done: usize,
}

/// Payload of fewer bytes is copied: a piece costs more than that.
const WORTH_A_PIECE: usize = 256;

impl<'a> GatherFrame<'a> {
    pub(super) fn new(gather: &'a mut dyn StreamGather, mss: usize) -> Self {
        GatherFrame {
            gather,
            max_ulpdu: mulpdu(mss, false),
            head: None,
            parts: Vec::new(),
            small: Vec::new(),
            ulpdu: 0,
            done: 0,
        }
    }

    fn copied(&mut self, length: usize) -> &mut [u8] {
        self.small.resize(length, 0);
        &mut self.small
    }
}

impl Frame for GatherFrame<'_> {
    fn max_ulpdu(&self) -> usize {
        self.max_ulpdu
    }

    fn begin(&mut self, header: &Header, payload: usize) -> bool {
        self.ulpdu = header.len() + payload;
        // Head and trailer, and as many pieces of memory as a request may have.
        let pieces = 2 + MAX_PIECES;
        if fpdu_len(self.ulpdu) > self.gather.room() || pieces > self.gather.pieces() {
            return false;
        }
        self.head = Some(FpduHead::new(header, payload));
        self.parts.clear();
        self.small.clear();
        true
    }

    fn payload(&mut self, payload: LocalBytes<'_>) -> Result<(), SgFault> {
        let (offset, length) = (payload.offset, payload.len());
        match payload.memory {
            LocalMemory::List(list, keys) if length >= WORTH_A_PIECE => {
                let parts = &mut self.parts;
                list.walk(keys, (offset, length), Access::empty(), |key, at, length| {
                    parts.push((key.share_region(), at, length));
                    Ok(())
                })?;
                if parts.len() > MAX_PIECES {
                    parts.clear();
                    return list.gather(keys, offset, self.copied(length));
                }
                Ok(())
            }
            memory => memory.gather(offset, self.copied(length)),
        }
    }

    fn read(&mut self, read: &mut OutboundRead, length: usize) -> Result<(), Refused> {
        if length >= WORTH_A_PIECE {
            if let Some((region, at)) = read.locate(length)? {
                self.parts.push((region, at, length));
                read.skip(length);
                return Ok(());
            }
        }
        read.take(self.copied(length))
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.copied(bytes.len()).copy_from_slice(bytes);
    }

    fn end(&mut self) {
        let Some(head) = self.head.take() else {
            return;
        };
        self.gather.bytes(&head);
        if !self.small.is_empty() {
            self.gather.bytes(&self.small);
        }
        for (region, at, length) in &self.parts {
            self.gather.memory(region, *at, *length);
        }
        self.gather.bytes(&Trailer::unchecked(self.ulpdu));
        self.done += fpdu_len(self.ulpdu);
    }

    fn len(&self) -> usize {
        self.done
    }
}

/// Pieces of memory in one segment, at most; more are copied together.
const MAX_PIECES: usize = 8;
