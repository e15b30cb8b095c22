//! Requests and responses on a channel: many calls under way, answered in any order, each with a deadline of its own.
//!
//! A call is a message that begins with a number of 8 bytes; the response begins with the same. The side that calls has a [`Caller`], the
//! other one a [`Responder`]. Requests and responses are copied once, behind their numbers; they are received without a copy.
//!
//! ```
//! use nonic_message::{Caller, Node, Responder};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), nonic_message::Error> {
//! let node = Node::open("roce_lo")?;
//! let listener = node.listen(([127, 0, 0, 1], 0).into())?;
//! let address = listener.local_addr();
//! let server = std::thread::spawn(move || -> Result<(), nonic_message::Error> {
//!     let mut responder = Responder::new(listener.accept().wait()?);
//!     while let Some(request) = responder.next_request().wait()? {
//!         let answer: Vec<u8> = request.iter().rev().copied().collect();
//!         responder.reply(&request, &answer)?.wait()?;
//!     }
//!     responder.into_channel().close().wait()
//! });
//! let caller = Caller::new(node.connect(address).wait()?);
//! let response = caller.call(b"stressed")?.within(Duration::from_secs(5)).wait()?;
//! assert_eq!(&response[..], b"desserts");
//! caller.into_channel().expect("no other handle").close().wait()?;
//! # server.join().expect("no panic")
//! # }
//! ```

use crate::channel::{Channel, Recv, Send, taken};
use crate::driver::{Shared, State};
use crate::error::Error;
use crate::message::{Buffer, Message, Outbound};
use nonic::background::{Sleep, sleep_until};
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Bytes of a call's number.
const NUMBER_BYTES: usize = 8;

/// The side that calls. Clones are handles to the same one.
///
/// ```
/// use nonic_message::{Caller, Responder};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let node = nonic_message::Node::open("roce_lo")?;
/// # let listener = node.listen("127.0.0.1:0".parse()?)?;
/// # let patience = std::time::Duration::from_secs(10);
/// # let address = listener.local_addr();
/// # let connecting = { let node = node.clone(); std::thread::spawn(move || node.connect(address).wait()) };
/// # let mut server = listener.accept().wait_within(patience).ok_or("nobody came")??;
/// # let mut client = connecting.join().expect("no panic")?;
/// # let answering = std::thread::spawn(move || -> Result<(), nonic_message::Error> {
/// #     let mut responder = Responder::new(server);
/// #     while let Some(Ok(Some(request))) = responder.next_request().wait_within(patience) {
/// #         responder.reply(&request, &request)?.wait()?;
/// #     }
/// #     Ok(())
/// # });
/// let caller = Caller::new(client);
/// let (first, second) = (caller.call(b"one")?, caller.call(b"two")?);
/// assert_eq!(&second.within(patience).wait()?[..], b"two"); // in any order
/// assert_eq!(&first.within(patience).wait()?[..], b"one");
/// # drop(caller);
/// # answering.join().expect("no panic")?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Caller {
    channel: Arc<Channel>,
    calls: Arc<Mutex<Calls>>,
}

#[derive(Debug, Default)]
struct Calls {
    next: u64,
    /// Calls with a waiter, and the response if it came.
    waiting: HashMap<u64, Option<Message>>,
}

impl Caller {
    /// Calls over a channel, whose other end has a [`Responder`].
    pub fn new(channel: Channel) -> Self {
        Caller {
            channel: Arc::new(channel),
            calls: Arc::default(),
        }
    }

    /// A call. Await its response or wait for it; dropped, it is abandoned, and a response that comes then is too.
    ///
    /// The error is that there is no memory for the request.
    pub fn call(&self, request: &[u8]) -> Result<Call<'_>, Error> {
        let number = {
            let mut calls = lock(&self.calls);
            calls.next += 1;
            calls.next
        };
        let request = numbered(&self.channel, number, request)?;
        Ok(Call {
            caller: self,
            number,
            request: Some(request.into()),
            deadline: None,
            alarm: None,
        })
    }

    /// The channel, if this is the only handle.
    pub fn into_channel(self) -> Option<Channel> {
        Arc::into_inner(self.channel)
    }

    fn shared(&self) -> &Shared {
        self.channel.shared()
    }
}

