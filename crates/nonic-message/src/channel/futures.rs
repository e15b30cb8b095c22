//! The futures of a channel. Each is one step that is all or nothing, tried until it succeeds: by a task, or by a
//! thread that waits. So dropping one at any time leaves the channel as it was.

use super::taken;
use crate::driver::{Shared, State};
use crate::error::Error;
use crate::message::{Message, Outbound};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Hands a message over if there is room, and takes it out of `message`.
pub(super) fn hand_over(state: &mut State, message: &mut Option<Outbound<'_>>) -> Poll<Result<(), Error>> {
    let Some(waiting) = message else {
        return Poll::Ready(Err(Error::Closed));
    };
    match state.can_send(Some(waiting.len() as u64)) {
        Ok(false) => Poll::Pending,
        Ok(true) => Poll::Ready(message.take().map_or(Ok(()), |message| state.send(message))),
        Err(error) => Poll::Ready(Err(error)),
    }
}

pub(super) fn received(state: &mut State) -> Poll<Result<Option<Message>, Error>> {
    let found = state.machine.take();
    taken(found, state.ended())
}

pub(super) fn flushed(state: &mut State) -> Poll<Result<(), Error>> {
    match state.lost {
        _ if state.machine.is_end_arrived() => Poll::Ready(Ok(())),
        Some(lost) => Poll::Ready(Err(lost.into())),
        None if state.machine.is_flushed() => Poll::Ready(Ok(())),
        None => Poll::Pending,
    }
}

pub(super) fn closed(state: &mut State) -> Poll<Result<(), Error>> {
    state.machine.end();
    match state.lost {
        _ if state.machine.is_end_arrived() => Poll::Ready(Ok(())),
        Some(lost) => Poll::Ready(Err(lost.into())),
        None => Poll::Pending,
    }
}

fn deadline(timeout: Duration) -> Option<Instant> {
    Instant::now().checked_add(timeout)
}

/// A message on its way into the channel. Dropped before it is done, nothing of it is sent.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let node = nonic_message::Node::open("roce_lo")?;
/// # let listener = node.listen("127.0.0.1:0".parse()?)?;
/// # let patience = std::time::Duration::from_secs(10);
/// # let address = listener.local_addr();
/// # let connecting = { let node = node.clone(); std::thread::spawn(move || node.connect(address).wait()) };
/// # let mut server = listener.accept().wait_within(patience).ok_or("nobody came")??;
/// # let mut client = connecting.join().expect("no panic")?;
/// match client.send("hello").wait_within(patience) {
///     Ok(sent) => sent?, // or `client.send("hello").await?`
///     Err(unsent) => drop(unsent), // the peer takes nothing; nothing was sent
/// }
/// # server.recv().wait()?;
/// # Ok(()) }
/// ```
#[must_use = "nothing is sent unless it is awaited or waited for"]
pub struct Send<'a> {
    shared: &'a Shared,
    message: Option<Outbound<'a>>,
}

impl<'a> Send<'a> {
    pub(super) fn new(shared: &'a Shared, message: Outbound<'a>) -> Self {
        let message = Some(message);
        Send { shared, message }
    }

    /// Waits until it is handed over. The thread drives the NIC meanwhile.
    pub fn wait(self) -> Result<(), Error> {
        let Send { shared, mut message } = self;
        let sent = shared.wait_with(None, |state| hand_over(state, &mut message));
        sent.unwrap_or(Err(Error::Closed))
    }

    /// The same, for at most `timeout`; if there was no room by then, here it is again.
    pub fn wait_within(self, timeout: Duration) -> Result<Result<(), Error>, Self> {
        let Send { shared, mut message } = self;
        let sent = shared.wait_with(deadline(timeout), |state| hand_over(state, &mut message));
        sent.ok_or(Send { shared, message })
    }
}

impl Future for Send<'_> {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Send { shared, message } = &mut *self;
        shared.poll_with(context, |state| hand_over(state, message))
    }
}

