//! Channels and their two halves.
//!
//! Everything that waits is a future that can also be waited for by a thread, and every future is cancelled by dropping it: a
//! [`Send`] has then handed over all of its message or nothing, and a message that a [`Recv`] did not take is still in the channel.

mod futures;

pub use futures::{Close, Flush, Recv, Send};

use crate::cutoff::{Cutoff, CutoffSource};
use crate::driver::Shared;
use crate::error::{Error, Lost};
use crate::message::{Buffer, Message, Outbound};
use crate::protocol::Taken;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Two programs that send each other messages of any size. Each message arrives once, whole, and in order; or the channel has ended
/// and says so.
///
/// A message was handed over when `send` is done, and has arrived when [`Channel::close`] is. Dropping a channel ends it at once: what
/// was not flushed may be lost.
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
/// client.send("a question").wait()?; // or `.await?`
/// client.close().wait()?; // it has arrived, and no other follows
/// while let Some(message) = server.recv().wait()? {
///     println!("{}: {}", server.peer_addr(), String::from_utf8_lossy(&message));
/// }
/// server.send("an answer").wait()?; // the other direction is still open
/// assert_eq!(&client.recv().wait()?.expect("an answer")[..], b"an answer");
/// # Ok(()) }
/// ```
pub struct Channel {
    sender: Sender,
    receiver: Receiver,
}

/// The half that sends. Dropped, it tells the peer that no message follows.
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
/// let (mut sender, _receiver) = client.split();
/// let sending = std::thread::spawn(move || sender.send("from another thread").wait());
/// assert_eq!(&server.recv().wait()?.expect("a message")[..], b"from another thread");
/// sending.join().expect("no panic")?;
/// assert!(server.recv().wait()?.is_none()); // the sender is gone
/// # Ok(()) }
/// ```
pub struct Sender {
    shared: Arc<Shared>,
    /// Whether the channel is still whole, and is ended by being dropped.
    whole: bool,
}

/// The half that receives.
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
/// let (_sender, mut receiver) = server.split();
/// assert!(receiver.try_recv()?.is_none());
/// client.send("hello").wait()?;
/// let receiving = std::thread::spawn(move || receiver.recv().wait());
/// assert_eq!(&receiving.join().expect("no panic")?.expect("a message")[..], b"hello");
/// # Ok(()) }
/// ```
pub struct Receiver {
    shared: Arc<Shared>,
}

/// Why a message was not handed over: there is no room for it now, or the channel takes none any more.
///
/// ```
/// use nonic_message::TrySendError;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let node = nonic_message::Node::open("roce_lo")?;
/// # let listener = node.listen("127.0.0.1:0".parse()?)?;
/// # let patience = std::time::Duration::from_secs(10);
/// # let address = listener.local_addr();
/// # let connecting = { let node = node.clone(); std::thread::spawn(move || node.connect(address).wait()) };
/// # let mut server = listener.accept().wait_within(patience).ok_or("nobody came")??;
/// # let mut client = connecting.join().expect("no panic")?;
/// let mut sent = 0;
/// let full = loop {
///     match client.sender().try_send("one more") {
///         Ok(()) => sent += 1,
///         Err(TrySendError::Full(message)) => break message,
///         Err(TrySendError::Failed(error)) => return Err(error.into()),
///     }
/// };
/// # std::thread::scope(|scope| {
/// # let taking = scope.spawn(|| (0..sent + 1).try_for_each(|_| server.recv().wait().map(drop)));
/// println!("{sent} messages wait for the peer to take them");
/// client.send(full).wait()?; // when it has taken some
/// # taking.join().expect("no panic")
/// # })?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub enum TrySendError<'a> {
    /// The peer must take some messages first. The message is returned.
    Full(Outbound<'a>),
    /// It cannot be sent.
    Failed(Error),
}

impl Channel {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Channel {
            sender: Sender {
                shared: Arc::clone(&shared),
                whole: true,
            },
            receiver: Receiver { shared },
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.sender.shared
    }

    /// From now on this is the cut-off, also of the peer.
    pub(crate) fn use_cutoff(&self, cutoff: Cutoff) {
        self.shared().with(|state| {
            state.cutoff_source = cutoff.source;
            state.machine.set_cutoff(cutoff.bytes);
            if cutoff.source == CutoffSource::Measured {
                state.machine.tell_cutoff();
            }
        });
    }

    /// Sends a message: waits until the peer has room for it, and hands it over.
    pub fn send<'a>(&'a mut self, message: impl Into<Outbound<'a>>) -> Send<'a> {
        self.sender.send(message)
    }

    /// Receives the next message; `None` after the last one.
    pub fn recv(&mut self) -> Recv<'_> {
        self.receiver.recv()
    }

    /// Waits until everything that was sent has left: frames are acknowledged (iWARP: taken by TCP), and long messages were read.
    pub fn flush(&mut self) -> Flush<'_> {
        self.sender.flush()
    }

    /// Says that no message follows and waits until all have arrived: short ones at the peer's NIC, whatever its program does;
    /// long ones when its program has looked and read them. Messages of the peer can be received afterwards.
    pub fn close(&mut self) -> Close<'_> {
        self.sender.close()
    }

    /// Registered memory for a message of `len` bytes.
    pub fn buffer(&self, len: usize) -> Result<Buffer, Error> {
        self.sender.buffer(len)
    }

    /// Up to which length messages go in frames, and how that is known.
    pub fn cutoff(&self) -> Cutoff {
        self.sender.cutoff()
    }

    /// The peer's address, and its port, which is 0 if its request did not carry one.
    pub fn peer_addr(&self) -> SocketAddr {
        self.sender.peer_addr()
    }

    /// Its two halves, for different tasks or threads. The connection ends with the last of them.
    pub fn split(mut self) -> (Sender, Receiver) {
        self.sender.whole = false;
        (self.sender, self.receiver)
    }

    /// Puts the two halves of one channel together again. Both come back if they are not.
    pub fn join(mut sender: Sender, receiver: Receiver) -> Result<Self, (Sender, Receiver)> {
        if !Arc::ptr_eq(&sender.shared, &receiver.shared) {
            return Err((sender, receiver));
        }
        sender.whole = true;
        Ok(Channel { sender, receiver })
    }

    /// The half that sends, for hand-written futures.
    pub fn sender(&mut self) -> &mut Sender {
        &mut self.sender
    }

    /// The half that receives, for hand-written futures.
    pub fn receiver(&mut self) -> &mut Receiver {
        &mut self.receiver
    }
}

