//! Both halves of a connected queue pair; dispatches each segment to one of them.

use super::answers::BadAnswer;
use super::fault::{Refusal, StreamFault};
use super::requester::Requester;
use super::responder::{Handled, Responder};
use crate::queue_pair::QpContext;
use crate::resources::NicResources;
use crate::verbs::work::Status;
use nonic_wire::iwarp::{Header, Opcode, Segment, Terminate, TerminateCode as Code};

/// Both halves.
#[derive(Debug)]
pub(super) struct Halves {
    pub(super) requester: Requester,
    pub(super) responder: Responder,
    /// How far TCP has taken what was written.
    pub(super) taken: u64,
    /// Whether anything has come.
    pub(super) heard: bool,
}

/// What became of a segment.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Inbound {
    /// It is placed or executed.
    Done,
    /// There is no receive for it. Nothing has happened.
    NoReceive,
    /// The peer ends the stream.
    Terminated(Terminate),
}

impl Halves {
    /// Takes the content of an FPDU.
    pub(super) fn handle(
        &mut self,
        common: &QpContext,
        nic: &mut NicResources,
        ulpdu: &[u8],
    ) -> Result<Inbound, StreamFault> {
        let segment = Segment::parse(ulpdu).map_err(|error| Refusal::from(error).about(ulpdu))?;
        let handled = self.dispatch(common, nic, &segment);
        let handled = handled.map_err(|refusal| refusal.about(ulpdu))?;
        self.heard |= handled != Inbound::NoReceive;
        Ok(handled)
    }

    fn dispatch(
        &mut self,
        common: &QpContext,
        nic: &mut NicResources,
        segment: &Segment<'_>,
    ) -> Result<Inbound, Refusal> {
        let payload = segment.payload;
        let handled = match segment.header {
            Header::Write(to) => {
                self.responder.write(common, nic, &to, payload)?;
                Handled::Done
            }
            Header::ReadRequest { msn, request } => {
                self.responder.read(common, nic, msn, request)?;
                Handled::Done
            }
            Header::ReadResponse(to) => {
                self.responder.continue_tagged(Opcode::ReadResponse, to.last)?;
                let answer = self.requester.handle_read_response(&nic.keys, &to, payload);
                answer.map_err(|bad| refuse_answer(bad, Code::DDP_TAGGED_INVALID_STAG))?;
                self.requester.complete(common, nic, self.taken);
                Handled::Done
            }
            Header::Send { kind, msn, mo, last } => {
                self.responder.send(common, nic, (kind, msn, mo, last), payload)?
            }
            Header::Immediate { solicited, msn, data } => {
                self.responder.immediate(common, nic, (solicited, msn, data))?
            }
            Header::AtomicRequest { msn, request } => {
                self.responder.atomic(common, nic, msn, &request)?;
                Handled::Done
            }
            Header::AtomicResponse {
                msn,
                request_id,
                original,
            } => {
                let answer = self
                    .requester
                    .handle_atomic_response(&nic.keys, msn, request_id, original);
                answer.map_err(|bad| refuse_answer(bad, Code::DDP_UNTAGGED_NO_BUFFER))?;
                self.requester.complete(common, nic, self.taken);
                Handled::Done
            }
            Header::Terminate { .. } => {
                let parsed = Terminate::parse(payload, self.heard);
                let terminate = parsed.map_or(Terminate::new(Code::RDMAP_UNSPECIFIED), |(terminate, _)| {
                    terminate
                });
                return Ok(Inbound::Terminated(terminate));
            }
        };
        Ok(match handled {
            Handled::Done => Inbound::Done,
            Handled::NoReceive => Inbound::NoReceive,
        })
    }
}

/// An answer that was not asked for, or not like this.
fn refuse_answer(bad: BadAnswer, unexpected: Code) -> Refusal {
    match bad {
        BadAnswer::Unexpected => unexpected.into(),
        BadAnswer::Range => Code::DDP_TAGGED_BOUNDS.into(),
        BadAnswer::Msn => Code::DDP_UNTAGGED_INVALID_MSN.into(),
        BadAnswer::Local(number) => Refusal {
            code: Code::DDP_CATASTROPHIC,
            failed: Some((number, Status::LocalProtection)),
            reported: true,
        },
    }
}