/// The next message of a channel. Dropped before it is done, the message stays there.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let node = nonic_message::Node::open("roce_lo")?;
/// # let listener = node.listen("127.0.0.1:0".parse()?)?;
/// # let patience = std::time::Duration::from_secs(10);
/// # let address = listener.local_addr();
/// # let connecting = { let node = node.clone(); std::thread::spawn(move || node.connect(address).wait()) };
/// # let mut server = listener.accept().wait_within(patience).ok_or("nobody came")??;
/// # let mut client = connecting.join().expect("no panic")?;
/// client.send("hello").wait()?;
/// match server.recv().wait_within(patience) {
///     Some(received) => assert_eq!(&received?.expect("not the end")[..], b"hello"),
///     None => println!("nothing yet"),
/// }
/// # Ok(()) }
/// ```
#[must_use = "nothing is received unless it is awaited or waited for"]
pub struct Recv<'a> {
    shared: &'a Shared,
}

/// Everything that was sent, on its way.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let node = nonic_message::Node::open("roce_lo")?;
/// # let listener = node.listen("127.0.0.1:0".parse()?)?;
/// # let patience = std::time::Duration::from_secs(10);
/// # let address = listener.local_addr();
/// # let connecting = { let node = node.clone(); std::thread::spawn(move || node.connect(address).wait()) };
/// # let mut server = listener.accept().wait_within(patience).ok_or("nobody came")??;
/// # let mut client = connecting.join().expect("no panic")?;
/// client.send("hello").wait()?; // handed over
/// client.flush().wait()?; // acknowledged
/// # server.recv().wait()?;
/// # Ok(()) }
/// ```
#[must_use = "it is there to be awaited"]
pub struct Flush<'a> {
    shared: &'a Shared,
}

/// The end of what is sent. Dropped after it was polled, the end is said all the same.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let node = nonic_message::Node::open("roce_lo")?;
/// # let listener = node.listen("127.0.0.1:0".parse()?)?;
/// # let patience = std::time::Duration::from_secs(10);
/// # let address = listener.local_addr();
/// # let connecting = { let node = node.clone(); std::thread::spawn(move || node.connect(address).wait()) };
/// # let mut server = listener.accept().wait_within(patience).ok_or("nobody came")??;
/// # let mut client = connecting.join().expect("no panic")?;
/// client.send("the last word").wait()?;
/// match client.close().wait_within(patience) {
///     Some(closed) => closed?, // all has arrived
///     None => println!("the peer's program does not look"),
/// }
/// # server.recv().wait()?;
/// # Ok(()) }
/// ```
#[must_use = "nothing is closed unless it is awaited or waited for"]
pub struct Close<'a> {
    shared: &'a Shared,
}

macro_rules! waits {
    ($name:ident, $step:path, $output:ty) => {
        impl<'a> $name<'a> {
            pub(super) fn new(shared: &'a Shared) -> Self {
                $name { shared }
            }

            /// Waits for it. The thread drives the NIC meanwhile.
            pub fn wait(self) -> $output {
                self.shared
                    .wait_with(None, $step)
                    .unwrap_or(Err(Error::Closed))
            }

            /// The same, for at most `timeout`; `None` if it is not done then.
            pub fn wait_within(self, timeout: Duration) -> Option<$output> {
                self.shared.wait_with(deadline(timeout), $step)
            }
        }

        impl Future for $name<'_> {
            type Output = $output;

            fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
                self.shared.poll_with(context, $step)
            }
        }
    };
}

waits!(Recv, received, Result<Option<Message>, Error>);
waits!(Flush, flushed, Result<(), Error>);
waits!(Close, closed, Result<(), Error>);

macro_rules! shows {
    ($($name:ident),*) => {
        $(impl fmt::Debug for $name<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        })*
    };
}

shows!(Send, Recv, Flush, Close);
