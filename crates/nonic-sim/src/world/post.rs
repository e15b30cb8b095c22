//! Posts the planned send requests and receives, and notes what they may lead to.

use super::content::POOL_COVERED;
use super::model::{Bad, Change, Expect, Half, Kind, Life, Mark, Qp, Source, Target, Writing};
use super::{Check, World};
use nonic_core::{
    Data, Destination, Flush, FlushRange, Placement, PostError, Qpn, RecvRefused, RecvRequest, RemoteAddress,
    SendOp, SendRequest, Service, Sge,
};

/// What a request carries, or where to put what it brings.
pub(crate) enum SendData {
    Inline(Vec<u8>),
    Sges(Vec<Sge>),
}

impl SendData {
    pub(crate) fn as_data(&self) -> Data<'_> {
        match self {
            SendData::Inline(bytes) => Data::Inline(bytes),
            SendData::Sges(sges) => Data::Sges(sges),
        }
    }
}

/// Tells receives from sends in a `wr_id`.
pub(crate) const RECEIVE: u64 = 1 << 63;
/// Tells shared receives from private ones.
pub(crate) const SHARED: u64 = 1 << 62;

pub(crate) fn wr_id(owner: usize, index: usize) -> u64 {
    (owner as u64) << 24 | index as u64
}

/// The owner and index in a `wr_id`.
pub(crate) fn from_wr_id(wr_id: u64) -> (usize, usize) {
    let plain = wr_id & !(RECEIVE | SHARED);
    ((plain >> 24) as usize, (plain & 0xff_ffff) as usize)
}

impl World {
    /// Posts a few requests, and comes back for the rest.
    pub(super) fn post_some(&mut self, number: usize) -> Check {
        let burst = self.prng.range(1, 8);
        for _ in 0..burst {
            let qp = &self.qps[number];
            let over = matches!(qp.life, Life::Gone | Life::Overflowed | Life::Planned);
            if over || qp.next_op == qp.ops.len() || qp.posts_after_failure > 3 {
                return Ok(());
            }
            let room = self.post_next(number)?;
            // A queue pair whose peer is gone waits long.
            let longest_ns = if self.scenario.patient {
                200_000_000
            } else {
                2_000_000
            };
            let backoff_ns = &mut self.qps[number].backoff_ns;
            *backoff_ns = if room {
                0
            } else {
                (*backoff_ns * 2).clamp(2_000, longest_ns)
            };
            if !room {
                break;
            }
        }
        let pace_ns = self.qps[number].pace_ns;
        let delay_ns = 200 + self.qps[number].backoff_ns + self.prng.below(pace_ns + 1);
        self.fabric.mark(delay_ns, Mark::Post(number));
        Ok(())
    }

    /// Posts the next request; whether there was room.
    fn post_next(&mut self, number: usize) -> Result<bool, String> {
        let index = self.qps[number].next_op;
        let station = self.hosts[self.qps[number].host].station;
        self.aim(number, index);
        let op = self.send_op(number, index);
        let data = self.send_data(number, index);
        let request = SendRequest {
            wr_id: wr_id(number, index),
            op,
            data: data.as_data(),
            flags: self.qps[number].ops[index].flags,
            destination: self.destination(number, index),
        };
        let (now, qpn) = (self.fabric.now(), self.qps[number].qpn);
        let posted = self.fabric.nic_mut(station).post_send(now, qpn, &request);
        self.fabric.kick(station);
        match posted {
            Ok(()) => {
                self.posted(number, index);
                Ok(true)
            }
            Err(PostError::SendQueueFull) => {
                let qp = &self.qps[number];
                if qp.outstanding.len() < qp.send_depth as usize {
                    let (len, depth) = (qp.outstanding.len(), qp.send_depth);
                    return Err(format!(
                        "QP {number}: send queue full with {len} of {depth} outstanding"
                    ));
                }
                Ok(false)
            }
            Err(error) => Err(format!("QP {number}: post_send refused request {index}: {error}")),
        }
    }

