//! The header of a record: what a request says, at fixed places in the byte order of the host.
//!
//! Writer and reader are the same kind of program on the same processor, so this is no wire format: there is no partition, no checksum,
//! no padding and no header of variable place. What follows the header is payload up to the end of the request.
//!
//! | bytes | |
//! |---|---|
//! | 0–3 | number of the queue pair it is for; in the upper 8 bits the opcode, as in a packet |
//! | 4–7 | number of the record; in the upper 8 bits whether it is solicited, and whether a SEND names its bytes in place of carrying them |
//! | 8–11 | immediate data, or the key to invalidate |
//! | 12–15 | XRC: the shared receive queue |
//! | 16–31 | if it names memory: address, key and length, 8 + 4 + 4 bytes |
//! | 16–23 | a datagram: the Q_Key and the sender's queue pair, 4 bytes each |
//! | 32–47 | an atomic: what to swap in or to add, and what to compare with; a FLUSH: its effects and its extent, in the first two bytes |
//!
//! Reading one is total: what another process writes cannot make it fail in any other way than by `None`.

use crate::roce::context::RoceContext;
use crate::roce::segment::Segment;
use crate::verbs::work::{Destination, RemoteAddress, SendFlags, SendOp};
use crate::verbs::wqe::SendWqe;
use nonic_wire::{AtomicEth, Bth, Deth, Feth, HeaderSet, Headers, Opcode, Packet, Psn, Qpn, Reth, Service};

/// Bytes that every header has.
const BASE: usize = 16;
/// Where memory is named, and the bytes that this takes.
const MEMORY: usize = BASE;
const MEMORY_END: usize = MEMORY + 16;
/// Where the Q_Key and the sender of a datagram are.
const SENDER: usize = BASE;
const SENDER_END: usize = SENDER + 8;
/// Where the operands of an atomic are, or what a FLUSH is to do.
const OPERANDS: usize = MEMORY_END;
const OPERANDS_END: usize = OPERANDS + 16;

/// The extension headers of packets that name memory, and those that have operands.
const NAMING: HeaderSet = HeaderSet::RETH.union(HeaderSet::ATOMIC);
const OPERATING: HeaderSet = HeaderSet::ATOMIC.union(HeaderSet::FETH);

const SOLICITED: u32 = 1 << 24;
const NAMED: u32 = 1 << 25;

/// The header of a record. Fields that its opcode has no use for mean nothing.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct RecordHeader {
    pub(crate) opcode: Opcode,
    pub(crate) dest_qpn: Qpn,
    pub(crate) number: Psn,
    pub(crate) solicited: bool,
    /// A SEND whose bytes are in the sender's memory: the receiver fetches them.
    pub(crate) named: bool,
    /// Immediate data, or the key to invalidate.
    pub(crate) extra: u32,
    pub(crate) srqn: u32,
    pub(crate) memory: Reth,
    pub(crate) datagram: Deth,
    /// What an atomic swaps in or adds, and what it compares with.
    pub(crate) operands: (u64, u64),
    pub(crate) flush: Feth,
}

impl RecordHeader {
    /// That of a part of a request. The part of a READ is what is asked for.
    #[inline]
    pub(crate) fn of(roce: &RoceContext, wqe: &SendWqe, part: &Segment, number: Psn) -> Self {
        let opcode = Opcode::new(roce.common.service, part.operation(wqe.op));
        let mut header = RecordHeader {
            opcode: opcode.expect("the service offers what was posted"),
            dest_qpn: roce.dest_qpn,
            number,
            solicited: part.last && wqe.flags.contains(SendFlags::SOLICITED),
            named: false,
            extra: 0,
            srqn: 0,
            memory: Reth::default(),
            datagram: Deth::default(),
            operands: (0, 0),
            flush: Feth::default(),
        };
        if let Some(destination) = &wqe.destination {
            header.address(roce, destination);
        }
        match wqe.op {
            SendOp::Send | SendOp::LocalInvalidate(_) | SendOp::BindWindow(_) => {}
            SendOp::SendWithImmediate(extra) | SendOp::SendWithInvalidate(extra) => header.extra = extra,
            SendOp::Write(remote) | SendOp::AtomicWrite(remote) => {
                header.memory = memory(remote, wqe.length);
            }
            SendOp::WriteWithImmediate(remote, immediate) => {
                header.memory = memory(remote, wqe.length);
                header.extra = immediate;
            }
            SendOp::Read(remote) => {
                let va = remote.va.wrapping_add(part.offset);
                header.memory = memory(RemoteAddress { va, ..remote }, part.length);
            }
            SendOp::CompareSwap {
                remote,
                compare,
                swap,
            } => {
                header.memory = memory(remote, 8);
                header.operands = (swap, compare);
            }
            SendOp::FetchAdd { remote, add } => {
                header.memory = memory(remote, 8);
                header.operands = (add, 0);
            }
            SendOp::Flush(flush) => {
                header.memory = memory(flush.remote, flush.length);
                header.flush = Feth {
                    placement: flush.placement.bits(),
                    selectivity: flush.range as u8,
                };
            }
        }
        header
    }

