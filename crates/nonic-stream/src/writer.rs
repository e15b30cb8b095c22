//! The half of a stream that writes. Each write is one message, which leaves at once: a program that writes and then waits for the
//! answer must not be asked to flush, since TCP does not ask it either.

use crate::error::{io_error, write_error};
use crate::linger;
use nonic_message::{Sender, TrySendError};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};

/// The most that one write sends. What is longer is taken in several writes, so that the peer reads the first part while the
/// second is being copied.
const LONGEST_WRITE: usize = 256 << 10;

#[derive(Debug)]
pub(crate) struct Writer {
    /// There until it is dropped.
    sender: Option<Sender>,
}

impl Writer {
    pub(crate) fn new(sender: Sender) -> Self {
        Writer { sender: Some(sender) }
    }

    pub(crate) fn sender(&self) -> &Sender {
        self.sender.as_ref().expect("it is taken by drop alone")
    }

    fn sender_mut(&mut self) -> &mut Sender {
        self.sender.as_mut().expect("it is taken by drop alone")
    }

    pub(crate) fn peer_addr(&self) -> SocketAddr {
        self.sender().peer_addr()
    }

    /// Sends as much of `bytes` as one message takes, once there is room.
    pub(crate) fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let bytes = &bytes[..bytes.len().min(self.longest())];
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let sender = self.sender_mut();
        loop {
            match sender.try_send(bytes) {
                Ok(()) => return Poll::Ready(Ok(bytes.len())),
                Err(TrySendError::Failed(error)) => return Poll::Ready(Err(write_error(error))),
                Err(TrySendError::Full(_)) => {
                    ready!(sender.poll_ready(context)).map_err(write_error)?;
                }
            }
        }
    }

    /// Sends several pieces as one message: a header and what it heads need not cost two.
    pub(crate) fn poll_write_vectored(
        &mut self,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut filled = pieces.iter().filter(|piece| !piece.is_empty());
        match (filled.next(), filled.next()) {
            (None, _) => return Poll::Ready(Ok(0)),
            (Some(only), None) => return self.poll_write(context, only),
            _ => {}
        }
        let total: usize = pieces.iter().map(|piece| piece.len()).sum();
        let total = total.min(self.longest());
        // Nothing is gathered before it can be sent.
        let sender = self.sender_mut();
        ready!(sender.poll_ready(context)).map_err(write_error)?;
        let mut buffer = sender.buffer(total).map_err(io_error)?;
        gather(&mut buffer, pieces);
        match sender.try_send(buffer) {
            Ok(()) => Poll::Ready(Ok(total)),
            Err(TrySendError::Failed(error)) => Poll::Ready(Err(write_error(error))),
            // Another half cannot have taken the room. If it has, the task tries again.
            Err(TrySendError::Full(_)) => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    /// Nothing is kept back here, so there is nothing to do, as with TCP.
    pub(crate) fn poll_flush(&mut self) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Says that nothing follows and waits until the peer's NIC has that and everything before. The peer's program need not look,
    /// but for what it must read by itself: the long pieces.
    pub(crate) fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let arrived = ready!(self.sender_mut().poll_close(context));
        Poll::Ready(arrived.map_err(write_error))
    }

    fn longest(&self) -> usize {
        let longest = usize::try_from(self.sender().longest());
        longest.unwrap_or(usize::MAX).min(LONGEST_WRITE)
    }
}

/// What was written arrives also if the stream is dropped right after.
impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(sender) = self.sender.take() {
            linger::close(sender);
        }
    }
}

/// Fills `buffer` from the pieces, in order.
fn gather(mut buffer: &mut [u8], pieces: &[IoSlice<'_>]) {
    for piece in pieces {
        let (now, rest) = buffer.split_at_mut(piece.len().min(buffer.len()));
        now.copy_from_slice(&piece[..now.len()]);
        buffer = rest;
    }
}
