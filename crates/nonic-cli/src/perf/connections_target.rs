//! Many connections at once: the server's side. See [`super::connections`].

use super::bandwidth_target::is_arrival;
use super::connections::{Crowd, Ground};
use crate::exchange::{Conversation, Message, PATIENCE};
use crate::footprint::Footprint;
use crate::pattern;
use crate::site::Site;
use anyhow::{Context, Result, bail, ensure};
use nonic::{Connection, Listener, Rc};
use std::net::SocketAddr;

/// Serves a client that wants many connections.
pub(crate) fn serve(crowd: Crowd, site: &Site, conversation: &mut Conversation) -> Result<()> {
    let before = Footprint::take(site)?;
    let listener = Listener::bind(&site.device, SocketAddr::new(site.ip(), 0))?;
    let listening = before
        .to_message("listening")
        .with("port", listener.local_addr().port());
    conversation.say(&listening)?;

    let mut ground = Ground::new(crowd, site)?;
    let mut connections = accept(crowd, &mut ground, &listener)?;
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
    drop(listener);
    conversation.say(&Message::new("ended"))?;
    conversation.say(&Footprint::settle(site, &before)?.to_message("closed"))
}

/// Takes all connections; the client gave each its number.
fn accept(crowd: Crowd, ground: &mut Ground, listener: &Listener) -> Result<Vec<Connection<Rc>>> {
    let mut places: Vec<Option<Connection<Rc>>> = (0..crowd.count).map(|_| None).collect();
    for have in 0..crowd.count {
        let Some(incoming) = listener.accept_within(PATIENCE) else {
            bail!("{have} of {} connections came within {PATIENCE:?}", crowd.count);
        };
        let (index, _) = incoming
            .private_data()
            .split_first_chunk()
            .context("a request without the number of its connection")?;
        let index = u64::from_be_bytes(*index);
        let place = places.get_mut(index as usize).filter(|place| place.is_none());
        let place = place.with_context(|| format!("connection {index} was not expected"))?;
        let mut connection = incoming.accept(ground.builder(), &[])?;
        connection.pair.rq.recv(index, ground.lease()?)?;
        *place = Some(connection);
    }
    // As many came as there are places, and none twice.
    Ok(places.into_iter().flatten().collect())
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
