//! One queue of one host: an RDMA connection, its buffers, and the thread that waits for completions.
//!
//! A command lives in a [`Slot`] from the receive that brings it to the SEND that answers it; then the slot receives
//! again. So a host that sends more than it may finds no receive, and nothing grows. The thread that finishes a disk
//! access posts the answer itself, under the lock of [`Inner`]: the thread that waits for completions is not needed for
//! that, and never waits for a disk.

use super::{Event, Shared};
use crate::controller::{Controller, Pending, Queue, Response, Source, Step};
use crate::disk::Job;
use crate::wire::{COMPLETION_LENGTH, KeyedSgl, Status};
use nonic::{
    Completion, CompletionOpcode, CompletionQueue, Connection, Domain, Lease, MemoryError, Pool, QpCapacity,
    Rc, RefusedBatch, RemoteSlice,
};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Data of one queue that may be on its way at once. Commands beyond that wait.
const DATA_BYTES: usize = 16 << 20;

/// How much there is of everything.
pub(super) struct Shape {
    slots: usize,
    capsule: usize,
}

impl Shape {
    /// Twice the slots that the host may use: a slot is free again when its answer was *acknowledged*, and the host may send the
    /// next command before that.
    pub(super) fn of(queue: &Queue) -> Self {
        Shape {
            slots: 2 * usize::from(queue.depth()),
            capsule: queue.capsule_length(),
        }
    }

    /// Each slot has a receive, or a WRITE or READ and a SEND. One more is to ask whether the host is there.
    pub(super) fn capacity(&self) -> QpCapacity {
        QpCapacity {
            max_send_wr: 2 * self.slots as u32 + 1,
            max_recv_wr: self.slots as u32,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        }
    }
}

/// A queue's connection.
pub(super) struct QueueConnection {
    shared: Arc<Shared>,
    pool: Pool,
    completions: CompletionQueue,
    inner: Mutex<Inner>,
    is_admin: bool,
}

struct Inner {
    queue: Queue,
    connection: Connection<Rc>,
    slots: Vec<Slot>,
    /// Bytes of data that may still be taken up.
    room: usize,
    /// Commands that wait for room, oldest first.
    waiting: VecDeque<(usize, Step)>,
    /// Why it has ended.
    ended: Option<String>,
}

/// Where one command is.
#[derive(Default)]
struct Slot {
    /// The buffer of its capsule, unless it is posted or being written to the disk.
    capsule: Option<Lease>,
    /// The buffer of its answer, unless it is posted.
    answer: Option<Lease>,
    /// What to do when its data has come.
    when_fetched: Option<WhenFetched>,
}

enum WhenFetched {
    Connect(Pending),
    Write { at: u64, stable: bool, pending: Pending },
}

/// What to do with the disk.
enum Access {
    Read { at: u64, length: usize, to: KeyedSgl },
    Write { at: u64, data: WriteData, stable: bool },
    Flush,
}

/// What is written to the disk, and where its buffer belongs afterwards.
enum WriteData {
    Fetched(Lease),
    InCapsule(Lease, Range<usize>),
}

/// What must be done when nothing is locked any more.
#[derive(Default)]
struct Later {
    jobs: Vec<Job>,
    event: Option<Event>,
}

/// What a completion is of: in the lower bits of its number, below the slot's.
const RECEIVE: u64 = 0;
const ANSWER: u64 = 1;
const DATA: u64 = 2;

impl QueueConnection {
    /// Posts the receives.
    pub(super) fn new(
        shared: Arc<Shared>,
        domain: &Domain,
        pool: &Pool,
        completions: CompletionQueue,
        connection: Connection<Rc>,
        queue: Queue,
        shape: &Shape,
    ) -> Result<Self, MemoryError> {
        let is_admin = queue.qid() == 0;
        let mut inner = Inner {
            queue,
            connection,
            slots: Vec::new(),
            room: DATA_BYTES,
            waiting: VecDeque::new(),
            ended: None,
        };
        let answers = split(domain.lease(shape.slots * COMPLETION_LENGTH)?, COMPLETION_LENGTH);
        let capsules = split(domain.lease(shape.slots * shape.capsule)?, shape.capsule);
        for (index, (answer, capsule)) in answers.zip(capsules).enumerate() {
            inner.slots.push(Slot {
                answer: Some(answer),
                capsule: Some(capsule),
                when_fetched: None,
            });
            inner.receive(index);
        }
        Ok(QueueConnection {
            shared,
            pool: pool.clone(),
            completions,
            inner: Mutex::new(inner),
            is_admin,
        })
    }

