//! Distribution: a thread that polls the queue takes out every completion, delivers each to its waiter, and posts what
//! waited in the backlog for the room it made.

use super::{BATCH, CompletionQueue, Shared, WaitError};
use crate::cm_dispatcher::CloseReason;
use crate::completion::Completion;
use crate::memory::Buffers;
use crate::outstanding::{Due, Work, WorkQueueId};
use crate::refused::Refused;
use crate::span::Span;
use crate::ticket::{Outcome, Ticket};
use nonic_core::{Arm, CqOverflow, Data, PostError, RecvRequest, SendRequest, Status};
use smallvec::SmallVec;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

impl CompletionQueue {
    /// Posts an awaited request, now or when there is room.
    pub(crate) fn submit(
        &self,
        work_queue: WorkQueueId,
        buffers: Buffers,
        work: Work,
        span: Span,
    ) -> Arc<Ticket> {
        let ticket = Arc::new(Ticket::told_by(span));
        self.lock()
            .admit_awaited(work_queue, buffers, Arc::clone(&ticket), work);
        self.post_backlog(work_queue);
        ticket
    }

    /// Posts what waited for room, as far as there is some.
    pub(super) fn post_backlog(&self, work_queue: WorkQueueId) {
        loop {
            // In a statement of its own: posting must not find it locked.
            let due = self.lock().next_due(work_queue);
            let Some(due) = due else {
                return;
            };
            let posted = self.post(&due);
            let refused = {
                let mut outstanding = self.lock();
                if outstanding.posted(work_queue) {
                    self.shared.posted.notify_all();
                }
                match posted {
                    Ok(()) => None,
                    Err(error) => outstanding.take(due.wr_id).map(|taken| (error, taken)),
                }
            };
            if let Some((error, taken)) = refused {
                if let Some(ticket) = taken.ticket {
                    self.tell_drained(taken.drainers);
                    let buffers = taken.buffers;
                    self.deliver(&ticket, Outcome::Refused(Refused { error, buffers }));
                }
            }
        }
    }

    fn post(&self, due: &Due) -> Result<(), PostError> {
        let engine = &self.shared.device.engine;
        let wr_id = due.wr_id;
        match &due.work {
            Work::Receive => engine.post_recv(
                due.qpn,
                &RecvRequest {
                    wr_id,
                    sges: &due.sges,
                },
            ),
            Work::Send {
                op,
                flags,
                destination,
                inline,
            } => engine.post_send(
                due.qpn,
                &SendRequest {
                    wr_id,
                    op: *op,
                    data: inline.as_deref().map_or(Data::Sges(&due.sges), Data::Inline),
                    flags: *flags,
                    destination: *destination,
                },
            ),
        }
    }

    /// Tells `ticket` when no request of a work queue is under way any more.
    pub(crate) fn drain(&self, work_queue: WorkQueueId) -> Arc<Ticket> {
        let ticket = Arc::new(Ticket::default());
        if self.lock().tell_when_drained(work_queue, &ticket) {
            ticket.deliver(Outcome::Drained);
        }
        ticket
    }

    /// A request is done with: posts what waited for its room, and tells those who waited for the work queue to be idle.
    pub(super) fn room_was_made(
        &self,
        work_queue: WorkQueueId,
        others_wait: bool,
        drainers: Vec<Arc<Ticket>>,
    ) {
        if others_wait {
            self.post_backlog(work_queue);
        }
        self.tell_drained(drainers);
    }

    fn tell_drained(&self, drainers: Vec<Arc<Ticket>>) {
        for ticket in drainers {
            self.deliver(&ticket, Outcome::Drained);
        }
    }

    fn deliver(&self, ticket: &Ticket, outcome: Outcome) {
        if ticket.deliver(outcome) {
            self.shared.doorbell.ring();
        }
    }

