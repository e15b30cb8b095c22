//! Runs the protocol's machine on a queue pair: posts what it wants posted and feeds it the completions.
//!
//! There is no thread here. Each task or thread that waits for the channel drives it for all others: tasks through
//! [`Shared::poll_with`], threads through [`Shared::wait_with`]. What one of them finds for another wakes the other.
//!
//! Read first: [`State::pump`] (machine to queue pair) and [`State::complete`] (queue pair to machine).

mod reads;
mod waiting;

use crate::cutoff::{Cutoff, CutoffSource};
use crate::error::{Error, Lost};
use crate::message::{Message, Outbound, Source};
use crate::options::Options;
use crate::protocol::{Action, Frame, HEADER_BYTES, Machine, ProtocolError, ReadId, Remote};
use crate::registration_cache::RegistrationCache;
use nonic::{
    Access, Completion, CompletionQueue, Connection, Exposed, Lease, Pool, Rc, RemoteSlice, Status, Wire,
};
use reads::Reads;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};
pub(crate) use waiting::block_on;
use waiting::{Silence, Tasks};

/// Messages up to this length are copied out of the buffer they come in: a program that keeps many small ones should not keep
/// large buffers.
const COPIED: usize = 1024;
/// Completions that are taken at a time.
const BATCH: usize = 32;

/// What a request was, in the number it is posted under.
const RECEIVE: u64 = 0;
const SEND: u64 = 1;
const READ: u64 = 2;
const PROBE: u64 = 3;
const CONFIRM: u64 = 4;

/// What the machine keeps of a message that is sent.
pub(crate) enum Outgoing {
    /// Payload behind room for a header.
    Framed(Lease),
    /// Payload alone.
    Bare(Lease),
    /// Payload that the peer will read.
    Offered { _exposed: Exposed },
}

/// A channel, as both of its halves share it.
pub(crate) struct Shared {
    pub(crate) queue: CompletionQueue,
    state: Mutex<State>,
    tasks: Arc<Tasks>,
    /// Threads in [`Shared::wait_with`].
    sleepers: AtomicUsize,
    /// Counts what was found by one of several that wait.
    generation: AtomicU64,
}

/// The state that the driving task or thread locks.
pub(crate) struct State {
    pub(crate) machine: Machine<Outgoing, Message>,
    pub(crate) connection: Connection<Rc>,
    pub(crate) lost: Option<Lost>,
    pub(crate) cutoff_source: CutoffSource,
    pool: Pool,
    cache: RegistrationCache,
    reads: Reads,
    silence: Silence,
    /// A SEND completes when the peer's NIC has it: RoCE has acknowledgements, TCP keeps its own to itself.
    acknowledged: bool,
    /// Completions seen, to know whether something changed.
    completions: u64,
}

impl Shared {
    /// Begins: receives are posted, and the connecting side says hello.
    pub(crate) fn new(
        wire: Wire,
        machine: Machine<Outgoing, Message>,
        connection: Connection<Rc>,
        queue: CompletionQueue,
        pool: Pool,
        cache: RegistrationCache,
        options: &Options,
    ) -> Result<Arc<Self>, Error> {
        let mut state = State {
            machine,
            connection,
            lost: None,
            cutoff_source: match options.cutoff {
                Some(_) => CutoffSource::Fixed,
                None => CutoffSource::Usual,
            },
            pool,
            cache,
            reads: Reads::default(),
            silence: Silence::new(options.probe_interval, options.silence_limit),
            acknowledged: wire == Wire::Roce,
            completions: 0,
        };
        for _ in 0..Machine::<Outgoing, Message>::receives(options.credits) {
            let lease = state.pool.lease(options.frame_bytes as usize)?;
            state.post_receive(lease);
        }
        state.pump();
        Ok(Arc::new(Shared {
            queue,
            state: Mutex::new(state),
            tasks: Arc::default(),
            sleepers: AtomicUsize::new(0),
            generation: AtomicU64::new(0),
        }))
    }
}

