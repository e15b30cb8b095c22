//! Completion queues: poll, wait or await.
//!
//! Some requests have a completion that the program takes out, others somebody who waits for just that one (see [`crate::Request`]).
//! Whoever looks into the queue takes what there is, for everybody: what others wait for is delivered to them, and what the program
//! polls for is set aside until it does.

mod waiting;

use crate::cm_dispatcher::EventChannel;
use crate::device::Device;
use crate::memory::{Buffers, Lease};
use crate::outstanding::{Due, Outstanding, Work, WorkQueueId};
use crate::posting::Refused;
use crate::ticket::{Outcome, Ticket};
use nonic_core::{Arm, CompletionOpcode, CqOverflow, Data, PostError, Qpn, RecvRequest, SendRequest, Status};
use nonic_engine::{Doorbell, Waits};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// Completions that are taken out at a time.
const BATCH: usize = 32;

/// A finished request, and its buffers back.
#[derive(Debug)]
pub struct Completion {
    /// The number given when it was posted.
    #[doc(alias = "wr_id")]
    pub id: u64,
    /// Bytes received or fetched (zero for sends and writes), or what went wrong.
    pub result: Result<usize, Status>,
    /// What it was.
    pub opcode: CompletionOpcode,
    /// Which queue pair it belonged to.
    #[doc(alias = "qp_num")]
    pub qpn: Qpn,
    /// The peer's immediate data.
    #[doc(alias("imm_data", "IBV_WC_WITH_IMM"))]
    pub immediate: Option<u32>,
    /// For datagrams: the queue pair that sent it. The first 40 bytes of the buffer are the network header.
    #[doc(alias("src_qp", "IBV_WC_GRH"))]
    pub source: Option<Qpn>,
    /// The buffers the request was posted with, whatever the result.
    pub buffers: SmallVec<[Lease; 1]>,
}

