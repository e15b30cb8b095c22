//! Many connections at once: the server's side. See [`super::connections`].

use super::bandwidth_target::is_arrival;
use super::cm_side::CmSide;
use super::connections_test::{ConnectionsBench, ConnectionsTest};
use crate::conversation::Conversation;
use crate::exchange::{Message, PEER_TIMEOUT};
use crate::footprint::Footprint;
use crate::local_gid::LocalGid;
use crate::pattern;
use anyhow::{Context, Result, bail, ensure};
use nonic::{Connection, Listener, Rc};

/// Serves a client that wants many connections.
pub(crate) fn serve(
    test: ConnectionsTest,
    local: &LocalGid,
    listener: &Listener,
    conversation: &mut Conversation,
) -> Result<()> {
    let before = Footprint::take(local)?;
    conversation.say(&before.to_message("before"))?;

    let mut bench = ConnectionsBench::new(test, local)?;
    let mut connections = bench.connect(test, CmSide::Passive(listener, &conversation.ended()))?;
    conversation.say(&Footprint::take(local)?.to_message("open"))?;
    answer(&mut bench, &mut connections)?;

    conversation.expect("closing", PEER_TIMEOUT)?;
    for (index, connection) in connections.drain(..).enumerate() {
        ensure!(
            connection.wait_disconnected(Some(PEER_TIMEOUT)),
            "the client did not close connection {index}"
        );
    }
    drop(connections);
    drop(bench);
    conversation.say(&Message::new("ended"))?;
    conversation.say(&Footprint::settle(local, &before)?.to_message("after"))
}

/// Answers one message on each.
fn answer(bench: &mut ConnectionsBench, connections: &mut [Connection<Rc>]) -> Result<()> {
    let (mut answered, mut sent) = (0, 0);
    while sent < connections.len() {
        let Some(completion) = bench.queue.wait(Some(PEER_TIMEOUT))? else {
            bail!("the client said nothing for {PEER_TIMEOUT:?}, after {answered} messages");
        };
        let id = completion.id;
        let length = completion.result.with_context(|| format!("connection {id}"))?;
        if !is_arrival(completion.opcode) {
            sent += 1;
            continue;
        }
        let text = &completion.buffers[0][..length];
        ensure!(
            pattern::matches(ConnectionsTest::question(id), text),
            "the message on connection {id} has wrong contents"
        );
        answered += 1;
        let mut lease = bench.lease()?;
        pattern::fill(ConnectionsTest::answer(id), &mut lease);
        connections[id as usize].pair.sq.send(id, lease)?;
    }
    Ok(())
}