    /// Serves the host until either end ends it; why it ended.
    pub(super) fn run(self: &Arc<Self>) -> String {
        loop {
            let timeout = self.lock().queue.poll_timeout();
            let left = timeout.map(|at| at.saturating_duration_since(Instant::now()));
            match self.completions.wait(left) {
                Ok(Some(completion)) => self.handle(completion),
                Ok(None) => {}
                Err(error) => self.end(&error.to_string()),
            }
            if let Some(reason) = self.check() {
                return reason;
            }
        }
    }

    /// Ends it; the host is told.
    pub(super) fn end(&self, reason: &str) {
        self.lock().end(reason);
    }

    pub(super) fn controller(&self) -> Option<Arc<Controller>> {
        self.lock().queue.controller().cloned()
    }

    /// Whether the host has said Connect.
    pub(super) fn is_connected(&self) -> bool {
        self.lock().queue.controller().is_some()
    }

    pub(super) fn is_admin(&self) -> bool {
        self.is_admin
    }

    /// Why it has ended, if it has by now.
    fn check(&self) -> Option<String> {
        let mut inner = self.lock();
        if let Some(reason) = inner.queue.handle_timeout(Instant::now()) {
            inner.end(reason);
        }
        inner.ended.clone()
    }

    fn handle(self: &Arc<Self>, completion: Completion) {
        let mut later = Later::default();
        let mut inner = self.lock();
        let (slot, kind) = ((completion.id >> 8) as usize, completion.id & 0xff);
        let length = match completion.result {
            Ok(length) => length,
            Err(status) => {
                let reason = inner.connection.closed().reason();
                return inner.end(&reason.map_or_else(|| status.to_string(), |reason| reason.to_string()));
            }
        };
        let Some(buffer) = completion.buffers.into_iter().next() else {
            return inner.end("a completion came without its buffer");
        };
        match kind {
            RECEIVE => {
                let step = inner.queue.handle(&buffer[..length], Instant::now());
                inner.slots[slot].capsule = Some(buffer);
                self.take_up(&mut inner, slot, step, &mut later);
            }
            ANSWER => {
                inner.slots[slot].answer = Some(buffer);
                inner.receive(slot);
            }
            _ if completion.opcode == CompletionOpcode::Read => {
                self.fetched(&mut inner, slot, buffer, &mut later);
            }
            _ => self.release(&mut inner, buffer.len(), &mut later),
        }
        drop(inner);
        self.finish(later);
    }

    fn finish(&self, later: Later) {
        for job in later.jobs {
            self.shared.disk_threads.submit(job);
        }
        if let Some(event) = later.event {
            (self.shared.watcher)(event);
        }
    }

    /// Begins a step, or queues it behind other steps that wait for room for their data.
    fn take_up(self: &Arc<Self>, inner: &mut Inner, slot: usize, step: Step, later: &mut Later) {
        let needed = room_for(&step);
        if needed > 0 && (needed > inner.room || !inner.waiting.is_empty()) {
            inner.waiting.push_back((slot, step));
            return;
        }
        inner.room -= needed;
        self.begin(inner, slot, step, later);
    }

    fn begin(self: &Arc<Self>, inner: &mut Inner, slot: usize, step: Step, later: &mut Later) {
        match step {
            Step::Respond(response) => inner.respond(slot, response),
            Step::Transfer { data, to, response } => match self.pool.lease_from(&data) {
                Ok(lease) => inner.write_and_respond(slot, lease, to, response),
                Err(error) => inner.end(&error.to_string()),
            },
            Step::Fetch {
                from: Source::Capsule(range),
                pending,
                ..
            } => match inner.slots[slot].capsule.take() {
                Some(capsule) => {
                    self.connect(inner, slot, pending, &capsule[range], later);
                    inner.slots[slot].capsule = Some(capsule);
                }
                None => inner.end("a capsule is missing"),
            },
            Step::Fetch {
                from: Source::Host(from),
                length,
                pending,
            } => self.fetch(inner, slot, from, length, WhenFetched::Connect(pending)),
            Step::DiskRead {
                at,
                length,
                to,
                pending,
            } => later
                .jobs
                .push(self.job(slot, Access::Read { at, length, to }, pending)),
            Step::DiskWrite {
                at,
                from: Source::Capsule(range),
                stable,
                pending,
                ..
            } => match inner.slots[slot].capsule.take() {
                Some(capsule) => {
                    let data = WriteData::InCapsule(capsule, range);
                    later
                        .jobs
                        .push(self.job(slot, Access::Write { at, data, stable }, pending));
                }
                None => inner.end("a capsule is missing"),
            },
            Step::DiskWrite {
                at,
                length,
                from: Source::Host(from),
                stable,
                pending,
            } => self.fetch(
                inner,
                slot,
                from,
                length,
                WhenFetched::Write { at, stable, pending },
            ),
            Step::DiskFlush { pending } => later.jobs.push(self.job(slot, Access::Flush, pending)),
            Step::Hold => inner.receive(slot),
            Step::End(reason) => inner.end(reason),
        }
    }

