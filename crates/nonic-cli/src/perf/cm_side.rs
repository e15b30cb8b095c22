//! Connecting the queue pairs of a run: by address and port, several at a time.
//!
//! The client gives each connection its number, so that both sides call it the same.

use crate::exchange::PEER_TIMEOUT;
use anyhow::{Context, Result, bail};
use nonic::{
    Closed, ConnectOptions, Connected, Connection, Incoming, Listener, QueuePairBuilder, connect_with,
};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Instant;

/// Requests to connect that are under way at a time: more would overrun the peer's socket.
const UNDER_WAY: usize = 64;

/// Which side of connecting we are.
#[derive(Copy, Clone, Debug)]
pub(crate) enum CmSide<'a> {
    /// We connect to this address.
    Active(SocketAddr),
    /// We are connected to, while the peer talks with us: its conversation has not ended.
    Passive(&'a Listener, &'a Closed),
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
            CmSide::Passive(listener, ended) => accept(count, listener, ended, options, builder, prepare),
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
    ended: &Closed,
    options: &ConnectOptions,
    builder: impl Fn() -> QueuePairBuilder<T>,
    mut prepare: impl FnMut(u64, &mut Connection<T>) -> Result<()>,
) -> Result<Vec<Connection<T>>> {
    let mut places: Vec<Option<Connection<T>>> = (0..count).map(|_| None).collect();
    for have in 0..count {
        let incoming =
            next(listener, ended).with_context(|| format!("{have} of {count} connections came"))?;
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

/// The next request. A peer that has ended sends no more, so it is not waited for until its time is up.
fn next(listener: &Listener, ended: &Closed) -> Result<Incoming> {
    let deadline = Instant::now() + PEER_TIMEOUT;
    let mut ended = ended.clone();
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = TaskContext::from_waker(&waker);
    loop {
        if let Poll::Ready(incoming) = listener.poll_incoming(&mut context) {
            return Ok(incoming);
        }
        if let Poll::Ready(reason) = Pin::new(&mut ended).poll(&mut context) {
            bail!("the peer hung up: {reason}");
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            bail!("nothing more within {PEER_TIMEOUT:?}");
        }
        std::thread::park_timeout(left);
    }
}

/// Wakes the thread that waits for one of two things.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nonic::{Device, Rc, connect};

    #[test]
    fn connections_of_a_peer_that_has_ended_are_not_waited_for() {
        let device = Device::open("roce_lo").expect("loopback");
        let domain = device.domain();
        let address = "127.0.0.1:0".parse().expect("a literal address");
        let [conversations, runs] = [(); 2].map(|()| Listener::bind(&device, address).expect("a free port"));
        let builder = || domain.pair_builder::<Rc>();
        let asked = connect(builder(), conversations.local_addr(), b"").expect("it is asked");
        let incoming = conversations.accept().expect("it connects");
        let server = incoming.accept(builder(), b"").expect("accepted");
        let client = asked.wait().expect("accepted");
        let (began, ended) = (Instant::now(), server.closed());
        let connected = std::thread::scope(|scope| {
            let connected = scope.spawn(|| {
                let side = CmSide::Passive(&runs, &ended);
                let connected = side.connect(1, &ConnectOptions::default(), builder, |_, _| Ok(()));
                connected.map(|connections| connections.len())
            });
            client.disconnect();
            connected.join().expect("no panic")
        });
        let error = connected.expect_err("nobody comes");
        assert_eq!(error.to_string(), "0 of 1 connections came");
        assert!(began.elapsed() < PEER_TIMEOUT / 2, "{:?}", began.elapsed());
    }
}