    /// Decides what a compare-and-swap compares with, now that more is known.
    fn aim(&mut self, number: usize, index: usize) {
        let Kind::Atomic {
            word, change, guess, ..
        } = self.qps[number].ops[index].kind
        else {
            return;
        };
        let target = &self.words[word];
        let latest = target.history.iter().rev().find_map(|entry| {
            let original = entry.original.filter(|_| entry.qp == number)?;
            Some(entry.change.apply(original))
        });
        let known = if target.private {
            target.predicted
        } else {
            latest.unwrap_or(target.predicted)
        };
        let change = match change {
            Change::Swap { swap, .. } if guess => Change::Swap { compare: known, swap },
            other => other,
        };
        self.qps[number].ops[index].kind = Kind::Atomic {
            word,
            change,
            guess,
            entry: target.history.len(),
        };
    }

    /// A request was taken: note what follows from it.
    fn posted(&mut self, number: usize, index: usize) {
        self.note_posted(number, index);
        self.operations += 1;
        let now_ns = self.fabric.now().as_ns();
        let qp = &mut self.qps[number];
        qp.next_op += 1;
        qp.outstanding.push_back(index);
        qp.ops[index].posted_ns = now_ns;
        if qp.failed.is_some() || qp.life == Life::Error {
            qp.posts_after_failure += 1;
        }
        let (kind, peer, expect) = (qp.ops[index].kind, qp.peer, qp.ops[index].expect);
        if Qp::is_message(kind) {
            qp.messages.push(index);
        }
        if let (Some(peer), Service::Rc) = (peer, qp.service) {
            let refusable = matches!(expect, Expect::Refused(_)) || self.uses_fragile_key(kind);
            self.qps[peer].may_be_refused |= refusable;
        }
        match kind {
            Kind::Write { cell, version, .. } => self.cells[cell].posted = version,
            Kind::Atomic { word, change, .. } => {
                let word = &mut self.words[word];
                word.predicted = change.apply(word.predicted);
                word.history.push(super::model::Atomic {
                    qp: number,
                    change,
                    original: None,
                });
            }
            _ => {}
        }
    }

    /// Whether the key a request needs may go away.
    fn uses_fragile_key(&self, kind: Kind) -> bool {
        self.export_used(kind)
            .is_some_and(|export| self.exports[export].revocable || self.exports[export].revoked_ns.is_some())
    }

    /// The export a request reads or writes.
    pub(super) fn export_used(&self, kind: Kind) -> Option<usize> {
        match kind {
            Kind::Write { cell, .. } | Kind::ReadCell { cell, .. } => self.cells[cell].export,
            _ => None,
        }
    }

    fn send_op(&self, number: usize, index: usize) -> SendOp {
        let qp = &self.qps[number];
        let length = qp.ops[index].length;
        match qp.ops[index].kind {
            Kind::Send { immediate } | Kind::Datagram { immediate, .. } => match immediate {
                None => SendOp::Send,
                Some(immediate) => SendOp::SendWithImmediate(immediate),
            },
            Kind::SendInvalidate { export } => SendOp::SendWithInvalidate(self.exports[export].key),
            Kind::Write { cell, how, .. } => match how {
                Writing::Plain => SendOp::Write(self.cell_address(cell)),
                Writing::WithImmediate(immediate) => {
                    SendOp::WriteWithImmediate(self.cell_address(cell), immediate)
                }
                Writing::Atomic => SendOp::AtomicWrite(self.cell_address(cell)),
            },
            Kind::Flush { cell } => SendOp::Flush(Flush {
                remote: self.cell_address(cell),
                length: self.cells[cell].length,
                placement: Placement::GLOBAL,
                range: FlushRange::Named,
            }),
            Kind::ReadPool { offset } => SendOp::Read(RemoteAddress {
                va: u64::from(offset),
                rkey: self.peer_pool_key(number),
            }),
            Kind::ReadCell { cell, .. } => SendOp::Read(self.cell_address(cell)),
            Kind::Atomic { word, change, .. } => {
                let word = &self.words[word];
                let arena = &self.arenas[word.arena];
                let remote = RemoteAddress {
                    va: arena.iova + word.offset as u64,
                    rkey: arena.key,
                };
                match change {
                    Change::Add(add) => SendOp::FetchAdd { remote, add },
                    Change::Swap { compare, swap } => SendOp::CompareSwap {
                        remote,
                        compare,
                        swap,
                    },
                }
            }
            Kind::BindWindow { export } => SendOp::BindWindow(self.window_bind(export)),
            Kind::LocalInvalidate { export } => SendOp::LocalInvalidate(self.exports[export].key),
            Kind::Bad(bad) => self.bad_op(number, bad, length),
        }
    }

