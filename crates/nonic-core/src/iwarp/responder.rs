//! The responding half of an iWARP queue pair: places and executes what the peer sends, in the order of the stream.
//!
//! Read before touching:
//! - TCP has put everything in order, so a message number must be exactly the next one of its queue, and an offset exactly what has
//!   come so far. Anything else is the peer's fault and ends the stream.
//! - Nothing changes before everything about a segment has been checked. A segment that finds no receive changes nothing at all and
//!   is offered again when there is one.
//! - A tagged and an untagged message may be under way at the same time, two of a kind may not (Linux siw has the same rule).
//! - Zero bytes are placed nowhere: neither key nor address of such a WRITE or READ is looked at (RFC 5040 §5.4).

use super::config::Extensions;
use super::fault::{self, Refusal};
use super::replies::Replies;
use crate::placement::{PeerRights, Refused, RemoteRange, WordOperation};
use crate::queue_pair::{InboundSend, Misplaced, QpContext};
use crate::record::{QpEvent, RequestKind};
use crate::resources::NicResources;
use crate::verbs::memory::{Access, SgFault};
use crate::verbs::work::{CompletionOpcode, Status};
use nonic_wire::iwarp::{
    AtomicOperation, AtomicRequest, Opcode, ReadRequest, SendKind, Tagged, TerminateCode as Code,
};

/// The responding half.
#[derive(Debug)]
pub(super) struct Responder {
    /// Message number that the next SEND or immediate must have.
    send_msn: u32,
    /// The same for READs and atomics.
    read_msn: u32,
    inbound: Option<Sending>,
    /// The tagged message that is arriving.
    tagged: Option<Opcode>,
    /// Bytes of the WRITE that is arriving or has just arrived: what an immediate right behind it is about.
    written: u32,
    pub(super) replies: Replies,
    /// Answers that may be due at a time.
    ird: usize,
    extensions: Extensions,
}

/// A SEND that is arriving.
#[derive(Debug)]
struct Sending {
    message: InboundSend,
    solicited: bool,
    invalidates: bool,
}

/// What became of a segment.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Handled {
    /// It is placed or executed.
    Done,
    /// There is no receive for it. Nothing has happened.
    NoReceive,
}

impl Responder {
    pub(super) fn new(ird: u16, extensions: Extensions) -> Self {
        Responder {
            send_msn: 1,
            read_msn: 1,
            inbound: None,
            tagged: None,
            written: 0,
            replies: Replies::default(),
            // Linux siw rounds what it has under way up to a power of two, and a READ may come before it hears that another is
            // answered.
            ird: usize::from(ird).next_power_of_two(),
            extensions,
        }
    }

    /// A tagged segment of this kind has come: two messages must not be mixed.
    pub(super) fn continue_tagged(&mut self, opcode: Opcode, last: bool) -> Result<(), Refusal> {
        if self.tagged.is_some_and(|current| current != opcode) {
            return Err(Code::RDMAP_UNEXPECTED_OPCODE.into());
        }
        if self.tagged.is_none() {
            self.written = 0;
        }
        self.tagged = (!last).then_some(opcode);
        Ok(())
    }

    pub(super) fn write(
        &mut self,
        common: &QpContext,
        nic: &mut NicResources,
        to: &Tagged,
        payload: &[u8],
    ) -> Result<(), Refusal> {
        self.continue_tagged(Opcode::Write, to.last)?;
        if payload.is_empty() {
            return Ok(());
        }
        let length = payload.len() as u32;
        if to.to.checked_add(u64::from(length)).is_none() {
            return Err(Code::DDP_TAGGED_TO_WRAP.into());
        }
        let range = RemoteRange {
            va: to.to,
            length,
            rkey: to.stag,
        };
        let placed = rights(common, nic).write(&range).and_then(|mut write| {
            let at = write.locate(payload.len(), true)?;
            write.place(at, payload)
        });
        placed.map_err(|refused| {
            record_refused(common, nic, RequestKind::Write, &range, refused);
            Refusal::from(fault::tagged(refused))
        })?;
        self.written = self.written.saturating_add(length);
        Ok(())
    }