    /// Reads the host's memory.
    fn fetch(&self, inner: &mut Inner, slot: usize, from: KeyedSgl, length: usize, then: WhenFetched) {
        let lease = match self.pool.lease(length) {
            Ok(lease) => lease,
            Err(error) => return inner.end(&error.to_string()),
        };
        inner.slots[slot].when_fetched = Some(then);
        let posted = inner
            .connection
            .pair
            .sq
            .read(number(slot, DATA), lease, remote(from));
        if let Err(refused) = posted {
            inner.end(&refused.to_string());
        }
    }

    /// The data of a command has come.
    fn fetched(self: &Arc<Self>, inner: &mut Inner, slot: usize, data: Lease, later: &mut Later) {
        match inner.slots[slot].when_fetched.take() {
            Some(WhenFetched::Connect(pending)) => {
                self.connect(inner, slot, pending, &data, later);
                self.release(inner, data.len(), later);
            }
            Some(WhenFetched::Write { at, stable, pending }) => {
                let data = WriteData::Fetched(data);
                later
                    .jobs
                    .push(self.job(slot, Access::Write { at, data, stable }, pending));
            }
            None => inner.end("data came that nobody asked for"),
        }
    }

    fn connect(&self, inner: &mut Inner, slot: usize, pending: Pending, data: &[u8], later: &mut Later) {
        let response = inner.queue.handle_connect_data(pending, data, Instant::now());
        inner.respond(slot, response);
        if let Some(controller) = inner.queue.controller().filter(|_| self.is_admin) {
            later.event = Some(Event::HostConnected {
                host_nqn: controller.host_nqn.clone(),
                peer: inner.connection.peer_addr(),
                cntlid: controller.cntlid,
                kind: controller.kind,
            });
        }
    }

    /// Frees the room of data: steps that wait for room may go on, in their order.
    fn release(self: &Arc<Self>, inner: &mut Inner, bytes: usize, later: &mut Later) {
        inner.room += bytes;
        while let Some((slot, step)) = inner.waiting.pop_front() {
            let needed = room_for(&step);
            if needed > inner.room {
                inner.waiting.push_front((slot, step));
                return;
            }
            inner.room -= needed;
            self.begin(inner, slot, step, later);
        }
    }

    fn job(self: &Arc<Self>, slot: usize, access: Access, pending: Pending) -> Job {
        let connection = Arc::clone(self);
        Box::new(move || connection.access_disk(slot, access, pending))
    }

