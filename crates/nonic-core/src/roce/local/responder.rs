//! The responder half: executes the records of a peer on this host in the order of their numbers, each once.
//!
//! A record with another number than the one expected changes nothing. It is one that was written behind a record which was not executed,
//! or one of an earlier connection.

use crate::lanes::RecordAnswer;
use crate::placement::OutboundRead;
use crate::queue_pair::QueuePairView;
use crate::record::QpEvent;
use crate::resources::NicResources;
use crate::roce::context::RoceContext;
use crate::roce::emit::Fatal;
use crate::roce::rc::{Execution, Outcome, Refusals};
use crate::roce::refusal::Refusal;
use nonic_wire::{Packet, Psn};

/// The responder half.
#[derive(Debug)]
pub(crate) struct RecordResponder {
    /// The record that is executed next.
    expected: Psn,
    execution: Execution,
    /// How often in a row the record that was expected found no receive.
    not_ready: u8,
    refusals: Refusals,
}

impl RecordResponder {
    pub(crate) fn new(roce: &RoceContext) -> Self {
        RecordResponder {
            expected: roce.rq_psn,
            execution: Execution::default(),
            not_ready: 0,
            refusals: Refusals::default(),
        }
    }

    /// The record that is executed next.
    pub(crate) fn expected(&self) -> Psn {
        self.expected
    }

    /// Executes a record. What a READ asks for is written to `room`; the bytes of a SEND that are `named` are fetched. With [`Fatal`], the
    /// connection is at its end.
    pub(crate) fn handle(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        (packet, named): (&Packet<'_>, bool),
        room: &mut [u8],
    ) -> (RecordAnswer, Result<(), Fatal>) {
        if packet.headers.bth.psn != self.expected {
            return (RecordAnswer::Unexpected, Ok(()));
        }
        match self.execute(roce, nic, (packet, named), room) {
            Ok(RecordAnswer::Unreadable) => (RecordAnswer::Unreadable, Ok(())),
            Ok(answer) => {
                self.expected = self.expected.next();
                self.not_ready = 0;
                (answer, Ok(()))
            }
            Err(refusal) => self.refuse(roce, nic, packet, refusal),
        }
    }

    fn execute(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        (packet, named): (&Packet<'_>, bool),
        room: &mut [u8],
    ) -> Result<RecordAnswer, Refusal> {
        let operation = packet.headers.bth.opcode.operation();
        self.execution.choose_srq(roce, nic, packet)?;
        self.execution.check_sequence(operation)?;
        if !operation.carries_payload() && !packet.payload.is_empty() {
            return Err(Refusal::INVALID);
        }
        if named {
            return match self.execution.pull(roce, nic, packet)? {
                true => Ok(RecordAnswer::Executed),
                false => Ok(RecordAnswer::Unreadable),
            };
        }
        match self.execution.execute(roce, nic, packet)? {
            Outcome::Placed | Outcome::Done => Ok(RecordAnswer::Executed),
            Outcome::Word(original) => Ok(RecordAnswer::Fetched(original)),
            Outcome::Read(memory) => read_to(memory, room),
        }
    }

    /// Tells the peer, and unless it may come again, the program.
    #[cold]
    fn refuse(
        &mut self,
        roce: &RoceContext,
        nic: &mut NicResources,
        packet: &Packet<'_>,
        refusal: Refusal,
    ) -> (RecordAnswer, Result<(), Fatal>) {
        match refusal {
            Refusal::NotReady => {
                // A peer that comes again and again uses up its retries while our program may only be waiting for a processor.
                let wait = roce.min_rnr_timer.lengthened(self.not_ready);
                self.not_ready = self.not_ready.saturating_add(1);
                self.refusals.rnr_naks = self.refusals.rnr_naks.wrapping_add(1);
                nic.counters.rnr_naks_sent += 1;
                nic.record(roce.common.qpn, QpEvent::NoReceive);
                (RecordAnswer::NotReady(wait.code()), Ok(()))
            }
            Refusal::Nak(code, status, reason) => {
                self.refusals.naks = self.refusals.naks.wrapping_add(1);
                nic.counters.naks_sent += 1;
                self.execution.record_refusal(roce, nic, packet, reason);
                self.execution.report_refusal(roce, nic, code, status);
                (RecordAnswer::Refused(code), Err(Fatal))
            }
        }
    }

    /// Ends the receive in progress as flushed, on the way to the error state.
    pub(crate) fn flush(&mut self, roce: &RoceContext, nic: &mut NicResources) {
        self.execution.flush(roce, nic);
    }

    /// Adds what it is at; what it expects means something once it `receives`.
    pub(crate) fn show(&self, view: &mut QueuePairView, receives: bool) {
        view.sequence.expected = receives.then_some(self.expected);
        view.troubles.naks_sent = self.refusals.naks;
        view.troubles.rnr_naks_sent = self.refusals.rnr_naks;
    }
}

/// Answers a READ, of which the record must have room for all.
fn read_to(mut memory: OutboundRead, room: &mut [u8]) -> Result<RecordAnswer, Refusal> {
    let room = room.get_mut(..memory.left as usize).ok_or(Refusal::INVALID)?;
    memory.take(room)?;
    Ok(RecordAnswer::Executed)
}
