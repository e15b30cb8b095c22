//! Posts what is planned: what a request is in the words of verbs, what the model notes when a queue has taken it, and that a
//! queue refuses nothing but what it has no room for.

use super::Check;
use super::content::POOL_COVERED;
use super::model::{Atomic, Model, Promise};
use super::request::{Bad, Change, Kind, Source, Writing};
use nonic_core::{
    Access, Data, Destination, Flush, FlushRange, Nic, Placement, PostError, RecvRefused, RecvRequest,
    RemoteAddress, SendOp, SendRequest, Sge, Time, WindowBind,
};

/// Everything that a key can permit.
pub(crate) const ALL_RIGHTS: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::FLUSH_GLOBAL)
    .union(Access::MW_BIND);

/// What a request carries, or where to put what it brings.
enum SendData {
    Inline(Vec<u8>),
    Sges(Vec<Sge>),
}

impl SendData {
    fn as_data(&self) -> Data<'_> {
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

/// The `wr_id` of a request or receive.
fn wr_id(owner: usize, index: usize) -> u64 {
    (owner as u64) << 24 | index as u64
}

/// The owner and index in a `wr_id`.
pub(crate) fn from_wr_id(wr_id: u64) -> (usize, usize) {
    let plain = wr_id & !(RECEIVE | SHARED);
    ((plain >> 24) as usize, (plain & 0xff_ffff) as usize)
}

impl Model {
    /// Decides what a compare-and-swap compares with, now that more is known.
    fn aim(&mut self, number: usize, index: usize) {
        let Kind::Atomic {
            word, change, guess, ..
        } = self.programs[number].ops[index].kind
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
        self.programs[number].ops[index].kind = Kind::Atomic {
            word,
            change,
            guess,
            entry: target.history.len(),
        };
    }

    /// Posts the next request of a program.
    pub(crate) fn post_request(
        &mut self,
        number: usize,
        now: Time,
        nic: &mut Nic,
        destination: Option<Destination>,
    ) -> Result<(), PostError> {
        let index = self.programs[number].next_op;
        self.aim(number, index);
        let data = self.send_data(number, index);
        let request = SendRequest {
            wr_id: wr_id(number, index),
            op: self.send_op(number, index),
            data: data.as_data(),
            flags: self.programs[number].ops[index].flags,
            destination,
        };
        // Some are posted as if the next one followed in the same list.
        let more = index % 3 != 0;
        nic.post_of_list(now, self.programs[number].qpn, &request, more)?;
        self.posted(number);
        Ok(())
    }

    /// The next request of a program was refused: that may only be because its queue is full.
    pub(crate) fn check_full(&self, number: usize, error: PostError) -> Check {
        let program = &self.programs[number];
        let (len, depth) = (program.outstanding.len(), program.send_depth as usize);
        match error {
            PostError::SendQueueFull if len >= depth => Ok(()),
            error => Err(format!(
                "QP {number}: post_send refused request {}: {error} ({len} of {depth} outstanding)",
                program.next_op
            )),
        }
    }

    /// Posts the next receive of a program; whether there was room.
    pub(crate) fn post_receive(&mut self, number: usize, nic: &mut Nic) -> Result<bool, String> {
        let program = &mut self.programs[number];
        let index = program.next_receive;
        let arena = &self.arenas[program.arena];
        let request = RecvRequest {
            wr_id: RECEIVE | wr_id(number, index),
            sges: &program.receives[index].buffer.sges(arena.iova, arena.key),
        };
        let (waiting, depth) = (program.waiting.len(), program.recv_depth as usize);
        match nic.post_recv(program.qpn, &request) {
            Ok(()) => {
                program.next_receive += 1;
                program.waiting.push_back(index);
                Ok(true)
            }
            Err(PostError::Receive(RecvRefused::Full)) if waiting >= depth => Ok(false),
            Err(error) => Err(format!(
                "QP {number}: post_recv refused receive {index}: {error} ({waiting} of {depth} waiting)"
            )),
        }
    }

    /// Posts the next receive of a shared queue; whether there was room.
    pub(crate) fn post_shared(&mut self, number: usize) -> Result<bool, String> {
        let srq = &mut self.srqs[number];
        let (index, waiting) = (srq.next, srq.waiting.len());
        let Some(queue) = &srq.queue else {
            return Ok(false);
        };
        let arena = &self.arenas[srq.arena];
        let request = RecvRequest {
            wr_id: RECEIVE | SHARED | wr_id(number, index),
            sges: &srq.receives[index].buffer.sges(arena.iova, arena.key),
        };
        match queue.post(&request) {
            Ok(()) => {
                srq.next += 1;
                srq.waiting.insert(index);
                Ok(true)
            }
            Err(RecvRefused::Full) if waiting >= srq.depth => Ok(false),
            Err(error) => Err(format!(
                "SRQ {number}: post refused receive {index}: {error} ({waiting} of {} waiting)",
                srq.depth
            )),
        }
    }