/// Why waiting failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// Completions were lost.
    #[error(transparent)]
    Overflow(#[from] CqOverflow),
    /// The operating system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A completion queue. Clones are handles to the same one.
#[derive(Clone, Debug)]
pub struct CompletionQueue {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    device: Device,
    pub(crate) core: Arc<nonic_core::CompletionQueue>,
    doorbell: Arc<Doorbell>,
    waits: Waits,
    /// Room the program asked for.
    asked_for: usize,
    /// Requests under way, by the number the NIC knows them by.
    outstanding: Mutex<Outstanding>,
    aside: Aside,
    futures: Arc<Futures>,
}

/// Completions for whoever polls, taken out by somebody who waits for another one.
#[derive(Debug, Default)]
struct Aside {
    /// How many there are, readable without the lock.
    count: AtomicUsize,
    completions: Mutex<VecDeque<Completion>>,
}

impl Aside {
    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    fn push(&self, completion: Completion) {
        let mut completions = self.lock();
        completions.push_back(completion);
        self.count.store(completions.len(), Ordering::Release);
    }

    fn pop(&self) -> Option<Completion> {
        if self.is_empty() {
            return None;
        }
        let mut completions = self.lock();
        let first = completions.pop_front();
        self.count.store(completions.len(), Ordering::Release);
        first
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Completion>> {
        self.completions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The futures that wait for requests of one queue. The doorbell wakes all of them: any one might be dropped or not be polled, and
/// then the others would sleep for ever. The first that is polled takes out what there is.
#[derive(Debug, Default)]
struct Futures {
    waiting: Mutex<Vec<Weak<Ticket>>>,
}

impl Futures {
    /// Has whoever waits for it woken at the next ring. Whether it is the first, so that the doorbell must be told.
    fn join(&self, ticket: &Arc<Ticket>) -> bool {
        let mut waiting = self.lock();
        if ticket.is_new_at_the_doorbell() {
            waiting.push(Arc::downgrade(ticket));
        }
        waiting.len() == 1
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Ticket>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Futures {
    fn wake(self: Arc<Self>) {
        let waiting = std::mem::take(&mut *self.lock());
        waiting
            .iter()
            .filter_map(Weak::upgrade)
            .for_each(|ticket| ticket.rouse());
    }
}

impl Device {
    /// A new completion queue with room for `capacity` completions. With each queue pair that completes to it, it gets as much more
    /// as that needs, so that it never overflows.
    #[doc(alias = "ibv_create_cq")]
    pub fn completion_queue(&self, capacity: usize) -> io::Result<CompletionQueue> {
        Ok(CompletionQueue::new(self, capacity))
    }
}

impl CompletionQueue {
    pub(crate) fn new(device: &Device, capacity: usize) -> Self {
        let doorbell = Arc::new(Doorbell::default());
        let core = device.engine.create_cq(capacity, Some(doorbell.clone()));
        CompletionQueue {
            shared: Arc::new(Shared {
                device: device.clone(),
                core,
                doorbell,
                waits: Waits::default(),
                asked_for: capacity,
                outstanding: Mutex::default(),
                aside: Aside::default(),
                futures: Arc::default(),
            }),
        }
    }

    /// The next completion, if there is one. Drives the NIC.
    #[doc(alias = "ibv_poll_cq")]
    pub fn poll(&self) -> Result<Option<Completion>, CqOverflow> {
        if let Some(completion) = self.shared.aside.pop() {
            return Ok(Some(completion));
        }
        loop {
            let mut found = None;
            self.shared
                .device
                .engine
                .poll(&self.shared.core, 1, |completion| found = Some(completion))?;
            let Some(completion) = found else {
                return Ok(None);
            };
            if let Some(completion) = self.finish(completion) {
                return Ok(Some(completion));
            }
        }
    }

    /// Moves up to `max` completions to `sink`; how many. Drives the NIC if there are none.
    #[doc(alias = "ibv_poll_cq")]
    pub fn poll_many(&self, max: usize, mut sink: impl FnMut(Completion)) -> Result<usize, CqOverflow> {
        let mut count = 0;
        while count < max {
            let Some(completion) = self.shared.aside.pop() else {
                break;
            };
            sink(completion);
            count += 1;
        }
        while count < max {
            let mut batch: SmallVec<[nonic_core::Completion; BATCH]> = SmallVec::new();
            let most = (max - count).min(BATCH);
            let engine = &self.shared.device.engine;
            // Drives only if there is nothing to begin with.
            match count {
                0 => engine.poll(&self.shared.core, most, |completion| batch.push(completion))?,
                _ => self.shared.core.poll(most, |completion| batch.push(completion))?,
            };
            if batch.is_empty() {
                break;
            }
            for completion in batch.into_iter().filter_map(|completion| self.finish(completion)) {
                sink(completion);
                count += 1;
            }
        }
        Ok(count)
    }

    /// Waits for a completion, at most `timeout` (for ever without one). Drives the NIC meanwhile; sleeps unless completions
    /// have come quickly of late.
    #[doc(alias = "ibv_get_cq_event")]
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<Completion>, WaitError> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let Shared {
            device,
            core,
            doorbell,
            waits,
            aside,
            ..
        } = &*self.shared;
        loop {
            if let Some(completion) = self.poll()? {
                return Ok(Some(completion));
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            let ready = || !core.is_empty() || !aside.is_empty();
            device.engine.wait(waits, core, doorbell, left, ready)?;
        }
    }

    /// The next completion, as a future. Works on any runtime: the background thread wakes it.
    #[doc(alias = "ibv_get_cq_event")]
    #[must_use = "futures do nothing unless awaited"]
    pub fn next(&self) -> Next<'_> {
        Next { queue: self }
    }

    /// The next completion, waited for on tokio's own reactor.
    #[doc(alias = "ibv_get_cq_event")]
    #[cfg(feature = "tokio")]
    pub async fn next_on_runtime(&self) -> Result<Completion, WaitError> {
        use tokio::io::Interest;
        use tokio::io::unix::AsyncFd;
        let fd = self.shared.doorbell.fd()?.as_fd();
        // SAFETY: the descriptor belongs to the doorbell, which `self` keeps open for longer than `fd` lives,
        // and a borrowed descriptor always answers with the same number.
        let fd =
            unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.map_err(io::Error::from)?;
        loop {
            if let Some(completion) = self.poll()? {
                return Ok(completion);
            }
            self.shared.device.engine.arm(&self.shared.core, Arm::Next);
            if !self.is_empty() {
                continue;
            }
            let mut ready = fd.readable().await?;
            self.shared.doorbell.fd()?.drain()?;
            ready.clear_ready();
        }
    }

    /// A descriptor that becomes readable when an armed queue gets a completion; for event loops.
    ///
    /// Arm, poll until empty, then wait for it; drain it by [`CompletionQueue::acknowledge`].
    #[doc(alias("ibv_comp_channel", "ibv_create_comp_channel"))]
    pub fn event_fd(&self) -> io::Result<BorrowedFd<'_>> {
        self.shared.doorbell.fd().map(AsFd::as_fd)
    }

    /// Asks for one wake-up at the next completion.
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn arm(&self) {
        self.shared.device.engine.arm(&self.shared.core, Arm::Next);
    }

    /// Makes the descriptor unreadable again.
    #[doc(alias = "ibv_ack_cq_events")]
    pub fn acknowledge(&self) -> io::Result<()> {
        self.shared.doorbell.fd()?.drain().map(|_| ())
    }

    /// How many completions wait.
    pub fn len(&self) -> usize {
        self.shared.core.len() + self.shared.aside.count.load(Ordering::Acquire)
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.shared.core.is_empty() && self.shared.aside.is_empty()
    }

    /// A place for the requests of a new send or receive queue, and room for their completions.
    pub(crate) fn open_work_queue(&self, qpn: Option<Qpn>, capacity: u32) -> WorkQueueId {
        let mut outstanding = self.lock();
        let work_queue = outstanding.open(qpn, capacity);
        let room = outstanding.capacity().max(self.shared.asked_for);
        // Never fewer than are waiting: those were counted in.
        self.shared.core.resize(room.max(self.shared.core.capacity()));
        work_queue
    }

    /// A work queue's queue pair belongs to a connection.
    pub(crate) fn ends_with(&self, work_queue: WorkQueueId, connection: &Arc<EventChannel>) {
        self.lock().ends_with(work_queue, connection);
    }

    /// A queue pair is gone, and with it its completions: give up its buffers.
    pub(crate) fn close_work_queue(&self, work_queue: WorkQueueId) {
        let given_up = self.lock().close(work_queue);
        for (buffers, ticket) in given_up {
            if let Some(ticket) = ticket {
                ticket.deliver(Outcome::Closed(buffers));
            }
        }
        self.shared.doorbell.ring();
    }

    /// Keeps a request's buffers; the number to post it under, or the buffers back if there is no room for its completion.
    pub(crate) fn admit(&self, id: u64, work_queue: WorkQueueId, buffers: Buffers) -> Result<u64, Buffers> {
        self.lock().admit(work_queue, id, buffers)
    }

    /// Keeps a request of a batch that is yet to be posted.
    pub(crate) fn admit_to_batch(&self, id: u64, work_queue: WorkQueueId, buffers: Buffers) -> u64 {
        self.lock().admit_to_batch(work_queue, id, buffers)
    }

    /// How many of a batch are too many.
    pub(crate) fn excess(&self, work_queue: WorkQueueId, batch: usize) -> usize {
        self.lock().excess(work_queue, batch)
    }

    /// A request was refused: its buffers back.
    pub(crate) fn withdraw(&self, wr_id: u64) -> Buffers {
        self.lock()
            .take(wr_id)
            .map(|taken| taken.buffers)
            .unwrap_or_default()
    }

    /// Posts a request that somebody will wait for, now or when there is room.
    pub(crate) fn submit(&self, work_queue: WorkQueueId, buffers: Buffers, work: Work) -> Arc<Ticket> {
        let ticket = Arc::new(Ticket::default());
        self.lock()
            .admit_awaited(work_queue, buffers, Arc::clone(&ticket), work);
        self.post_backlog(work_queue);
        ticket
    }

    /// Posts what waited for room, as far as there is some.
    fn post_backlog(&self, work_queue: WorkQueueId) {
        loop {
            // In a statement of its own: posting must not find it locked.
            let due = self.lock().next_due(work_queue);
            let Some(due) = due else {
                return;
            };
            let posted = self.post(&due);
            let refused = {
                let mut outstanding = self.lock();
                outstanding.posted(work_queue);
                match posted {
                    Ok(()) => None,
                    Err(error) => outstanding.take(due.wr_id).map(|taken| (error, taken)),
                }
            };
            if let Some((error, taken)) = refused
                && let Some(ticket) = taken.ticket
            {
                let buffers = taken.buffers;
                self.deliver(&ticket, Outcome::Refused(Refused { error, buffers }));
            }
        }
    }

    fn post(&self, due: &Due) -> Result<(), PostError> {
        let engine = &self.shared.device.engine;
        let wr_id = due.wr_id;
        match &due.work {
            Work::Receive => engine.post_recv(
                due.qpn,
                &RecvRequest {
                    wr_id,
                    sges: &due.sges,
                },
            ),
            Work::Send {
                op,
                flags,
                destination,
                inline,
            } => engine.post_send(
                due.qpn,
                &SendRequest {
                    wr_id,
                    op: *op,
                    data: inline.as_deref().map_or(Data::Sges(&due.sges), Data::Inline),
                    flags: *flags,
                    destination: *destination,
                },
            ),
        }
    }

    fn deliver(&self, ticket: &Ticket, outcome: Outcome) {
        if ticket.deliver(outcome) {
            self.shared.doorbell.ring();
        }
    }

    /// Takes out all completions there are and delivers them to those who wait; drives the NIC if there are none.
    fn distribute(&self) -> Result<(), CqOverflow> {
        let Shared { device, core, .. } = &*self.shared;
        let mut batch: SmallVec<[nonic_core::Completion; BATCH]> = SmallVec::new();
        device
            .engine
            .poll(core, BATCH, |completion| batch.push(completion))?;
        while !batch.is_empty() {
            let mut for_pollers = false;
            for completion in batch.drain(..) {
                if let Some(completion) = self.finish(completion) {
                    self.shared.aside.push(completion);
                    for_pollers = true;
                }
            }
            if for_pollers {
                self.shared.doorbell.ring();
            }
            core.poll(BATCH, |completion| batch.push(completion))?;
        }
        Ok(())
    }

    /// How a request ended, in a task.
    pub(crate) fn poll_ticket(&self, ticket: &Arc<Ticket>, context: &mut Context<'_>) -> Poll<Outcome> {
        let waker = context.waker();
        if let Some(outcome) = ticket.take() {
            return Poll::Ready(outcome);
        }
        if let Err(overflow) = self.distribute() {
            return Poll::Ready(Outcome::Overflow(overflow));
        }
        if let Some(outcome) = ticket.take_or_wake(waker) {
            return Poll::Ready(outcome);
        }
        let Shared {
            device,
            core,
            doorbell,
            futures,
            ..
        } = &*self.shared;
        if futures.join(ticket) {
            doorbell.subscribe(&Waker::from(Arc::clone(futures)));
            device.engine.arm(core, Arm::Next);
        }
        // What came before arming does not ring the doorbell.
        if !core.is_empty()
            && let Err(overflow) = self.distribute()
        {
            return Poll::Ready(Outcome::Overflow(overflow));
        }
        ticket.take().map_or(Poll::Pending, Poll::Ready)
    }

    /// How a request ended; the thread sleeps until it has, at most until `deadline`.
    pub(crate) fn wait_ticket(
        &self,
        ticket: &Ticket,
        deadline: Option<Instant>,
    ) -> Result<Option<Outcome>, WaitError> {
        let Shared {
            device,
            core,
            doorbell,
            waits,
            ..
        } = &*self.shared;
        ticket.will_sleep();
        loop {
            self.distribute()?;
            if let Some(outcome) = ticket.take() {
                return Ok(Some(outcome));
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            let ready = || !core.is_empty() || ticket.is_done();
            device.engine.wait(waits, core, doorbell, left, ready)?;
        }
    }

    /// What a completion is to whoever polls; nothing if somebody else waits for it, who has it now.
    fn finish(&self, completion: nonic_core::Completion) -> Option<Completion> {
        // Nobody is left who could have posted it.
        let taken = self.lock().take(completion.wr_id)?;
        if taken.others_wait {
            self.post_backlog(taken.work_queue);
        }
        let completion = Completion {
            id: taken.id,
            result: match completion.status {
                Status::Success => Ok(completion.byte_len as usize),
                status => Err(status),
            },
            opcode: completion.opcode,
            qpn: completion.qpn,
            immediate: completion.immediate,
            source: completion.grh.then_some(completion.src_qp),
            buffers: taken.buffers.0,
        };
        let Some(ticket) = taken.ticket else {
            return Some(completion);
        };
        let ended = match completion.result {
            Err(Status::Flushed) => self.lock().ended(taken.work_queue),
            _ => None,
        };
        self.deliver(&ticket, Outcome::Completed(completion, ended));
        None
    }

    fn lock(&self) -> MutexGuard<'_, Outstanding> {
        self.shared
            .outstanding
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.device.engine.forget_cq(self.core.id());
    }
}

/// The future of a [`CompletionQueue`]'s next completion. Dropping it loses nothing.
#[derive(Debug)]
pub struct Next<'a> {
    queue: &'a CompletionQueue,
}

impl Future for Next<'_> {
    type Output = Result<Completion, CqOverflow>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let shared = &self.queue.shared;
        if let Some(completion) = self.queue.poll()? {
            return Poll::Ready(Ok(completion));
        }
        shared.doorbell.subscribe(context.waker());
        shared.device.engine.arm(&shared.core, Arm::Next);
        // What came before arming does not ring the doorbell.
        match self.queue.poll()? {
            Some(completion) => Poll::Ready(Ok(completion)),
            None => Poll::Pending,
        }
    }
}
