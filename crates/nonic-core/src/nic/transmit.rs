//! Fills batches with packets: each queue pair that has something to send gets its turn. Short messages of several queue pairs
//! to one peer share a batch, and so one system call.

use super::{Nic, ReadySender};
use crate::resources::NicResources;
use crate::roce::emit::{Batch, Emit, Hop};
use crate::roce::queue_pair::RoceQueuePair;
use crate::time::Time;
use nonic_wire::{Flow, Qpn, icrc};

/// The longest batch: what one UDP datagram, and so one GSO send, may carry over IPv6.
pub const MAX_BATCH_LEN: usize = 65_535 - 40 - 8;
/// The most packets in a batch: what a kernel cuts one GSO send into.
pub const MAX_BATCH_PACKETS: usize = 64;

/// A batch of packets to one peer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// Which addresses; the source port is the endpoint's own, the destination port the RoCE one.
    pub flow: Flow,
    /// Which of the NIC's addresses it leaves from: an index in the GID table.
    pub gid_index: u8,
    /// The queue pair that the first packet goes to, which tells which process of the peer's host: all of them go to the same.
    /// For a management datagram it is the one passed to [`Nic::send_management`].
    pub dest_qpn: Qpn,
    /// Bytes written to the buffer.
    pub len: usize,
    /// Length of every packet but the last, which may be shorter.
    pub segment_size: usize,
    /// How many packets. Packet *i* is sealed for IPv4 Identification *i*: what the kernel sends when it
    /// cuts the batch up. They must not be sent one by one.
    pub segments: usize,
}

impl Transmit {
    /// A batch of packets of this length, before the first.
    fn empty(hop: &Hop, segment_size: usize) -> Self {
        Transmit {
            flow: hop.flow,
            gid_index: hop.gid_index,
            dest_qpn: hop.dest_qpn,
            len: 0,
            segment_size,
            segments: 0,
        }
    }

    /// A batch of one packet.
    pub(super) fn of_one(hop: &Hop, len: usize) -> Self {
        Transmit {
            len,
            segments: 1,
            ..Transmit::empty(hop, len)
        }
    }

    /// Whether another packet of the same length may follow, where a batch has at most so many packets, and at most as many as its
    /// link takes.
    fn has_room(&self, max_segments: usize, of_links: &[usize]) -> bool {
        let limit = max_segments.min(of_links[usize::from(self.gid_index)]);
        self.segments < limit && self.len == self.segments * self.segment_size
    }

    /// Where it goes.
    pub fn hop(&self) -> Hop {
        Hop {
            flow: self.flow,
            dest_qpn: self.dest_qpn,
            gid_index: self.gid_index,
        }
    }
}

impl Nic {
    /// Writes the next batch of at most `max_segments` packets to `buf` (of at least [`MAX_BATCH_LEN`]
    /// bytes, or `max_segments` times the largest packet), fewer where [`Nic::limit_batches`] says so. `None` when there
    /// is nothing to send: then [`Nic::ready_queue_pairs`] tells whether there is more to do without packets.
    pub fn poll_transmit(&mut self, now: Time, max_segments: usize, buf: &mut [u8]) -> Option<Transmit> {
        let transmit = self.next_batch(now, max_segments, buf);
        if !self.worked.is_empty() {
            self.ready.append(&mut self.worked);
        }
        transmit
    }

    /// Each queue pair has its turn, then goes to the end of the line. A queue pair that works without packets has one turn per
    /// call. So a call ends, and everything that can be sent is sent before one returns `None`.
    fn next_batch(&mut self, now: Time, max_segments: usize, buf: &mut [u8]) -> Option<Transmit> {
        while let Some(sender) = self.ready.pop_front() {
            if let ReadySender::QueuePair(slot) = sender {
                // Packets that it owes its peer go first, and it comes again.
                if !self.qps.roce(slot).has_packets() && self.write_records(now, slot) {
                    continue;
                }
            }
            let transmit = match sender {
                ReadySender::QueuePair(slot) => self.transmit_from(now, slot, max_segments.max(1), buf),
                ReadySender::Qp1 => self.transmit_management(buf),
                ReadySender::Departed => self.transmit_departed(buf),
            };
            if let Some(transmit) = transmit {
                self.resources.counters.tx_packets += transmit.segments as u64;
                self.resources.counters.tx_bytes += transmit.len as u64;
                return Some(transmit);
            }
        }
        None
    }

