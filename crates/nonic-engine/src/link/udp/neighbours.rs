//! What processes of this host say to each other about an address: where they listen, what they hand over, and lanes.

use super::{MESSAGES_PER_CALL, UdpLink};
use crate::host::{Heard, InboxBuffer, InboxName, Message};
use crate::link::lane::LaneLine;
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
                    Message::OfferLane { from } => {
                        let fds = buffer.take_fds();
                        let taken = block.and_then(|block| {
                            let (number, who) = inbox.keep_last()?;
                            let line = LaneLine { block, number };
                            let memory = self.incoming.take(line, from, fds, &self.poller).ok()?;
                            Some((memory, who))
                        });
                        match taken {
                            Some(_) => inbox.reply(&Message::LaneTaken),
                            None => inbox.reply(&Message::LaneRefused),
                        }
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
                    let from = self.own.local_addr();
                    self.outgoing.offer(now, who, from, &mut self.outbox);
                }
                Heard::Lane {
                    who: InboxName::Block(who),
                    taken,
                } => {
                    self.outgoing.answered(who, taken);
                }
                Heard::LaneEnded(InboxName::Block(who)) => {
                    self.outgoing.ended(who);
                }
                Heard::Gone(InboxName::Block(gone)) => {
                    self.outgoing.ended(gone);
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

    /// Whoever sent on them has ended, or hung up.
    fn close_ended_lanes(&mut self, deliver: &mut Deliver<'_>) {
        for claim in &mut self.claims {
            let block = claim.block();
            while let Some(number) = claim.inbox_mut().take_ended_line() {
                self.incoming.ended(LaneLine { block, number }, deliver);
            }
        }
    }
}
