//! The server of a bandwidth or rate run: receives, or lets its memory be used.

use super::bandwidth::{closest, seed};
use super::pair::Posting;
use super::resources::{DATAGRAM_HEADER_BYTES, RunResources, slot_offset};
use super::run::{Op, Run, Service};
use crate::conversation::Conversation;
use crate::exchange::Message;
use crate::pattern;
use anyhow::{Context, Result};
use nonic::{Buffers, Completion, CompletionOpcode, PostError};
use std::time::{Duration, Instant};

/// Completions taken at a time.
const BATCH: usize = 32;
/// Rounds without news before the conversation is looked at.
const ROUNDS_PER_LOOK: u32 = 16;
/// What an unreliable sender sent before it said so is here by now, or lost.
const STRAGGLER_TIMEOUT: Duration = Duration::from_millis(50);
/// What a reliable sender was acknowledged for is in the queue; this is for a machine that is very busy.
const RELIABLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves all phases of a run.
pub(crate) fn serve(resources: &mut RunResources, conversation: &mut Conversation) -> Result<()> {
    let mut progress = vec![QpProgress::default(); resources.flows.len()];
    loop {
        let (done, arrived) = match resources.run.arrives_visibly() {
            true => BandwidthReceiver::new(resources, &mut progress).receive(conversation)?,
            false => (stand_by(resources, conversation)?, Arrived::default()),
        };
        let last: bool = done.field("last")?;
        let mut corrupt = arrived.corrupt;
        if last && resources.run.verify && !resources.run.arrives_visibly() {
            corrupt += check_memory(resources, conversation)?;
        }
        let result = Message::new("result")
            .with("messages", arrived.messages)
            .with("elapsed-ns", arrived.elapsed().as_nanos())
            .with("corrupt", corrupt);
        conversation.say(&result)?;
        if last {
            return Ok(());
        }
    }
}

/// How far one queue pair is; counts on over the phases.
#[derive(Copy, Clone, Debug, Default)]
struct QpProgress {
    /// The number after the last message that arrived.
    next: u64,
    /// What the sender was last told.
    credited: u64,
}

/// What arrived in a phase.
#[derive(Copy, Clone, Debug, Default)]
struct Arrived {
    messages: u64,
    corrupt: u64,
    first: Option<Instant>,
    last: Option<Instant>,
}

impl Arrived {
    fn elapsed(&self) -> Duration {
        match (self.first, self.last) {
            (Some(first), Some(last)) => last - first,
            _ => Duration::ZERO,
        }
    }
}

/// Receives one phase.
struct BandwidthReceiver<'a> {
    resources: &'a mut RunResources,
    progress: &'a mut [QpProgress],
    arrived: Arrived,
    taken: Vec<Completion>,
}

impl<'a> BandwidthReceiver<'a> {
    fn new(resources: &'a mut RunResources, progress: &'a mut [QpProgress]) -> Self {
        BandwidthReceiver {
            resources,
            progress,
            arrived: Arrived::default(),
            taken: Vec::with_capacity(BATCH),
        }
    }

    /// Until the sender says how much it sent, and that much is here or can no longer come.
    fn receive(mut self, conversation: &Conversation) -> Result<(Message, Arrived)> {
        let mut done: Option<(Message, u64)> = None;
        let mut quiet_since = Instant::now();
        let mut rounds = 0_u32;
        let timeout = match self.resources.run.counted() {
            true => STRAGGLER_TIMEOUT,
            false => RELIABLE_TIMEOUT,
        };
        loop {
            if self.reap()? > 0 {
                quiet_since = Instant::now();
            }
            rounds = rounds.wrapping_add(1);
            if done.is_none() && (rounds % ROUNDS_PER_LOOK == 0 || self.resources.run.events) {
                done = match conversation.news("done")? {
                    None => None,
                    Some(message) => {
                        let sent = message.field("messages")?;
                        Some((message, sent))
                    }
                };
            }
            let over =
                done.take_if(|(_, sent)| self.arrived.messages >= *sent || quiet_since.elapsed() > timeout);
            if let Some((message, _)) = over {
                return Ok((message, self.arrived));
            }
        }
    }

    fn reap(&mut self) -> Result<usize> {
        let taken = &mut self.taken;
        let count = self
            .resources
            .completions(BATCH, |completion| taken.push(completion))?;
        if count == 0 {
            return Ok(0);
        }
        let mut taken = std::mem::take(&mut self.taken);
        for completion in taken.drain(..) {
            self.take(completion)?;
        }
        self.taken = taken;
        Ok(count)
    }