    pub(super) fn send(
        &mut self,
        common: &QpContext,
        nic: &mut NicResources,
        (kind, msn, mo, last): (SendKind, u32, u32, bool),
        payload: &[u8],
    ) -> Result<Handled, Refusal> {
        if msn != self.send_msn {
            return Err(Code::DDP_UNTAGGED_INVALID_MSN.into());
        }
        let invalidates = kind.invalidate_stag.is_some();
        let received = self
            .inbound
            .as_ref()
            .map_or(0, |inbound| inbound.message.received());
        if mo != received {
            return Err(Code::DDP_UNTAGGED_INVALID_MO.into());
        }
        let inbound = match &mut self.inbound {
            Some(inbound) if inbound.solicited == kind.solicited && inbound.invalidates == invalidates => {
                inbound
            }
            Some(_) => return Err(Code::RDMAP_UNEXPECTED_OPCODE.into()),
            None => {
                let Some(wqe) = common.take_recv(nic) else {
                    return Ok(Handled::NoReceive);
                };
                self.inbound.insert(Sending {
                    message: InboundSend::new(wqe),
                    solicited: kind.solicited,
                    invalidates,
                })
            }
        };
        self.written = 0;
        if let Err(misplaced) = inbound.message.place(&nic.keys, payload) {
            let fault = match misplaced {
                Misplaced::TooLong => SgFault::Length,
                Misplaced::Receive(fault) => fault,
            };
            let length = inbound.message.length_with(payload.len());
            common.record_misplaced(nic, fault, length, &inbound.message.wqe);
            let code = match fault {
                SgFault::Length => Code::DDP_UNTAGGED_TOO_LONG,
                SgFault::Protection => Code::DDP_CATASTROPHIC,
            };
            return Err(self.fail_receive(common, nic, code, fault.into()));
        }
        if last {
            self.finish_send(common, nic, kind)?;
        }
        Ok(Handled::Done)
    }

    /// All of a SEND has come.
    fn finish_send(
        &mut self,
        common: &QpContext,
        nic: &mut NicResources,
        kind: SendKind,
    ) -> Result<(), Refusal> {
        if let Some(stag) = kind.invalidate_stag {
            if let Err(refused) = rights(common, nic).invalidate(stag) {
                let code = fault::protection(refused);
                return Err(self.fail_receive(common, nic, code, Status::RemoteInvalidRequest));
            }
        }
        self.send_msn = self.send_msn.wrapping_add(1);
        if let Some(inbound) = self.inbound.take() {
            let mut done = common.received(&inbound.message.wqe, Status::Success, inbound.message.received());
            done.completion.invalidated_rkey = kind.invalidate_stag;
            done.solicited = kind.solicited;
            common.complete_recv(nic, done);
        }
        Ok(())
    }

    /// The receive that was taken for a message ends with an error, and tells the program of it.
    fn fail_receive(
        &mut self,
        common: &QpContext,
        nic: &mut NicResources,
        code: Code,
        status: Status,
    ) -> Refusal {
        match self.inbound.take() {
            Some(inbound) => {
                common.complete_recv(
                    nic,
                    common.received(&inbound.message.wqe, status, inbound.message.received()),
                );
                Refusal::reported(code)
            }
            None => code.into(),
        }
    }

    pub(super) fn immediate(
        &mut self,
        common: &QpContext,
        nic: &mut NicResources,
        (solicited, msn, data): (bool, u32, u64),
    ) -> Result<Handled, Refusal> {
        if self.extensions < Extensions::Immediate || self.inbound.is_some() {
            return Err(Code::RDMAP_UNEXPECTED_OPCODE.into());
        }
        if msn != self.send_msn {
            return Err(Code::DDP_UNTAGGED_INVALID_MSN.into());
        }
        let Some(wqe) = common.take_recv(nic) else {
            return Ok(Handled::NoReceive);
        };
        self.send_msn = msn.wrapping_add(1);
        let mut done = common.received(&wqe, Status::Success, std::mem::take(&mut self.written));
        done.completion.opcode = CompletionOpcode::RecvWriteWithImmediate;
        done.completion.immediate = Some((data >> 32) as u32);
        done.solicited = solicited;
        common.complete_recv(nic, done);
        Ok(Handled::Done)
    }

