//! The conversation of two processes: lines of text over a connection of their own, by which they agree what to do.
//!
//! The client connects by address and port, as any RDMA program would; each line ([`Message`]) is one SEND. A line
//! that was said has arrived at the peer's NIC when [`Conversation::say`] returns. Lines are read by a thread of
//! their own, which sleeps until there is one, so that measuring loops can look for news without a system call.
//!
//! The connection is probed ([`ConnectOptions::keepalive`]): a peer that was killed, or whose host is gone, does not
//! answer, so no side measures for ever.

use crate::exchange::{Message, PEER_TIMEOUT, expected};
use crate::local_gid::LocalGid;
use anyhow::{Context, Result, anyhow, bail};
use nonic::{
    AckTimeout, Closed, CompletionQueue, ConnectError, ConnectOptions, Connection, Domain, Incoming, Lease,
    QpCapacity, QueuePairBuilder, Rc, RejectReason, connect_with,
};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What a client says of itself when it connects.
pub(crate) const GREETING: &[u8] = b"nonic conversation";

const MAX_LINE_BYTES: usize = 4096;
/// What a refusal can say: private data of a REJ.
const MAX_REFUSAL_BYTES: usize = 148;
/// Lines under way at a time.
const SENDS: usize = 1;
/// Lines that may come before they are read.
const RECEIVES: usize = 32;
/// Lines read ahead of the thread that asks for them.
const MAX_LINES_AHEAD: usize = 64;
/// How often the peer's NIC is asked whether it is there.
const KEEPALIVE: Duration = Duration::from_secs(2);
/// How long a host may take to acknowledge a line before it is repeated; after eight times as long it is gone.
const ACK_TIMEOUT: Duration = Duration::from_millis(200);
/// How long a server may take to answer at all.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection to a peer.
#[derive(Debug)]
pub(crate) struct Conversation {
    speaker: Arc<Mutex<Speaker>>,
    lines: Receiver<Result<Message>>,
    peer: SocketAddr,
}

impl Conversation {
    /// Connects to the server at an address, on behalf of this command.
    pub(crate) fn connect(local: &LocalGid, server: SocketAddr, command: &str) -> Result<Self> {
        let parts = Parts::new(local)?;
        let connecting = connect_with(parts.builder(local), server, &options(), GREETING)?;
        let connection = connecting.wait_within(CONNECT_TIMEOUT).map_err(|error| {
            let port = server.port();
            let advice = match error {
                ConnectError::Rejected { reason, .. } if reason == RejectReason::INVALID_SERVICE_ID => {
                    format!(
                        "nobody listens on port {port} of {}; start the server there (`nonic {command} --server`), or have both \
                         ends here with --loopback",
                        server.ip()
                    )
                }
                ConnectError::PortUnreachable(_) => {
                    format!(
                        "no RDMA program runs at {}; start the server there (`nonic {command} --server`)",
                        server.ip()
                    )
                }
                ConnectError::Unreachable(_) => {
                    format!(
                        "{server} does not answer; start the server there (`nonic {command} --server`), let UDP port 4791 through, and \
                         see whether another program has UDP port 4791 on the peer's host (`nonic doctor` there)"
                    )
                }
                ConnectError::Rejected {
                    ref private_data, ..
                } if !private_data.trimmed().is_empty() => {
                    let said = String::from_utf8_lossy(private_data.trimmed()).into_owned();
                    format!("{server} said: {said}")
                }
                _ => format!("cannot connect to {server}"),
            };
            anyhow::Error::new(error).context(advice)
        })?;
        parts.converse(connection)
    }

    /// Takes a client that connects to us.
    pub(crate) fn accept(local: &LocalGid, incoming: Incoming) -> Result<Self> {
        let parts = match Parts::new(local) {
            Ok(parts) => parts,
            Err(error) => {
                let why = format!("{error:#}");
                let why = &why.as_bytes()[..why.len().min(MAX_REFUSAL_BYTES)];
                // It may have given up already.
                let _ = incoming.reject_with(RejectReason::NO_RESOURCES, why);
                return Err(error);
            }
        };
        let connection = incoming.accept_with(parts.builder(local), &options(), &[])?;
        parts.converse(connection)
    }