    /// A queue pair's batch, filled up by those behind it that send to the same process of the same host.
    fn transmit_from(
        &mut self,
        now: Time,
        slot: usize,
        max_segments: usize,
        buf: &mut [u8],
    ) -> Option<Transmit> {
        let mut batch = None;
        self.take_turn(now, slot, max_segments, buf, &mut batch);
        while let Some(so_far) = batch {
            let Some(ReadySender::QueuePair(slot)) = self.ready.front() else {
                break;
            };
            let slot = *slot;
            if !so_far.has_room(max_segments, &self.batch_limits) || !self.sends_along(slot, &so_far.hop()) {
                break;
            }
            self.ready.pop_front();
            self.take_turn(now, slot, max_segments, buf, &mut batch);
            if batch == Some(so_far) && self.qps.roce(slot).ready {
                break;
            }
        }
        batch
    }

    /// Whether a queue pair has packets for the process that a batch goes to.
    fn sends_along(&self, slot: usize, batch: &Hop) -> bool {
        let qp = self.qps.roce(slot);
        let hop = qp.roce.connected_hop();
        (!qp.writes_records() || qp.has_packets()) && hop.is_some_and(|hop| hop.goes_along(batch))
    }

    /// Lets a queue pair write packets into a batch; decides whether and where it stays in line.
    fn take_turn(
        &mut self,
        now: Time,
        slot: usize,
        max_segments: usize,
        buf: &mut [u8],
        batch: &mut Option<Transmit>,
    ) {
        let qp = self.qps.roce_mut(slot);
        qp.ready = false;
        let in_flight = qp.in_flight();
        let (segments, len) = batch.map_or((0, 0), |batch| (batch.segments, batch.len));
        let after = self.fill(now, slot, max_segments, buf, batch);
        let qp = self.qps.roce_mut(slot);
        let sent = batch.filter(|batch| batch.len > len);
        if let Some(batch) = sent {
            qp.roce
                .common
                .traffic
                .sent(batch.segments - segments, batch.len - len);
        }
        qp.end_batch();
        let waits = (qp.in_line || qp.resting).then_some(qp.roce.peer).flatten();
        let ends_turn = qp.in_turn && (after != After::More || qp.in_flight() > in_flight);
        self.schedule_timers(slot);
        if let Some(peer) = waits {
            self.schedule_window_timer(peer);
        }
        if ends_turn {
            self.end_turn(slot);
        }
        let qp = self.qps.roce(slot);
        let line = match after {
            After::More => Some(&mut self.ready),
            After::Worked => Some(&mut self.worked),
            After::Quiet if qp.writes_records() && qp.has_to_send() => Some(&mut self.worked),
            After::Quiet | After::Failed => None,
        };
        let qp = self.qps.roce_mut(slot);
        if let (Some(line), false) = (line, qp.ready) {
            qp.ready = true;
            match (after, sent) {
                // There was no room for what it has: it is the next.
                (After::More, None) => line.push_front(ReadySender::QueuePair(slot)),
                _ => line.push_back(ReadySender::QueuePair(slot)),
            }
        }
        if after == After::Failed {
            // What it had under way counts no more, and only a refusal is left to send.
            self.touch(slot);
        }
    }

    /// Limits the packets in a batch from one of our addresses: its link may not take as many as others.
    pub fn limit_batches(&mut self, gid_index: u8, max_segments: usize) {
        if let Some(limit) = self.batch_limits.get_mut(usize::from(gid_index)) {
            *limit = max_segments;
        }
    }

