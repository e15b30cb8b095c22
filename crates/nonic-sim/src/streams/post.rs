//! Posts the planned send requests and receives.

use super::model::{Cause, Mark, Phase, Trouble};
use super::{Check, Streams};
use crate::world::content::{Arena, pool};
use crate::world::model::{Atomic, Bad, Change, Kind, Source, Writing};
use crate::world::post::{RECEIVE, SHARED, SendData, wr_id};
use nonic_core::{PostError, QpState, RecvRefused, RecvRequest, RemoteAddress, SendOp, SendRequest};
use nonic_wire::iwarp::TerminateCode as Code;

/// A key that does not exist.
const NO_KEY: u32 = 0xdead_be01;

impl Streams {
    /// Posts a few requests, and comes back for the rest.
    pub(super) fn post_some(&mut self, number: usize) -> Check {
        let (before, mut over) = (self.sides[number].next_op, false);
        for _ in 0..self.prng.range(1, 6) {
            let side = &self.sides[number];
            let never = side.params.is_none() && matches!(side.phase, Phase::Closed);
            over = side.gone
                || never
                || side.next_op == side.ops.len()
                || side.posts_after_end > 2
                || !self.hosts[side.host].up;
            if over {
                break;
            }
            if side.params.is_none() || (side.leaving && side.ended.is_none()) {
                break;
            }
            if !self.post_next(number)? {
                break;
            }
        }
        let posted = self.sides[number].next_op > before;
        let delay_ns =
            300 + self.back_off(number, 0, posted) + self.prng.below(self.sides[number].pace_ns + 1);
        if !over {
            self.mark(delay_ns, Mark::Post(number));
        }
        self.attend(self.sides[number].host)
    }

    /// How much longer to wait, after another attempt to post.
    fn back_off(&mut self, number: usize, queue: usize, posted: bool) -> u64 {
        let limit_ns = match queue {
            0 => 20_000_000,
            // A message may be waiting.
            _ => self.config.receive_grace.as_nanos() as u64 / 8,
        };
        let backoff_ns = &mut self.sides[number].backoff_ns[queue];
        *backoff_ns = match posted {
            true => 0,
            false => (*backoff_ns * 2).clamp(1_000, limit_ns),
        };
        *backoff_ns
    }

    /// Posts the next request; whether there was room.
    fn post_next(&mut self, number: usize) -> Result<bool, String> {
        let index = self.sides[number].next_op;
        self.aim(number, index);
        let op = self.send_op(number, index);
        let data = self.send_data(number, index);
        let request = SendRequest {
            wr_id: wr_id(number, index),
            op,
            data: data.as_data(),
            flags: self.sides[number].ops[index].flags,
            destination: None,
        };
        let (now, qpn, host) = (self.now(), self.sides[number].qpn, self.sides[number].host);
        let side = &self.sides[number];
        match self.hosts[host].nic.post_send(now, qpn, &request) {
            Ok(()) => {
                self.posted(number, index);
                Ok(true)
            }
            Err(PostError::SendQueueFull) if side.outstanding.len() >= side.send_depth as usize => Ok(false),
            // A damaged Reply may have said that there can be none.
            Err(PostError::NoFetches) if self.is_blind(number) => {
                let side = &mut self.sides[number];
                side.ops.truncate(index);
                side.messages.retain(|message| *message < index);
                Ok(false)
            }
            Err(error) => Err(format!(
                "side {number}: post_send refused request {index}: {error} ({} outstanding)",
                side.outstanding.len()
            )),
        }
    }

    /// Notes that a request is in the queue, and what it may lead to.
    fn posted(&mut self, number: usize, index: usize) {
        self.operations += 1;
        let now_ns = self.now_ns;
        let side = &mut self.sides[number];
        side.next_op += 1;
        side.outstanding.push_back(index);
        side.posts_after_end += u32::from(side.ended.is_some());
        side.ops[index].posted_ns = now_ns;
        let peer = number ^ 1;
        let fault = match side.ops[index].kind {
            Kind::Write { cell, version, .. } => {
                self.cells[cell].posted = version;
                return;
            }
            Kind::Atomic { word, change, .. } => {
                let (qp, original) = (number, None);
                self.words[word].history.push(Atomic { qp, change, original });
                return;
            }
            Kind::Bad(Bad::LocalUnknownKey) => Cause::Fault(number, Code::RDMAP_CATASTROPHIC),
            Kind::Bad(bad) => Cause::Fault(peer, complaint(bad)),
            _ => return,
        };
        self.connections[number / 2].causes.push(fault);
    }