    /// Takes out all completions and delivers them to their waiters; drives the NIC if there are none.
    fn distribute(&self) -> Result<(), CqOverflow> {
        let Shared { device, core, .. } = &*self.shared;
        let mut batch: SmallVec<[nonic_core::Completion; BATCH]> = SmallVec::new();
        device
            .engine
            .poll(core, BATCH, |completion| batch.push(completion))?;
        while !batch.is_empty() {
            let mut for_pollers = false;
            for completion in batch.drain(..) {
                if let Some(completion) = self.finish(completion) {
                    self.shared.aside.push(completion);
                    for_pollers = true;
                }
            }
            if for_pollers {
                self.shared.doorbell.ring();
            }
            core.poll(BATCH, |completion| batch.push(completion))?;
        }
        Ok(())
    }

    /// How a request ended, in a task.
    pub(crate) fn poll_ticket(&self, ticket: &Arc<Ticket>, context: &mut Context<'_>) -> Poll<Outcome> {
        let waker = context.waker();
        if let Some(outcome) = ticket.take() {
            return Poll::Ready(outcome);
        }
        if let Err(overflow) = self.distribute() {
            return Poll::Ready(Outcome::Overflow(overflow));
        }
        if let Some(outcome) = ticket.take_or_wake(waker) {
            return Poll::Ready(outcome);
        }
        let Shared {
            device,
            core,
            doorbell,
            futures,
            ..
        } = &*self.shared;
        if futures.join(ticket) {
            doorbell.subscribe(&Waker::from(Arc::clone(futures)));
            device.engine.arm(core, Arm::Next);
        }
        // What came before arming does not ring the doorbell.
        if !core.is_empty() {
            if let Err(overflow) = self.distribute() {
                return Poll::Ready(Outcome::Overflow(overflow));
            }
        }
        ticket.take().map_or(Poll::Pending, Poll::Ready)
    }

    /// How a request ended; the thread sleeps until it has, at most until `deadline`.
    pub(crate) fn wait_ticket(
        &self,
        ticket: &Ticket,
        deadline: Option<Instant>,
    ) -> Result<Option<Outcome>, WaitError> {
        let Shared {
            device,
            core,
            doorbell,
            waits,
            ..
        } = &*self.shared;
        ticket.will_sleep();
        loop {
            self.distribute()?;
            if let Some(outcome) = ticket.take() {
                return Ok(Some(outcome));
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            let ready = || !core.is_empty() || ticket.is_done();
            device.engine.wait(waits, core, doorbell, left, ready)?;
        }
    }

    /// A completion as the polling program gets it; nothing if another thread or task waits for it, which has it now.
    pub(super) fn finish(&self, completion: nonic_core::Completion) -> Option<Completion> {
        // Of a queue pair that is gone: the program lost its claim to the completion with it.
        let taken = self.lock().take(completion.wr_id)?;
        self.room_was_made(taken.work_queue, taken.others_wait, taken.drainers);
        let connection = match completion.status {
            Status::Success => None,
            _ => self.lock().connection(taken.work_queue),
        };
        if let (Status::RetryExceeded, Some(connection)) = (completion.status, &connection) {
            connection.end(CloseReason::Unreachable);
        }
        let completion = Completion {
            id: taken.id,
            result: match completion.status {
                Status::Success => Ok(completion.byte_len as usize),
                status => Err(status),
            },
            opcode: completion.opcode,
            qpn: completion.qpn,
            immediate: completion.immediate,
            invalidated: completion.invalidated_rkey,
            source: completion.grh.then_some(completion.src_qp),
            buffers: taken.buffers,
            closed: match completion.status {
                Status::Flushed => connection.as_ref().and_then(|connection| connection.ended()),
                _ => None,
            },
        };
        let Some(ticket) = taken.ticket else {
            return Some(completion);
        };
        let peer = connection.and_then(|connection| connection.peer());
        self.deliver(&ticket, Outcome::Completed(completion, peer));
        None
    }
}
