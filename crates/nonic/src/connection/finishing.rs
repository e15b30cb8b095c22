//! Ending a connection without losing requests that are under way.

use super::{CloseReason, Connection};
use crate::completion_queue::CompletionQueue;
use crate::ticket::{Outcome, Ticket};
use crate::transport::Connected;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

impl<T: Connected> Connection<T> {
    /// Ends the connection when all SENDs, WRITEs, READs and atomics that were asked for are done: await it or wait for it. Then the
    /// peer is told as by [`disconnect`](Connection::disconnect), and sees everything before that. Receives are not waited for.
    ///
    /// ```
    /// # use nonic::{Device, Listener, Rc, connect};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let device = Device::open("roce_lo")?;
    /// # let domain = device.domain();
    /// # let listener = Listener::bind(&device, "127.0.0.1:0".parse()?)?;
    /// # let connecting = connect(domain.pair_builder::<Rc>(), listener.local_addr(), b"")?;
    /// # let server = listener.accept()?.accept(domain.pair_builder::<Rc>(), b"")?;
    /// # let client = connecting.wait()?;
    /// let receive = server.recv(domain.lease(64)?);
    /// drop(client.send_bytes(b"the last word")); // nobody waits for it
    /// client.finish().wait()?;
    /// assert_eq!(receive.wait()?.bytes(), b"the last word");
    /// # Ok(()) }
    /// ```
    #[doc(alias = "rdma_disconnect")]
    pub fn finish(self) -> Finishing<T> {
        let (queue, ticket) = self.pair.drain();
        Finishing {
            queue,
            ticket,
            connection: Some(Box::new(self)),
        }
    }
}

/// A connection that ends when nothing is under way any more. Dropped before, it ends at once.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = nonic::Device::open("roce_lo")?;
/// # let domain = device.domain();
/// # let listener = nonic::Listener::bind(&device, "127.0.0.1:0".parse()?)?;
/// # let patience = std::time::Duration::from_secs(10);
/// # let connecting = nonic::connect(domain.pair_builder::<nonic::Rc>(), listener.local_addr(), b"")?;
/// # let incoming = listener.accept_within(patience).ok_or("nobody came")?;
/// # let server = incoming.accept(domain.pair_builder::<nonic::Rc>(), b"")?;
/// # let client = connecting.wait()?;
/// # let receive = server.recv(domain.lease(64)?);
/// drop(client.send_bytes(b"the last word"));
/// match client.finish().wait_within(patience) {
///     Ok(ended) => ended?,
///     Err(finishing) => drop(finishing), // something is under way still; it is given up
/// }
/// # assert_eq!(receive.wait()?.bytes(), b"the last word");
/// # Ok(()) }
/// ```
#[must_use = "dropped, it ends the connection at once"]
pub struct Finishing<T: Connected> {
    /// There until it has ended.
    connection: Option<Box<Connection<T>>>,
    queue: CompletionQueue,
    ticket: Arc<Ticket>,
}

impl<T: Connected> Finishing<T> {
    /// Waits until everything is done and the peer was told. An error if the connection had ended before.
    pub fn wait(mut self) -> Result<(), CloseReason> {
        match self.queue.wait_ticket(&self.ticket, None) {
            Ok(Some(_)) => self.end(),
            _ => Err(CloseReason::Local),
        }
    }

    /// The same, for at most `timeout`; if not everything is done then, it is returned.
    pub fn wait_within(mut self, timeout: Duration) -> Result<Result<(), CloseReason>, Self> {
        match self
            .queue
            .wait_ticket(&self.ticket, Some(Instant::now() + timeout))
        {
            Ok(Some(_)) => Ok(self.end()),
            Ok(None) => Err(self),
            Err(_) => Ok(Err(CloseReason::Local)),
        }
    }

    /// Everything is done.
    fn end(&mut self) -> Result<(), CloseReason> {
        let connection = self.connection.take().expect("not awaited to the end before");
        match connection.closed().reason() {
            Some(reason) => Err(reason),
            None => {
                connection.disconnect();
                Ok(())
            }
        }
    }
}

impl<T: Connected> Future for Finishing<T> {
    type Output = Result<(), CloseReason>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.queue.poll_ticket(&self.ticket, context) {
            Poll::Ready(Outcome::Overflow(_)) => Poll::Ready(Err(CloseReason::Local)),
            Poll::Ready(_) => Poll::Ready(self.end()),
            Poll::Pending => Poll::Pending,
        }
    }
}

// Nothing in it is ever borrowed by itself.
impl<T: Connected> Unpin for Finishing<T> {}

impl<T: Connected> fmt::Debug for Finishing<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Finishing").field(&self.connection).finish()
    }
}
