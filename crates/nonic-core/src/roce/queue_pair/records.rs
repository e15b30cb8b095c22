//! A queue pair whose peer is a process of this host: writes records, executes those that come, and takes their answers.

use super::reliable::RcRequester;
use super::{RoceQueuePair, ServiceMachine};
use crate::lanes::{LaneId, RecordAnswer};
use crate::resources::NicResources;
use crate::roce::emit::Fatal;
use crate::roce::local::Written;
use nonic_wire::Packet;

impl RoceQueuePair {
    /// Whether its service answers requests.
    pub(crate) fn is_reliable(&self) -> bool {
        matches!(self.machine, ServiceMachine::Rc { .. })
    }

    /// Whether all its requests go as records.
    pub(crate) fn writes_records(&self) -> bool {
        matches!(
            &self.machine,
            ServiceMachine::Rc {
                requester: RcRequester::Records(_),
                ..
            }
        )
    }

    /// Whether its WRITEs and READs are executed here, in the memory of its peer.
    pub(crate) fn executes_by_itself(&self) -> bool {
        match &self.machine {
            ServiceMachine::Rc {
                requester: RcRequester::Records(requester),
                ..
            } => requester.executes_by_itself(),
            _ => false,
        }
    }

    /// The lane it writes to.
    pub(crate) fn lane(&mut self) -> Option<LaneId> {
        match &mut self.machine {
            ServiceMachine::Rc { requester, .. } => requester.as_records().map(|requester| requester.lane()),
            ServiceMachine::Uc { sender, .. } | ServiceMachine::Ud { sender, .. } => sender.lane(),
        }
    }

    /// Whether it has something to send in packets, though its requests go as records.
    pub(crate) fn has_packets(&self) -> bool {
        self.has_replies() || self.notification.is_due()
    }

    /// Writes the next record, if there is one, or executes a piece of a request in the peer's memory.
    #[inline]
    pub(crate) fn write_record(&mut self, nic: &mut NicResources) -> Written {
        let held = self.pacer.holds(nic.now);
        let written = match &mut self.machine {
            ServiceMachine::Rc {
                requester: RcRequester::Packets(_),
                ..
            } => return Written::Packets,
            _ if held => return Written::Idle,
            ServiceMachine::Rc {
                requester: RcRequester::Records(requester),
                ..
            } => requester.write(&self.roce, nic),
            ServiceMachine::Uc { sender, .. } | ServiceMachine::Ud { sender, .. } => {
                sender.write(&self.roce, nic)
            }
        };
        match written {
            Written::Record(bytes) => {
                self.roce.common.traffic.sent(1, bytes);
                nic.counters.tx_packets += 1;
                nic.counters.tx_bytes += bytes as u64;
                self.pacer.on_sent(nic.now, bytes);
            }
            Written::Direct(bytes) => self.pacer.on_sent(nic.now, bytes as usize),
            Written::Failed => self.send_failed(nic),
            Written::Full | Written::Idle | Written::Packets | Written::Dropped => {}
        }
        self.report_drained(nic);
        written
    }

    /// The lane may have room again.
    pub(crate) fn unblock(&mut self) {
        self.blocked = false;
        match &mut self.machine {
            ServiceMachine::Rc { requester, .. } => {
                if let Some(requester) = requester.as_records() {
                    requester.unblock();
                }
            }
            ServiceMachine::Uc { sender, .. } | ServiceMachine::Ud { sender, .. } => sender.unblock(),
        }
    }

    /// Executes a record of the peer, of which we know whether it names its bytes. What a READ asks for is written to `room`.
    pub(crate) fn handle_record(
        &mut self,
        nic: &mut NicResources,
        record: (&Packet<'_>, bool),
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
        let (answer, result) = responder.handle_record(&self.roce, nic, record, room);
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
        nic: &mut NicResources,
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
    pub(crate) fn lose_peer(&mut self, nic: &mut NicResources) {
        match &mut self.machine {
            ServiceMachine::Rc { requester, .. } => {
                if let Some(requester) = requester.as_records() {
                    requester.lose_peer(&self.roce, nic);
                }
            }
            ServiceMachine::Uc { sender, .. } | ServiceMachine::Ud { sender, .. } => sender.lose_lane(),
        }
    }

    /// Whether a timer is to be set for it, which posting does not do otherwise. Asking takes note of it.
    #[inline]
    pub(crate) fn takes_timer(&mut self) -> bool {
        let wants_timer = match &mut self.machine {
            ServiceMachine::Rc { requester, .. } => match requester.as_records() {
                Some(requester) => &mut requester.wants_timer,
                None => return false,
            },
            ServiceMachine::Uc { sender, .. } | ServiceMachine::Ud { sender, .. } => &mut sender.wants_timer,
        };
        std::mem::take(wants_timer)
    }
}
