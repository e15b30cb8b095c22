//! The reach: how far beyond the packets that came another one may lie and still be kept before its turn.
//!
//! A forged packet that is kept is executed later, unnoticed. A forger knows the addresses and queue pair numbers of a
//! connection, and has to guess the sequence number: each number that is kept is one that it may hit. So a responder
//! keeps as few as peers need: the numbers that are missing, and a batch beyond the last that came. A packet beyond
//! that counts as lost, and the peer is asked to go back.
//!
//! A peer that loses or reorders more than a batch at a time shows it: it goes back and retransmits a packet that was
//! not kept, with the same content. From then on twice that distance is allowed, for a while. A forger that does not
//! know what the peer sends cannot bring that about.

use crate::roce::extended_psn::ExtendedPsn;
use crate::time::Time;
use nonic_wire::{Headers, Packet};
use std::hash::{DefaultHasher, Hasher};
use std::time::Duration;

/// Packets beyond the last that came which are kept from every peer: what a sender of our kind gives to its kernel at a time.
const LEAST: u32 = 64;
/// The same at most, of a peer that was seen to need it.
pub(super) const MOST: u32 = 4096;
/// How long that is remembered.
const REMEMBERED: Duration = Duration::from_secs(10);

/// What was learned of a peer whose packets came from too far away.
#[derive(Debug, Default)]
pub(super) struct Reach {
    learned: u32,
    learned_at: Time,
    /// The first packet that came from too far away. If the peer sends the same content when it reaches that number, it
    /// was the peer's.
    refused: Option<Refused>,
}

#[derive(Copy, Clone, Debug)]
struct Refused {
    at: ExtendedPsn,
    distance: u32,
    digest: u64,
}

impl Reach {
    /// How many packets beyond the last that came are kept.
    pub(super) fn of(learned: Option<&Self>, now: Time) -> u32 {
        learned.map_or(LEAST, |reach| reach.at(now))
    }

    fn at(&self, now: Time) -> u32 {
        let fresh = now.since(self.learned_at) < REMEMBERED;
        if fresh { self.learned.max(LEAST) } else { LEAST }
    }

    /// A packet lay too far away, though no further than some may: by so many beyond the last that came.
    pub(super) fn refused(&mut self, at: ExtendedPsn, distance: u32, packet: &Packet<'_>) {
        self.refused.get_or_insert_with(|| Refused {
            at,
            distance,
            digest: digest(packet),
        });
    }

    /// The sequence has come to this packet.
    pub(super) fn came_to(&mut self, now: Time, at: ExtendedPsn, packet: &Packet<'_>) {
        let Some(refused) = self.refused.take_if(|refused| refused.at <= at) else {
            return;
        };
        if refused.at == at && refused.digest == digest(packet) {
            self.learned = self.at(now).max(refused.distance.saturating_mul(2)).min(MOST);
            self.learned_at = now;
        }
    }
}

/// Whether two packets ask for the same. A peer may ask for an acknowledgement with one copy and not with the other, and the network
/// may mark one.
pub(super) fn are_copies(one: &Packet<'_>, other: &Packet<'_>) -> bool {
    content(one) == content(other) && one.payload == other.payload
}

fn content(packet: &Packet<'_>) -> Headers {
    let mut headers = packet.headers;
    let bth = &mut headers.bth;
    (bth.ack_request, bth.fecn, bth.becn) = (false, false, false);
    (bth.resv6, bth.resv7, bth.pad) = (0, 0, 0);
    headers
}

fn digest(packet: &Packet<'_>) -> u64 {
    let mut headers = [0; Headers::MAX_LEN];
    let length = content(packet).emit(&mut headers);
    let mut hasher = DefaultHasher::new();
    hasher.write(&headers[..length]);
    hasher.write(packet.payload);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nonic_wire::{Bth, Opcode, Psn, Qpn};

    fn packet(psn: Psn, payload: &[u8]) -> Packet<'_> {
        Packet {
            headers: Headers::new(Bth::new(Opcode::RC_SEND_ONLY, Qpn::new(3), psn)),
            payload,
            icrc: [0; 4],
        }
    }

    fn start() -> ExtendedPsn {
        ExtendedPsn::starting_at(Psn::new(7))
    }

    /// What is learned when a packet was refused and this one comes in its turn.
    fn learned(distance: u32, refused: &[u8], came: &[u8]) -> u32 {
        let (mut reach, at) = (Reach::default(), start() + distance);
        reach.refused(at, distance, &packet(at.psn(), refused));
        let mut again = packet(at.psn(), came);
        again.headers.bth.ack_request = true;
        reach.came_to(Time::ZERO, start(), &packet(start().psn(), b"first"));
        reach.came_to(Time::ZERO, at, &again);
        reach.at(Time::ZERO)
    }

    #[test]
    fn a_packet_that_comes_again_shows_how_far_the_peer_reaches() {
        assert_eq!(learned(300, b"same", b"same"), 600);
        assert_eq!(learned(MOST, b"same", b"same"), MOST);
        assert_eq!(learned(300, b"forged", b"true"), LEAST);
    }

    #[test]
    fn it_is_forgotten() {
        let (mut reach, at) = (Reach::default(), start() + 300);
        reach.refused(at, 300, &packet(at.psn(), b"same"));
        reach.came_to(Time::ZERO, at, &packet(at.psn(), b"same"));
        assert_eq!(reach.at(Time::ZERO + REMEMBERED / 2), 600);
        assert_eq!(reach.at(Time::ZERO + REMEMBERED), LEAST);
    }

    #[test]
    fn one_that_never_comes_does_not_stand_in_the_way_of_the_next() {
        let mut reach = Reach::default();
        reach.refused(start() + 100, 100, &packet((start() + 100).psn(), b"forged"));
        // A READ took the number.
        reach.came_to(Time::ZERO, start() + 120, &packet((start() + 120).psn(), b""));
        let at = start() + 500;
        reach.refused(at, 380, &packet(at.psn(), b"same"));
        reach.came_to(Time::ZERO, at, &packet(at.psn(), b"same"));
        assert_eq!(reach.at(Time::ZERO), 760);
    }
}
