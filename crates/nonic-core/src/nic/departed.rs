//! Queue pairs that were destroyed lately: what is answered in their name.
//!
//! Whoever sends to a queue pair that does not exist hears nothing, and gives up when its retries have run out: after seconds, although
//! everybody is alive. A program that destroys its queue pair while the other side still waits for an acknowledgement brings that
//! about. So for as long as a number rests, its peer, at its address and queue pair number, is answered
//! what [`Departure`] says. Only a peer of our own kind is told; others (rxe, hardware) are left to the silence that they expect.

use super::receive::Integrity;
use super::transmit::Transmit;
use super::{Nic, Sender};
use crate::roce::departure::Departure;
use crate::roce::emit::Hop;
use crate::time::Time;
use nonic_wire::{Flow, Headers, ICRC_LEN, Packet, Qpn, icrc};
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

/// Answers that wait to be sent, at most.
const MAX_ANSWERS: usize = 64;
/// In the name of one queue pair, one answer is given in this time: its peer may have thousands of packets under way.
const PAUSE: Duration = Duration::from_millis(1);

/// What is left of destroyed queue pairs, and what is to be said for them.
#[derive(Debug, Default)]
pub(super) struct Departed {
    /// By number. There are no more than numbers that rest.
    known: HashMap<u32, Departure>,
    answers: VecDeque<(Hop, Headers)>,
}

impl Departed {
    /// A queue pair was destroyed, and had a peer if there is a departure.
    pub(super) fn note(&mut self, qpn: Qpn, departure: Option<Departure>) {
        if let Some(departure) = departure {
            self.known.insert(qpn.value(), departure);
        }
    }

    /// The number rests no more, or a queue pair has it.
    pub(super) fn forget(&mut self, qpn: Qpn) {
        self.known.remove(&qpn.value());
    }
}

impl Nic {
    /// A packet came for a queue pair that there is not, or that does not listen to its sender.
    #[cold]
    pub(super) fn handle_unclaimed(
        &mut self,
        now: Time,
        flow: &Flow,
        integrity: Integrity,
        bytes: &[u8],
        packet: &Packet<'_>,
    ) {
        self.counters.rx_unclaimed += 1;
        let bth = &packet.headers.bth;
        let Some(departure) = self.departed.known.get(&bth.dest_qp.value()).copied() else {
            return;
        };
        let of_peer = departure.service == bth.opcode.service()
            && departure.hop.flow.dst == flow.src
            && departure.hop.flow.src == flow.dst;
        let due = departure.answered_at.is_none_or(|at| at + PAUSE <= now);
        if !of_peer || !due || !bth.is_selective() || self.departed.answers.len() >= MAX_ANSWERS {
            return;
        }
        let (Some(answer), true) = (
            departure.answer(packet),
            self.verify(flow, integrity, self.config.lenient_icrc, bytes) && bth.is_default_partition(),
        ) else {
            return;
        };
        if let Some(departure) = self.departed.known.get_mut(&bth.dest_qp.value()) {
            departure.answered_at = Some(now);
        }
        self.queue_answer(departure.hop, answer);
    }

    /// The peer of a queue pair that was destroyed lately, if it may be told by [`Nic::bid_farewell`].
    pub fn departed_peer(&self, qpn: Qpn) -> Option<(IpAddr, Qpn)> {
        let departure = self.departed.known.get(&qpn.value()).filter(|left| left.kin)?;
        Some((departure.hop.flow.dst, departure.bth.dest_qp))
    }

    /// Tells the peer of a queue pair that was destroyed lately that it was. A peer that the connection manager tells need not be told
    /// twice.
    pub fn bid_farewell(&mut self, qpn: Qpn) {
        let departure = self.departed.known.get(&qpn.value()).filter(|left| left.kin);
        if let (Some(departure), true) = (departure.copied(), self.departed.answers.len() < MAX_ANSWERS) {
            self.queue_answer(departure.hop, departure.farewell());
        }
    }

    fn queue_answer(&mut self, hop: Hop, answer: Headers) {
        if self.departed.answers.is_empty() {
            self.ready.push_back(Sender::Departed);
        }
        self.departed.answers.push_back((hop, answer));
    }

    /// Writes the next answer as a batch of one packet. The rest waits for the next turn.
    pub(super) fn transmit_departed(&mut self, buf: &mut [u8]) -> Option<Transmit> {
        let (hop, headers) = self.departed.answers.pop_front()?;
        if !self.departed.answers.is_empty() {
            self.ready.push_back(Sender::Departed);
        }
        let len = headers.emit(buf) + ICRC_LEN;
        icrc::seal(&hop.flow, 0, &mut buf[..len]);
        Some(Transmit::of_one(&hop, len))
    }
}
