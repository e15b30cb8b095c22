//! The same measurements by raw verbs, without a layer of ours above them.

use super::{LARGE, Outcome};
use nonic::{
    Access, CompletionQueue, Connection, Device, Domain, Exposed, Incoming, Lease, Rc, RemoteSlice, connect,
};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// WRITEs under way, each to memory of its own; messages have as many.
pub(crate) const SLOTS: usize = 8;
const SEND: u64 = 1;

/// A connected queue pair.
pub(crate) struct Raw {
    domain: Domain,
    queue: CompletionQueue,
    connection: Connection<Rc>,
    remote: Vec<RemoteSlice>,
    receives: usize,
}

impl Raw {
    pub(crate) fn connect(device: &Device, peer: SocketAddr) -> Outcome<Self> {
        let (domain, queue) = (device.domain(), device.completion_queue(0)?);
        let connection = connect(domain.queue_pair_builder::<Rc>(&queue), peer, b"")?.wait()?;
        Ok(Raw::new(domain, queue, connection))
    }

    pub(crate) fn accept(device: &Device, incoming: Incoming) -> Outcome<Self> {
        let (domain, queue) = (device.domain(), device.completion_queue(0)?);
        let connection = incoming.accept(domain.queue_pair_builder::<Rc>(&queue), b"")?;
        Ok(Raw::new(domain, queue, connection))
    }

    fn new(domain: Domain, queue: CompletionQueue, connection: Connection<Rc>) -> Self {
        Raw {
            domain,
            queue,
            connection,
            remote: Vec::new(),
            receives: 0,
        }
    }

    /// Memory for the peer's WRITEs.
    pub(crate) fn slots(&self) -> Outcome<Vec<Exposed>> {
        (0..SLOTS)
            .map(|_| Ok(self.domain.lease(LARGE)?.expose(Access::REMOTE_WRITE)?))
            .collect()
    }

    pub(crate) fn know(&mut self, slots: &str) -> Outcome<()> {
        for slot in slots.split_whitespace() {
            self.remote.push(slot.parse()?);
        }
        Ok(())
    }

    /// Posts receives for echoes: to be done before the peer sends.
    pub(crate) fn prepare(&mut self) -> Outcome<()> {
        for _ in 0..4 {
            let lease = self.domain.lease(LARGE)?;
            self.connection.pair.rq.recv(0, lease)?;
            self.receives += 1;
        }
        Ok(())
    }

    /// Waits for a message and posts its receive again; its length.
    fn receive(&mut self, sent: &mut Option<Lease>) -> Outcome<usize> {
        let mut received = None;
        while received.is_none() || sent.is_none() {
            let done = self.queue.wait(None)?.ok_or("no time limit was given")?;
            let length = done.result?;
            let buffer = done.buffers.into_iter().next().ok_or("no buffer")?;
            match done.id {
                SEND => *sent = Some(buffer),
                _ => {
                    self.connection.pair.rq.recv(0, buffer)?;
                    received = Some(length);
                }
            }
        }
        Ok(received.unwrap_or(0))
    }

    /// How long a round trip takes.
    pub(crate) fn ping(&mut self, count: usize, length: usize) -> Outcome<Duration> {
        if self.receives == 0 {
            self.prepare()?;
        }
        let mut sent = Some(self.domain.lease(length)?);
        super::typical(count, || {
            let buffer = sent.take().ok_or("it came back")?;
            self.connection.pair.sq.send(SEND, buffer)?;
            self.receive(&mut sent)?;
            Ok(())
        })
    }

    /// Sends back as much as comes.
    pub(crate) fn echo(&mut self, count: usize, length: usize) -> Outcome<()> {
        let mut sent = Some(self.domain.lease(length)?);
        for _ in 0..count {
            self.receive(&mut sent)?;
            let buffer = sent.take().ok_or("it came back")?;
            self.connection.pair.sq.send(SEND, buffer)?;
        }
        while sent.is_none() {
            let done = self.queue.wait(None)?.ok_or("no time limit was given")?;
            sent = done.buffers.into_iter().next();
        }
        Ok(())
    }

    /// How long a WRITE of 1 MiB takes, with several under way.
    pub(crate) fn write(&mut self, count: usize) -> Outcome<Duration> {
        let mut leases = Vec::new();
        for _ in 0..SLOTS {
            let mut lease = self.domain.lease(LARGE)?;
            // Touched, as memory is that was used before.
            lease.fill(1);
            leases.push(lease);
        }
        let start = Instant::now();
        let (mut begun, mut done) = (0, 0);
        while done < count {
            while begun < count {
                let Some(lease) = leases.pop() else {
                    break;
                };
                let slot = self.remote[begun % SLOTS];
                self.connection.pair.sq.write(SEND, lease, slot)?;
                begun += 1;
            }
            let completion = self.queue.wait(None)?.ok_or("no time limit was given")?;
            completion.result?;
            leases.extend(completion.buffers);
            done += 1;
        }
        Ok(start.elapsed() / count as u32)
    }
}
