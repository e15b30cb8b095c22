//! Completions in tasks: one as a future, all of them as a stream.

use super::CompletionQueue;
use crate::completion::Completion;
use futures_core::Stream;
use nonic_core::{Arm, CqOverflow};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

impl CompletionQueue {
    /// The next completion, as a future. Works on any runtime: the background thread wakes it.
    #[doc(alias = "ibv_get_cq_event")]
    #[must_use = "futures do nothing unless awaited"]
    pub fn completion(&self) -> NextCompletion<'_> {
        NextCompletion { queue: self }
    }

    /// The next completion, for hand-written futures.
    #[doc(alias = "ibv_get_cq_event")]
    pub fn poll_completion(&self, context: &mut Context<'_>) -> Poll<Result<Completion, CqOverflow>> {
        let shared = &self.shared;
        if let Some(completion) = self.poll()? {
            return Poll::Ready(Ok(completion));
        }
        shared.doorbell.subscribe(context.waker());
        shared.device.engine.arm(&shared.core, Arm::Next);
        // What came before arming does not ring the doorbell.
        match self.poll()? {
            Some(completion) => Poll::Ready(Ok(completion)),
            None => Poll::Pending,
        }
    }

    /// The next completion, waited for on tokio's own reactor.
    #[doc(alias = "ibv_get_cq_event")]
    #[cfg(feature = "tokio")]
    pub async fn completion_on_runtime(&self) -> Result<Completion, super::WaitError> {
        use std::os::fd::AsFd;
        use tokio::io::Interest;
        use tokio::io::unix::AsyncFd;
        let fd = self.shared.doorbell.fd()?.as_fd();
        // SAFETY: the descriptor belongs to the doorbell, which `self` keeps open for longer than `fd` lives,
        // and a borrowed descriptor always answers with the same number.
        let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }
            .map_err(std::io::Error::from)?;
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
}

/// The future of a [`CompletionQueue`]'s next completion. Dropping it loses nothing.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// # let device = nonic::Device::open("roce_lo")?;
/// # let (domain, queue) = (device.domain(), device.completion_queue(16)?);
/// # let pair = domain.queue_pair::<nonic::Rc>(&queue)?;
/// # let here = pair.endpoint();
/// # let mut pair = pair.connect(&here)?;
/// pair.rq.recv(1, domain.lease(64)?)?;
/// pair.sq.send(2, domain.lease_from(b"to itself")?)?;
/// for _ in 0..2 {
///     let done = queue.completion().await?;
///     println!("request {}: {:?}", done.id, done.result);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct NextCompletion<'a> {
    queue: &'a CompletionQueue,
}

impl Future for NextCompletion<'_> {
    type Output = Result<Completion, CqOverflow>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.queue.poll_completion(context)
    }
}

/// All completions, without end. Once completions were lost, that is what it answers each time.
impl Stream for CompletionQueue {
    type Item = Result<Completion, CqOverflow>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_completion(context).map(Some)
    }
}
