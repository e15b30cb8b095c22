//! The client of a latency run: one message at a time.
//!
//! SEND and WRITE go there and back (the server answers each with one of its own, see
//! [`super::latency_target`]); READ and atomics are answered by the server's NIC alone. A WRITE is awaited
//! by looking at the last byte of the memory it goes to, as programs that use WRITE do; where this side
//! sleeps, the WRITE carries an immediate instead, because nothing else would wake it.
//!
//! An answer that does not come in time on an unreliable service is a loss. On a reliable one it is the
//! queue pair's business to repeat or to fail; but a server that does not answer at all, because what came was not what
//! was sent or because it is stopped, is not waited for without end.

use super::bandwidth::{closest, seed};
use super::bandwidth_target::{expected_length, is_arrival};
use super::resources::{RunResources, posting, slot, target};
use super::run::{Op, Run, Service};
use crate::conversation::Conversation;
use crate::exchange::PEER_TIMEOUT;
use crate::pattern;
use anyhow::{Context, Result, bail};
use nonic::{Completion, Lease};
use std::time::{Duration, Instant};

/// Rounds without news before clocks and conversation are looked at.
pub(crate) const ROUNDS_PER_LOOK: u32 = 16;

/// Looks at memory between two looks for completions, each of which takes as long as several of them.
const LOOKS_AT_MEMORY: u32 = 8;

/// Sends one message after the other.
#[derive(Debug)]
pub(crate) struct LatencyClient<'a> {
    resources: &'a mut RunResources,
    conversation: &'a Conversation,
    /// How long an unreliable answer may take.
    timeout: Duration,
    next: u64,
    taken: Vec<Completion>,
    /// Receives to post again.
    spent: Vec<Completion>,
    /// Answers with wrong contents.
    pub(crate) corrupt: u64,
}

impl<'a> LatencyClient<'a> {
    pub(crate) fn new(
        resources: &'a mut RunResources,
        conversation: &'a Conversation,
        timeout: Duration,
    ) -> Self {
        LatencyClient {
            resources,
            conversation,
            timeout,
            next: 0,
            taken: Vec::with_capacity(16),
            spent: Vec::with_capacity(16),
            corrupt: 0,
        }
    }

    /// Sends the next message and waits for its answer: the round trip, or `None` if it was lost.
    pub(crate) fn once(&mut self) -> Result<Option<Duration>> {
        // After a loss: the answer may have come late, and would pass for one to a message not sent yet.
        if self.resources.run.polls_memory() && written(self.resources, self.next)? {
            self.next += 1;
        }
        let sequence = self.next;
        self.next += 1;
        let mut lease = self.free_lease()?;
        prepare(&self.resources.run, sequence, &mut lease);
        let start = Instant::now();
        post(self.resources, sequence, lease)?;
        let mut rounds = 0_u32;
        loop {
            let arrived = arrives(self.resources, sequence)?;
            let taken = match arrived {
                true => None,
                false => self.reap(sequence)?,
            };
            if arrived || taken == Some(true) {
                let elapsed = start.elapsed();
                self.replenish()?;
                return Ok(Some(elapsed));
            }
            self.replenish()?;
            rounds += 1;
            if taken.is_none() && (rounds % ROUNDS_PER_LOOK == 0 || self.resources.run.events) {
                self.check_peer()?;
                let reliable = self.resources.run.service == Service::Rc;
                if reliable && start.elapsed() > self.timeout.max(PEER_TIMEOUT) {
                    bail!(
                        "no answer to message {sequence} within {:?}, and the queue pair has not failed: the server's NIC is there, but its \
                         program is stopped, or does not find in its memory what was sent; see what the server says, and capture both \
                         sides with NONIC_PCAP",
                        self.timeout.max(PEER_TIMEOUT)
                    );
                }
                if !reliable && start.elapsed() > self.timeout {
                    // A peer that polls its memory for a WRITE waits for this very number.
                    if self.resources.run.polls_memory() {
                        self.next = sequence;
                    }
                    return Ok(None);
                }
            }
        }
    }

