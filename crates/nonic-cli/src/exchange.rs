//! The out-of-band conversation: how two processes agree what to do and learn each other's endpoints.
//!
//! Plain text over TCP, one message a line: a verb, then `key=value` fields. It can be read in a packet
//! capture and spoken by hand. `text=` takes the rest of the line.
//!
//! ```text
//! client                                         server
//! nonic version=1                           →
//!                                           ←    nonic version=1 mtu=4096
//! run test=bw service=rc op=write size=…    →
//! endpoint at=127.0.0.1,0x1a2000,…          →    (one per queue pair)
//! memory at=0x0,0x00c0ffee,65536            →
//!                                           ←    endpoint at=…, memory at=…
//! ready                                     →
//!                                           ←    ready
//!                      … RDMA …
//! done messages=4711                        →
//!                                           ←    result messages=4711 bytes=…
//! ```
//!
//! A side that cannot go on says `error text=…` and hangs up. Lines are limited in length and number, so a
//! stranger who connects can waste neither memory nor a thread for long.

use anyhow::{Context, Result, anyhow, bail};
use socket2::{SockRef, TcpKeepalive};
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::str::FromStr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

/// The version of this conversation.
pub(crate) const VERSION: u32 = 1;
/// Where servers listen unless told otherwise.
pub(crate) const DEFAULT_PORT: u16 = 18515;
/// How long an answer may take that needs no measurement first.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

const MAX_LINE_BYTES: u64 = 4096;
/// Lines read ahead of whoever asks for them.
const MAX_LINES_AHEAD: usize = 64;

/// One line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Message {
    verb: String,
    fields: Vec<(String, String)>,
}

impl Message {
    pub(crate) fn verb(&self) -> &str {
        &self.verb
    }

    pub(crate) fn new(verb: &str) -> Self {
        Message {
            verb: verb.to_owned(),
            fields: Vec::new(),
        }
    }

    /// Adds a field. Values are our own numbers and names, without blanks.
    #[must_use]
    pub(crate) fn with(mut self, key: &str, value: impl fmt::Display) -> Self {
        self.fields.push((key.to_owned(), value.to_string()));
        self
    }

    /// A field that must be there.
    pub(crate) fn field<T: FromStr>(&self, key: &str) -> Result<T> {
        let value = self
            .fields
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value)
            .ok_or_else(|| {
                anyhow!(
                    "the peer's `{}` has no `{key}`; is it another version?",
                    self.verb
                )
            })?;
        value.parse().map_err(|_| {
            anyhow!(
                "the peer's `{}` has a `{key}` that makes no sense: {value}",
                self.verb
            )
        })
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.verb)?;
        for (key, value) in &self.fields {
            write!(f, " {key}={}", value.replace(['\n', '\r'], " "))?;
        }
        Ok(())
    }
}

impl FromStr for Message {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> Result<Self> {
        let (verb, mut rest) = line.trim_end().split_once(' ').unwrap_or((line.trim_end(), ""));
        let mut message = Message::new(verb);
        while !rest.is_empty() {
            let (key, after) = rest
                .split_once('=')
                .ok_or_else(|| anyhow!("not a line of this conversation: {line:.80}"))?;
            let (value, tail) = match key {
                "text" => (after, ""),
                _ => after.split_once(' ').unwrap_or((after, "")),
            };
            message = message.with(key, value);
            rest = tail;
        }
        Ok(message)
    }
}

/// A connection to a peer.
#[derive(Debug)]
pub(crate) struct Conversation {
    stream: TcpStream,
    lines: Receiver<Result<Message>>,
}

impl Conversation {
    /// Takes over a connection. Lines are read by a thread of its own, which sleeps until there is one, so
    /// that measuring loops can look for news without a system call.
    pub(crate) fn new(stream: TcpStream) -> Result<Self> {
        stream.set_nodelay(true)?;
        // A host that vanished says nothing; without this its peer would measure for ever.
        let keepalive = TcpKeepalive::new()
            .with_time(PATIENCE / 3)
            .with_interval(PATIENCE / 6)
            .with_retries(3);
        SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let reader = stream.try_clone()?;
        let (sender, lines) = sync_channel(MAX_LINES_AHEAD);
        std::thread::Builder::new()
            .name("conversation".to_owned())
            .spawn(move || read_lines(reader, &sender))?;
        Ok(Conversation { stream, lines })
    }