impl State {
    /// Registered memory for a message of `len` bytes.
    pub(crate) fn buffer(&self, len: usize) -> Result<Lease, Error> {
        Ok(self.cache.lease(len)?)
    }

    /// Up to which length messages go in frames.
    pub(crate) fn cutoff(&self) -> Cutoff {
        let source = match self.machine.is_cutoff_told() {
            true => CutoffSource::Measured,
            false => self.cutoff_source,
        };
        let bytes = self.machine.cutoff();
        Cutoff { bytes, source }
    }

    /// Why nothing goes any more.
    pub(crate) fn ended(&self) -> Error {
        self.lost.map_or(Error::Closed, Error::Lost)
    }

    /// Whether a message of this length can be handed over now; without one, whether any can.
    pub(crate) fn can_send(&self, length: Option<u64>) -> Result<bool, Error> {
        if let Some(length) = length {
            if length > self.machine.longest() {
                let longest = self.machine.longest();
                return Err(Error::TooLong { length, longest });
            }
        }
        self.machine.can_send(length).map_err(|_| self.ended())
    }

    /// Hands a message over, whole; only if [`State::can_send`]. On an error nothing was handed over.
    pub(crate) fn send(&mut self, outbound: Outbound<'_>) -> Result<(), Error> {
        let length = outbound.len() as u64;
        if self.machine.is_eager(length) {
            let payload = self.framed(outbound.0)?;
            self.machine.send(payload, length);
        } else {
            let (payload, remote) = self.offered(outbound.0)?;
            self.machine.offer(payload, remote, length);
        }
        self.pump();
        Ok(())
    }

    /// A payload as it goes in a frame.
    pub(crate) fn framed(&self, source: Source<'_>) -> Result<Outgoing, Error> {
        Ok(match source {
            Source::Lease(lease) => Outgoing::Bare(lease),
            source => {
                let bytes = source.bytes().unwrap_or_default();
                let mut lease = self.pool.lease(HEADER_BYTES + bytes.len())?;
                lease[HEADER_BYTES..].copy_from_slice(bytes);
                Outgoing::Framed(lease)
            }
        })
    }

    /// A payload as the peer can read it.
    pub(crate) fn offered(&self, source: Source<'_>) -> Result<(Outgoing, Remote), Error> {
        let lease = match source {
            Source::Lease(lease) => lease,
            source => {
                let bytes = source.bytes().unwrap_or_default();
                let mut lease = self.cache.lease(bytes.len())?;
                lease.copy_from_slice(bytes);
                lease
            }
        };
        let exposed = lease.expose(Access::REMOTE_READ)?;
        let slice = exposed.remote();
        let remote = Remote {
            va: slice.va,
            rkey: slice.rkey,
        };
        Ok((Outgoing::Offered { _exposed: exposed }, remote))
    }

    /// Posts what the machine wants posted.
    pub(crate) fn pump(&mut self) {
        while let Some(action) = self.machine.poll() {
            let posted = match action {
                Action::Send { frame, payload } => self.post_frame(&frame, payload),
                Action::Read { id, remote, length } => self.begin_read(id, remote, length),
                Action::Confirm => self.read_nothing(CONFIRM),
            };
            if let Err(error) = posted {
                self.fail(error);
            }
        }
    }

    fn post_frame(&mut self, frame: &Frame, payload: Option<Outgoing>) -> Result<(), Lost> {
        let header = |pool: &Pool| {
            let mut lease = pool.lease(frame.bytes()).map_err(|_| Lost::Exhausted)?;
            frame.emit(&mut lease);
            Ok::<_, Lost>(lease)
        };
        let sq = &mut self.connection.pair.sq;
        let posted = match payload {
            Some(Outgoing::Framed(mut lease)) => {
                frame.emit(&mut lease);
                sq.send(SEND, lease)
            }
            Some(Outgoing::Bare(lease)) => sq.send(SEND, vec![header(&self.pool)?, lease]),
            Some(Outgoing::Offered { .. }) | None => sq.send(SEND, header(&self.pool)?),
        };
        posted.map_err(|_| Lost::Exhausted)
    }

