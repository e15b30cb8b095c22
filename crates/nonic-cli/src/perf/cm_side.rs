//! Connecting the queue pairs of a run: by address and port, several at a time.
//!
//! The client gives each connection its number, so that both sides call it the same.

use crate::exchange::PEER_TIMEOUT;
use anyhow::{Context, Result, bail};
use nonic::{ConnectOptions, Connected, Connection, Listener, QueuePairBuilder, connect_with};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Requests to connect that are under way at a time: more would overrun the peer's socket.
const UNDER_WAY: usize = 64;

/// Which side of connecting we are.
#[derive(Copy, Clone, Debug)]
pub(crate) enum CmSide<'a> {
    /// We connect to this address.
    Active(SocketAddr),
    /// We are connected to.
    Passive(&'a Listener),
}

impl CmSide<'_> {
    /// Connects `count` queue pairs that `builder` makes. `prepare` does what comes first with each: it is called
    /// with its number.
    pub(crate) fn connect<T: Connected>(
        self,
        count: u32,
        options: &ConnectOptions,
        builder: impl Fn() -> QueuePairBuilder<T>,
        prepare: impl FnMut(u64, &mut Connection<T>) -> Result<()>,
    ) -> Result<Vec<Connection<T>>> {
        match self {
            CmSide::Active(peer) => ask(count, peer, options, builder, prepare),
            CmSide::Passive(listener) => accept(count, listener, options, builder, prepare),
        }
    }
}

fn ask<T: Connected>(
    count: u32,
    peer: SocketAddr,
    options: &ConnectOptions,
    builder: impl Fn() -> QueuePairBuilder<T>,
    mut prepare: impl FnMut(u64, &mut Connection<T>) -> Result<()>,
) -> Result<Vec<Connection<T>>> {
    let mut connections = Vec::with_capacity(count as usize);
    let mut asked = VecDeque::with_capacity(UNDER_WAY);
    let mut next = 0;
    while connections.len() < count as usize {
        if next < count && asked.len() < UNDER_WAY {
            asked.push_back(connect_with(builder(), peer, options, &next.to_be_bytes())?);
            next += 1;
            continue;
        }
        let index = connections.len();
        let connecting = asked
            .pop_front()
            .context("as many were asked for as are missing")?;
        let mut connection = connecting
            .wait_within(PEER_TIMEOUT)
            .with_context(|| format!("connection {index} of {count}"))?;
        prepare(index as u64, &mut connection)?;
        connections.push(connection);
    }
    Ok(connections)
}

fn accept<T: Connected>(
    count: u32,
    listener: &Listener,
    options: &ConnectOptions,
    builder: impl Fn() -> QueuePairBuilder<T>,
    mut prepare: impl FnMut(u64, &mut Connection<T>) -> Result<()>,
) -> Result<Vec<Connection<T>>> {
    let mut places: Vec<Option<Connection<T>>> = (0..count).map(|_| None).collect();
    for have in 0..count {
        let Some(incoming) = listener.accept_within(PEER_TIMEOUT) else {
            bail!("{have} of {count} connections came within {PEER_TIMEOUT:?}");
        };
        let (index, _) = incoming
            .private_data()
            .split_first_chunk()
            .context("a request without the number of its connection")?;
        let index = u32::from_be_bytes(*index);
        let place = places.get_mut(index as usize).filter(|place| place.is_none());
        let place = place.with_context(|| format!("connection {index} was not expected"))?;
        let mut connection = incoming.accept_with(builder(), options, &[])?;
        prepare(u64::from(index), &mut connection)?;
        *place = Some(connection);
    }
    // As many came as there are places, and none twice.
    Ok(places.into_iter().flatten().collect())
}
