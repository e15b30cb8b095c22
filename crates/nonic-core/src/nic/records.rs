//! Records: what queue pairs write to lanes, what comes through them, and what becomes of it.

use super::queue_pairs::Transport;
use super::transmit::After;
use super::{Nic, ReadySender};
use crate::lanes::{Answered, LaneId, Lanes, RecordAnswer};
use crate::roce::local::{RecordHeader, Written};
use crate::roce::queue_pair::RoceQueuePair;
use crate::time::Time;
use nonic_wire::{Flow, NakCode, ROCE_PORT, Service};
use std::net::IpAddr;

impl Nic {
    /// Gives the NIC lanes to processes of this host. Queue pairs that go to RTS from now on write records where a lane leads to
    /// their peer.
    pub fn set_lanes(&mut self, lanes: Box<dyn Lanes>) {
        self.resources.lanes = Some(lanes);
    }

    /// Executes a record that came through a lane, from a process at `src` to one of our addresses, and returns its answer. What a READ
    /// asks for is written to `room`, which is what the record has behind the request.
    pub fn handle_record(
        &mut self,
        now: Time,
        (src, dst): (IpAddr, IpAddr),
        request: &[u8],
        room: &mut [u8],
    ) -> RecordAnswer {
        self.resources.counters.rx_packets += 1;
        self.resources.counters.rx_bytes += request.len() as u64;
        let Some((header, payload)) = RecordHeader::parse(request) else {
            self.resources.counters.rx_malformed += 1;
            return RecordAnswer::Refused(NakCode::InvalidRequest);
        };
        let dest = header.dest_qpn;
        let slot = self.qps.slot(dest).filter(|slot| {
            self.qps[*slot]
                .as_roce()
                .is_some_and(|qp| takes(qp, &header, (src, dst)))
        });
        let Some(slot) = slot else {
            self.resources.counters.rx_unclaimed += 1;
            return match self.departed.is_peer(dest, (src, dst)) {
                true => RecordAnswer::Gone,
                false => RecordAnswer::Ignored,
            };
        };
        let nic = &mut *self;
        let qp = nic.qps.roce_mut(slot);
        qp.roce.common.traffic.received(1, request.len());
        if !qp.is_reliable() {
            let flow = Flow {
                src,
                dst,
                src_port: ROCE_PORT,
                dst_port: ROCE_PORT,
            };
            qp.handle(nic.resources.at(now), &header.as_packet(payload), &flow);
            self.touch(slot);
            // What became of it, these services do not tell.
            return RecordAnswer::Executed;
        }
        let record = (&header.as_packet(payload), header.named);
        let answer = qp.handle_record(nic.resources.at(now), record, room);
        if !answer.is_executed() {
            self.touch(slot);
        }
        answer
    }

    /// Takes the answers that have come through lanes of ours; how many. Ordinary ones need no clock, and `recent` may be old.
    #[inline]
    pub fn handle_answers(&mut self, recent: Time, clock: &dyn Fn() -> Time) -> usize {
        let lanes = self.resources.lanes.as_mut();
        match lanes.is_some_and(|lanes| lanes.has_answer()) {
            true => self.take_answers(recent, clock),
            false => 0,
        }
    }

    fn take_answers(&mut self, recent: Time, clock: &dyn Fn() -> Time) -> usize {
        // Queue pairs write nothing while they take answers.
        let Some(mut lanes) = self.resources.lanes.take() else {
            return 0;
        };
        let mut count = 0;
        while let Some(answered) = lanes.take_answer() {
            let now = match answered.answer.is_executed() {
                true => recent,
                false => clock(),
            };
            self.handle_answer(now, &answered);
            count += 1;
        }
        self.resources.lanes = Some(lanes);
        if count > 0 && !self.blocked.is_empty() {
            self.unblock();
        }
        count
    }

    /// Whether it has written a record to itself since this was asked last: no other thread executes it.
    #[inline]
    pub fn wrote_to_itself(&mut self) -> bool {
        self.resources
            .lanes
            .as_mut()
            .is_some_and(|lanes| lanes.wrote_to_itself())
    }

    /// Lanes may have room again.
    #[cold]
    fn unblock(&mut self) {
        for slot in std::mem::take(&mut self.blocked) {
            self.qps.roce_mut(slot).unblock();
            self.make_ready(slot);
        }
    }