    fn take(&mut self, completion: Completion) -> Result<()> {
        let index = completion.id as usize;
        let length = completion.result.context("a receive failed")?;
        if !is_arrival(completion.opcode) {
            // A credit has left.
            return Ok(());
        }
        let run = &self.resources.run;
        let qp = &mut self.progress[index];
        let sequence = match completion.immediate {
            Some(low_bits) => closest(qp.next, low_bits),
            None => qp.next,
        };
        if run.verify || length != expected_length(run) {
            let bytes = completion.buffers.first().map_or(&[][..], |lease| &lease[..]);
            let intact =
                length == expected_length(run) && contents_right(self.resources, index, sequence, bytes)?;
            self.arrived.corrupt += u64::from(!intact);
        }
        qp.next = qp.next.max(sequence + 1);
        if run.counted() {
            let now = Instant::now();
            self.arrived.first.get_or_insert(now);
            self.arrived.last = Some(now);
        }
        self.arrived.messages += 1;
        self.resources.flows[index]
            .pair
            .recv(completion.id, completion.buffers)?;
        self.credit(index)
    }

    /// Tells the sender how far it got, every quarter of its window.
    fn credit(&mut self, index: usize) -> Result<()> {
        let run = &self.resources.run;
        let qp = &mut self.progress[index];
        if !run.counted() || qp.next - qp.credited < (run.window() / 4).max(1) {
            return Ok(());
        }
        let pair = &mut self.resources.flows[index].pair;
        let posting = Posting::Send {
            buffers: Buffers::default(),
            immediate: Some(qp.next as u32),
        };
        match pair.post(index as u64, posting) {
            Ok(()) => qp.credited = qp.next,
            // The next one will tell.
            Err(refused) if refused.error == PostError::SendQueueFull => {}
            Err(refused) => return Err(refused.into()),
        }
        Ok(())
    }
}

pub(crate) fn is_arrival(opcode: CompletionOpcode) -> bool {
    matches!(
        opcode,
        CompletionOpcode::Recv | CompletionOpcode::RecvWriteWithImmediate
    )
}

/// What a receive of a whole message says it got.
pub(crate) fn expected_length(run: &Run) -> usize {
    match run.service {
        Service::Ud => DATAGRAM_HEADER_BYTES + run.size as usize,
        _ => run.size as usize,
    }
}

/// Whether a message has the contents of its number.
fn contents_right(resources: &RunResources, index: usize, sequence: u64, received: &[u8]) -> Result<bool> {
    let seed = seed(index, sequence);
    if resources.run.op == Op::Send {
        let header = expected_length(&resources.run) - resources.run.size as usize;
        return Ok(pattern::matches(seed, &received[header..]));
    }
    memory_holds(resources, index, sequence, seed)
}

/// Whether the slot of a message holds the payload of `seed`.
fn memory_holds(resources: &RunResources, index: usize, sequence: u64, seed: u64) -> Result<bool> {
    let mut bytes = vec![0; resources.run.size as usize];
    let offset = slot_offset(&resources.run, index as u64, sequence);
    resources.memory.read_at(offset as usize, &mut bytes)?;
    Ok(pattern::matches(seed, &bytes))
}

/// Waits for the end of a phase that needs nothing of this program.
fn stand_by(resources: &RunResources, conversation: &Conversation) -> Result<Message> {
    if resources.run.events || resources.run.target_sleeps {
        let message = conversation
            .next()?
            .context("the client hung up during the run")?;
        return crate::exchange::expected("done", message);
    }
    loop {
        for _ in 0..ROUNDS_PER_LOOK {
            // Nothing completes here, but polling drives the NIC.
            resources.queue.poll()?;
        }
        if let Some(message) = conversation.news("done")? {
            return Ok(message);
        }
    }
}

/// Looks whether one-sided messages left behind what they should; how many places are wrong.
fn check_memory(resources: &RunResources, conversation: &Conversation) -> Result<u64> {
    let mut wrong = 0;
    for index in 0..resources.flows.len() {
        let sent: u64 = conversation
            .expect("lane", crate::exchange::PEER_TIMEOUT)?
            .field("messages")?;
        match resources.run.op {
            Op::Write => {
                // The last message of every slot that was used.
                for sequence in sent.saturating_sub(resources.run.slots())..sent {
                    wrong += u64::from(!memory_holds(resources, index, sequence, seed(index, sequence))?);
                }
            }
            Op::FetchAdd | Op::CompareSwap => {
                let offset = slot_offset(&resources.run, index as u64, 0) as usize;
                wrong += u64::from(resources.memory.fetch_add(offset, 0)? != sent);
            }
            Op::Send | Op::Read => {}
        }
    }
    Ok(wrong)
}
