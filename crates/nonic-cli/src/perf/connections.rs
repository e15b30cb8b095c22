//! Many connections at once: opened, one verified exchange on each, closed. The client's side.
//!
//! What it shows: how long that takes, what an open connection costs in memory on each side, and that nothing
//! stays behind. The server's side is [`super::connections_target`];
//! what they say to each other is in [`super::connections_test`].

use super::connections_test::{Crowd, Ground};
use super::meeting::Meeting;
use crate::client::Session;
use crate::exchange::{Message, PATIENCE};
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
pub(crate) fn run(session: &mut Session, crowd: Crowd, json: bool) -> Result<()> {
    let found = measure(session, crowd)?;
    match json {
        true => output::json(&found.as_json(crowd))?,
        false => found.print(crowd, &session.peer)?,
    }
    let left = [found.client.left_behind(), found.server.left_behind()].concat();
    ensure!(left.is_empty(), "left behind: {}", left.join(", "));
    Ok(())
}

fn measure(session: &mut Session, crowd: Crowd) -> Result<Found> {
    let before = Footprint::take(&session.site)?;
    session.conversation.say(&crowd.to_message())?;
    let theirs_before = session.conversation.expect("before", PATIENCE)?;

    let start = Instant::now();
    let mut ground = Ground::new(crowd, &session.site)?;
    let mut connections = ground.connect(crowd, Meeting::Active(session.meeting_point))?;
    let connect = start.elapsed();
    let theirs_open = session.conversation.expect("open", PATIENCE)?;
    let open = Footprint::take(&session.site)?;

    let start = Instant::now();
    exchange(&mut ground, &mut connections)?;
    let exchange = start.elapsed();

    session.conversation.say(&Message::new("closing"))?;
    let start = Instant::now();
    drop(connections);
    drop(ground);
    session.conversation.expect("ended", PATIENCE)?;
    let close = start.elapsed();

    let after = Footprint::settle(&session.site, &before)?;
    let theirs_after = session.conversation.expect("after", PATIENCE)?;
    Ok(Found {
        connect,
        exchange,
        close,
        client: Cost {
            count: crowd.count,
            before,
            open,
            after,
        },
        server: Cost {
            count: crowd.count,
            before: Footprint::from_message(&theirs_before)?,
            open: Footprint::from_message(&theirs_open)?,
            after: Footprint::from_message(&theirs_after)?,
        },
    })
}

/// Sends a message on each and checks the answer.
fn exchange(ground: &mut Ground, connections: &mut [Connection<Rc>]) -> Result<()> {
    let (mut next, mut answered, mut sent) = (0, 0, 0);
    let mut taken = Vec::new();
    while answered < connections.len() || sent < connections.len() {
        while next < connections.len() && next < answered + UNDER_WAY {
            let mut lease = ground.lease()?;
            pattern::fill(Crowd::question(next as u64), &mut lease);
            connections[next].pair.sq.send(next as u64, lease)?;
            next += 1;
        }
        match ground.queue.wait(Some(PATIENCE))? {
            Some(completion) => taken.push(completion),
            None => bail!(
                "no answer within {PATIENCE:?} after {answered} of {}",
                connections.len()
            ),
        }
        ground
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
                text.len() == ground.size && pattern::matches(Crowd::answer(id), text),
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

    fn left_behind(&self) -> Vec<String> {
        self.after.left_behind(&self.before)
    }

    fn as_json(&self) -> Value {
        json!({
            "bytes_per_connection": self.bytes_per_connection(),
            "rss_bytes": [self.before.rss_bytes, self.open.rss_bytes, self.after.rss_bytes],
            "descriptors": [self.before.descriptors, self.open.descriptors, self.after.descriptors],
            "left_behind": self.left_behind(),
        })
    }

    fn print(&self, side: &str) -> Result<()> {
        let left = self.left_behind();
        output::line(format_args!(
            "    {side}: {} B of memory per connection, {} descriptors while all are open, left behind: {}",
            self.bytes_per_connection(),
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
    fn print(&self, crowd: Crowd, peer: &str) -> Result<()> {
        let Crowd { count, size } = crowd;
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

    fn as_json(&self, crowd: Crowd) -> Value {
        json!({
            "connections": crowd.count,
            "size": crowd.size,
            "connect_seconds": self.connect.as_secs_f64(),
            "exchange_seconds": self.exchange.as_secs_f64(),
            "close_seconds": self.close.as_secs_f64(),
            "client": self.client.as_json(),
            "server": self.server.as_json(),
        })
    }
}