    pub(super) fn read(
        &mut self,
        common: &QpContext,
        nic: &mut NicResources,
        msn: u32,
        request: ReadRequest,
    ) -> Result<(), Refusal> {
        self.admit(msn)?;
        let range = RemoteRange {
            va: request.source_to,
            length: request.size,
            rkey: request.source_stag,
        };
        if range.length > 0 && range.va.checked_add(u64::from(range.length)).is_none() {
            return Err(Code::RDMAP_TO_WRAP.into());
        }
        let rights = rights(common, nic);
        let permitted = match range.length {
            0 => Ok(()),
            _ => rights.permit(Access::REMOTE_READ),
        };
        let memory = permitted.and_then(|()| rights.read(&range));
        let memory = memory.map_err(|refused| {
            record_refused(common, nic, RequestKind::Read, &range, refused);
            Refusal::from(fault::protection(refused))
        })?;
        self.replies.read(msn, request, memory);
        self.read_msn = msn.wrapping_add(1);
        Ok(())
    }

    pub(super) fn atomic(
        &mut self,
        common: &QpContext,
        nic: &mut NicResources,
        msn: u32,
        request: &AtomicRequest,
    ) -> Result<(), Refusal> {
        if self.extensions < Extensions::All {
            return Err(Code::RDMAP_UNEXPECTED_OPCODE.into());
        }
        self.admit(msn)?;
        if request.to.checked_add(8).is_none() {
            return Err(Code::RDMAP_TO_WRAP.into());
        }
        let original = rights(common, nic).word(request.to, request.stag, operation(request));
        let original = original.map_err(|refused| {
            let range = RemoteRange {
                va: request.to,
                length: 8,
                rkey: request.stag,
            };
            record_refused(common, nic, RequestKind::Atomic, &range, refused);
            Refusal::from(fault::protection(refused))
        })?;
        self.replies.atomic(request.request_id, original);
        self.read_msn = msn.wrapping_add(1);
        Ok(())
    }

    /// Whether a request that is to be answered may come now.
    fn admit(&mut self, msn: u32) -> Result<(), Refusal> {
        if msn != self.read_msn {
            return Err(Code::DDP_UNTAGGED_INVALID_MSN.into());
        }
        if self.replies.len() >= self.ird {
            return Err(Code::DDP_UNTAGGED_NO_BUFFER.into());
        }
        self.written = 0;
        Ok(())
    }

    /// Ends the receive in progress as flushed.
    pub(super) fn flush(&mut self, common: &QpContext, nic: &mut NicResources) {
        if let Some(inbound) = self.inbound.take() {
            common.complete_recv(nic, common.received(&inbound.message.wqe, Status::Flushed, 0));
        }
        self.replies.clear();
    }
}

/// What the peer may do to memory.
fn rights<'a>(common: &QpContext, nic: &'a NicResources) -> PeerRights<'a> {
    PeerRights {
        keys: &nic.keys,
        pd: common.pd,
        qpn: common.qpn,
        access: common.access,
    }
}

/// Writes down what was refused and why.
#[cold]
fn record_refused(
    common: &QpContext,
    nic: &mut NicResources,
    kind: RequestKind,
    range: &RemoteRange,
    refused: Refused,
) {
    let refused = rights(common, nic).describe(kind, Some(range), refused.into());
    nic.record(common.qpn, QpEvent::Refused(Box::new(refused)));
}

/// What an atomic does, plain if its masks leave nothing out.
fn operation(request: &AtomicRequest) -> WordOperation {
    let AtomicRequest {
        add_swap,
        add_swap_mask,
        compare,
        compare_mask,
        ..
    } = *request;
    match request.operation {
        AtomicOperation::FetchAdd if add_swap_mask == 0 => WordOperation::FetchAdd(add_swap),
        AtomicOperation::FetchAdd => WordOperation::MaskedFetchAdd {
            add: add_swap,
            boundaries: add_swap_mask,
        },
        AtomicOperation::CompareSwap if add_swap_mask & compare_mask == u64::MAX => {
            WordOperation::CompareSwap {
                compare,
                swap: add_swap,
            }
        }
        AtomicOperation::CompareSwap => WordOperation::MaskedCompareSwap {
            compare,
            compare_mask,
            swap: add_swap,
            swap_mask: add_swap_mask,
        },
    }
}
