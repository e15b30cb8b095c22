//! The server of a bandwidth or rate run: receives, or lets its memory be used.

use super::bandwidth::{closest, seed};
use super::pair::Posting;
use super::rig::{DATAGRAM_HEADER_BYTES, Rig, slot_offset};
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
const STRAGGLER_PATIENCE: Duration = Duration::from_millis(50);
/// What a reliable sender was acknowledged for is in the queue; this is for a machine that is very busy.
const RELIABLE_PATIENCE: Duration = Duration::from_secs(5);

/// Serves all phases of a run.
pub(crate) fn serve(rig: &mut Rig, conversation: &mut Conversation) -> Result<()> {
    let mut lanes = vec![Lane::default(); rig.flows.len()];
    loop {
        let (done, arrived) = match rig.run.arrives_visibly() {
            true => Sink::new(rig, &mut lanes).receive(conversation)?,
            false => (stand_by(rig, conversation)?, Arrived::default()),
        };
        let last: bool = done.field("last")?;
        let mut corrupt = arrived.corrupt;
        if last && rig.run.verify && !rig.run.arrives_visibly() {
            corrupt += check_memory(rig, conversation)?;
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
struct Lane {
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
struct Sink<'a> {
    rig: &'a mut Rig,
    lanes: &'a mut [Lane],
    arrived: Arrived,
    taken: Vec<Completion>,
}

impl<'a> Sink<'a> {
    fn new(rig: &'a mut Rig, lanes: &'a mut [Lane]) -> Self {
        Sink {
            rig,
            lanes,
            arrived: Arrived::default(),
            taken: Vec::with_capacity(BATCH),
        }
    }

    /// Until the sender says how much it sent, and that much is here or can no longer come.
    fn receive(mut self, conversation: &Conversation) -> Result<(Message, Arrived)> {
        let mut done: Option<(Message, u64)> = None;
        let mut quiet_since = Instant::now();
        let mut rounds = 0_u32;
        let patience = match self.rig.run.counted() {
            true => STRAGGLER_PATIENCE,
            false => RELIABLE_PATIENCE,
        };
        loop {
            if self.reap()? > 0 {
                quiet_since = Instant::now();
            }
            rounds = rounds.wrapping_add(1);
            if done.is_none() && (rounds.is_multiple_of(ROUNDS_PER_LOOK) || self.rig.run.events) {
                done = match conversation.news("done")? {
                    None => None,
                    Some(message) => {
                        let sent = message.field("messages")?;
                        Some((message, sent))
                    }
                };
            }
            let over = done
                .as_ref()
                .is_some_and(|(_, sent)| self.arrived.messages >= *sent || quiet_since.elapsed() > patience);
            if over && let Some((message, _)) = done {
                return Ok((message, self.arrived));
            }
        }
    }

    fn reap(&mut self) -> Result<usize> {
        let taken = &mut self.taken;
        let count = self.rig.completions(BATCH, |completion| taken.push(completion))?;
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
        let run = &self.rig.run;
        let lane = &mut self.lanes[index];
        let sequence = match completion.immediate {
            Some(low_bits) => closest(lane.next, low_bits),
            None => lane.next,
        };
        if run.verify || length != expected_length(run) {
            let bytes = completion.buffers.first().map_or(&[][..], |lease| &lease[..]);
            let intact = length == expected_length(run) && contents_right(self.rig, index, sequence, bytes)?;
            self.arrived.corrupt += u64::from(!intact);
        }
        lane.next = lane.next.max(sequence + 1);
        if run.counted() {
            let now = Instant::now();
            self.arrived.first.get_or_insert(now);
            self.arrived.last = Some(now);
        }
        self.arrived.messages += 1;
        self.rig.flows[index]
            .pair
            .recv(completion.id, completion.buffers)?;
        self.credit(index)
    }

    /// Tells the sender how far it got, every quarter of its window.
    fn credit(&mut self, index: usize) -> Result<()> {
        let run = &self.rig.run;
        let lane = &mut self.lanes[index];
        if !run.counted() || lane.next - lane.credited < (run.window() / 4).max(1) {
            return Ok(());
        }
        let pair = &mut self.rig.flows[index].pair;
        let posting = Posting::Send {
            buffers: Buffers::default(),
            immediate: Some(lane.next as u32),
        };
        match pair.post(index as u64, posting) {
            Ok(()) => lane.credited = lane.next,
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
fn contents_right(rig: &Rig, index: usize, sequence: u64, received: &[u8]) -> Result<bool> {
    let seed = seed(index, sequence);
    if rig.run.op == Op::Send {
        let header = expected_length(&rig.run) - rig.run.size as usize;
        return Ok(pattern::matches(seed, &received[header..]));
    }
    memory_holds(rig, index, sequence, seed)
}

/// Whether the slot of a message holds the payload of `seed`.
fn memory_holds(rig: &Rig, index: usize, sequence: u64, seed: u64) -> Result<bool> {
    let mut bytes = vec![0; rig.run.size as usize];
    let offset = slot_offset(&rig.run, index as u64, sequence);
    rig.memory.read_at(offset as usize, &mut bytes)?;
    Ok(pattern::matches(seed, &bytes))
}

/// Waits for the end of a phase that needs nothing of this program.
fn stand_by(rig: &Rig, conversation: &Conversation) -> Result<Message> {
    if rig.run.events || rig.run.target_sleeps {
        let message = conversation
            .next()?
            .context("the client hung up during the run")?;
        return crate::exchange::expected("done", message);
    }
    loop {
        for _ in 0..ROUNDS_PER_LOOK {
            // Nothing completes here, but polling drives the NIC.
            rig.queue.poll()?;
        }
        if let Some(message) = conversation.news("done")? {
            return Ok(message);
        }
    }
}

/// Looks whether one-sided messages left behind what they should; how many places are wrong.
fn check_memory(rig: &Rig, conversation: &Conversation) -> Result<u64> {
    let mut wrong = 0;
    for index in 0..rig.flows.len() {
        let sent: u64 = conversation
            .expect("lane", crate::exchange::PATIENCE)?
            .field("messages")?;
        match rig.run.op {
            Op::Write => {
                // The last message of every slot that was used.
                for sequence in sent.saturating_sub(rig.run.slots())..sent {
                    wrong += u64::from(!memory_holds(rig, index, sequence, seed(index, sequence))?);
                }
            }
            Op::FetchAdd | Op::CompareSwap => {
                let offset = slot_offset(&rig.run, index as u64, 0) as usize;
                wrong += u64::from(rig.memory.fetch_add(offset, 0)? != sent);
            }
            Op::Send | Op::Read => {}
        }
    }
    Ok(wrong)
}
