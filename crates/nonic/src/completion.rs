//! Completion queues: poll, wait or await.

use crate::device::Device;
use crate::memory::{Buffers, Lease};
use crate::outstanding::{Outstanding, WorkQueueId};
use nonic_core::{Arm, CompletionOpcode, CqOverflow, Qpn, Status};
use nonic_engine::{Doorbell, Waits};
use smallvec::SmallVec;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

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
    /// Requests under way, by the number the NIC knows them by.
    outstanding: Mutex<Outstanding>,
}

impl Device {
    /// A new completion queue for `capacity` completions.
    #[doc(alias = "ibv_create_cq")]
    pub fn completion_queue(&self, capacity: usize) -> io::Result<CompletionQueue> {
        CompletionQueue::new(self, capacity)
    }
}

impl CompletionQueue {
    fn new(device: &Device, capacity: usize) -> io::Result<Self> {
        let doorbell = Arc::new(Doorbell::default());
        let core = device.engine.create_cq(capacity, Some(doorbell.clone()));
        let outstanding = Mutex::new(Outstanding::default());
        Ok(CompletionQueue {
            shared: Arc::new(Shared {
                device: device.clone(),
                core,
                doorbell,
                waits: Waits::default(),
                outstanding,
            }),
        })
    }

    /// The next completion, if there is one. Drives the NIC.
    #[doc(alias = "ibv_poll_cq")]
    pub fn poll(&self) -> Result<Option<Completion>, CqOverflow> {
        let mut found = None;
        self.shared
            .device
            .engine
            .poll(&self.shared.core, 1, |completion| found = Some(completion))?;
        Ok(found.map(|completion| self.finish(completion)))
    }

    /// Moves up to `max` completions to `sink`; how many. Drives the NIC if there are none.
    #[doc(alias = "ibv_poll_cq")]
    pub fn poll_many(&self, max: usize, mut sink: impl FnMut(Completion)) -> Result<usize, CqOverflow> {
        self.shared
            .device
            .engine
            .poll(&self.shared.core, max, |completion| sink(self.finish(completion)))
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
            device.engine.wait(waits, core, doorbell, left)?;
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
            if !self.shared.core.is_empty() {
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
        self.shared.core.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.shared.core.is_empty()
    }

    /// A place for the requests of a new send or receive queue.
    pub(crate) fn open_work_queue(&self) -> WorkQueueId {
        self.lock().open()
    }

    /// A queue pair is gone, and with it its completions: give up its buffers.
    pub(crate) fn close_work_queue(&self, work_queue: WorkQueueId) {
        let given_up = self.lock().close(work_queue);
        drop(given_up);
        self.shared.doorbell.ring();
    }

    /// Keeps a request's buffers; the number to post it under.
    pub(crate) fn admit(&self, id: u64, work_queue: WorkQueueId, buffers: Buffers) -> u64 {
        self.lock().admit(work_queue, id, buffers)
    }

    /// A request was refused: its buffers back.
    pub(crate) fn withdraw(&self, wr_id: u64) -> Buffers {
        self.lock().take(wr_id).1
    }

    fn finish(&self, completion: nonic_core::Completion) -> Completion {
        let (id, buffers) = self.lock().take(completion.wr_id);
        Completion {
            id,
            result: match completion.status {
                Status::Success => Ok(completion.byte_len as usize),
                status => Err(status),
            },
            opcode: completion.opcode,
            qpn: completion.qpn,
            immediate: completion.immediate,
            source: completion.grh.then_some(completion.src_qp),
            buffers: buffers.0,
        }
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