    /// Decides what a compare-and-swap compares with, now that more is known.
    fn aim(&mut self, number: usize, index: usize) {
        let Kind::Atomic {
            word, change, guess, ..
        } = self.sides[number].ops[index].kind
        else {
            return;
        };
        let history = &self.words[word].history;
        let change = match (change, guess) {
            (Change::Swap { swap, .. }, true) => {
                let latest = history.iter().rev().find_map(|entry| {
                    let original = entry.original?;
                    Some(entry.change.apply(original))
                });
                let compare = latest.unwrap_or_else(|| self.initial_word(word));
                Change::Swap { compare, swap }
            }
            (other, _) => other,
        };
        let entry = history.len();
        self.sides[number].ops[index].kind = Kind::Atomic {
            word,
            change,
            guess,
            entry,
        };
    }

    fn initial_word(&self, word: usize) -> u64 {
        let word = &self.words[word];
        let at = self.arenas[word.arena].shift + word.offset;
        u64::from_ne_bytes(pool()[at..at + 8].try_into().expect("eight bytes"))
    }

    fn send_op(&self, number: usize, index: usize) -> SendOp {
        let op = &self.sides[number].ops[index];
        let peer = &self.sides[number ^ 1];
        let whole = &self.arenas[peer.arena];
        let within = |offset: usize, export: Option<usize>| RemoteAddress {
            va: whole.iova + offset as u64,
            rkey: export.map_or(whole.key, |export| self.exports[export].key),
        };
        let pool_key = self.hosts[peer.host].pool_key;
        match op.kind {
            Kind::SendInvalidate { export } => SendOp::SendWithInvalidate(self.exports[export].key),
            Kind::Write { cell, how, .. } => {
                let cell = &self.cells[cell];
                let remote = within(cell.offset, cell.export);
                match how {
                    Writing::WithImmediate(immediate) => SendOp::WriteWithImmediate(remote, immediate),
                    _ => SendOp::Write(remote),
                }
            }
            Kind::ReadPool { offset } => SendOp::Read(RemoteAddress {
                va: u64::from(offset),
                rkey: pool_key,
            }),
            Kind::ReadCell { cell, .. } => {
                let cell = &self.cells[cell];
                SendOp::Read(within(cell.offset, cell.export))
            }
            Kind::Atomic { word, change, .. } => {
                let remote = within(self.words[word].offset, None);
                match change {
                    Change::Add(add) => SendOp::FetchAdd { remote, add },
                    Change::Swap { compare, swap } => SendOp::CompareSwap {
                        remote,
                        compare,
                        swap,
                    },
                }
            }
            Kind::LocalInvalidate { export } => SendOp::LocalInvalidate(self.exports[export].key),
            Kind::Bad(bad) => {
                let nowhere = RemoteAddress {
                    va: whole.iova,
                    rkey: NO_KEY,
                };
                // The first byte behind what the key covers.
                let behind = within(whole.covered(), None);
                match bad {
                    Bad::WriteOutOfBounds => SendOp::Write(behind),
                    Bad::WriteReadOnly => SendOp::Write(RemoteAddress {
                        va: 0,
                        rkey: pool_key,
                    }),
                    Bad::ReadUnknownKey => SendOp::Read(nowhere),
                    Bad::ReadOutOfBounds => SendOp::Read(RemoteAddress {
                        // The last byte of it is, if there is memory for the others.
                        va: behind.va - u64::from(op.length - 1).min(whole.covered() as u64),
                        ..behind
                    }),
                    Bad::AtomicUnaligned => SendOp::FetchAdd {
                        remote: within(4, None),
                        add: 1,
                    },
                    Bad::SendInvalidateUnknownKey => SendOp::SendWithInvalidate(NO_KEY),
                    Bad::LocalUnknownKey => SendOp::Send,
                    _ => SendOp::Write(nowhere),
                }
            }
            _ => SendOp::Send,
        }
    }

    fn send_data(&self, number: usize, index: usize) -> SendData {
        let side = &self.sides[number];
        let op = &side.ops[index];
        let (arena, pool_key) = (&self.arenas[side.arena], self.hosts[side.host].pool_key);
        let lkey = match op.kind {
            Kind::Bad(Bad::LocalUnknownKey) => NO_KEY,
            _ => pool_key,
        };
        match &op.source {
            Source::Inline(content) => SendData::Inline(content.bytes()),
            Source::Pool(content) => SendData::Sges(content.sges(0, lkey)),
            Source::Fetched(place, _) | Source::Target(place, _) => {
                SendData::Sges(place.sges(arena.iova, arena.key))
            }
        }
    }

