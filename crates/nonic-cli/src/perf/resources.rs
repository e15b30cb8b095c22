//! The resources of one side of a run: queue pairs, buffers and exposed memory, connected to the peer's.

use super::cm_side::CmSide;
use super::pair::{self, Pair, Posting};
use super::run::{CREDIT_RECEIVES, Op, Run, Service, Test};
use crate::conversation::Conversation;
use crate::exchange::{Message, PEER_TIMEOUT};
use crate::local_gid::LocalGid;
use crate::pattern;
use anyhow::{Context, Result};
use nonic::{Access, Buffers, Completion, CompletionQueue, Domain, Exposed, Lease, RemoteSlice};
use std::time::Duration;

/// Datagrams arrive behind this much of network header.
pub(crate) const DATAGRAM_HEADER_BYTES: usize = 40;
/// The longest a sleeping side goes without looking whether its peer is still there.
const MAX_SLEEP: Duration = Duration::from_millis(50);

/// Which side of a run.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// Posts what is measured.
    Client,
    /// Receives it, or owns the memory.
    Server,
}

/// What one side of a run has.
#[derive(Debug)]
pub(crate) struct RunResources {
    pub(crate) run: Run,
    pub(crate) queue: CompletionQueue,
    pub(crate) flows: Vec<Flow>,
    /// What the peer may write and read; of one byte if nothing.
    pub(crate) memory: Exposed,
    /// What the peer exposed.
    pub(crate) remote: RemoteSlice,
}

/// One queue pair and its buffers. Its place in [`RunResources::flows`] is the number of its requests.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) pair: Pair,
    /// Buffers to send from that are not in use.
    pub(crate) free: Vec<Lease>,
}

impl RunResources {
    /// Builds one side and connects it. Receives are posted when this returns, on both sides.
    pub(crate) fn build(
        run: &Run,
        side: CmSide<'_>,
        local: &LocalGid,
        conversation: &mut Conversation,
    ) -> Result<Self> {
        let role = match side {
            CmSide::Active(_) => Role::Client,
            CmSide::Passive(..) => Role::Server,
        };
        let domain = local.device.domain();
        let requests = run.sends() + run.receives() + CREDIT_RECEIVES;
        let queue = local
            .device
            .completion_queue((requests * u64::from(run.qps)) as usize)?;
        let memory = expose(run, role, &domain)?;
        let pairs = pair::connect(run, &domain, &queue, local, side, conversation)?;
        let flows = pairs
            .into_iter()
            .map(|pair| Flow::new(run, role, pair, &domain))
            .collect::<Result<_>>()?;
        conversation.say(&Message::new("memory").with("at", memory.remote()))?;
        let remote = conversation.expect("memory", PEER_TIMEOUT)?.field("at")?;
        let mut resources = RunResources {
            run: run.clone(),
            queue,
            flows,
            memory,
            remote,
        };
        resources.post_receives(role, &domain)?;
        conversation.say(&Message::new("ready"))?;
        conversation.expect("ready", PEER_TIMEOUT)?;
        Ok(resources)
    }

    /// Waits for completions as the run says: by polling, or asleep. Answers how many came; none means
    /// that it is time to look at other things.
    pub(crate) fn completions(&self, max: usize, mut sink: impl FnMut(Completion)) -> Result<usize> {
        let taken = self.queue.poll_many(max, &mut sink)?;
        if taken > 0 || !self.run.events {
            return Ok(taken);
        }
        match self.queue.wait(Some(MAX_SLEEP))? {
            Some(completion) => {
                sink(completion);
                Ok(1)
            }
            None => Ok(0),
        }
    }

    fn post_receives(&mut self, role: Role, domain: &Domain) -> Result<()> {
        let run = &self.run;
        for (id, flow) in self.flows.iter_mut().enumerate() {
            let (count, length) = receives(run, role);
            if length == 0 {
                for _ in 0..count {
                    flow.pair.recv(id as u64, Buffers::default())?;
                }
                continue;
            }
            for lease in carve(domain, count, length)? {
                flow.pair.recv(id as u64, lease)?;
            }
        }
        Ok(())
    }
}