    /// The local address the peer reached us at, or that we reach it from.
    pub(crate) fn local_addr(&self) -> Result<SocketAddr> {
        Ok(self.stream.local_addr()?)
    }

    /// The peer's address.
    pub(crate) fn peer_addr(&self) -> Result<SocketAddr> {
        Ok(self.stream.peer_addr()?)
    }

    pub(crate) fn say(&mut self, message: &Message) -> Result<()> {
        self.stream
            .write_all(format!("{message}\n").as_bytes())
            .context("the peer hung up")
    }

    /// Tells the peer why we give up. It may be gone; that changes nothing.
    pub(crate) fn complain(&mut self, error: &anyhow::Error) {
        let _ = self.say(&Message::new("error").with("text", format!("{error:#}")));
    }

    /// The next line, which must be this verb.
    pub(crate) fn expect(&self, verb: &str, patience: Duration) -> Result<Message> {
        match self.lines.recv_timeout(patience) {
            Ok(message) => expected(verb, message?),
            Err(RecvTimeoutError::Timeout) => {
                bail!("the peer did not say `{verb}` within {patience:?}; does it still run?")
            }
            Err(RecvTimeoutError::Disconnected) => bail!("the peer hung up where `{verb}` was due"),
        }
    }

    /// The next line whatever it is, or `None` if the peer hung up.
    pub(crate) fn next(&self) -> Result<Option<Message>> {
        self.lines.recv().ok().transpose()
    }

    /// The next line if it has come already. It must be this verb. A peer that hung up is an error.
    pub(crate) fn news(&self, verb: &str) -> Result<Option<Message>> {
        match self.lines.try_recv() {
            Ok(message) => expected(verb, message?).map(Some),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => bail!("the peer hung up where `{verb}` was due"),
        }
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        // Ends the reading thread.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// A message of another verb is the peer's complaint, or nonsense.
pub(crate) fn expected(verb: &str, message: Message) -> Result<Message> {
    match message.verb.as_str() {
        other if other == verb => Ok(message),
        "error" => bail!("the peer gave up: {}", message.field::<String>("text")?),
        other => bail!("the peer said `{other:.40}` where `{verb}` was due; is it another version?"),
    }
}

fn read_lines(stream: TcpStream, sender: &SyncSender<Result<Message>>) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        let message = match (&mut reader).take(MAX_LINE_BYTES).read_line(&mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) if !line.ends_with('\n') => Err(anyhow!("the peer's line is cut short or too long")),
            Ok(_) => line.parse(),
        };
        let bad = message.is_err();
        // Nobody listens any more, or nothing sensible can follow.
        if sender.send(message).is_err() || bad {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (Conversation, Conversation) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let left = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let right = listener.accept().expect("it connected").0;
        (
            Conversation::new(left).expect("a connection"),
            Conversation::new(right).expect("a connection"),
        )
    }

    #[test]
    fn messages_survive_the_text_form() {
        let message = Message::new("run")
            .with("size", 64)
            .with("op", "write")
            .with("text", "with = signs and blanks");
        assert_eq!(
            message.to_string().parse::<Message>().expect("well formed"),
            message
        );
        let plain = Message::new("ready");
        assert_eq!("ready\n".parse::<Message>().expect("well formed"), plain);
    }

    #[test]
    fn a_line_of_something_else_is_refused() {
        assert!("GET / HTTP/1.1".parse::<Message>().is_err());
    }

    #[test]
    fn a_complaint_becomes_the_other_sides_error() {
        let (mut left, right) = pair();
        left.complain(&anyhow!("no such\nthing"));
        let error = right.expect("ready", PATIENCE).expect_err("it complained");
        assert_eq!(error.to_string(), "the peer gave up: no such thing");
    }

    #[test]
    fn a_peer_that_hangs_up_is_noticed() {
        let (left, right) = pair();
        assert!(right.news("ready").expect("still there").is_none());
        drop(left);
        assert!(right.expect("ready", PATIENCE).is_err());
        assert!(right.news("ready").is_err());
    }

    #[test]
    fn an_endless_line_is_cut() {
        let (mut left, right) = pair();
        left.stream
            .write_all(&vec![b'x'; 2 * MAX_LINE_BYTES as usize])
            .expect("room");
        let error = right.expect("ready", PATIENCE).expect_err("too long");
        assert!(error.to_string().contains("too long"), "{error}");
    }
}
