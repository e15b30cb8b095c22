//! The half of a stream that reads: bytes of one message after the other.

use crate::error::io_error;
use nonic_message::{Message, Receiver};
use std::io;
use std::task::{Context, Poll, ready};

/// Messages without bytes that are passed over before other tasks have their turn. No stream of ours sends any.
const EMPTY_AT_A_TIME: usize = 32;

#[derive(Debug)]
pub(crate) struct Reader {
    receiver: Receiver,
    /// The message that is being read out, and how much of it was.
    current: Option<(Message, usize)>,
}

impl Reader {
    pub(crate) fn new(receiver: Receiver) -> Self {
        let current = None;
        Reader { receiver, current }
    }

    /// Bytes that are here, as soon as there are any; none at the end. They stay until [`Reader::consume`] takes them.
    pub(crate) fn poll_bytes(&mut self, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        if self.current.is_none() {
            match ready!(self.poll_message(context)) {
                Ok(message) => self.current = message.map(|message| (message, 0)),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        let bytes = self.current.as_ref().map(|(message, from)| &message[*from..]);
        Poll::Ready(Ok(bytes.unwrap_or_default()))
    }

    /// So many of the bytes were taken.
    pub(crate) fn consume(&mut self, taken: usize) {
        if let Some((message, from)) = &mut self.current {
            *from += taken;
            if *from >= message.len() {
                self.current = None;
            }
        }
    }

    /// The next message that has bytes.
    fn poll_message(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Message>>> {
        for _ in 0..EMPTY_AT_A_TIME {
            match ready!(self.receiver.poll_recv(context)).map_err(io_error)? {
                Some(message) if message.is_empty() => {}
                message => return Poll::Ready(Ok(message)),
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
