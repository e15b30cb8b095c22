//! Many connections at once: opened, one verified exchange on each, closed. The client's side.
//!
//! What it shows: how long that takes, what an open connection costs in memory on each side, and that nothing
//! stays behind. The server's side is [`super::connections_target`];
//! what they say to each other is in [`super::connections_test`].

use super::cm_side::CmSide;
use super::connections_test::{ConnectionsBench, ConnectionsTest};
use crate::client::Session;
use crate::exchange::{Message, PEER_TIMEOUT};
use crate::footprint::Footprint;
use crate::output;
use crate::pattern;
use crate::units::Size;
use anyhow::{Context, Result, bail, ensure};
use nonic::{Connection, Rc};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Messages that are under way at a time.
const UNDER_WAY: usize = 64;

/// Does it and tells of it.
pub(crate) fn run(session: &mut Session, test: ConnectionsTest, json: bool) -> Result<()> {
    let found = measure(session, test)?;
    match json {
        true => output::json(&found.as_json(test))?,
        false => found.print(test, &session.peer)?,
    }
    let left = [found.client.left_behind(), found.server.left_behind()].concat();
    ensure!(left.is_empty(), "left behind: {}", left.join(", "));
    Ok(())
}

fn measure(session: &mut Session, test: ConnectionsTest) -> Result<Found> {
    let before = Footprint::take(&session.local)?;
    session.conversation.say(&test.to_message())?;
    let theirs_before = session.conversation.expect("before", PEER_TIMEOUT)?;

    let start = Instant::now();
    let mut bench = ConnectionsBench::new(test, &session.local)?;
    let mut connections = bench.connect(test, CmSide::Active(session.run_address))?;
    let connect = start.elapsed();
    let theirs_open = session.conversation.expect("open", PEER_TIMEOUT)?;
    let open = Footprint::take(&session.local)?;

    let start = Instant::now();
    exchange(&mut bench, &mut connections)?;
    let exchange = start.elapsed();

    session.conversation.say(&Message::new("closing"))?;
    let start = Instant::now();
    drop(connections);
    drop(bench);
    session.conversation.expect("ended", PEER_TIMEOUT)?;
    let close = start.elapsed();

    let after = Footprint::settle(&session.local, &before)?;
    let theirs_after = session.conversation.expect("after", PEER_TIMEOUT)?;
    Ok(Found {
        connect,
        exchange,
        close,
        client: Cost {
            count: test.count,
            before,
            open,
            after,
        },
        server: Cost {
            count: test.count,
            before: Footprint::from_message(&theirs_before)?,
            open: Footprint::from_message(&theirs_open)?,
            after: Footprint::from_message(&theirs_after)?,
        },
    })
}

/// Sends a message on each and checks the answer.
fn exchange(bench: &mut ConnectionsBench, connections: &mut [Connection<Rc>]) -> Result<()> {
    let (mut next, mut answered, mut sent) = (0, 0, 0);
    let mut taken = Vec::new();
    while answered < connections.len() || sent < connections.len() {
        while next < connections.len() && next < answered + UNDER_WAY {
            let mut lease = bench.lease()?;
            pattern::fill(ConnectionsTest::question(next as u64), &mut lease);
            connections[next].pair.sq.send(next as u64, lease)?;
            next += 1;
        }
        match bench.queue.wait(Some(PEER_TIMEOUT))? {
            Some(completion) => taken.push(completion),
            None => bail!(
                "no answer within {PEER_TIMEOUT:?} after {answered} of {}",
                connections.len()
            ),
        }
        bench
            .queue
            .poll_many(UNDER_WAY, |completion| taken.push(completion))?;
        for completion in taken.drain(..) {
            let id = completion.id;
            let length = completion.result.with_context(|| format!("connection {id}"))?;
            if !super::bandwidth_target::is_arrival(completion.opcode) {
                sent += 1;
                continue;
            }
            let text = &completion.buffers[0][..length];
            ensure!(
                text.len() == bench.size && pattern::matches(ConnectionsTest::answer(id), text),
                "the answer on connection {id} has wrong contents"
            );
            answered += 1;
        }
    }
    Ok(())
}

/// What came of it.
struct Found {
    connect: Duration,
    exchange: Duration,
    close: Duration,
    client: Cost,
    server: Cost,
}

/// What the connections cost one side.
struct Cost {
    count: u32,
    before: Footprint,
    open: Footprint,
    after: Footprint,
}

impl Cost {
    fn bytes_per_connection(&self) -> u64 {
        self.open.rss_bytes.saturating_sub(self.before.rss_bytes) / u64::from(self.count)
    }

    /// Processor time that opening took, the library's threads included.
    fn connect_cpu(&self) -> Duration {
        Duration::from_nanos(self.open.cpu_ns.saturating_sub(self.before.cpu_ns))
    }

    fn left_behind(&self) -> Vec<String> {
        self.after.left_behind(&self.before)
    }

    fn as_json(&self) -> Value {
        json!({
            "bytes_per_connection": self.bytes_per_connection(),
            "connect_cpu_seconds": self.connect_cpu().as_secs_f64(),
            "rss_bytes": [self.before.rss_bytes, self.open.rss_bytes, self.after.rss_bytes],
            "descriptors": [self.before.descriptors, self.open.descriptors, self.after.descriptors],
            "left_behind": self.left_behind(),
        })
    }

    fn print(&self, side: &str) -> Result<()> {
        let left = self.left_behind();
        output::line(format_args!(
            "    {side}: {} B of memory per connection, opened in {:.0} us of processor time, {} descriptors while all are open, \
             left behind: {}",
            self.bytes_per_connection(),
            self.connect_cpu().as_secs_f64() * 1e6 / f64::from(self.count),
            self.open.descriptors,
            if left.is_empty() {
                "nothing".to_owned()
            } else {
                left.join(", ")
            },
        ))
    }
}

impl Found {
    fn print(&self, test: ConnectionsTest, peer: &str) -> Result<()> {
        let ConnectionsTest { count, size } = test;
        output::line(format_args!(
            "--- {count} connections with {peer}, an exchange of {} on each, contents verified",
            Size(u64::from(size))
        ))?;
        for (what, time) in [
            ("connect", self.connect),
            ("exchange", self.exchange),
            ("close", self.close),
        ] {
            output::line(format_args!(
                "    {what:8} {:8.3} s, {:.0} per second",
                time.as_secs_f64(),
                f64::from(count) / time.as_secs_f64()
            ))?;
        }
        self.client.print("client")?;
        self.server.print("server")
    }

    fn as_json(&self, test: ConnectionsTest) -> Value {
        json!({
            "connections": test.count,
            "size": test.size,
            "connect_seconds": self.connect.as_secs_f64(),
            "exchange_seconds": self.exchange.as_secs_f64(),
            "close_seconds": self.close.as_secs_f64(),
            "client": self.client.as_json(),
            "server": self.server.as_json(),
        })
    }
}
