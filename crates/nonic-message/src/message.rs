//! Messages: the memory that is sent, and the memory that was received.

use nonic::Lease;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// Registered memory for a message, to be filled and sent: long messages go from here straight to the receiver's memory.
///
/// It derefs to a byte slice. What is in it at first is whatever this program had in it before.
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
/// let mut picture = client.buffer(100_000)?;
/// picture.fill(7);
/// # std::thread::scope(|scope| {
/// # let receiving = scope.spawn(|| server.recv().wait());
/// client.send(picture).wait()?; // read by the receiver, without a copy
/// # client.flush().wait()?;
/// # assert_eq!(receiving.join().expect("no panic")?.expect("a message").len(), 100_000);
/// # Ok::<(), nonic_message::Error>(())
/// # })?;
/// # Ok(()) }
/// ```
pub struct Buffer {
    lease: Lease,
}

impl Buffer {
    pub(crate) fn new(lease: Lease) -> Self {
        Buffer { lease }
    }

    /// The first `len` bytes; the rest is not sent.
    ///
    /// # Panics
    ///
    /// If it has fewer.
    #[must_use]
    pub fn truncated(self, len: usize) -> Self {
        Buffer {
            lease: self.lease.split_at(len).0,
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.lease
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.lease
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

/// A message that was received. It derefs to a byte slice, and can be sent on as it is.
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
/// let message = server.recv().wait()?.expect("not the end");
/// assert_eq!(&message[..], b"hello");
/// server.send(message).wait()?; // back as it came
/// # assert_eq!(client.recv().wait()?.expect("not the end").len(), 5);
/// # Ok(()) }
/// ```
pub struct Message {
    content: Content,
}

enum Content {
    /// A copy, so that the buffer it came in is free again.
    Copied(Box<[u8]>),
    /// A part of the buffer it came in.
    InFrame { lease: Lease, start: usize, end: usize },
    /// The memory it was read into.
    Read(Lease),
    /// No bytes at all.
    Empty,
}

impl Message {
    pub(crate) fn copied(bytes: &[u8]) -> Self {
        let content = Content::Copied(bytes.into());
        Message { content }
    }

    pub(crate) fn in_frame(lease: Lease, start: usize, end: usize) -> Self {
        let content = Content::InFrame { lease, start, end };
        Message { content }
    }

    pub(crate) fn read(lease: Option<Lease>) -> Self {
        let content = lease.map_or(Content::Empty, Content::Read);
        Message { content }
    }
}

impl Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.content {
            Content::Copied(bytes) => bytes,
            Content::InFrame { lease, start, end } => &lease[*start..*end],
            Content::Read(lease) => lease,
            Content::Empty => &[],
        }
    }
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq<[u8]> for Message {
    fn eq(&self, other: &[u8]) -> bool {
        **self == *other
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

/// What can be sent: bytes, which are copied into registered memory, or a [`Buffer`] or [`Message`], which are in such memory already
/// and are not copied if they are long.
///
/// ```
/// use nonic_message::Outbound;
///
/// let messages: [Outbound<'_>; 3] = ["text".into(), b"bytes".into(), vec![7; 1000].into()];
/// assert_eq!(messages.map(|message| message.len()), [4, 5, 1000]);
/// ```
#[derive(Debug)]
pub struct Outbound<'a>(pub(crate) Source<'a>);

#[derive(Debug)]
pub(crate) enum Source<'a> {
    Bytes(&'a [u8]),
    Owned(Vec<u8>),
    Boxed(Box<[u8]>),
    Lease(Lease),
}

impl Outbound<'_> {
    /// Its length in bytes.
    pub fn len(&self) -> usize {
        match &self.0 {
            Source::Lease(lease) => lease.len(),
            source => source.bytes().map_or(0, <[u8]>::len),
        }
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Source<'_> {
    /// The bytes, if they are not in registered memory.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Source::Bytes(bytes) => Some(bytes),
            Source::Owned(bytes) => Some(bytes),
            Source::Boxed(bytes) => Some(bytes),
            Source::Lease(_) => None,
        }
    }
}

impl<'a> From<&'a [u8]> for Outbound<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Outbound(Source::Bytes(bytes))
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Outbound<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        Outbound(Source::Bytes(bytes))
    }
}

impl<'a> From<&'a Vec<u8>> for Outbound<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        Outbound(Source::Bytes(bytes))
    }
}

impl<'a> From<&'a str> for Outbound<'a> {
    fn from(text: &'a str) -> Self {
        Outbound(Source::Bytes(text.as_bytes()))
    }
}

impl From<Vec<u8>> for Outbound<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Outbound(Source::Owned(bytes))
    }
}

impl From<Buffer> for Outbound<'_> {
    fn from(buffer: Buffer) -> Self {
        Outbound(Source::Lease(buffer.lease))
    }
}

impl From<Message> for Outbound<'_> {
    fn from(message: Message) -> Self {
        Outbound(match message.content {
            Content::Copied(bytes) => Source::Boxed(bytes),
            Content::InFrame { lease, start, end } => {
                let (upto, _) = lease.split_at(end);
                Source::Lease(upto.split_at(start).1)
            }
            Content::Read(lease) => Source::Lease(lease),
            Content::Empty => Source::Bytes(&[]),
        })
    }
}
