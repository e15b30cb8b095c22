//! The client of a bandwidth or rate run: keeps the send queues full.
//!
//! Reliable runs count what the peer acknowledged. Unreliable ones are paced by credit, because a sender
//! without any would measure how fast it can overrun a socket: every message carries its number, the
//! receiver tells now and then how far it got ([`super::bandwidth_target`]), and the sender gets at most
//! [`Run::window`] ahead of that. What is lost on the way stays lost and is reported.
//!
//! In the measured loop nothing is allocated: buffers come back in completions and go out again.

use super::resources::{Flow, RunResources, posting, slot, target};
use super::run::{Op, Run};
use crate::conversation::Conversation;
use crate::exchange::{Message, PEER_TIMEOUT};
use crate::meter::Meter;
use crate::pattern;
use anyhow::{Context, Result, bail, ensure};
use nonic::{Completion, CompletionOpcode};
use std::time::{Duration, Instant};

/// Completions taken at a time.
const BATCH: usize = 32;
/// An unreliable peer that said nothing for so long has lost everything that was under way.
const CREDIT_TIMEOUT: Duration = Duration::from_millis(200);
/// How often a loop with nothing to do looks whether the peer is still there.
const PEER_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// When to stop.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Goal {
    Messages(u64),
    Time(Duration),
}

/// What was achieved.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Messages sent.
    pub(crate) sent: u64,
    /// Messages that arrived.
    pub(crate) messages: u64,
    /// How long that took.
    pub(crate) elapsed: Duration,
    /// Messages with wrong contents; zero unless they are checked.
    pub(crate) corrupt: u64,
}

/// The client's side of a run under way.
#[derive(Debug)]
pub(crate) struct BandwidthClient<'a> {
    resources: &'a mut RunResources,
    conversation: &'a mut Conversation,
    progress: Vec<QpProgress>,
    taken: Vec<Completion>,
    corrupt: u64,
}

/// How far one queue pair is. Numbers count on over the phases of a run.
#[derive(Copy, Clone, Debug, Default)]
struct QpProgress {
    /// The number of the next message.
    next: u64,
    /// Messages whose request has completed.
    completed: u64,
    /// Every message before this has arrived or never will; only for unreliable services.
    credited: u64,
}

impl<'a> BandwidthClient<'a> {
    pub(crate) fn new(resources: &'a mut RunResources, conversation: &'a mut Conversation) -> Self {
        let progress = vec![QpProgress::default(); resources.flows.len()];
        BandwidthClient {
            resources,
            conversation,
            progress,
            taken: Vec::with_capacity(BATCH),
            corrupt: 0,
        }
    }

    /// Sends until the goal is reached, and asks the server what arrived. The `last` phase ends the run.
    pub(crate) fn phase(&mut self, goal: Goal, last: bool, meter: &mut Meter) -> Result<Tally> {
        let before = self.posted();
        let elapsed = self.send(goal, meter)?;
        let sent = self.posted() - before;
        let done = Message::new("done").with("messages", sent).with("last", last);
        self.conversation.say(&done)?;
        if last && self.resources.run.verify && !self.resources.run.arrives_visibly() {
            for qp in &self.progress {
                self.conversation
                    .say(&Message::new("lane").with("messages", qp.next))?;
            }
        }
        let result = self.conversation.expect("result", PEER_TIMEOUT)?;
        let corrupt = std::mem::take(&mut self.corrupt) + result.field::<u64>("corrupt")?;
        if self.resources.run.counted() {
            // What the receiver saw is the truth, and its clock the fair one.
            let messages: u64 = result.field("messages")?;
            let elapsed = Duration::from_nanos(result.field("elapsed-ns")?);
            self.write_off_in_flight();
            return Ok(Tally {
                sent,
                messages,
                elapsed,
                corrupt,
            });
        }
        Ok(Tally {
            sent,
            messages: sent,
            elapsed,
            corrupt,
        })
    }

    fn send(&mut self, goal: Goal, meter: &mut Meter) -> Result<Duration> {
        let start = Instant::now();
        let first = self.posted();
        let mut heard = start;
        let mut looked = start;
        loop {
            let now = Instant::now();
            let elapsed = now - start;
            let posted = self.posted() - first;
            let room = match goal {
                Goal::Messages(count) => count - posted,
                Goal::Time(limit) if elapsed < limit => u64::MAX,
                Goal::Time(_) => 0,
            };
            if room > 0 {
                self.fill(room)?;
            } else if self.in_flight() == 0 {
                return Ok(elapsed);
            }
            if self.reap()? > 0 {
                heard = now;
            } else if now - looked > PEER_CHECK_INTERVAL {
                looked = now;
                if let Some(message) = self.conversation.news("result")? {
                    bail!("the server ended the run early: {message}");
                }
                if self.resources.run.counted() && now - heard > CREDIT_TIMEOUT {
                    heard = now;
                    self.write_off_in_flight();
                }
            }
            meter.at(now, meter_position(goal, elapsed, posted), || {
                rate(posted, self.resources.run.size, elapsed)
            });
        }
    }

