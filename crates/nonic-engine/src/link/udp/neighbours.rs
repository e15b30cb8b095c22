//! The messages that processes of this host exchange about an address: where they listen, packets they hand over, and
//! lanes.

use super::{MESSAGES_PER_CALL, UdpLink};
use crate::direct::{DirectLinks, IncomingAccess, Question, Reached};
use crate::host::survey::Steering;
use crate::host::{Block, BlockName, Delivery, Heard, Inbox, InboxBuffer, InboxName, Message};
use crate::link::lane::{IncomingLanes, LaneLine, LaneSource};
use crate::link::{Deliver, LinkCounters, Notice};
use crate::os::poller::Poller;
use nonic_core::Time;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

impl UdpLink {
    /// Reads what other processes of this host have written. How many bytes of packets came, if any message did.
    pub(super) fn read_host(
        &mut self,
        now: Time,
        buffer: &mut InboxBuffer,
        deliver: &mut Deliver<'_>,
    ) -> io::Result<usize> {
        let mut heard = self.hear_answers(now);
        self.ask_neighbours_for_memory();
        self.reached.iter().for_each(|(_, reached)| reached.tidy());
        let mut bytes = 0;
        let mut reading = InboxReading {
            udp_port: self.own.local_addr().port(),
            steering: &mut self.steering,
            incoming: &mut self.incoming,
            poller: &self.poller,
            direct: self.direct.as_ref(),
            counters: &mut self.counters,
        };
        let (mut hung_up, mut ended_lanes) = (false, Vec::new());
        self.names.read(|block, inbox| {
            if let Some(came) = reading.read(block, inbox, buffer, deliver) {
                heard = true;
                bytes += came;
            }
            hung_up |= inbox.take_ended();
            // Lanes are offered to blocks.
            let lines = std::iter::from_fn(|| inbox.take_ended_line());
            ended_lanes.extend(lines.filter_map(|number| {
                Some(LaneLine {
                    block: block?,
                    number,
                })
            }));
        });
        for lane in ended_lanes {
            self.close_lane(lane);
        }
        if hung_up {
            self.try_port_again(now);
        }
        if heard {
            Ok(bytes)
        } else {
            Err(io::ErrorKind::WouldBlock.into())
        }
    }

    /// Reads the answers of processes that we have written to. Whether there were any.
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
                        ourselves: who.address == self.address && self.names.has_block(who.block),
                    };
                    let ringer = || self.incoming.ringer(&self.poller);
                    self.outgoing.offer(now, who, from, &mut self.outbox, ringer);
                }
                Heard::Lane {
                    who: InboxName::Block(who),
                    taken,
                } => self.lane_answered(who, taken),
                Heard::Memory {
                    who: InboxName::Block(who),
                    number,
                    given,
                } => self.memory_answered(who, number, given),
                Heard::LaneEnded(InboxName::Block(who)) => self.lane_ended(who),
                Heard::Gone(InboxName::Block(gone)) => {
                    self.routes.forget(gone);
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
            .and_then(|pid| Reached::find(published, pid, ring, &self.forbidden_later));
        match reached {
            Ok(reached) => {
                self.counters.direct_peers += 1;
                let reached = Arc::new(reached);
                self.reached.push((who, Arc::clone(&reached)));
                direct.peers.insert(who.address.ip, who.block.number(), reached);
            }
            Err(_) => self.counters.direct_forbidden += 1,
        }
    }

    /// Sends the questions for memory of theirs that requests would have liked to find mapped.
    pub(super) fn ask_neighbours_for_memory(&mut self) {
        for (who, reached) in &self.reached {
            let Some(Question { key, number }) = reached.memory().question() else {
                continue;
            };
            let question = Message::MapMemory { key, number };
            if let Ok(Delivery::Sent) = self.outbox.post(*who, &question) {
                reached.memory().sent();
            }
        }
    }

    /// The owner of a block has given us memory of its, or not.
    fn memory_answered(&mut self, who: BlockName, number: u64, given: bool) {
        let memory = self.outbox.take_fds().into_iter().next().filter(|_| given);
        if let Some((_, reached)) = self.reached.iter().find(|(block, _)| *block == who) {
            self.counters.direct_mapped += u64::from(reached.memory_answered(number, memory));
        }
    }

    /// The reader of our lane to a block has left.
    fn lane_ended(&mut self, to: BlockName) {
        if let Some(lane) = self.outgoing.ended(to) {
            self.notices.push_back(Notice::LaneEnded(lane));
        }
        self.reached.retain(|(block, _)| *block != to);
        if let Some(direct) = &self.direct {
            direct.peers.remove(to.address.ip, to.block.number());
        }
    }

    /// The sender of an incoming lane has ended, or hung up.
    fn close_lane(&mut self, line: LaneLine) {
        let ring = self.incoming.ended(line);
        if let (Some(ring), Some(direct)) = (ring, &self.direct) {
            direct.publication.dismiss(&ring);
        }
    }
}