impl Flow {
    fn new(run: &Run, role: Role, pair: Pair, domain: &Domain) -> Result<Self> {
        let sends = match (role, run.test) {
            (Role::Client, _) => run.sends(),
            (Role::Server, Test::Lat) if !run.op.fetches() => run.sends(),
            // Nothing, or credits, which are empty messages.
            (Role::Server, _) => 0,
        };
        let free = carve(domain, sends, run.size as usize)?;
        Ok(Flow { pair, free })
    }
}

/// How many receives a side posts, and of how many bytes.
fn receives(run: &Run, role: Role) -> (u64, usize) {
    let header = match run.service {
        Service::Ud => DATAGRAM_HEADER_BYTES,
        _ => 0,
    };
    let payload = match run.op {
        Op::Send => run.size as usize,
        // The bytes go elsewhere; the receive only tells.
        _ => 0,
    };
    match (role, run.test) {
        _ if !run.arrives_visibly() => (0, 0),
        (Role::Client, Test::Bw | Test::Rate) if run.counted() => (CREDIT_RECEIVES, header),
        (Role::Client, Test::Bw | Test::Rate) => (0, 0),
        _ => (run.receives(), header + payload),
    }
}

/// The memory a side lets its peer at, with what a READ should find in it.
fn expose(run: &Run, role: Role, domain: &Domain) -> Result<Exposed> {
    let used = run.op.is_one_sided() && (role == Role::Server || run.test == Test::Lat);
    let length = match used {
        true => u64::from(run.qps) * run.slots() * run.stride(),
        false => 1,
    };
    let mut lease = domain.lease(length as usize)?;
    if run.op == Op::Read {
        for (slot, bytes) in lease.chunks_exact_mut(run.stride() as usize).enumerate() {
            pattern::fill(slot as u64, &mut bytes[..run.size as usize]);
        }
    }
    lease
        .expose(Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC)
        .context("cannot let the peer at memory")
}

/// Where in the peer's memory a message of a flow goes.
pub(crate) fn target(run: &Run, remote: &RemoteSlice, flow: usize, sequence: u64) -> RemoteSlice {
    match run.op.is_one_sided() {
        true => {
            let offset = slot_offset(run, flow as u64, sequence);
            remote.slice(offset..offset + u64::from(run.size))
        }
        false => *remote,
    }
}

/// The request for a message. Its number goes along where the receiver cannot count.
pub(crate) fn posting(run: &Run, remote: RemoteSlice, lease: Lease, sequence: u64) -> Posting {
    let immediate = (run.counted() && !run.polls_memory()).then_some(sequence as u32);
    match run.op {
        Op::Send => Posting::Send {
            buffers: lease.into(),
            immediate,
        },
        Op::Write => Posting::Write {
            lease,
            remote,
            immediate,
        },
        op => Posting::Fetch {
            op,
            lease,
            remote,
            sequence,
        },
    }
}

/// Which slot of the target's memory a message of a flow uses.
pub(crate) fn slot(run: &Run, flow: u64, sequence: u64) -> u64 {
    flow * run.slots() + sequence % run.slots()
}

/// Where that slot begins.
pub(crate) fn slot_offset(run: &Run, flow: u64, sequence: u64) -> u64 {
    slot(run, flow, sequence) * run.stride()
}

/// Cuts one registered buffer into `count` of `length` bytes, each beginning a cache line.
fn carve(domain: &Domain, count: u64, length: usize) -> Result<Vec<Lease>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let stride = length.next_multiple_of(64);
    let mut rest = domain
        .lease(count as usize * stride)
        .with_context(|| format!("cannot get {count} buffers of {length} bytes"))?;
    let mut pieces = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let (piece, tail) = rest.split_at(stride);
        pieces.push(piece.split_at(length).0);
        rest = tail;
    }
    Ok(pieces)
}