impl Sender {
    /// Sends a message: waits until the peer has room for it, and hands it over.
    pub fn send<'a>(&'a mut self, message: impl Into<Outbound<'a>>) -> Send<'a> {
        Send::new(&self.shared, message.into())
    }

    /// Hands a message over if there is room for it now.
    pub fn try_send<'a>(&mut self, message: impl Into<Outbound<'a>>) -> Result<(), TrySendError<'a>> {
        let mut message = Some(message.into());
        let sent = self.shared.with(|state| futures::hand_over(state, &mut message));
        match (sent, message) {
            (Poll::Ready(Ok(())), _) => Ok(()),
            (Poll::Ready(Err(error)), _) => Err(TrySendError::Failed(error)),
            (Poll::Pending, Some(message)) => Err(TrySendError::Full(message)),
            (Poll::Pending, None) => Err(TrySendError::Failed(Error::Closed)),
        }
    }

    /// Ready when a message of any length can be handed over by [`Sender::try_send`]. Drives the channel.
    pub fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.shared
            .poll_with(context, |state| match state.can_send(None) {
                Ok(true) => Poll::Ready(Ok(())),
                Ok(false) => Poll::Pending,
                Err(error) => Poll::Ready(Err(error)),
            })
    }

    /// Waits until everything that was sent has left: frames are acknowledged (iWARP: taken by TCP), and long messages were read.
    pub fn flush(&mut self) -> Flush<'_> {
        Flush::new(&self.shared)
    }

    /// The same, for hand-written futures.
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.shared.poll_with(context, futures::flushed)
    }

    /// Says that no message follows and waits until all have arrived: short ones at the peer's NIC, whatever its program does;
    /// long ones when its program has looked and read them.
    pub fn close(&mut self) -> Close<'_> {
        Close::new(&self.shared)
    }

    /// The same, for hand-written futures.
    pub fn poll_close(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.shared.poll_with(context, futures::closed)
    }

    /// Registered memory for a message of `len` bytes.
    pub fn buffer(&self, len: usize) -> Result<Buffer, Error> {
        self.shared.with(|state| state.buffer(len)).map(Buffer::new)
    }

    /// The longest message that the peer takes.
    pub fn longest(&self) -> u64 {
        self.shared.with(|state| state.machine.longest())
    }

    /// Up to which length messages go in frames, and how that is known.
    pub fn cutoff(&self) -> Cutoff {
        self.shared.with(|state| state.cutoff())
    }

    /// The peer's address, and its port, which is 0 if its request did not carry one.
    pub fn peer_addr(&self) -> SocketAddr {
        self.shared.with(|state| state.connection.peer_addr())
    }

    /// Why the channel ended, if it has.
    pub fn lost(&self) -> Option<Lost> {
        self.shared.with(|state| state.lost)
    }
}

impl Receiver {
    /// Receives the next message; `None` after the last one.
    pub fn recv(&mut self) -> Recv<'_> {
        Recv::new(&self.shared)
    }

    /// The next message, if it is here already. Looks once at what the NIC has.
    pub fn try_recv(&mut self) -> Result<Option<Message>, Error> {
        let queue = &self.shared.queue;
        let found = self.shared.with(|state| match futures::received(state) {
            Poll::Pending => {
                state.drive(queue);
                futures::received(state)
            }
            found => found,
        });
        self.shared.tell_others(None, 0);
        match found {
            Poll::Ready(found) => found,
            Poll::Pending => Ok(None),
        }
    }

    /// The next message, for hand-written futures. Drives the channel.
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Message>, Error>> {
        self.shared.poll_with(context, futures::received)
    }

    /// Whether the peer has said that no message follows, or the channel has ended, and everything was taken.
    pub fn is_at_end(&self) -> bool {
        self.shared.with(|state| state.machine.is_at_end())
    }

    /// Why the channel ended, if it has.
    pub fn lost(&self) -> Option<Lost> {
        self.shared.with(|state| state.lost)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if !self.whole {
            self.shared.with(|state| state.machine.end());
        }
    }
}

/// What taking a message out of the machine means to a program.
pub(crate) fn taken(taken: Taken<Message>, lost: Error) -> Poll<Result<Option<Message>, Error>> {
    match taken {
        Taken::Message(message) => Poll::Ready(Ok(Some(message))),
        Taken::Nothing => Poll::Pending,
        Taken::End => Poll::Ready(Ok(None)),
        Taken::Lost => Poll::Ready(Err(lost)),
    }
}

fn describe(name: &str, shared: &Shared, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (peer, cutoff, lost) =
        shared.with(|state| (state.connection.peer_addr(), state.cutoff(), state.lost));
    f.debug_struct(name)
        .field("peer", &peer)
        .field("cutoff", &cutoff)
        .field("lost", &lost)
        .finish_non_exhaustive()
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        describe("Channel", &self.sender.shared, f)
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        describe("Sender", &self.shared, f)
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        describe("Receiver", &self.shared, f)
    }
}
