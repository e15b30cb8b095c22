//! What processes of this host say to each other about an address: where they listen, what they hand over, and lanes.

use super::{MESSAGES_PER_CALL, UdpLink};
use crate::direct::{IncomingAccess, Reached};
use crate::host::{BlockName, Heard, InboxBuffer, InboxName, Message};
use crate::link::lane::{LaneLine, LaneSource};
use crate::link::{Deliver, Notice};
use nonic_core::Time;
use std::io;

impl UdpLink {
    /// What other processes of this host write. How many bytes of packets came, if anything did.
    pub(super) fn read_host(
        &mut self,
        now: Time,
        buffer: &mut InboxBuffer,
        deliver: &mut Deliver<'_>,
    ) -> io::Result<usize> {
        let mut heard = self.hear_answers(now);
        let mut bytes = 0;
        let udp_port = self.own.local_addr().port();
        let blocks = self.claims.iter_mut().map(|claim| {
            let block = claim.block();
            (Some(block), claim.inbox_mut())
        });
        let services = self
            .services
            .iter_mut()
            .map(|(_, claim)| (None, claim.inbox_mut()));
        for (block, inbox) in blocks.chain(services) {
            for _ in 0..MESSAGES_PER_CALL {
                let Ok(Some(message)) = inbox.recv(buffer) else {
                    break;
                };
                heard = true;
                match message {
                    Message::Handover(datagrams) => {
                        self.steering.stray();
                        self.counters.handed_in += 1;
                        bytes += datagrams.bytes.len();
                        deliver(&datagrams);
                    }
                    // Only a block is asked; a service answers all the same.
                    Message::WhereAreYou => inbox.reply(&Message::IAm { udp_port }),
                    Message::OfferLane { from, block: sender } => {
                        let fds = buffer.take_fds();
                        let taken = block.and_then(|block| {
                            let (number, who) = inbox.keep_last()?;
                            let line = LaneLine { block, number };
                            let ring = self.incoming.take(line, from, fds, &self.poller).ok()?;
                            Some((block, ring, who))
                        });
                        let (Some((block, ring, who)), Some(bell)) = (taken, self.incoming.bell()) else {
                            inbox.reply(&Message::LaneRefused);
                            continue;
                        };
                        let Some(direct) = &self.direct else {
                            inbox.reply_with(&Message::LaneTaken, &[bell]);
                            continue;
                        };
                        direct.publication.admit(IncomingAccess {
                            block: block.number(),
                            sender: (from.ip(), sender),
                            ring,
                            pid: who.pid,
                        });
                        inbox.reply_with(&Message::LaneTaken, &[bell, direct.publication.fd()]);
                    }
                    // Answers come on the line of the question.
                    Message::IAm { .. } | Message::LaneTaken | Message::LaneRefused => {}
                }
            }
        }
        self.close_ended_lanes(deliver);
        self.try_port_again(now);
        if heard {
            Ok(bytes)
        } else {
            Err(io::ErrorKind::WouldBlock.into())
        }
    }

    /// What the processes say that we have written to. Whether they said anything.
    fn hear_answers(&mut self, now: Time) -> bool {
        let mut worked = false;
        for _ in 0..MESSAGES_PER_CALL {
            let Some(heard) = self.outbox.poll() else { break };
            worked = true;
            match heard {
                Heard::IAm {
                    who: InboxName::Block(who),
                    udp_port,
                } => {
                    self.routes.answered(now, who, udp_port);
                    let from = LaneSource {
                        address: self.own.local_addr(),
                        block: self.claims.first().map_or(0, |claim| claim.block().number()),
                    };
                    self.outgoing.offer(now, who, from, &mut self.outbox);
                }
                Heard::Lane {
                    who: InboxName::Block(who),
                    taken,
                } => self.lane_answered(who, taken),
                Heard::LaneEnded(InboxName::Block(who)) => self.lane_ended(who),
                Heard::Gone(InboxName::Block(gone)) => {
                    self.lane_ended(gone);
                    self.notices.push_back(Notice::ProcessEnded {
                        ip: gone.address.ip,
                        block: gone.block,
                    });
                }
                // Services are not asked anything, and own no connections.
                _ => {}
            }
        }
        worked
    }

    /// The owner of a block has taken a lane of ours, or not.
    fn lane_answered(&mut self, who: BlockName, taken: bool) {
        let mut fds = self.outbox.take_fds().into_iter();
        let bell = fds.next().filter(|_| taken);
        let ring = self.outgoing.answered(who, bell);
        let (Some(ring), Some(direct), Some(published)) = (ring, &self.direct, fds.next()) else {
            return;
        };
        let pid = self.outbox.owner(who).and_then(|owner| owner.pid);
        let reached = pid
            .ok_or_else(|| io::ErrorKind::NotFound.into())
            .and_then(|pid| Reached::find(published, pid, ring));
        match reached {
            Ok(reached) => {
                self.counters.direct_peers += 1;
                direct.peers.insert(who.address.ip, who.block.number(), reached);
            }
            Err(_) => self.counters.direct_forbidden += 1,
        }
    }

    /// Nobody reads our lane to a block any more.
    fn lane_ended(&mut self, to: BlockName) {
        self.outgoing.ended(to);
        if let Some(direct) = &self.direct {
            direct.peers.remove(to.address.ip, to.block.number());
        }
    }

    /// Whoever sent on them has ended, or hung up.
    fn close_ended_lanes(&mut self, deliver: &mut Deliver<'_>) {
        for claim in &mut self.claims {
            let block = claim.block();
            while let Some(number) = claim.inbox_mut().take_ended_line() {
                let ring = self.incoming.ended(LaneLine { block, number }, deliver);
                if let (Some(ring), Some(direct)) = (ring, &self.direct) {
                    direct.publication.dismiss(&ring);
                }
            }
        }
    }
}
