//! Many connections at once: what both sides know and stand on.
//!
//! ```text
//! client                                server
//! connections count=10000 size=64   →
//!                                   ←   before rss=…
//!                … 10000 connections, each with its number …
//!                                   ←   open rss=…
//!                … a message there and back on each …
//! closing                           →
//!                … 10000 disconnects …
//!                                   ←   ended
//!                                   ←   after rss=…
//! ```

use super::meeting::Meeting;
use crate::exchange::Message;
use crate::site::Site;
use anyhow::{Context, Result, ensure};
use nonic::{CompletionQueue, ConnectOptions, Connection, Domain, Lease, QpCapacity, Rc};

/// The most memory for buffers on one side.
const MAX_BYTES: u64 = 1 << 30;

/// What to do.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Crowd {
    /// Connections at a time.
    pub(crate) count: u32,
    /// Bytes of a message.
    pub(crate) size: u32,
}

impl Crowd {
    pub(crate) fn new(count: u32, size: u64) -> Result<Self> {
        ensure!(
            (1..=1 << 20).contains(&count),
            "between one and 2^20 connections at a time"
        );
        ensure!(
            size > 0 && size * u64::from(count) <= MAX_BYTES,
            "messages of 1 byte or more, and buffers of 1 GiB at most; use another --size"
        );
        Ok(Crowd {
            count,
            size: size as u32,
        })
    }

    pub(crate) fn to_message(self) -> Message {
        Message::new("connections")
            .with("count", self.count)
            .with("size", self.size)
    }

    pub(crate) fn from_message(message: &Message) -> Result<Self> {
        Crowd::new(message.field("count")?, message.field("size")?)
    }

    /// What the client says on a connection.
    pub(crate) fn question(index: u64) -> u64 {
        2 * index
    }

    /// What the server answers.
    pub(crate) fn answer(index: u64) -> u64 {
        2 * index + 1
    }
}

/// What both sides stand on.
#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) domain: Domain,
    pub(crate) queue: CompletionQueue,
    gid_index: u8,
    pub(crate) size: usize,
    rest: Option<Lease>,
}

impl Ground {
    /// With two buffers for each connection.
    pub(crate) fn new(crowd: Crowd, site: &Site) -> Result<Self> {
        let domain = site.device.domain();
        let count = crowd.count as usize;
        Ok(Ground {
            queue: site.device.completion_queue(2 * count)?,
            gid_index: site.gid_index,
            size: crowd.size as usize,
            rest: Some(domain.lease(2 * count * crowd.size as usize)?),
            domain,
        })
    }

    /// Connects as many queue pairs, each with a receive posted.
    pub(crate) fn connect(&mut self, crowd: Crowd, meeting: Meeting<'_>) -> Result<Vec<Connection<Rc>>> {
        // One message each way at a time.
        let capacity = QpCapacity {
            max_send_wr: 1,
            max_recv_wr: 1,
            ..QpCapacity::default()
        };
        let (domain, queue, gid_index) = (self.domain.clone(), self.queue.clone(), self.gid_index);
        let builder = || {
            let builder = domain.queue_pair_builder(&queue);
            builder.capacity(capacity).gid_index(gid_index)
        };
        let options = ConnectOptions::default();
        meeting.connect(crowd.count, &options, builder, |index, connection| {
            Ok(connection.pair.rq.recv(index, self.lease()?)?)
        })
    }

    /// The next buffer.
    pub(crate) fn lease(&mut self) -> Result<Lease> {
        let rest = self.rest.take().context("two buffers for each connection")?;
        let (piece, rest) = rest.split_at(self.size);
        self.rest = Some(rest);
        Ok(piece)
    }
}