    fn post_receive(&mut self, lease: Lease) {
        if self.connection.pair.rq.recv(RECEIVE, lease).is_err() && self.lost.is_none() {
            self.fail(Lost::Exhausted);
        }
    }

    fn begin_read(&mut self, id: ReadId, remote: Remote, length: u64) -> Result<(), Lost> {
        if length == 0 {
            self.machine.read_done(id, Message::read(None));
            return Ok(());
        }
        let len = usize::try_from(length).map_err(|_| Lost::Exhausted)?;
        let lease = self.cache.lease(len).map_err(|_| Lost::Exhausted)?;
        self.reads.begin(id, remote, lease);
        self.reads.post(&mut self.connection.pair.sq)
    }

    /// Posts a READ of nothing: the peer's NIC answers it after all that was posted before, without its program.
    fn read_nothing(&mut self, id: u64) -> Result<(), Lost> {
        let nothing = RemoteSlice {
            va: 0,
            rkey: 0,
            len: 0,
        };
        let posted = self.connection.pair.sq.read(id, (), nothing);
        posted.map_err(|_| Lost::Exhausted)
    }

    /// Takes what has completed, and drives the NIC if nothing has. Whether something had.
    pub(crate) fn drive(&mut self, queue: &CompletionQueue) -> bool {
        let mut batch: SmallVec<[Completion; BATCH]> = SmallVec::new();
        let polled = queue.poll_many(BATCH, |completion| batch.push(completion));
        if polled.is_err() {
            self.fail(Lost::Exhausted);
        }
        let some = !batch.is_empty();
        for completion in batch {
            self.complete(completion);
        }
        if some {
            self.pump();
        }
        some
    }

    /// Something has completed.
    pub(crate) fn complete(&mut self, completion: Completion) {
        self.completions += 1;
        let Completion {
            id, result, buffers, ..
        } = completion;
        let length = match result {
            Ok(length) => length,
            Err(status) => return self.failed(status),
        };
        let outcome = match (id, buffers.into_iter().next()) {
            (RECEIVE, Some(lease)) => self.received(lease, length),
            (READ, Some(lease)) => self.read(lease),
            (SEND, _) => {
                match self.acknowledged {
                    true => self.machine.delivered(),
                    false => self.machine.sent(),
                }
                Ok(())
            }
            (CONFIRM, _) => {
                self.machine.confirmed();
                Ok(())
            }
            _ => {
                self.silence.answered();
                Ok(())
            }
        };
        if let Err(error) = outcome {
            self.fail(error);
        }
    }

    fn received(&mut self, lease: Lease, length: usize) -> Result<(), Lost> {
        let frame = Frame::parse(&lease[..length]).map_err(ProtocolError::from)?;
        let outcome = if length > HEADER_BYTES + COPIED {
            let fresh = self.pool.lease(lease.len()).map_err(|_| Lost::Exhausted)?;
            self.post_receive(fresh);
            let message = || Message::in_frame(lease, HEADER_BYTES, length);
            self.machine.receive(&frame, message)
        } else {
            let message = || Message::copied(&lease[HEADER_BYTES..length]);
            let outcome = self.machine.receive(&frame, message);
            self.post_receive(lease);
            outcome
        };
        Ok(outcome.map_err(ProtocolError::from)?)
    }

    fn read(&mut self, part: Lease) -> Result<(), Lost> {
        if let Some((id, whole)) = self.reads.completed(part)? {
            self.machine.read_done(id, Message::read(Some(whole)));
        }
        self.reads.post(&mut self.connection.pair.sq)
    }

    /// A request failed: the reason is that of the connection, if it has ended.
    fn failed(&mut self, status: Status) {
        let reason = self.connection.closed().reason();
        self.fail(reason.map_or(Lost::Failed(status), Lost::Closed));
    }

    /// The channel ends here. The first reason stays.
    pub(crate) fn fail(&mut self, error: Lost) {
        if self.lost.is_some() {
            return;
        }
        self.lost = Some(error);
        self.machine.close();
        // The peer is told, and what is posted comes back.
        let _ = self.connection.shutdown();
    }
}