    /// The peer's address.
    pub(crate) fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// The end of the peer's side, or ours.
    pub(crate) fn ended(&self) -> Closed {
        lock(&self.speaker).connection.closed()
    }

    pub(crate) fn say(&mut self, message: &Message) -> Result<()> {
        lock(&self.speaker).say(message.to_string().as_bytes())
    }

    /// Tells the peer why we give up. It may be gone; that changes nothing.
    pub(crate) fn complain(&mut self, error: &anyhow::Error) {
        let _ = self.say(&Message::new("error").with("text", format!("{error:#}")));
    }

    /// The next line, which must be this verb.
    pub(crate) fn expect(&self, verb: &str, timeout: Duration) -> Result<Message> {
        match self.lines.recv_timeout(timeout) {
            Ok(message) => expected(verb, message?),
            Err(RecvTimeoutError::Timeout) => {
                bail!("the peer did not say `{verb}` within {timeout:?}; does it still run?")
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
        // What was posted completes as flushed, which ends the reading thread. The peer may have been faster.
        let _ = lock(&self.speaker).connection.shutdown();
    }
}

/// The half that speaks.
#[derive(Debug)]
struct Speaker {
    connection: Connection<Rc>,
    domain: Domain,
    sent: CompletionQueue,
}

impl Speaker {
    /// Says something and waits until the peer's NIC has it.
    fn say(&mut self, line: &[u8]) -> Result<()> {
        let line = self.domain.lease_from(line)?;
        self.connection.pair.sq.send(0, line)?;
        let done = self.sent.wait(Some(PEER_TIMEOUT))?;
        let done = done.context("the peer takes no more lines; does it still run?")?;
        done.result.context("the peer hung up")?;
        Ok(())
    }
}

/// What a conversation needs before there is a connection.
struct Parts {
    domain: Domain,
    sent: CompletionQueue,
    received: CompletionQueue,
    /// The memory of all receives. Taken before there is a connection, so that a lack of memory leaves neither side
    /// with half of one.
    room: Lease,
}

impl Parts {
    fn new(local: &LocalGid) -> Result<Self> {
        let domain = local.device.domain();
        let room = domain.lease(RECEIVES * MAX_LINE_BYTES);
        Ok(Parts {
            sent: local.device.completion_queue(SENDS)?,
            received: local.device.completion_queue(RECEIVES)?,
            room: room.context(
                "cannot register memory for messages; if NONIC_FAULTS=registration is not set, look at the limits of the device (`nonic devices \
                 --verbose`)",
            )?,
            domain,
        })
    }

    fn builder(&self, local: &LocalGid) -> QueuePairBuilder<Rc> {
        let capacity = QpCapacity {
            max_send_wr: SENDS as u32,
            max_recv_wr: RECEIVES as u32,
            ..QpCapacity::default()
        };
        self.domain
            .queue_pair_builder(&self.sent)
            .receive_completions(&self.received)
            .capacity(capacity)
            .gid_index(local.gid_index)
    }

    fn converse(self, mut connection: Connection<Rc>) -> Result<Conversation> {
        let mut room = self.room;
        for _ in 0..RECEIVES {
            let (piece, rest) = room.split_at(MAX_LINE_BYTES);
            connection.pair.rq.recv(0, piece)?;
            room = rest;
        }
        let peer = connection.peer_addr();
        let speaker = Arc::new(Mutex::new(Speaker {
            connection,
            domain: self.domain,
            sent: self.sent,
        }));
        let (sender, lines) = sync_channel(MAX_LINES_AHEAD);
        let reader = Arc::clone(&speaker);
        std::thread::Builder::new()
            .name("conversation".to_owned())
            .spawn(move || read_lines(&reader, &self.received, &sender))?;
        Ok(Conversation { speaker, lines, peer })
    }
}

fn read_lines(speaker: &Mutex<Speaker>, received: &CompletionQueue, sender: &SyncSender<Result<Message>>) {
    while let Ok(Some(done)) = received.wait(None) {
        // An error is the end: flushed because one of us hung up, or because the peer does not answer.
        let Ok(length) = done.result else { return };
        let message = std::str::from_utf8(&done.buffers[0][..length])
            .map_err(|_| anyhow!("the peer's line is no text"))
            .and_then(str::parse);
        let bad = message.is_err();
        // The receiver is gone, or nothing sensible can follow.
        if sender.send(message).is_err() || bad {
            return;
        }
        // Refused after the end, which the next completion tells.
        let _ = lock(speaker).connection.pair.rq.recv(0, done.buffers);
    }
}

fn options() -> ConnectOptions {
    ConnectOptions {
        timeout: AckTimeout::at_least(ACK_TIMEOUT),
        keepalive: Some(KEEPALIVE),
        ..ConnectOptions::default()
    }
}

fn lock(speaker: &Mutex<Speaker>) -> MutexGuard<'_, Speaker> {
    speaker.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local_gid::{DeviceChoice, OpenDevices};
    use nonic::Listener;

    fn pair() -> (Conversation, Conversation) {
        let address = "127.0.0.1:0".parse().expect("a literal address");
        let local = OpenDevices::default()
            .find(&DeviceChoice::default(), address)
            .expect("loopback");
        let listener = Listener::bind(&local.device, address).expect("a free port");
        let server = listener.local_addr();
        let client = std::thread::spawn({
            let local = local.clone();
            move || Conversation::connect(&local, server, "ping").expect("it listens")
        });
        let incoming = listener.accept().expect("it connects");
        let right = Conversation::accept(&local, incoming).expect("a connection");
        (client.join().expect("no panic"), right)
    }

    /// The client is told late that it was accepted, as if that message had got lost at first.
    #[test]
    fn a_client_that_learns_late_of_its_acceptance_is_waited_for() {
        let address = "127.0.0.1:0".parse().expect("a literal address");
        let local = OpenDevices::default()
            .find(&DeviceChoice::default(), address)
            .expect("loopback");
        let listener = Listener::bind(&local.device, address).expect("a free port");
        let parts = Parts::new(&local).expect("queues");
        let connecting = connect_with(parts.builder(&local), listener.local_addr(), &options(), GREETING);
        let connecting = connecting.expect("it is asked");
        let incoming = listener.accept().expect("it connects");
        let server = Conversation::accept(&local, incoming).expect("a connection");
        // Longer than a server would wait for the answer to a probe.
        std::thread::sleep(KEEPALIVE + 12 * ACK_TIMEOUT);
        let connection = connecting.wait_within(CONNECT_TIMEOUT).expect("accepted");
        let mut client = parts.converse(connection).expect("memory");
        client.say(&Message::new("ready")).expect("it is there");
        server.expect("ready", PEER_TIMEOUT).expect("it was said");
    }

    #[test]
    fn a_complaint_becomes_the_other_sides_error() {
        let (mut left, right) = pair();
        left.complain(&anyhow!("no such\nthing"));
        let error = right.expect("ready", PEER_TIMEOUT).expect_err("it complained");
        assert_eq!(error.to_string(), "the peer gave up: no such thing");
    }

    #[test]
    fn a_peer_that_hangs_up_is_noticed() {
        let (left, right) = pair();
        assert!(right.news("ready").expect("still there").is_none());
        drop(left);
        assert!(right.expect("ready", PEER_TIMEOUT).is_err());
        assert!(right.news("ready").is_err());
    }

    #[test]
    fn what_was_said_before_hanging_up_is_heard() {
        let (mut left, right) = pair();
        for _ in 0..RECEIVES {
            left.say(&Message::new("ready")).expect("it is there");
        }
        drop(left);
        for _ in 0..RECEIVES {
            right.expect("ready", PEER_TIMEOUT).expect("it was said");
        }
        assert!(right.next().expect("nothing wrong").is_none());
    }

    #[test]
    fn a_line_too_long_ends_it() {
        let (left, right) = pair();
        let said = lock(&left.speaker).say(&[b'x'; MAX_LINE_BYTES + 1]);
        assert!(said.is_err());
        assert!(right.expect("ready", PEER_TIMEOUT).is_err());
    }

    #[test]
    fn silence_is_no_end() {
        let (mut left, right) = pair();
        std::thread::sleep(KEEPALIVE + KEEPALIVE / 4);
        left.say(&Message::new("ready")).expect("it is there");
        right.expect("ready", PEER_TIMEOUT).expect("it was said");
    }
}