    /// Takes completions: whether the answer was among them, or `None` if there were none.
    fn reap(&mut self, sequence: u64) -> Result<Option<bool>> {
        let taken = &mut self.taken;
        if self
            .resources
            .completions(16, |completion| taken.push(completion))?
            == 0
        {
            return Ok(None);
        }
        let mut answered = false;
        for completion in self.taken.drain(..) {
            let length = completion
                .result
                .with_context(|| format!("message {sequence} failed"))?;
            let run = &self.resources.run;
            if is_arrival(completion.opcode) {
                let number = completion
                    .immediate
                    .map_or(sequence, |low_bits| closest(sequence, low_bits));
                // A late answer to an earlier message is lost already.
                if number == sequence {
                    answered = true;
                    self.corrupt += u64::from(!arrived_right(self.resources, sequence, length, &completion)?);
                }
                self.spent.push(completion);
                continue;
            }
            for lease in completion.buffers {
                if run.op.fetches() {
                    answered = true;
                    self.corrupt += u64::from(run.verify && !fetched_right(run, sequence, &lease));
                }
                self.resources.flows[0].free.push(lease);
            }
        }
        Ok(Some(answered))
    }

    /// Posts the receives that were used. Several wait, so this has time until the clock stands still.
    fn replenish(&mut self) -> Result<()> {
        for completion in self.spent.drain(..) {
            self.resources.flows[0].pair.recv(0, completion.buffers)?;
        }
        Ok(())
    }

    /// A buffer to send from. All are in use only if acknowledgements are late.
    fn free_lease(&mut self) -> Result<Lease> {
        let start = Instant::now();
        loop {
            if let Some(lease) = self.resources.flows[0].free.pop() {
                return Ok(lease);
            }
            let before = self.next - 1;
            if self.reap(before)?.is_none() {
                self.check_peer()?;
                if start.elapsed() > self.timeout.max(PEER_TIMEOUT) {
                    bail!("the NIC keeps all {} buffers", self.resources.run.sends());
                }
            }
        }
    }

    fn check_peer(&self) -> Result<()> {
        match self.conversation.news("result")? {
            None => Ok(()),
            Some(message) => bail!("the server ended the run early: {message}"),
        }
    }
}

/// The last byte of a WRITE that is awaited by looking: never that of its predecessor, never zero.
pub(crate) fn stamp(sequence: u64) -> u8 {
    (sequence % 255 + 1) as u8
}

/// Fills in what a message carries.
pub(crate) fn prepare(run: &Run, sequence: u64, lease: &mut [u8]) {
    if run.verify {
        match run.op.fetches() {
            true => lease.fill(0xee),
            false => pattern::fill(seed(0, sequence), lease),
        }
    }
    if run.polls_memory() {
        if let Some(last) = lease.last_mut() {
            *last = stamp(sequence);
        }
    }
}

/// Posts a message, or an answer, which is the same thing.
pub(crate) fn post(resources: &mut RunResources, sequence: u64, lease: Lease) -> Result<()> {
    let remote = target(&resources.run, &resources.remote, 0, sequence);
    let posting = posting(&resources.run, remote, lease, sequence);
    Ok(resources.flows[0].pair.post(0, posting)?)
}

/// Whether the peer's WRITE of this number comes within a few looks, if that is how it is awaited.
pub(crate) fn arrives(resources: &RunResources, sequence: u64) -> Result<bool> {
    for _ in 0..LOOKS_AT_MEMORY * u32::from(resources.run.polls_memory()) {
        if written(resources, sequence)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether the peer's WRITE of this number is in our memory, all of it if contents are checked.
pub(crate) fn written(resources: &RunResources, sequence: u64) -> Result<bool> {
    let size = resources.run.size as usize;
    let mut last = [0];
    resources.memory.read_at(size - 1, &mut last)?;
    if last[0] != stamp(sequence) {
        return Ok(false);
    }
    if !resources.run.verify {
        return Ok(true);
    }
    let mut bytes = vec![0; size];
    resources.memory.read_at(0, &mut bytes)?;
    Ok(pattern::matches(seed(0, sequence), &bytes[..size - 1]))
}

/// Whether a receive got what it should have.
pub(crate) fn arrived_right(
    resources: &RunResources,
    sequence: u64,
    length: usize,
    completion: &Completion,
) -> Result<bool> {
    let run = &resources.run;
    if length != expected_length(run) {
        return Ok(false);
    }
    if !run.verify {
        return Ok(true);
    }
    let seed = seed(0, sequence);
    if run.op == Op::Send {
        let header = expected_length(run) - run.size as usize;
        return Ok(completion
            .buffers
            .first()
            .is_some_and(|lease| pattern::matches(seed, &lease[header..])));
    }
    let mut bytes = vec![0; run.size as usize];
    resources.memory.read_at(0, &mut bytes)?;
    Ok(pattern::matches(seed, &bytes))
}

fn fetched_right(run: &Run, sequence: u64, bytes: &[u8]) -> bool {
    match run.op {
        Op::Read => pattern::matches(slot(run, 0, sequence), bytes),
        _ => bytes == sequence.to_ne_bytes(),
    }
}
