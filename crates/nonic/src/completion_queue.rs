//! Completion queues: poll, wait or await.
//!
//! Some requests have a completion that the program polls for; others have a waiter for just that request (see
//! [`crate::Request`]). A thread or task that polls the queue takes out every completion there is. Those of awaited
//! requests go to their waiters; those that the program polls for are set aside until it does.

mod admission;
mod aside;
mod awaiting;
mod distribution;
mod futures;
mod waiting;

pub use awaiting::NextCompletion;

use crate::completion::Completion;
use crate::device::Device;
use crate::outstanding::Outstanding;
use aside::Aside;
use futures::Futures;
use nonic_core::{Arm, CqOverflow, Status};
use nonic_engine::{Doorbell, Waits};
use nonic_explain::Explanation;
use smallvec::SmallVec;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Completions that are taken out at a time.
const BATCH: usize = 32;

/// Why waiting failed.
///
/// ```
/// use nonic::{Device, WaitError};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let queue = Device::open("roce_lo")?.completion_queue(16)?;
/// match queue.wait(Some(Duration::from_millis(1))) {
///     Ok(Some(done)) => println!("request {} is done", done.id),
///     Ok(None) => println!("nothing was done in this time"),
///     Err(WaitError::Overflow(_)) => println!("completions were lost"),
///     Err(error) => return Err(error.into()),
/// }
/// # Ok(()) }
/// ```
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
///
/// A thread polls it or waits for it; a task awaits [`completion`](CompletionQueue::completion), or takes it as a stream:
///
/// ```
/// use futures_util::StreamExt;
/// use nonic::{Device, Rc};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let device = Device::open("roce_lo")?;
/// let (domain, mut queue) = (device.domain(), device.completion_queue(16)?);
/// let (left, right) = (domain.queue_pair::<Rc>(&queue)?, domain.queue_pair::<Rc>(&queue)?);
/// let (here, there) = (left.endpoint(), right.endpoint());
/// let (mut left, mut right) = (left.connect(&there)?, right.connect(&here)?);
/// right.rq.recv(1, domain.lease(64)?)?;
/// left.sq.send(2, domain.lease_from(b"hello")?)?;
///
/// let done = queue.next().await.expect("it has no end")?;
/// println!("request {}: {:?}", done.id, done.result);
/// # Ok(()) })
/// # }
/// ```
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
    /// Tells threads that wait for their turn that a request of a backlog has been posted.
    posted: Condvar,
    aside: Aside,
    futures: Arc<Futures>,
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
                posted: Condvar::new(),
                aside: Aside::default(),
                futures: Arc::default(),
            }),
        }
    }

    /// Why a request failed.
    pub(crate) fn explain(&self, completion: &Completion, status: Status) -> Explanation {
        let known = self.shared.device.explain(completion.qpn, Some(status));
        let mut explanation = known.unwrap_or_else(|| Explanation::of_status(status));
        if let Some(reason) = completion.closed {
            explanation.happened = format!("The connection had ended: {reason}. {}", explanation.happened);
        }
        explanation
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
        self.shared.core.len() + self.shared.aside.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.shared.core.is_empty() && self.shared.aside.is_empty()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.device.engine.forget_cq(self.core.id());
    }
}