    /// Posts as much as the queues and the window take, at most `room` messages.
    fn fill(&mut self, mut room: u64) -> Result<()> {
        let window = match self.resources.run.counted() {
            true => self.resources.run.window(),
            false => u64::MAX,
        };
        for index in 0..self.progress.len() {
            let qp = self.progress[index];
            let open = window - (qp.next - qp.credited).min(window);
            let count = open.min(room).min(self.resources.flows[index].free.len() as u64);
            if count > 0 {
                self.post(index, count)?;
                room -= count;
            }
        }
        Ok(())
    }

    /// Posts the next messages of a queue pair, which has buffers for them.
    fn post(&mut self, index: usize, count: u64) -> Result<()> {
        let RunResources {
            run, flows, remote, ..
        } = &mut *self.resources;
        let Flow { pair, free } = &mut flows[index];
        let qp = &mut self.progress[index];
        let first = qp.next;
        qp.next += count;
        let leases = free.drain(free.len() - count as usize..);
        let postings = leases.zip(first..).map(|(mut lease, sequence)| {
            if run.verify {
                match run.op.fetches() {
                    // What an earlier answer left must not pass for this one's.
                    true => lease.fill(0xee),
                    false => pattern::fill(seed(index, sequence), &mut lease),
                }
            }
            posting(run, target(run, remote, index, sequence), lease, sequence)
        });
        pair.post_all(index as u64, postings)?;
        Ok(())
    }

    /// Takes completions; how many.
    fn reap(&mut self) -> Result<usize> {
        let taken = &mut self.taken;
        let count = self
            .resources
            .completions(BATCH, |completion| taken.push(completion))?;
        for completion in self.taken.drain(..) {
            let index = completion.id as usize;
            let (flow, qp) = (&mut self.resources.flows[index], &mut self.progress[index]);
            completion
                .result
                .with_context(|| format!("message {} of queue pair {index} failed", qp.completed))?;
            if completion.opcode == CompletionOpcode::Recv {
                let credited = completion.immediate.unwrap_or_default();
                qp.credited = closest(qp.credited, credited).clamp(qp.credited, qp.next);
                flow.pair.recv(completion.id, completion.buffers)?;
                continue;
            }
            let sequence = qp.completed;
            qp.completed += 1;
            for lease in completion.buffers {
                let run = &self.resources.run;
                if run.verify && run.op.fetches() && !fetched_right(run, index, sequence, &lease) {
                    self.corrupt += 1;
                }
                flow.free.push(lease);
            }
        }
        Ok(count)
    }

    /// Nothing is under way any more.
    fn write_off_in_flight(&mut self) {
        for qp in &mut self.progress {
            qp.credited = qp.next;
        }
    }

    fn posted(&self) -> u64 {
        self.progress.iter().map(|qp| qp.next).sum()
    }

    fn in_flight(&self) -> u64 {
        self.progress.iter().map(|qp| qp.next - qp.completed).sum()
    }
}

/// The number of a message's payload, see [`pattern`]. Receivers know only 32 bits of a sequence number.
pub(crate) fn seed(flow: usize, sequence: u64) -> u64 {
    ((flow as u64) << 32) | (sequence & 0xffff_ffff)
}

/// The sequence number closest to a known one that has these low bits.
pub(crate) fn closest(known: u64, low_bits: u32) -> u64 {
    let ahead = low_bits.wrapping_sub(known as u32) as i32;
    known.saturating_add_signed(ahead.into())
}

fn fetched_right(run: &Run, index: usize, sequence: u64, bytes: &[u8]) -> bool {
    match run.op {
        Op::Read => pattern::matches(slot(run, index as u64, sequence), bytes),
        // Each queue pair has a word of its own and counts it up by one, in order.
        _ => bytes == sequence.to_ne_bytes(),
    }
}

fn meter_position(goal: Goal, elapsed: Duration, posted: u64) -> u64 {
    match goal {
        Goal::Messages(_) => posted,
        Goal::Time(_) => elapsed.as_millis() as u64,
    }
}

fn rate(messages: u64, size: u32, elapsed: Duration) -> String {
    let bytes = messages as f64 * f64::from(size);
    format!("{:.2} GB/s", bytes / elapsed.as_secs_f64().max(1e-9) / 1e9)
}

/// Ends a run with an error if what arrived was not what was sent.
pub(crate) fn ensure_intact(tally: &Tally) -> Result<()> {
    ensure!(
        tally.corrupt == 0,
        "{} of {} messages arrived with wrong contents",
        tally.corrupt,
        tally.messages
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_numbers_are_completed_from_their_low_bits() {
        assert_eq!(closest(5, 7), 7);
        assert_eq!(closest(5, 3), 3);
        let wrap = u64::from(u32::MAX);
        assert_eq!(closest(wrap, 2), wrap + 3);
        assert_eq!(closest(wrap + 3, u32::MAX), wrap);
        assert_eq!(closest(1, u32::MAX), 0);
    }
}
