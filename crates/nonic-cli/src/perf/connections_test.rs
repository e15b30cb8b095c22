//! Many connections at once: what both sides know of the test, and the queues and buffers that each has.
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

use super::cm_side::CmSide;
use crate::exchange::Message;
use crate::local_gid::LocalGid;
use anyhow::{Context, Result, ensure};
use nonic::{CompletionQueue, ConnectOptions, Connection, Domain, Lease, QpCapacity, Rc};

/// The most memory for buffers on one side.
const MAX_BYTES: u64 = 1 << 30;

/// What the client asks for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct ConnectionsTest {
    /// Connections at a time.
    pub(crate) count: u32,
    /// Bytes of a message.
    pub(crate) size: u32,
}

impl ConnectionsTest {
    pub(crate) fn new(count: u32, size: u64) -> Result<Self> {
        ensure!(
            (1..=1 << 20).contains(&count),
            "between one and 2^20 connections at a time"
        );
        ensure!(
            size > 0 && size * u64::from(count) <= MAX_BYTES,
            "messages of 1 byte or more, and buffers of 1 GiB at most; use another --size"
        );
        Ok(ConnectionsTest {
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
        ConnectionsTest::new(message.field("count")?, message.field("size")?)
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

/// What one side has: a completion queue, and two buffers for each connection.
#[derive(Debug)]
pub(crate) struct ConnectionsBench {
    pub(crate) domain: Domain,
    pub(crate) queue: CompletionQueue,
    gid_index: u8,
    pub(crate) size: usize,
    rest: Option<Lease>,
}

impl ConnectionsBench {
    /// With two buffers for each connection.
    pub(crate) fn new(test: ConnectionsTest, local: &LocalGid) -> Result<Self> {
        let domain = local.device.domain();
        let count = test.count as usize;
        Ok(ConnectionsBench {
            queue: local.device.completion_queue(2 * count)?,
            gid_index: local.gid_index,
            size: test.size as usize,
            rest: Some(domain.lease(2 * count * test.size as usize)?),
            domain,
        })
    }

    /// Connects as many queue pairs, each with a receive posted.
    pub(crate) fn connect(&mut self, test: ConnectionsTest, side: CmSide<'_>) -> Result<Vec<Connection<Rc>>> {
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
        side.connect(test.count, &options, builder, |index, connection| {
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