    fn cell_address(&self, cell: usize) -> RemoteAddress {
        let cell = &self.cells[cell];
        let arena = &self.arenas[cell.arena];
        RemoteAddress {
            va: arena.iova + cell.offset as u64,
            rkey: cell.export.map_or(arena.key, |export| self.exports[export].key),
        }
    }

    fn peer_pool_key(&self, number: usize) -> u32 {
        let peer = self.qps[number].peer.unwrap_or(number);
        self.hosts[self.qps[peer].host].pool_key
    }

    fn bad_op(&self, number: usize, bad: Bad, length: u32) -> SendOp {
        let peer = self.qps[number].peer.unwrap_or(number);
        let arena = &self.arenas[self.qps[peer].arena];
        let unknown = RemoteAddress {
            va: arena.iova,
            rkey: arena.key ^ 0x55,
        };
        let pool = RemoteAddress {
            va: 64,
            rkey: self.peer_pool_key(number),
        };
        // One byte too far.
        let outside = RemoteAddress {
            va: (arena.iova + arena.covered() as u64 + 1).wrapping_sub(u64::from(length)),
            rkey: arena.key,
        };
        // A long READ is asked for in parts, of which the first might be inside: begin where memory ends.
        let behind = RemoteAddress {
            va: arena.iova + arena.covered() as u64,
            rkey: arena.key,
        };
        let unaligned = RemoteAddress {
            va: arena.iova + 17,
            rkey: arena.key,
        };
        match bad {
            Bad::WriteUnknownKey => SendOp::Write(unknown),
            Bad::WriteImmediateUnknownKey => SendOp::WriteWithImmediate(unknown, 7),
            Bad::WriteOutOfBounds => SendOp::Write(outside),
            Bad::WriteReadOnly => SendOp::Write(pool),
            Bad::ReadUnknownKey => SendOp::Read(unknown),
            Bad::ReadOutOfBounds => SendOp::Read(behind),
            Bad::AtomicWithoutRight => SendOp::FetchAdd { remote: pool, add: 1 },
            Bad::AtomicUnaligned => SendOp::FetchAdd {
                remote: unaligned,
                add: 1,
            },
            Bad::SendInvalidateUnknownKey => SendOp::SendWithInvalidate(arena.key ^ 0x55),
            Bad::LocalUnknownKey | Bad::LocalOutOfBounds => SendOp::Send,
            Bad::ReadIntoReadOnly => SendOp::Read(pool),
            Bad::LocalInvalidateForbidden => SendOp::LocalInvalidate(self.arenas[self.qps[number].arena].key),
        }
    }

    /// The scatter/gather list of a request, or its inline bytes.
    fn send_data(&self, number: usize, index: usize) -> SendData {
        let qp = &self.qps[number];
        let op = &qp.ops[index];
        let pool_key = self.hosts[qp.host].pool_key;
        match (&op.source, op.kind) {
            (
                _,
                Kind::LocalInvalidate { .. }
                | Kind::BindWindow { .. }
                | Kind::Flush { .. }
                | Kind::Bad(Bad::LocalInvalidateForbidden),
            ) => SendData::Sges(Vec::new()),
            (Source::Pool(content), Kind::Bad(Bad::LocalUnknownKey)) => {
                SendData::Sges(content.sges(0, pool_key ^ 0x55))
            }
            (Source::Pool(_), Kind::Bad(Bad::LocalOutOfBounds)) => {
                let outside = Sge {
                    addr: POOL_COVERED + 1 - u64::from(op.length),
                    length: op.length,
                    lkey: pool_key,
                };
                SendData::Sges(vec![outside])
            }
            (Source::Pool(content), _) => SendData::Sges(content.sges(0, pool_key)),
            (Source::Inline(content), _) => SendData::Inline(content.bytes()),
            (Source::Fetched(pieces, _) | Source::Target(pieces, _), _) => {
                let arena = &self.arenas[qp.arena];
                SendData::Sges(pieces.sges(arena.iova, arena.key))
            }
        }
    }