    fn handle_answer(&mut self, now: Time, answered: &Answered<'_>) {
        let &Answered { tag, answer, bytes } = answered;
        let Some(slot) = self.qps.slot(tag.qpn) else {
            return;
        };
        let nic = &mut *self;
        let Transport::Roce(qp) = &mut nic.qps[slot].transport else {
            return;
        };
        qp.handle_answer(nic.resources.at(now), tag.attempt, answer, bytes);
        match answer.is_executed() {
            true => self.make_ready(slot),
            false => self.touch(slot),
        }
    }

    /// A lane of ours has ended: the process that it led to is gone.
    pub fn lane_ended(&mut self, now: Time, lane: LaneId) {
        let nic = &mut *self;
        let resources = nic.resources.at(now);
        let mut lost = Vec::new();
        for (slot, qp) in nic.qps.iter_mut() {
            let Transport::Roce(qp) = &mut qp.transport else {
                continue;
            };
            if qp.lane() == Some(lane) {
                qp.lose_peer(resources);
                lost.push(slot);
            }
        }
        lost.into_iter().for_each(|slot| self.touch(slot));
        if let Some(lanes) = &mut self.resources.lanes {
            lanes.close(lane);
        }
    }

    /// Lets a queue pair write what it has, for a turn. Whether that was its turn: if not, what it has goes as packets.
    pub(super) fn write_records(&mut self, now: Time, slot: usize) -> bool {
        let nic = &mut *self;
        let resources = nic.resources.at(now);
        let qp = nic.qps.roce_mut(slot);
        qp.ready = false;
        let mut written = false;
        let mut turn = Turn::new(nic.config.direct_piece);
        let after = loop {
            let bytes = match qp.write_record(resources) {
                Written::Record(bytes) => bytes as u32,
                Written::Direct(bytes) => bytes,
                Written::Full => {
                    if !std::mem::replace(&mut qp.blocked, true) {
                        nic.blocked.push(slot);
                    }
                    break After::Quiet;
                }
                Written::Dropped => 0,
                Written::Packets if written => break After::More,
                Written::Packets => return false,
                Written::Idle => break After::Quiet,
                Written::Failed => break After::Failed,
            };
            written = true;
            if !turn.spend(bytes) {
                break match qp.has_to_send() {
                    true => After::Worked,
                    false => After::Quiet,
                };
            }
        };
        qp.takes_timer();
        let line = match after {
            After::More => Some(&mut nic.ready),
            After::Worked => Some(&mut nic.worked),
            After::Quiet | After::Failed => None,
        };
        if let Some(line) = line {
            qp.ready = true;
            line.push_back(ReadySender::QueuePair(slot));
        }
        self.schedule_timers(slot);
        if after == After::Failed {
            self.touch(slot);
        }
        true
    }

    /// Sets the timer that a request needs which was written while it was posted.
    #[inline]
    pub(super) fn set_wanted_timer(&mut self, slot: usize) {
        if let Transport::Roce(qp) = &mut self.qps[slot].transport {
            if qp.takes_timer() {
                self.schedule_timers(slot);
            }
        }
    }
}

/// Whether a record is for the queue pair, and from its peer.
fn takes(qp: &RoceQueuePair, header: &RecordHeader, (src, dst): (IpAddr, IpAddr)) -> bool {
    let roce = &qp.roce;
    let service = roce.common.service;
    let from_peer = roce.flow.dst == src && roce.flow.src == dst;
    header.opcode.service() == service && (from_peer || service == Service::Ud)
}

/// What a queue pair may write or move before it is another's turn: about as much as fills a large batch.
struct Turn {
    requests: u32,
    bytes: u32,
}

impl Turn {
    /// Short requests in one turn, at most.
    const REQUESTS: u32 = 64;

    fn new(bytes: u32) -> Self {
        Turn {
            requests: Self::REQUESTS,
            bytes,
        }
    }

    /// It wrote one more, of so many bytes. Whether its turn goes on.
    fn spend(&mut self, bytes: u32) -> bool {
        self.requests = self.requests.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        self.requests > 0 && self.bytes > 0
    }
}
