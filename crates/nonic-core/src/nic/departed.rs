//! Destroyed queue pairs that still answer their peers for a while.
//!
//! A requester that sends to a queue pair that does not exist hears nothing. It gives up when its retries have run out:
//! after seconds, although both hosts are alive. That happens when a program destroys its queue pair while the peer
//! still waits for an acknowledgement. So for as long as the queue pair's number rests, its peer is answered what
//! [`Departure`] says, at its address and queue pair number. Only a peer of our own kind is answered; others (rxe,
//! hardware) get the silence that they expect.

use super::receive::Integrity;
use super::transmit::Transmit;
use super::{Nic, ReadySender};
use crate::roce::departure::Departure;
use crate::roce::emit::Hop;
use crate::time::Time;
use nonic_wire::{Flow, Headers, ICRC_LEN, Packet, Qpn, icrc};
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

/// Answers that wait to be sent, at most.
const MAX_ANSWERS: usize = 64;
/// For one queue pair, at most one answer is sent in this time: its peer may have thousands of packets under way.
const PAUSE: Duration = Duration::from_millis(1);

/// What is remembered of destroyed queue pairs, and the answers to send for them.
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

    /// Whether this queue pair was destroyed lately, and its peer is where `src` is.
    pub(super) fn is_peer(&self, qpn: Qpn, (src, dst): (IpAddr, IpAddr)) -> bool {
        self.known
            .get(&qpn.value())
            .is_some_and(|left| left.hop.flow.dst == src && left.hop.flow.src == dst)
    }

    /// The number rests no more, or a queue pair has it.
    pub(super) fn forget(&mut self, qpn: Qpn) {
        self.known.remove(&qpn.value());
    }
}

impl Nic {
    /// A packet came for a queue pair that does not exist, or that does not take packets from its sender.
    #[cold]
    pub(super) fn handle_unclaimed(
        &mut self,
        now: Time,
        flow: &Flow,
        integrity: Integrity,
        bytes: &[u8],
        packet: &Packet<'_>,
    ) {
        self.resources.counters.rx_unclaimed += 1;
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

    /// The peer of a queue pair that was destroyed lately, if [`Nic::bid_farewell`] may tell it.
    pub fn departed_peer(&self, qpn: Qpn) -> Option<(IpAddr, Qpn)> {
        let departure = self.departed.known.get(&qpn.value()).filter(|left| left.kin)?;
        Some((departure.hop.flow.dst, departure.bth.dest_qp))
    }

    /// Tells the peer of a queue pair that was destroyed lately that it is gone. Not needed for a peer that the
    /// connection manager tells.
    pub fn bid_farewell(&mut self, qpn: Qpn) {
        let departure = self.departed.known.get(&qpn.value()).filter(|left| left.kin);
        if let (Some(departure), true) = (departure.copied(), self.departed.answers.len() < MAX_ANSWERS) {
            self.queue_answer(departure.hop, departure.farewell());
        }
    }

    fn queue_answer(&mut self, hop: Hop, answer: Headers) {
        if self.departed.answers.is_empty() {
            self.ready.push_back(ReadySender::Departed);
        }
        self.departed.answers.push_back((hop, answer));
    }

    /// Writes the next answer as a batch of one packet. The rest waits for the next turn.
    pub(super) fn transmit_departed(&mut self, buf: &mut [u8]) -> Option<Transmit> {
        let (hop, headers) = self.departed.answers.pop_front()?;
        if !self.departed.answers.is_empty() {
            self.ready.push_back(ReadySender::Departed);
        }
        let len = headers.emit(buf) + ICRC_LEN;
        icrc::seal(&hop.flow, 0, &mut buf[..len]);
        Some(Transmit::of_one(&hop, len))
    }
}