    /// A queue has taken the next request of a program: notes what follows from it.
    fn posted(&mut self, number: usize) {
        self.operations += 1;
        let program = &mut self.programs[number];
        let index = program.next_op;
        program.next_op += 1;
        program.outstanding.push_back(index);
        let op = &mut program.ops[index];
        op.posted_ns = self.now_ns;
        if op.kind.is_message() {
            program.messages.push(index);
        }
        match op.kind {
            Kind::Write { cell, version, .. } => self.cells[cell].posted = version,
            Kind::Atomic { word, change, .. } => {
                let word = &mut self.words[word];
                word.predicted = change.apply(word.predicted);
                word.history.push(Atomic {
                    qp: number,
                    change,
                    original: None,
                });
            }
            _ => {}
        }
    }

    /// What a request is for verbs.
    fn send_op(&self, number: usize, index: usize) -> SendOp {
        let program = &self.programs[number];
        let length = program.ops[index].length;
        match program.ops[index].kind {
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
        let peer = self.programs[number].peer.unwrap_or(number);
        self.programs[peer].pool_key
    }

    fn bad_op(&self, number: usize, bad: Bad, length: u32) -> SendOp {
        let peer = self.programs[number].peer.unwrap_or(number);
        let arena = &self.arenas[self.programs[peer].arena];
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
        // Where memory ends.
        let behind = RemoteAddress {
            va: arena.iova + arena.covered() as u64,
            rkey: arena.key,
        };
        let unaligned = RemoteAddress {
            va: arena.iova + 4,
            rkey: arena.key,
        };
        let (write_outside, read_outside) = match self.programs[number].promise {
            // Every segment of a WRITE names its place, and the first might be inside. A READ is one request.
            Promise::Written => {
                let inside = u64::from(length - 1).min(arena.covered() as u64);
                let read = RemoteAddress {
                    va: behind.va - inside,
                    ..behind
                };
                (behind, read)
            }
            // A WRITE names all of its place at once. A long READ is asked for in parts, of which the first might be inside.
            _ => (outside, behind),
        };
        match bad {
            Bad::WriteUnknownKey => SendOp::Write(unknown),
            Bad::WriteImmediateUnknownKey => SendOp::WriteWithImmediate(unknown, 7),
            Bad::WriteOutOfBounds => SendOp::Write(write_outside),
            Bad::WriteReadOnly => SendOp::Write(pool),
            Bad::ReadUnknownKey => SendOp::Read(unknown),
            Bad::ReadOutOfBounds => SendOp::Read(read_outside),
            Bad::AtomicWithoutRight => SendOp::FetchAdd { remote: pool, add: 1 },
            Bad::AtomicUnaligned => SendOp::FetchAdd {
                remote: unaligned,
                add: 1,
            },
            Bad::SendInvalidateUnknownKey => SendOp::SendWithInvalidate(arena.key ^ 0x55),
            Bad::LocalUnknownKey | Bad::LocalOutOfBounds => SendOp::Send,
            Bad::ReadIntoReadOnly => SendOp::Read(pool),
            Bad::LocalInvalidateForbidden => {
                SendOp::LocalInvalidate(self.arenas[self.programs[number].arena].key)
            }
        }
    }

    /// The scatter/gather list of a request, or its inline bytes.
    fn send_data(&self, number: usize, index: usize) -> SendData {
        let program = &self.programs[number];
        let op = &program.ops[index];
        let pool_key = program.pool_key;
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
                let arena = &self.arenas[program.arena];
                SendData::Sges(pieces.sges(arena.iova, arena.key))
            }
        }
    }

    /// How an export's window is bound, under the key it has.
    pub(crate) fn window_bind(&self, number: usize) -> WindowBind {
        let export = &self.exports[number];
        let arena = &self.arenas[export.arena];
        WindowBind {
            window: export.key,
            rkey: export.key,
            lkey: arena.key,
            va: arena.iova + export.offset as u64,
            length: u64::from(export.length),
            access: ALL_RIGHTS,
        }
    }
}
