//! A queue pair of any service.
//!
//! The API has one type per service, so that what a service lacks does not compile. A tool that is told the
//! service on its command line needs all of them in one; what a service lacks was refused by [`Run::check`]
//! before it gets here.

use super::cm_side::CmSide;
use super::run::{CREDIT_RECEIVES, Op, Run, Service};
use crate::conversation::Conversation;
use crate::exchange::{Message, PEER_TIMEOUT};
use crate::local_gid::LocalGid;
use anyhow::Result;
use nonic::{
    Buffers, CompletionQueue, ConnectOptions, Connected, Connection, Domain, Endpoint, Lease, Peer,
    PostError, QpCapacity, QueuePair, QueuePairBuilder, Rc, Refused, RemoteSlice, SendQueue, Transport, Uc,
    Ud,
};

/// Something to post.
#[derive(Debug)]
pub(crate) enum Posting {
    Send {
        buffers: Buffers,
        immediate: Option<u32>,
    },
    Write {
        lease: Lease,
        remote: RemoteSlice,
        immediate: Option<u32>,
    },
    /// A READ or an atomic. Atomics count: the word goes from `sequence` to `sequence + 1`.
    Fetch {
        op: Op,
        lease: Lease,
        remote: RemoteSlice,
        sequence: u64,
    },
}

/// A queue pair of any service.
#[derive(Debug)]
pub(crate) enum Pair {
    Rc(Connection<Rc>),
    Uc(Connection<Uc>),
    Ud(QueuePair<Ud>, Peer),
}

impl Pair {
    pub(crate) fn post(&mut self, id: u64, posting: Posting) -> Result<(), Refused> {
        match self {
            Pair::Rc(connection) => post_reliable(&mut connection.pair.sq, id, posting),
            Pair::Uc(connection) => post_connected(&mut connection.pair.sq, id, posting),
            Pair::Ud(pair, peer) => post_datagram(&mut pair.sq, id, posting, *peer),
        }
    }

    /// Posts several at once. They must fit the queue.
    pub(crate) fn post_all(
        &mut self,
        id: u64,
        postings: impl Iterator<Item = Posting>,
    ) -> Result<(), PostError> {
        fn all(
            mut postings: impl Iterator<Item = Posting>,
            mut post: impl FnMut(Posting) -> Result<(), Refused>,
        ) -> Result<(), PostError> {
            postings.try_for_each(|posting| post(posting).map_err(|refused| refused.error))
        }
        let posted = match self {
            Pair::Rc(connection) => connection
                .pair
                .sq
                .batch(|sq| all(postings, |posting| post_reliable(sq, id, posting))),
            Pair::Uc(connection) => connection
                .pair
                .sq
                .batch(|sq| all(postings, |posting| post_connected(sq, id, posting))),
            Pair::Ud(pair, peer) => pair
                .sq
                .batch(|sq| all(postings, |posting| post_datagram(sq, id, posting, *peer))),
        };
        posted.map_err(|refused| refused.error)?
    }

    pub(crate) fn recv(&mut self, id: u64, buffers: impl Into<Buffers>) -> Result<(), Refused> {
        match self {
            Pair::Rc(connection) => connection.pair.rq.recv(id, buffers),
            Pair::Uc(connection) => connection.pair.rq.recv(id, buffers),
            Pair::Ud(pair, _) => pair.rq.recv(id, buffers),
        }
    }
}

fn post_reliable(sq: &mut SendQueue<Rc>, id: u64, posting: Posting) -> Result<(), Refused> {
    let Posting::Fetch {
        op,
        lease,
        remote,
        sequence,
    } = posting
    else {
        return post_connected(sq, id, posting);
    };
    match op {
        Op::FetchAdd => sq.fetch_add(id, lease, remote, 1),
        Op::CompareSwap => sq.compare_swap(id, lease, remote, sequence, sequence + 1),
        _ => sq.read(id, lease, remote),
    }
}

fn post_connected<T: Connected>(sq: &mut SendQueue<T>, id: u64, posting: Posting) -> Result<(), Refused> {
    match posting {
        Posting::Send {
            buffers,
            immediate: None,
        } => sq.send(id, buffers),
        Posting::Send {
            buffers,
            immediate: Some(immediate),
        } => sq.send_with_immediate(id, buffers, immediate),
        Posting::Write {
            lease,
            remote,
            immediate: None,
        } => sq.write(id, lease, remote),
        Posting::Write {
            lease,
            remote,
            immediate: Some(immediate),
        } => sq.write_with_immediate(id, lease, remote, immediate),
        Posting::Fetch { .. } => unreachable!("no run fetches on an unreliable service"),
    }
}

fn post_datagram(sq: &mut SendQueue<Ud>, id: u64, posting: Posting, peer: Peer) -> Result<(), Refused> {
    match posting {
        Posting::Send {
            buffers,
            immediate: None,
        } => sq.send_to(id, buffers, peer),
        Posting::Send {
            buffers,
            immediate: Some(immediate),
        } => sq.send_to_with_immediate(id, buffers, peer, immediate),
        Posting::Write { .. } | Posting::Fetch { .. } => {
            unreachable!("no run has datagrams that name memory")
        }
    }
}

/// Makes the queue pairs of a run and connects them to the peer's. Datagrams need only tell each other where they are.
pub(crate) fn connect(
    run: &Run,
    domain: &Domain,
    queue: &CompletionQueue,
    local: &LocalGid,
    side: CmSide<'_>,
    conversation: &mut Conversation,
) -> Result<Vec<Pair>> {
    let options = ConnectOptions {
        mtu: Some(run.mtu),
        timeout: run.ack_timeout,
        fetches: run.depth.clamp(1, 128) as u8,
        ..ConnectOptions::default()
    };
    fn all<T>(pairs: Vec<T>, pair: impl FnMut(T) -> Pair) -> Vec<Pair> {
        pairs.into_iter().map(pair).collect()
    }
    Ok(match run.service {
        Service::Rc => {
            let builder = || builder(run, domain, queue, local);
            all(side.connect(run.qps, &options, builder, |_, _| Ok(()))?, Pair::Rc)
        }
        Service::Uc => {
            let builder = || builder(run, domain, queue, local);
            all(side.connect(run.qps, &options, builder, |_, _| Ok(()))?, Pair::Uc)
        }
        Service::Ud => {
            let own: Vec<QueuePair<Ud>> = (0..run.qps)
                .map(|_| Ok(builder(run, domain, queue, local).build()?.activate()?))
                .collect::<Result<_>>()?;
            for pair in &own {
                conversation.say(&Message::new("endpoint").with("at", pair.endpoint()))?;
            }
            own.into_iter()
                .map(|pair| {
                    let peer: Endpoint = conversation.expect("endpoint", PEER_TIMEOUT)?.field("at")?;
                    Ok(Pair::Ud(pair, Peer::from(&peer)))
                })
                .collect::<Result<_>>()?
        }
    })
}

fn builder<T: Transport>(
    run: &Run,
    domain: &Domain,
    queue: &CompletionQueue,
    local: &LocalGid,
) -> QueuePairBuilder<T> {
    let capacity = QpCapacity {
        // The target of a bandwidth run sends credits.
        max_send_wr: run.sends().max(CREDIT_RECEIVES) as u32,
        max_recv_wr: run.receives().max(CREDIT_RECEIVES) as u32,
        ..QpCapacity::default()
    };
    domain
        .queue_pair_builder(queue)
        .capacity(capacity)
        .gid_index(local.gid_index)
}
