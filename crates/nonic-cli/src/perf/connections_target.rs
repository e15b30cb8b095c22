//! Many connections at once: the server's side. See [`super::connections`].

use super::bandwidth_target::is_arrival;
use super::connections_test::{Crowd, Ground};
use super::meeting::Meeting;
use crate::conversation::Conversation;
use crate::exchange::{Message, PATIENCE};
use crate::footprint::Footprint;
use crate::pattern;
use crate::site::Site;
use anyhow::{Context, Result, bail, ensure};
use nonic::{Connection, Listener, Rc};

/// Serves a client that wants many connections.
pub(crate) fn serve(
    crowd: Crowd,
    site: &Site,
    listener: &Listener,
    conversation: &mut Conversation,
) -> Result<()> {
    let before = Footprint::take(site)?;
    conversation.say(&before.to_message("before"))?;

    let mut ground = Ground::new(crowd, site)?;
    let mut connections = ground.connect(crowd, Meeting::Passive(listener))?;
    conversation.say(&Footprint::take(site)?.to_message("open"))?;
    answer(&mut ground, &mut connections)?;

    conversation.expect("closing", PATIENCE)?;
    for (index, connection) in connections.drain(..).enumerate() {
        ensure!(
            connection.wait_disconnected(Some(PATIENCE)),
            "the client did not close connection {index}"
        );
    }
    drop(connections);
    drop(ground);
    conversation.say(&Message::new("ended"))?;
    conversation.say(&Footprint::settle(site, &before)?.to_message("after"))
}

/// Answers one message on each.
fn answer(ground: &mut Ground, connections: &mut [Connection<Rc>]) -> Result<()> {
    let (mut answered, mut sent) = (0, 0);
    while sent < connections.len() {
        let Some(completion) = ground.queue.wait(Some(PATIENCE))? else {
            bail!("the client said nothing for {PATIENCE:?}, after {answered} messages");
        };
        let id = completion.id;
        let length = completion.result.with_context(|| format!("connection {id}"))?;
        if !is_arrival(completion.opcode) {
            sent += 1;
            continue;
        }
        let text = &completion.buffers[0][..length];
        ensure!(
            pattern::matches(Crowd::question(id), text),
            "the message on connection {id} has wrong contents"
        );
        answered += 1;
        let mut lease = ground.lease()?;
        pattern::fill(Crowd::answer(id), &mut lease);
        connections[id as usize].pair.sq.send(id, lease)?;
    }
    Ok(())
}