    /// Runs on a thread that may wait for the disk, with nothing locked until that is over.
    fn access_disk(self: &Arc<Self>, slot: usize, access: Access, pending: Pending) {
        let storage = &self.shared.storage;
        let statistics = &self.shared.statistics;
        let mut later = Later::default();
        match access {
            Access::Read { at, length, to } => {
                let read = self.pool.lease(length).map_err(|_| Status::INTERNAL_ERROR);
                let read = read.and_then(|mut lease| match storage.read_at(at, &mut lease) {
                    Ok(()) => Ok(lease),
                    Err(_) => Err(Status::UNRECOVERED_READ),
                });
                let mut inner = self.lock();
                let response = inner
                    .queue
                    .finish(pending, read.as_ref().map(drop).map_err(|status| *status));
                match read {
                    Ok(lease) => inner.write_and_respond(slot, lease, to, response),
                    Err(_) => {
                        inner.respond(slot, response);
                        self.release(&mut inner, length, &mut later);
                    }
                }
                statistics.read_bytes.fetch_add(length as u64, Ordering::Relaxed);
            }
            Access::Write { at, data, stable } => {
                let written = storage.write_at(at, data.bytes());
                let written = written.and_then(|()| if stable { storage.flush() } else { Ok(()) });
                let length = data.bytes().len() as u64;
                let mut inner = self.lock();
                match data {
                    WriteData::Fetched(lease) => self.release(&mut inner, lease.len(), &mut later),
                    WriteData::InCapsule(capsule, _) => inner.slots[slot].capsule = Some(capsule),
                }
                let response = inner
                    .queue
                    .finish(pending, written.map_err(|error| not_written(&error)));
                inner.respond(slot, response);
                statistics.written_bytes.fetch_add(length, Ordering::Relaxed);
            }
            Access::Flush => {
                let flushed = storage.flush().map_err(|error| not_written(&error));
                let mut inner = self.lock();
                let response = inner.queue.finish(pending, flushed);
                inner.respond(slot, response);
            }
        }
        self.finish(later);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WriteData {
    fn bytes(&self) -> &[u8] {
        match self {
            WriteData::Fetched(lease) => lease,
            WriteData::InCapsule(capsule, range) => &capsule[range.clone()],
        }
    }
}

impl Inner {
    fn end(&mut self, reason: &str) {
        if self.ended.is_none() {
            self.ended = Some(reason.to_owned());
            // It may have ended already; then there is no peer to tell.
            let _ = self.connection.shutdown();
        }
    }

    /// A slot is free: it waits for the next command.
    fn receive(&mut self, slot: usize) {
        let Some(capsule) = self.slots[slot].capsule.take() else {
            return self.end("a capsule is missing");
        };
        if let Err(refused) = self.connection.pair.rq.recv(number(slot, RECEIVE), capsule) {
            self.end(&refused.to_string());
        }
    }

    fn respond(&mut self, slot: usize, response: Response) {
        self.answer(slot, None, response);
    }

    /// The answer follows the data on the same queue pair, so the data is there when the answer is.
    fn write_and_respond(&mut self, slot: usize, data: Lease, to: KeyedSgl, response: Response) {
        self.answer(slot, Some((data, to)), response);
    }

    fn answer(&mut self, slot: usize, data: Option<(Lease, KeyedSgl)>, response: Response) {
        if self.ended.is_some() {
            return;
        }
        let Some(mut answer) = self.slots[slot].answer.take() else {
            return self.end("an answer's buffer is missing");
        };
        answer.copy_from_slice(&response.completion.emit());
        let sq = &mut self.connection.pair.sq;
        let posted: Result<bool, RefusedBatch> = sq.batch(|sq| {
            let data = data.map(|(data, to)| sq.write(number(slot, DATA), data, remote(to)));
            let id = number(slot, ANSWER);
            let sent = match response.invalidate {
                Some(key) => sq.send_with_invalidate(id, answer, key),
                None => sq.send(id, answer),
            };
            data.is_none_or(|data| data.is_ok()) && sent.is_ok()
        });
        match posted {
            Ok(true) => {}
            Ok(false) => self.end("an answer could not be posted"),
            Err(refused) => self.end(&refused.to_string()),
        }
    }
}

/// Bytes of data that a step takes up.
fn room_for(step: &Step) -> usize {
    match step {
        Step::Transfer { data, .. } => data.len(),
        Step::DiskRead { length, .. } => *length,
        Step::Fetch { from, length, .. } | Step::DiskWrite { from, length, .. } => match from {
            Source::Host(_) => *length,
            // It is in the slot's own buffer.
            Source::Capsule(_) => 0,
        },
        _ => 0,
    }
}

/// What the host is told of data that the disk did not take. A host repeats what failed, but for want of room.
fn not_written(error: &io::Error) -> Status {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            Status::CAPACITY_EXCEEDED.finally()
        }
        _ => Status::WRITE_FAULT,
    }
}

/// Cuts a lease into pieces of one length.
fn split(lease: Lease, length: usize) -> impl Iterator<Item = Lease> {
    let mut rest = Some(lease);
    std::iter::from_fn(move || {
        let whole = rest.take().filter(|rest| rest.len() >= length)?;
        let (piece, left) = whole.split_at(length);
        rest = Some(left);
        Some(piece)
    })
}

fn number(slot: usize, kind: u64) -> u64 {
    (slot as u64) << 8 | kind
}

fn remote(sgl: KeyedSgl) -> RemoteSlice {
    RemoteSlice {
        va: sgl.address,
        rkey: sgl.key,
        len: sgl.length.into(),
    }
}