    /// Posts receives, and comes back for the rest.
    pub(super) fn post_receives(&mut self, number: usize) -> Check {
        self.check_blocked(number)?;
        let side = &self.sides[number];
        let (host, arena) = (side.host, side.arena);
        if side.gone || side.closed || !self.hosts[host].up || side.next_receive == side.receives.len() {
            return Ok(());
        }
        if let Trouble::Starve {
            side: starved,
            receive,
            for_ns,
        } = self.connections[number / 2].trouble
        {
            if starved == number && receive == side.next_receive {
                // Once.
                let cause = Cause::Fault(number, Code::DDP_UNTAGGED_NO_BUFFER);
                self.connections[number / 2].causes.push(cause);
                self.connections[number / 2].trouble = Trouble::Quiet;
                self.mark(for_ns, Mark::Receive(number));
                return Ok(());
            }
        }
        let room = side.waiting.len() < side.recv_depth as usize;
        if room {
            let index = side.next_receive;
            let Arena { iova, key, .. } = self.arenas[arena];
            let sges = side.receives[index].buffer.sges(iova, key);
            let request = RecvRequest {
                wr_id: RECEIVE | wr_id(number, index),
                sges: &sges,
            };
            let qpn = side.qpn;
            self.hosts[host]
                .nic
                .post_recv(qpn, &request)
                .map_err(|error| format!("side {number}: post_recv refused receive {index}: {error}"))?;
            let side = &mut self.sides[number];
            side.next_receive += 1;
            side.waiting.push_back(index);
            if side.receives[index].short {
                let cause = Cause::Fault(number, Code::DDP_UNTAGGED_TOO_LONG);
                self.connections[number / 2].causes.push(cause);
            }
        }
        let delay_ns = match self.sides[number].next_receive < 3 {
            true => 0,
            false => 200 + self.sides[number].recv_pace_ns,
        };
        let delay_ns = delay_ns + self.back_off(number, 1, room);
        self.mark(delay_ns, Mark::Receive(number));
        self.attend(host)
    }

    /// Posts receives to a shared queue, and comes back for the rest.
    pub(super) fn post_shared_receives(&mut self, number: usize) -> Check {
        let (host, arena) = (self.srqs[number].host, self.srqs[number].arena);
        let srq = &self.srqs[number];
        if !self.hosts[host].up || srq.next == srq.receives.len() {
            return Ok(());
        }
        let before = srq.next;
        if let Some(queue) = srq.queue.clone() {
            let index = srq.next;
            let Arena { iova, key, .. } = self.arenas[arena];
            let sges = srq.receives[index].buffer.sges(iova, key);
            let request = RecvRequest {
                wr_id: RECEIVE | SHARED | wr_id(number, index),
                sges: &sges,
            };
            match queue.post(&request, self.hosts[host].nic.keys()) {
                Ok(()) => {
                    self.srqs[number].next += 1;
                    self.srqs[number].waiting.insert(index);
                }
                Err(RecvRefused::Full) => {}
                Err(error) => return Err(format!("SRQ {number} refused receive {index}: {error}")),
            }
            self.hosts[host].nic.wake_blocked_streams();
        }
        let posted = self.srqs[number].next > before;
        let idle = self.connections.iter().all(|connection| connection.done);
        if !idle {
            let pause_ns = &mut self.srqs[number].limit;
            *pause_ns = match posted {
                true => 3_000,
                false => (*pause_ns * 2).clamp(3_000, self.config.receive_grace.as_nanos() as usize / 8),
            };
            let delay_ns = *pause_ns as u64;
            self.mark(delay_ns, Mark::SharedReceive(number));
        }
        self.attend(host)
    }

    /// The state that verbs show of a side's queue pair.
    pub(super) fn state(&self, number: usize) -> Option<QpState> {
        let side = &self.sides[number];
        self.hosts[side.host].nic.qp_state(side.qpn)
    }
}

/// What a peer says about a request that it must refuse.
pub(super) fn complaint(bad: Bad) -> Code {
    match bad {
        Bad::WriteOutOfBounds => Code::DDP_TAGGED_BOUNDS,
        Bad::ReadUnknownKey | Bad::SendInvalidateUnknownKey => Code::RDMAP_INVALID_STAG,
        Bad::ReadOutOfBounds => Code::RDMAP_BOUNDS,
        Bad::AtomicUnaligned => Code::RDMAP_STREAM_CATASTROPHIC,
        _ => Code::DDP_TAGGED_INVALID_STAG,
    }
}