    /// Fills in which SRQ an extended connection's request is for, or where a datagram goes.
    fn address(&mut self, roce: &RoceContext, destination: &Destination) {
        match roce.common.service {
            Service::Xrc => self.srqn = destination.qpn.value(),
            _ => {
                self.dest_qpn = destination.qpn;
                self.datagram = destination.deth(roce);
            }
        }
    }

    /// It names so many bytes in place of carrying them.
    pub(crate) fn name(&mut self, bytes: RemoteAddress, length: u32) {
        self.named = true;
        self.memory = memory(bytes, length);
    }

    /// How long the header is.
    #[inline]
    pub(crate) fn length(&self) -> usize {
        Self::length_of(self.opcode, self.named)
    }

    /// How long the header of an opcode is.
    #[inline]
    fn length_of(opcode: Opcode, named: bool) -> usize {
        if named {
            return MEMORY_END;
        }
        let headers = opcode.headers();
        if !headers.intersects(NAMING) {
            return match headers.contains(HeaderSet::DETH) {
                true => SENDER_END,
                false => BASE,
            };
        }
        match headers.intersects(OPERATING) {
            true => OPERANDS_END,
            false => MEMORY_END,
        }
    }

    /// Writes it to the beginning of `out`; how long it is. `out` must be as long as [`RecordHeader::length`] says.
    #[inline]
    pub(crate) fn emit(&self, out: &mut [u8]) -> usize {
        let length = self.length();
        let out = &mut out[..length];
        let mut flags = if self.solicited { SOLICITED } else { 0 };
        if self.named {
            flags |= NAMED;
        }
        put32(
            out,
            0,
            self.dest_qpn.value() | u32::from(self.opcode.byte()) << 24,
        );
        put32(out, 4, self.number.value() | flags);
        put32(out, 8, self.extra);
        put32(out, 12, self.srqn);
        if length == SENDER_END {
            put32(out, SENDER, self.datagram.qkey);
            put32(out, SENDER + 4, self.datagram.src_qp.value());
        } else if length > MEMORY {
            put64(out, MEMORY, self.memory.va);
            put32(out, MEMORY + 8, self.memory.rkey);
            put32(out, MEMORY + 12, self.memory.dma_len);
        }
        if length > OPERANDS {
            let first = match self.opcode.headers().contains(HeaderSet::FETH) {
                true => u64::from_ne_bytes([self.flush.placement, self.flush.selectivity, 0, 0, 0, 0, 0, 0]),
                false => self.operands.0,
            };
            put64(out, OPERANDS, first);
            put64(out, OPERANDS + 8, self.operands.1);
        }
        length
    }

    /// Takes a request apart: header and payload. `None` if it is no request.
    #[inline]
    pub(crate) fn parse(request: &[u8]) -> Option<(Self, &[u8])> {
        let base: &[u8; BASE] = request.first_chunk()?;
        let opcode = Opcode::from_byte((word32(base, 0) >> 24) as u8)?;
        let named = word32(base, 4) & NAMED != 0;
        if named && !(opcode.service() == Service::Rc && opcode.operation().is_send()) {
            return None;
        }
        let (header, payload) = request.split_at_checked(Self::length_of(opcode, named))?;
        let mut parsed = RecordHeader {
            opcode,
            dest_qpn: Qpn::new(word32(base, 0)),
            number: Psn::new(word32(base, 4)),
            solicited: word32(base, 4) & SOLICITED != 0,
            named,
            extra: word32(base, 8),
            srqn: word32(base, 12),
            memory: Reth::default(),
            datagram: Deth::default(),
            operands: (0, 0),
            flush: Feth::default(),
        };
        if header.len() == SENDER_END {
            parsed.datagram = Deth {
                qkey: word32(header, SENDER),
                src_qp: Qpn::new(word32(header, SENDER + 4)),
            };
        }
        if let Some(named) = header.get(MEMORY..MEMORY_END) {
            parsed.memory = Reth {
                va: word64(named, 0),
                rkey: word32(named, 8),
                dma_len: word32(named, 12),
            };
        }
        if let Some(operands) = header.get(OPERANDS..OPERANDS_END) {
            match opcode.headers().contains(HeaderSet::FETH) {
                true => {
                    parsed.flush = Feth {
                        placement: operands[0],
                        selectivity: operands[1],
                    }
                }
                false => parsed.operands = (word64(operands, 0), word64(operands, 8)),
            }
        }
        Some((parsed, payload))
    }