/// A call under way.
///
/// ```
/// use nonic_message::{Caller, Error};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let node = nonic_message::Node::open("roce_lo")?;
/// # let listener = node.listen("127.0.0.1:0".parse()?)?;
/// # let patience = std::time::Duration::from_secs(10);
/// # let address = listener.local_addr();
/// # let connecting = { let node = node.clone(); std::thread::spawn(move || node.connect(address).wait()) };
/// # let mut server = listener.accept().wait_within(patience).ok_or("nobody came")??;
/// # let mut client = connecting.join().expect("no panic")?;
/// let caller = Caller::new(client);
/// let call = caller.call(b"is anybody there?")?.within(Duration::from_millis(10));
/// match call.wait() {
///     Ok(response) => println!("{} bytes", response.len()),
///     Err(Error::Deadline) => println!("nobody answers"),
///     Err(error) => return Err(error.into()),
/// }
/// # drop(server);
/// # Ok(()) }
/// ```
#[must_use = "nothing is sent unless it is awaited or waited for"]
pub struct Call<'a> {
    caller: &'a Caller,
    number: u64,
    /// The request, until it is sent.
    request: Option<Outbound<'static>>,
    deadline: Option<Instant>,
    /// Wakes the task at the deadline, once the call was polled.
    alarm: Option<Sleep>,
}

impl Call<'_> {
    /// Gives up after this time, counted from now: [`Error::Deadline`].
    pub fn within(mut self, timeout: Duration) -> Self {
        self.deadline = Instant::now().checked_add(timeout);
        self.alarm = None;
        self
    }

    /// Waits for the response. The thread drives the NIC meanwhile.
    pub fn wait(mut self) -> Result<Response, Error> {
        let (shared, deadline) = (self.caller.shared(), self.deadline);
        let answered = shared.wait_with(deadline, |state| self.step(state));
        answered.unwrap_or(Err(Error::Deadline))
    }

    /// Sends the request, if that is to be done, and looks for the response. What came for others is kept for them.
    fn step(&mut self, state: &mut State) -> Poll<Result<Response, Error>> {
        let mut calls = lock(&self.caller.calls);
        if let Some(request) = &self.request {
            match state.can_send(Some(request.len() as u64)) {
                Err(error) => return Poll::Ready(Err(error)),
                Ok(true) => {
                    calls.waiting.insert(self.number, None);
                    let sent = self.request.take().map_or(Ok(()), |request| state.send(request));
                    if let Err(error) = sent {
                        return Poll::Ready(Err(error));
                    }
                }
                Ok(false) => {}
            }
        }
        loop {
            let answer = calls.waiting.get_mut(&self.number).and_then(Option::take);
            if let Some(message) = answer {
                calls.waiting.remove(&self.number);
                return Poll::Ready(Ok(Response { message }));
            }
            let next = state.machine.take();
            match taken(next, state.ended()) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(Some(message))) => {
                    // A response that no call waits for any more is dropped.
                    let place = number_of(&message).and_then(|number| calls.waiting.get_mut(&number));
                    if let Some(place) = place {
                        *place = Some(message);
                    }
                }
                Poll::Ready(Ok(None)) => return Poll::Ready(Err(Error::Closed)),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl Future for Call<'_> {
    type Output = Result<Response, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let (caller, deadline) = (self.caller, self.deadline);
        let polled = caller.shared().poll_with(context, |state| self.step(state));
        if let (Poll::Pending, Some(deadline)) = (&polled, deadline) {
            let alarm = self.alarm.get_or_insert_with(|| sleep_until(deadline));
            return Pin::new(alarm).poll(context).map(|()| Err(Error::Deadline));
        }
        polled
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        lock(&self.caller.calls).waiting.remove(&self.number);
    }
}

impl fmt::Debug for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

/// What came back from a call. It derefs to a byte slice.
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
/// # let answering = std::thread::spawn(move || -> Result<(), nonic_message::Error> {
/// #     let mut responder = nonic_message::Responder::new(server);
/// #     if let Some(Ok(Some(request))) = responder.next_request().wait_within(patience) {
/// #         responder.reply(&request, b"42")?.wait()?;
/// #     }
/// #     responder.into_channel().close().wait()
/// # });
/// # let caller = nonic_message::Caller::new(client);
/// let response = caller.call(b"6 * 7")?.within(patience).wait()?;
/// assert_eq!(&response[..], b"42");
/// # answering.join().expect("no panic")?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Response {
    message: Message,
}

impl Deref for Response {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.message[NUMBER_BYTES..]
    }
}

/// The side that is called.
///
/// ```
/// use nonic_message::{Caller, Responder};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let node = nonic_message::Node::open("roce_lo")?;
/// # let listener = node.listen("127.0.0.1:0".parse()?)?;
/// # let patience = std::time::Duration::from_secs(10);
/// # let address = listener.local_addr();
/// # let connecting = { let node = node.clone(); std::thread::spawn(move || node.connect(address).wait()) };
/// # let mut server = listener.accept().wait_within(patience).ok_or("nobody came")??;
/// # let mut client = connecting.join().expect("no panic")?;
/// # let asking = std::thread::spawn(move || -> Result<(), nonic_message::Error> {
/// #     let caller = Caller::new(client);
/// #     assert_eq!(&caller.call(b"hello")?.within(patience).wait()?[..], b"HELLO");
/// #     Ok(())
/// # });
/// let mut responder = Responder::new(server);
/// while let Ok(Some(request)) = responder.next_request().wait() {
///     let answer = request.to_ascii_uppercase();
///     responder.reply(&request, &answer)?.wait()?;
///     # break;
/// }
/// # asking.join().expect("no panic")?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Responder {
    channel: Channel,
}