/// The parts of a link that messages of other processes concern, beside the inbox that they came to.
struct InboxReading<'a> {
    udp_port: u16,
    steering: &'a mut Steering,
    incoming: &'a mut IncomingLanes,
    poller: &'a Poller,
    direct: Option<&'a DirectLinks>,
    counters: &'a mut LinkCounters,
}

/// A lane that another process would like to send on.
struct LaneOffer {
    from: SocketAddr,
    /// The memory of its ring, and what wakes it.
    fds: Vec<OwnedFd>,
}

impl InboxReading<'_> {
    /// Reads one inbox: that of a block, or of a service. How many bytes of packets came, if anything did.
    fn read(
        &mut self,
        block: Option<Block>,
        inbox: &mut Inbox,
        buffer: &mut InboxBuffer,
        deliver: &mut Deliver<'_>,
    ) -> Option<usize> {
        let mut bytes = None;
        for _ in 0..MESSAGES_PER_CALL {
            let Ok(Some(message)) = inbox.recv(buffer) else {
                break;
            };
            let bytes = bytes.get_or_insert(0);
            match message {
                Message::Handover(datagrams) => {
                    self.steering.stray();
                    self.counters.handed_in += 1;
                    *bytes += datagrams.bytes.len();
                    deliver(&datagrams);
                }
                // Only a block is asked; a service answers all the same.
                Message::WhereAreYou => inbox.reply(&Message::IAm {
                    udp_port: self.udp_port,
                }),
                Message::OfferLane { from } => {
                    let fds = buffer.take_fds();
                    self.answer_lane(block, inbox, LaneOffer { from, fds });
                }
                Message::MapMemory { key, number } => self.answer_memory(inbox, key, number),
                // Answers come on the line of the question.
                Message::IAm { .. }
                | Message::LaneTaken
                | Message::LaneRefused
                | Message::MemoryGiven { .. }
                | Message::MemoryRefused { .. } => {}
            }
        }
        bytes
    }

    /// Takes a lane to one of our blocks, and lets its sender into our memory if that is allowed.
    fn answer_lane(&mut self, block: Option<Block>, inbox: &mut Inbox, offer: LaneOffer) {
        let LaneOffer { from, fds } = offer;
        let taken = block.and_then(|block| {
            let (number, who) = inbox.keep_last()?;
            let line = LaneLine { block, number };
            let (ring, bell) = self.incoming.take(line, from, fds, self.poller).ok()?;
            Some((ring, bell, who))
        });
        let Some((ring, bell, who)) = taken else {
            inbox.reply(&Message::LaneRefused);
            return;
        };
        let Some(direct) = self.direct else {
            inbox.reply_with(&Message::LaneTaken, &[bell.as_fd()]);
            return;
        };
        direct.publication.admit(IncomingAccess { ring, pid: who.pid });
        inbox.reply_with(&Message::LaneTaken, &[bell.as_fd(), direct.publication.fd()]);
    }

    /// Gives memory of ours to a process that asks for it, if it may have it.
    fn answer_memory(&mut self, inbox: &Inbox, key: u32, number: u64) {
        // A process that has a lane to us is of our user.
        let direct = self.direct.filter(|_| inbox.last_is_kept());
        let given = direct.and_then(|direct| {
            direct.publication.give_memory(key, number, |memory| {
                inbox.reply_with(&Message::MemoryGiven { number }, &[memory]);
            })
        });
        match given {
            Some(()) => self.counters.direct_given += 1,
            None => inbox.reply(&Message::MemoryRefused { number }),
        }
    }
}