    /// The same request as a packet: what executes requests takes those.
    #[inline]
    pub(crate) fn as_packet<'a>(&self, payload: &'a [u8]) -> Packet<'a> {
        let mut headers = Headers::new(Bth::new(self.opcode, self.dest_qpn, self.number));
        headers.bth.solicited = self.solicited;
        headers.xrc_srqn = self.srqn;
        headers.deth = self.datagram;
        headers.feth = self.flush;
        headers.reth = self.memory;
        headers.atomic = AtomicEth {
            va: self.memory.va,
            rkey: self.memory.rkey,
            swap_add: self.operands.0,
            compare: self.operands.1,
        };
        headers.immediate = self.extra;
        headers.invalidate_rkey = self.extra;
        Packet {
            headers,
            payload,
            icrc: [0; 4],
        }
    }
}

fn memory(remote: RemoteAddress, length: u32) -> Reth {
    Reth {
        va: remote.va,
        rkey: remote.rkey,
        dma_len: length,
    }
}

#[inline]
fn put32(out: &mut [u8], at: usize, value: u32) {
    out[at..at + 4].copy_from_slice(&value.to_ne_bytes());
}

#[inline]
fn put64(out: &mut [u8], at: usize, value: u64) {
    out[at..at + 8].copy_from_slice(&value.to_ne_bytes());
}

#[inline]
fn word32(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline]
fn word64(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_ne_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn headers() -> impl Strategy<Value = RecordHeader> {
        let numbers = (
            any::<u32>(),
            any::<u32>(),
            any::<(bool, bool)>(),
            any::<u32>(),
            any::<u32>(),
        );
        let memory = (any::<u64>(), any::<u32>(), any::<u32>());
        let rest = (any::<(u64, u64)>(), any::<(u8, u8)>(), any::<(u32, u32)>());
        (prop::sample::select(Opcode::ALL), numbers, memory, rest).prop_map(
            |(
                opcode,
                (dest, number, (solicited, named), extra, srqn),
                (va, rkey, dma_len),
                (operands, flush, (qkey, sender)),
            )| {
                let set = opcode.headers();
                let only = |wanted: HeaderSet| set.contains(wanted);
                let named = named && opcode.service() == Service::Rc && opcode.operation().is_send();
                let names =
                    named || only(HeaderSet::RETH) || only(HeaderSet::ATOMIC) || only(HeaderSet::FETH);
                RecordHeader {
                    opcode,
                    dest_qpn: Qpn::new(dest),
                    number: Psn::new(number),
                    solicited,
                    named,
                    extra,
                    srqn,
                    memory: match names {
                        true => Reth { va, rkey, dma_len },
                        false => Reth::default(),
                    },
                    datagram: match only(HeaderSet::DETH) {
                        true => Deth {
                            qkey,
                            src_qp: Qpn::new(sender),
                        },
                        false => Deth::default(),
                    },
                    operands: match only(HeaderSet::ATOMIC) {
                        true => operands,
                        false => (0, 0),
                    },
                    flush: match only(HeaderSet::FETH) {
                        true => Feth {
                            placement: flush.0,
                            selectivity: flush.1,
                        },
                        false => Feth::default(),
                    },
                }
            },
        )
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_again(header in headers(), payload in prop::collection::vec(any::<u8>(), 0..40)) {
            let mut record = vec![0xcc; 64];
            let length = header.emit(&mut record);
            record.truncate(length);
            record.extend(&payload);
            prop_assert_eq!(RecordHeader::parse(&record), Some((header, &payload[..])));
            prop_assert_eq!(RecordHeader::parse(&record[..length - 1]), None);
        }

        #[test]
        fn any_bytes_are_a_header_or_none(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Some((header, payload)) = RecordHeader::parse(&bytes) {
                prop_assert_eq!(header.length() + payload.len(), bytes.len());
            }
        }
    }
}