impl Responder {
    /// Answers calls over a channel, whose other end has a [`Caller`].
    pub fn new(channel: Channel) -> Self {
        Responder { channel }
    }

    /// The next request; `None` after the last one. A message that is no request is an error.
    pub fn next_request(&mut self) -> NextRequest<'_> {
        NextRequest {
            next: self.channel.recv(),
        }
    }

    /// Answers a request, of which there may be others open. The error is that there is no memory for the response.
    pub fn reply(&mut self, request: &Request, response: &[u8]) -> Result<Send<'_>, Error> {
        let response = numbered(&self.channel, request.number, response)?;
        Ok(self.channel.send(response))
    }

    /// The channel.
    pub fn into_channel(self) -> Channel {
        self.channel
    }
}

/// The next request of a [`Responder`]. Dropped, the request stays in the channel.
///
/// ```
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let node = nonic_message::Node::open("roce_lo")?;
/// # let listener = node.listen("127.0.0.1:0".parse()?)?;
/// # let patience = std::time::Duration::from_secs(10);
/// # let address = listener.local_addr();
/// # let connecting = { let node = node.clone(); std::thread::spawn(move || node.connect(address).wait()) };
/// # let mut server = listener.accept().wait_within(patience).ok_or("nobody came")??;
/// # let mut client = connecting.join().expect("no panic")?;
/// let mut responder = nonic_message::Responder::new(server);
/// match responder.next_request().wait_within(Duration::from_millis(1)) {
///     None => println!("nothing yet"),
///     Some(Ok(Some(request))) => println!("{} bytes", request.len()),
///     Some(Ok(None)) => println!("that was the last one"),
///     Some(Err(error)) => return Err(error.into()),
/// }
/// # drop(client);
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "nothing is received unless it is awaited or waited for"]
pub struct NextRequest<'a> {
    next: Recv<'a>,
}

impl NextRequest<'_> {
    /// Waits for it. The thread drives the NIC meanwhile.
    pub fn wait(self) -> Result<Option<Request>, Error> {
        self.next.wait()?.map(Request::new).transpose()
    }

    /// The same, for at most `timeout`; `None` if there was none by then.
    pub fn wait_within(self, timeout: Duration) -> Option<Result<Option<Request>, Error>> {
        let next = self.next.wait_within(timeout)?;
        Some(next.and_then(|message| message.map(Request::new).transpose()))
    }
}

impl Future for NextRequest<'_> {
    type Output = Result<Option<Request>, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let next = Pin::new(&mut self.next).poll(context)?;
        next.map(|message| message.map(Request::new).transpose())
    }
}

/// A request to be answered. It derefs to a byte slice.
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
/// # let asking = std::thread::spawn(move || -> Result<(), nonic_message::Error> {
/// #     let caller = nonic_message::Caller::new(client);
/// #     let (later, now) = (caller.call(b"later")?, caller.call(b"now")?);
/// #     std::thread::scope(|scope| {
/// #         let later = scope.spawn(|| later.within(patience).wait());
/// #         now.within(patience).wait()?;
/// #         later.join().expect("no panic").map(drop)
/// #     })
/// # });
/// # let mut responder = nonic_message::Responder::new(server);
/// let mut open = Vec::new();
/// while open.len() < 2 {
///     open.extend(responder.next_request().wait_within(patience).ok_or("nobody asks")??);
/// }
/// while let Some(request) = open.pop() {
///     responder.reply(&request, &request)?.wait()?; // the last one first
/// }
/// # asking.join().expect("no panic")?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Request {
    number: u64,
    message: Message,
}

impl Request {
    fn new(message: Message) -> Result<Self, Error> {
        let number = number_of(&message).ok_or(Error::NotACall)?;
        Ok(Request { number, message })
    }
}

impl Deref for Request {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.message[NUMBER_BYTES..]
    }
}

fn number_of(message: &[u8]) -> Option<u64> {
    message.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}

/// A message with a number before it.
fn numbered(channel: &Channel, number: u64, bytes: &[u8]) -> Result<Buffer, Error> {
    let mut buffer = channel.buffer(NUMBER_BYTES + bytes.len())?;
    buffer[..NUMBER_BYTES].copy_from_slice(&number.to_be_bytes());
    buffer[NUMBER_BYTES..].copy_from_slice(bytes);
    Ok(buffer)
}

fn lock(calls: &Mutex<Calls>) -> MutexGuard<'_, Calls> {
    calls.lock().unwrap_or_else(PoisonError::into_inner)
}
