//! A queue pair whose peer is a process of this host: writes records, executes those that come, and takes their answers.

use super::reliable::RcRequester;
use super::{RoceQueuePair, ServiceMachine};
use crate::lanes::{LaneId, RecordAnswer};
use crate::resources::NicResources;
use crate::roce::emit::Fatal;
use crate::roce::local::{RecordRequester, Written};
use nonic_wire::Packet;

impl RoceQueuePair {
    /// The requester, if it writes records.
    fn record_requester(&mut self) -> Option<&mut RecordRequester> {
        match &mut self.machine {
            ServiceMachine::Rc { requester, .. } => requester.as_records(),
            _ => None,
        }
    }

    /// Whether its requests go as records.
    pub(crate) fn writes_records(&self) -> bool {
        matches!(
            &self.machine,
            ServiceMachine::Rc {
                requester: RcRequester::Records(_),
                ..
            }
        )
    }

    /// The lane it writes to.
    pub(crate) fn lane(&mut self) -> Option<LaneId> {
        self.record_requester().map(|requester| requester.lane())
    }

    /// Whether it has something to send in packets, though its requests go as records.
    pub(crate) fn has_packets(&self) -> bool {
        self.has_replies() || self.notification.is_due()
    }

    /// Writes the next record, if there is one, or executes a piece of a request in the peer's memory.
    #[inline]
    pub(crate) fn write_record(&mut self, nic: &mut NicResources<'_>) -> Written {
        if self.pacer.holds(nic.now) {
            return Written::Idle;
        }
        let ServiceMachine::Rc {
            requester: RcRequester::Records(requester),
            ..
        } = &mut self.machine
        else {
            return Written::Idle;
        };
        let written = requester.write(&self.roce, nic);
        match written {
            Written::Record(bytes) => {
                self.roce.common.traffic.sent(1, bytes);
                nic.counters.tx_packets += 1;
                nic.counters.tx_bytes += bytes as u64;
                self.pacer.on_sent(nic.now, bytes);
            }
            Written::Direct(bytes) => self.pacer.on_sent(nic.now, bytes as usize),
            Written::Failed => self.enter_error(nic),
            Written::Full | Written::Idle => {}
        }
        self.report_drained(nic);
        written
    }

    /// The lane may have room again.
    pub(crate) fn unblock(&mut self) {
        self.blocked = false;
        if let Some(requester) = self.record_requester() {
            requester.unblock();
        }
    }

    /// Executes a record of the peer. What a READ asks for is written to `room`.
    pub(crate) fn handle_record(
        &mut self,
        nic: &mut NicResources<'_>,
        packet: &Packet<'_>,
        room: &mut [u8],
    ) -> RecordAnswer {
        if !self.roce.common.state.receives() || self.roce.is_initiator() {
            nic.counters.rx_unclaimed += 1;
            return RecordAnswer::Ignored;
        }
        let first = self.note_heard(nic);
        let ServiceMachine::Rc { responder, .. } = &mut self.machine else {
            return RecordAnswer::Ignored;
        };
        let (answer, result) = responder.handle_record(&self.roce, nic, packet, room);
        if let Err(Fatal) = result {
            self.enter_error(nic);
        } else if first {
            self.publish(nic);
        }
        answer
    }

    /// Takes the answer to a record that it wrote.
    #[inline]
    pub(crate) fn handle_answer(
        &mut self,
        nic: &mut NicResources<'_>,
        attempt: u32,
        answer: RecordAnswer,
        bytes: &[u8],
    ) {
        let ServiceMachine::Rc {
            requester: RcRequester::Records(requester),
            ..
        } = &mut self.machine
        else {
            return;
        };
        if !self.roce.common.state.requests() {
            return;
        }
        if let Err(Fatal) = requester.handle_answer(&self.roce, nic, attempt, answer, bytes) {
            self.enter_error(nic);
        }
        self.report_drained(nic);
    }

    /// The process that the lane led to has ended.
    pub(crate) fn lose_peer(&mut self, nic: &mut NicResources<'_>) {
        if let ServiceMachine::Rc {
            requester: RcRequester::Records(requester),
            ..
        } = &mut self.machine
        {
            requester.lose_peer(&self.roce, nic);
        }
    }

    /// Whether a timer is to be set for it, which posting does not do otherwise. Asking takes note of it.
    #[inline]
    pub(crate) fn takes_timer(&mut self) -> bool {
        self.record_requester()
            .is_some_and(|requester| std::mem::take(&mut requester.wants_timer))
    }
}
