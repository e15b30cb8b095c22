//! The server of a latency run: answers each message with one of its own.

use super::bandwidth::closest;
use super::bandwidth_target::is_arrival;
use super::latency::{ROUNDS_PER_LOOK, arrived_right, arrives, post, prepare};
use super::resources::RunResources;
use super::run::Service;
use crate::conversation::Conversation;
use crate::exchange::Message;
use anyhow::{Context, Result};
use nonic::{Completion, Lease};
use std::time::{Duration, Instant};

/// An unreliable WRITE that is awaited by looking is repeated after so long, in case it got lost.
const REPEAT: Duration = Duration::from_millis(100);

/// Serves a run until the client says it is done.
pub(crate) fn serve(resources: &mut RunResources, conversation: &mut Conversation) -> Result<()> {
    let mut server = LatencyServer {
        resources,
        next: 0,
        answered: Instant::now(),
        corrupt: 0,
        taken: Vec::with_capacity(16),
    };
    let mut rounds = 0_u32;
    loop {
        let worked = server.round()?;
        rounds = rounds.wrapping_add(1);
        if !worked && (rounds % ROUNDS_PER_LOOK == 0 || server.resources.run.events) {
            if conversation.news("done")?.is_some() {
                break;
            }
            server.repeat_if_late()?;
        }
    }
    let result = Message::new("result")
        .with("messages", server.next)
        .with("corrupt", server.corrupt);
    conversation.say(&result)
}

struct LatencyServer<'a> {
    resources: &'a mut RunResources,
    /// The number of the next message.
    next: u64,
    /// When the last answer was posted, on an unreliable service.
    answered: Instant,
    corrupt: u64,
    taken: Vec<Completion>,
}

impl LatencyServer<'_> {
    /// Answers what has come. Whether anything had.
    fn round(&mut self) -> Result<bool> {
        if arrives(self.resources, self.next)? {
            let sequence = self.next;
            self.next += 1;
            self.answer(sequence)?;
            return Ok(true);
        }
        let taken = &mut self.taken;
        let worked = self
            .resources
            .completions(16, |completion| taken.push(completion))?
            > 0;
        let mut taken = std::mem::take(&mut self.taken);
        for completion in taken.drain(..) {
            self.take(completion)?;
        }
        self.taken = taken;
        Ok(worked)
    }

    fn take(&mut self, completion: Completion) -> Result<()> {
        let length = completion.result.context("a request of the server failed")?;
        if !is_arrival(completion.opcode) {
            self.resources.flows[0].free.extend(completion.buffers);
            return Ok(());
        }
        let sequence = completion
            .immediate
            .map_or(self.next, |low_bits| closest(self.next, low_bits));
        let intact = arrived_right(self.resources, sequence, length, &completion)?;
        self.next = self.next.max(sequence + 1);
        self.corrupt += u64::from(!intact);
        // The answer first: the client's clock is running. On an unreliable service a message that is not what was sent counts as lost;
        // on a reliable one the client waits for the answer, and is told in the end how many were wrong.
        if intact || self.resources.run.service == Service::Rc {
            self.answer(sequence)?;
        }
        self.resources.flows[0].pair.recv(0, completion.buffers)?;
        Ok(())
    }

    fn answer(&mut self, sequence: u64) -> Result<()> {
        let mut lease = self.free_lease()?;
        prepare(&self.resources.run, sequence, &mut lease);
        post(self.resources, sequence, lease)?;
        if self.resources.run.service != Service::Rc {
            self.answered = Instant::now();
        }
        Ok(())
    }

    /// A buffer to answer from. The client has one message under way, so one of ours must come back.
    fn free_lease(&mut self) -> Result<Lease> {
        let start = Instant::now();
        loop {
            if let Some(lease) = self.resources.flows[0].free.pop() {
                return Ok(lease);
            }
            let mut late = Vec::new();
            self.resources
                .completions(1, |completion| late.push(completion))?;
            for completion in late {
                self.take(completion)?;
            }
            anyhow::ensure!(
                start.elapsed() < crate::exchange::PEER_TIMEOUT,
                "the NIC keeps all {} buffers",
                self.resources.run.sends()
            );
        }
    }

    fn repeat_if_late(&mut self) -> Result<()> {
        let unreliable = self.resources.run.service != Service::Rc;
        if unreliable
            && self.resources.run.polls_memory()
            && self.next > 0
            && self.answered.elapsed() > REPEAT
        {
            self.answer(self.next - 1)?;
        }
        Ok(())
    }
}