    fn destination(&self, number: usize, index: usize) -> Option<Destination> {
        let qp = &self.qps[number];
        if let (Some(Half::Initiator), Some(peer)) = (qp.half, qp.peer) {
            return Some(Destination::srq(self.qps[peer].srq_number));
        }
        if qp.service != Service::Ud {
            return None;
        }
        let (to, wrong_qkey) = match self.qps[number].ops[index].kind {
            Kind::Datagram { to, wrong_qkey, .. } => (to, wrong_qkey),
            _ => (Target::Qp(number), false),
        };
        let (ip, qpn, qkey) = match to {
            Target::Qp(to) => (
                self.hosts[self.qps[to].host].ip,
                self.qps[to].qpn,
                self.qps[to].qkey,
            ),
            Target::Group => (self.scenario.group(), Qpn::MULTICAST, self.qps[number].qkey),
        };
        Some(Destination {
            gid_index: 0,
            ip,
            qpn,
            qkey: if wrong_qkey { qkey ^ 0x0100_0000 } else { qkey },
        })
    }

    /// Posts a few receives, and comes back for the rest.
    pub(super) fn post_receives(&mut self, number: usize) -> Check {
        let burst = self.prng.range(1, 8);
        for _ in 0..burst {
            let qp = &self.qps[number];
            let over = matches!(qp.life, Life::Gone | Life::Overflowed | Life::Planned);
            if over || qp.next_receive == qp.receives.len() {
                return Ok(());
            }
            let index = qp.next_receive;
            let arena = &self.arenas[qp.arena];
            let list = qp.receives[index].buffer.sges(arena.iova, arena.key);
            let request = RecvRequest {
                wr_id: RECEIVE | wr_id(number, index),
                sges: &list,
            };
            let (station, qpn) = (self.hosts[qp.host].station, qp.qpn);
            match self.fabric.nic_mut(station).post_recv(qpn, &request) {
                Ok(()) => {
                    let qp = &mut self.qps[number];
                    qp.next_receive += 1;
                    qp.waiting.push_back(index);
                    qp.may_be_refused |= qp.receives[index].short;
                }
                Err(PostError::Receive(RecvRefused::Full)) => {
                    let (waiting, depth) = (qp.waiting.len(), qp.recv_depth as usize);
                    if waiting < depth {
                        return Err(format!(
                            "QP {number}: receive queue full with {waiting} of {depth}"
                        ));
                    }
                    self.qps[number].receives_blocked = true;
                    return Ok(());
                }
                Err(error) => return Err(format!("QP {number}: post_recv refused: {error}")),
            }
            self.fabric.kick(station);
        }
        let pace_ns = self.qps[number].recv_pace_ns;
        let delay_ns = 300 + self.prng.below(pace_ns + 1);
        self.fabric.mark(delay_ns, Mark::Receive(number));
        Ok(())
    }

    /// The same for a shared receive queue.
    pub(super) fn post_shared(&mut self, number: usize) -> Check {
        let host = self.srqs[number].host;
        if self.hosts[host].crashed {
            return Ok(());
        }
        let Some(queue) = self.srqs[number].queue.clone() else {
            // Its host is yet to come.
            self.fabric.mark(50_000, Mark::SharedReceive(number));
            return Ok(());
        };
        let station = self.hosts[host].station;
        let burst = self.prng.range(1, 8);
        for _ in 0..burst {
            let srq = &mut self.srqs[number];
            if srq.next == srq.receives.len() {
                return Ok(());
            }
            let arena = &self.arenas[srq.arena];
            let list = srq.receives[srq.next].buffer.sges(arena.iova, arena.key);
            let request = RecvRequest {
                wr_id: RECEIVE | SHARED | wr_id(number, srq.next),
                sges: &list,
            };
            match queue.post(&request, self.fabric.nic(station).keys()) {
                Ok(()) => {
                    srq.waiting.insert(srq.next);
                    srq.next += 1;
                }
                Err(RecvRefused::Full) if srq.waiting.len() >= srq.depth => {
                    srq.blocked = true;
                    break;
                }
                Err(error) => return Err(format!("SRQ {number}: post refused: {error}")),
            }
        }
        let srq = &mut self.srqs[number];
        if !srq.armed && srq.limit > 0 && self.prng.percent(50) {
            queue.set_limit(srq.limit);
            srq.armed = true;
        }
        if !self.srqs[number].blocked {
            let delay_ns = 500 + self.prng.below(20_000);
            self.fabric.mark(delay_ns, Mark::SharedReceive(number));
        }
        Ok(())
    }
}
