//! Binding memory windows, and taking them back.

use super::QueuePair;
use crate::memory::{BoundWindow, Buffers, Exposed, MemoryError, Window};
use crate::outstanding::Work;
use crate::request::{Pending, RequestFailed};
use crate::transport::Reliable;
use nonic_core::{Access, KeyError, PostError, SendFlags, SendOp, WindowBind};
use std::fmt;
use std::future::Future;
use std::ops::RangeBounds;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

impl<T: Reliable> QueuePair<T> {
    /// Binds a window to a part of exposed memory, for the peer of this queue pair, with the given rights. The memory must have been
    /// exposed with [`Access::MW_BIND`]; what other rights it was exposed with does not matter.
    ///
    /// A message that is sent right after it may tell the peer.
    ///
    /// # Panics
    ///
    /// If the range is not inside.
    #[doc(alias("ibv_bind_mw", "ibv_post_send", "IBV_WR_BIND_MW"))]
    pub fn bind(
        &self,
        window: Window,
        memory: &Exposed,
        range: impl RangeBounds<usize>,
        access: Access,
    ) -> Result<WindowRequest<BoundWindow>, MemoryError> {
        let domain = &self.sq.handle.domain;
        if window.handle.domain.pd != domain.pd || memory.domain().pd != domain.pd {
            return Err(KeyError::Domain.into());
        }
        let (lkey, start, len) = memory.bindable(range)?;
        let window = Window {
            key: window.next_key(),
            ..window
        };
        let op = SendOp::BindWindow(WindowBind {
            window: window.key,
            rkey: window.key,
            lkey,
            va: start,
            length: len,
            access: access | Access::ZERO_BASED,
        });
        Ok(WindowRequest {
            pending: self.submit_for(op, &window),
            window: Some(BoundWindow {
                window,
                qpn: self.qpn(),
                len,
            }),
        })
    }

    /// Takes a window back that this queue pair has bound: when it is done, the peer cannot use it any more.
    ///
    /// One that the peer has revoked itself is of no more use: drop it, since this would fail, and with it the queue pair.
    #[doc(alias("ibv_post_send", "IBV_WR_LOCAL_INV"))]
    pub fn invalidate(&self, bound: BoundWindow) -> WindowRequest<Window> {
        let BoundWindow { window, qpn, .. } = bound;
        let pending = match qpn == self.qpn() {
            true => self.submit_for(SendOp::LocalInvalidate(window.key), &window),
            false => {
                let queue = &self.sq.handle.send_queue;
                Pending::refused(queue, PostError::Unsupported, Buffers::default())
            }
        };
        WindowRequest {
            pending,
            window: Some(window),
        }
    }

    fn submit_for(&self, op: SendOp, window: &Window) -> Pending {
        let work = Work::Send {
            op,
            flags: SendFlags::empty(),
            destination: None,
            inline: None,
        };
        self.sq.handle.submit(Buffers::keeping(window), work)
    }
}

/// A memory window that is being bound or taken back. Await it or wait for it: it answers the window.
///
/// Dropping it does not take it back, but gives the window up.
///
/// ```
/// use nonic::Access;
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let domain = nonic::Device::open("roce_lo")?.domain();
/// # let (left, right) = (domain.pair::<nonic::Rc>()?, domain.pair::<nonic::Rc>()?);
/// # let (here, there) = (left.endpoint(), right.endpoint());
/// # let (left, right) = (left.connect(&there)?, right.connect(&here)?);
/// let table = domain.lease(4096)?.expose(Access::MW_BIND)?;
/// let request = left.bind(domain.window()?, &table, 1024.., Access::REMOTE_READ)?;
/// let bound = match request.wait_within(Duration::from_secs(10)) {
///     Ok(done) => done?, // or `request.await?`
///     Err(request) => request.wait()?, // it is still under way
/// };
/// assert_eq!(bound.remote().len, 3072);
/// # Ok(()) }
/// ```
#[must_use = "the window comes from it"]
pub struct WindowRequest<W> {
    pending: Pending,
    /// There until it was given.
    window: Option<W>,
}

impl<W> WindowRequest<W> {
    /// Waits until it is done. The thread drives the NIC meanwhile.
    pub fn wait(mut self) -> Result<W, RequestFailed> {
        self.pending.wait(None).expect("no time limit was given")?;
        Ok(self.take())
    }

    /// The same, for at most `timeout`; a request that is not done then is returned.
    pub fn wait_within(mut self, timeout: Duration) -> Result<Result<W, RequestFailed>, Self> {
        match self.pending.wait(Some(timeout)) {
            Some(done) => Ok(done.map(|_| self.take())),
            None => Err(self),
        }
    }

    fn take(&mut self) -> W {
        self.window.take().expect("it is done once")
    }
}

impl<W: Unpin> Future for WindowRequest<W> {
    type Output = Result<W, RequestFailed>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let done = self.pending.poll(context);
        done.map_ok(|_| self.take())
    }
}

impl<W> fmt::Debug for WindowRequest<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pending.debug("WindowRequest", f)
    }
}
