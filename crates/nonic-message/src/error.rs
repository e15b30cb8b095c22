//! The errors of channels, as sentences.

use crate::protocol::{GreetingError, ProtocolError};
use nonic::{CloseReason, ConnectError, CreateError, ListenError, MemoryError, OpenError, Status};

/// Why a channel did not do what it was asked.
///
/// ```
/// use nonic_message::Error;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let node = nonic_message::Node::open("roce_lo")?;
/// # let listener = node.listen("127.0.0.1:0".parse()?)?;
/// # let patience = std::time::Duration::from_secs(10);
/// # let address = listener.local_addr();
/// # let connecting = { let node = node.clone(); std::thread::spawn(move || node.connect(address).wait()) };
/// # let mut server = listener.accept().wait_within(patience).ok_or("nobody came")??;
/// # let mut client = connecting.join().expect("no panic")?;
/// drop(server); // without a word
/// match client.recv().wait() {
///     Ok(Some(message)) => println!("{} bytes", message.len()),
///     Ok(None) => println!("the peer has closed the channel"),
///     Err(Error::Lost(why)) => println!("{why}"), // the peer disconnected
///     Err(error) => return Err(error.into()),
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The connection ended; what was sent and not flushed may be lost.
    #[error("the channel ended: {0}")]
    Lost(#[from] Lost),
    /// This side has said that it sends no more.
    #[error("this side of the channel was closed")]
    Closed,
    /// The peer does not take messages of this length.
    #[error("a message of {length} bytes is longer than the peer takes ({longest})")]
    TooLong {
        /// The message's length.
        length: u64,
        /// The longest one the peer takes.
        longest: u64,
    },
    /// There was no memory for the message.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The two sides did not come together.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The two sides came together and do not understand each other.
    #[error(transparent)]
    Greeting(#[from] GreetingError),
    /// The port cannot be listened at.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The device cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The queue pair could not be made.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// A call was not answered in time.
    #[error("the call was not answered in time")]
    Deadline,
    /// The peer sent something else than a request.
    #[error("the peer sent a message that is no request")]
    NotACall,
}

/// Why a channel ended. It stays the same once it is known.
///
/// ```
/// use nonic_message::{Error, Lost};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let node = nonic_message::Node::open("roce_lo")?;
/// # let listener = node.listen("127.0.0.1:0".parse()?)?;
/// # let patience = std::time::Duration::from_secs(10);
/// # let address = listener.local_addr();
/// # let connecting = { let node = node.clone(); std::thread::spawn(move || node.connect(address).wait()) };
/// # let mut server = listener.accept().wait_within(patience).ok_or("nobody came")??;
/// # let mut client = connecting.join().expect("no panic")?;
/// drop(server);
/// let lost = client.recv().wait().expect_err("nothing was sent");
/// assert!(matches!(lost, Error::Lost(Lost::Closed(nonic::CloseReason::Disconnected))));
/// # Ok(()) }
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Lost {
    /// The connection was ended.
    #[error(transparent)]
    Closed(#[from] CloseReason),
    /// A request failed: the peer does not answer, or refuses.
    #[error(transparent)]
    Failed(#[from] Status),
    /// The peer does not keep to the protocol.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The peer has not answered for too long.
    #[error("the peer does not answer any more")]
    Silent,
    /// There was no memory, or the NIC refused a request.
    #[error("this side could not go on for want of memory or room")]
    Exhausted,
}