    /// Whether plain acknowledgements, and nothing else, are to be transmitted. They may wait a moment for
    /// something to travel with.
    pub fn only_acknowledges(&self) -> bool {
        /// Beyond so many, looking costs more than sending.
        const LOOKED_AT: usize = 4;
        let mut waiting = self.ready.iter().filter_map(|sender| match sender {
            ReadySender::QueuePair(slot) => Some(self.qps.roce(*slot)),
            ReadySender::Qp1 | ReadySender::Departed => None,
        });
        self.ready.len() <= LOOKED_AT
            && !self.qp1.has_to_send()
            && waiting.clone().all(RoceQueuePair::only_acknowledges)
            && waiting.any(RoceQueuePair::has_replies)
    }

    /// Fills a batch from one queue pair. What to do with that next.
    fn fill(
        &mut self,
        now: Time,
        slot: usize,
        max_segments: usize,
        buf: &mut [u8],
        transmit: &mut Option<Transmit>,
    ) -> After {
        let nic = &mut *self;
        let resources = nic.resources.at(now);
        let qp = nic.qps.roce_mut(slot);
        let capacity = buf.len().min(MAX_BATCH_LEN);
        let in_turn = qp.in_turn;
        loop {
            let so_far = transmit.as_ref();
            let start = so_far.map_or(0, |so_far| so_far.len);
            let batch = Batch {
                max_len: so_far.map_or(capacity, |so_far| so_far.segment_size.min(capacity - start)),
                in_turn,
                hop: so_far.map(Transmit::hop),
            };
            let (emitted, hop) = qp.emit(resources, &batch, &mut buf[start..]);
            match emitted {
                Emit::Packet(len) => {
                    let index = transmit.as_ref().map_or(0, |so_far| so_far.segments);
                    icrc::seal(&hop.flow, index as u16, &mut buf[start..start + len]);
                    let so_far = transmit.get_or_insert_with(|| Transmit::empty(&hop, len));
                    so_far.len += len;
                    so_far.segments += 1;
                    // Most batches are one short message: asking again costs as much as writing it.
                    if !qp.has_to_send() {
                        return After::Quiet;
                    }
                    if !so_far.has_room(max_segments, &nic.batch_limits) {
                        return After::More;
                    }
                }
                // With an empty batch, no packet can be too long for a sane buffer: try no further.
                Emit::NotInBatch if transmit.is_some() => return After::More,
                Emit::NotInBatch | Emit::Idle => return After::Quiet,
                Emit::Window(bytes) => {
                    wait_for_window(qp, resources, slot, bytes);
                    return After::Quiet;
                }
                Emit::FairShare(bytes) => {
                    rest(qp, resources, slot, bytes);
                    return After::Quiet;
                }
                Emit::Failed => return After::Failed,
            }
        }
    }
}

/// The window to the peer has no room for so many bytes: the queue pair stands in line for it.
fn wait_for_window(qp: &mut RoceQueuePair, nic: &mut NicResources, slot: usize, bytes: u32) {
    let newcomer = qp.in_flight() == 0;
    if let (Some(peer), false) = (qp.roce.peer(nic), qp.in_line) {
        qp.in_line = true;
        peer.wait(slot, bytes, newcomer);
    }
}

/// It has its fair share of the window, and others wait for it.
fn rest(qp: &mut RoceQueuePair, nic: &mut NicResources, slot: usize, bytes: u32) {
    if let Some(peer) = qp.roce.peer(nic) {
        peer.on_fair_share(bytes);
        if !std::mem::replace(&mut qp.resting, true) {
            peer.rest(slot, bytes);
        }
    }
}

/// How a queue pair stands after it was asked for packets.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum After {
    /// It may have more.
    More,
    /// It has done its part without a packet, and may have more.
    Worked,
    /// It has nothing until something happens.
    Quiet,
    /// It failed.
    Failed,
}
