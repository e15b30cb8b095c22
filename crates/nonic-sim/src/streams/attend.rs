//! Drives NICs, and gives their programs events and completions.

use super::model::Mark;
use super::{Check, Streams};
use crate::program::events::Waiter;
use crate::program::{arrivals, completions};
use nonic_core::iwarp::{StreamEnd, StreamReading};
use nonic_core::{Event, Status};

impl Streams {
    /// Drives a NIC, gives its programs what happened, and sets its alarm.
    pub(super) fn attend(&mut self, host: usize) -> Check {
        if !self.hosts[host].up {
            return Ok(());
        }
        let now = self.now();
        self.hosts[host].nic.handle_timeout(now);
        let mut events = Vec::new();
        loop {
            while let Some(event) = self.hosts[host].nic.poll_stream_event() {
                self.stream_event(host, event)?;
            }
            self.hosts[host].nic.publish();
            while let Some(event) = self.hosts[host].nic.poll_event() {
                self.event(host, event)?;
                events.push(event);
            }
            self.poll_completions(host)?;
            if !self.hosts[host].nic.has_stream_events() {
                break;
            }
        }
        if self.hosts[host].nic.has_unpublished() {
            return Err(format!("NIC {host}: completions are left after publishing"));
        }
        for number in 0..self.model.srqs.len() {
            if self.model.srqs[number].host == host {
                self.model.check_limit(number, &events)?;
            }
        }
        for number in 0..self.sides.len() {
            self.check_blocked(number)?;
        }
        if let Some(due) = self.hosts[host].nic.poll_timeout() {
            let at_ns = due.as_ns().max(self.model.now_ns);
            let wake = &mut self.hosts[host].wake_at_ns;
            if wake.is_none_or(|scheduled| scheduled > at_ns) {
                *wake = Some(at_ns);
                self.mark_at(at_ns, Mark::Wake(host));
            }
        }
        Ok(())
    }

    /// A message waits for a receive, and not for much longer than it may.
    pub(super) fn check_blocked(&mut self, number: usize) -> Check {
        let (now_ns, side) = (self.model.now_ns, &mut self.sides[number]);
        let program = &self.model.programs[number];
        if !self.hosts[program.host].up {
            return Ok(());
        }
        let blocked = self.hosts[program.host].nic.stream_reading(program.qpn) == StreamReading::Blocked;
        side.blocked = match side.blocked {
            _ if !blocked => None,
            Some((since_ns, received)) if received == program.received => Some((since_ns, received)),
            _ => Some((now_ns, program.received)),
        };
        let grace_ns = self.config.receive_grace.as_nanos() as u64;
        match side.blocked {
            Some((since_ns, _)) if now_ns - since_ns > grace_ns * 5 / 4 => Err(format!(
                "side {number}: a message has waited for a receive for {} ns",
                now_ns - since_ns
            )),
            _ => Ok(()),
        }
    }

    fn event(&mut self, host: usize, event: Event) -> Check {
        self.tell(|| format!("host {host} {event:?}"));
        let qpn = match event {
            Event::Completion(cq) => {
                *self.hosts[host].notified.entry(cq.0).or_default() += 1;
                return Ok(());
            }
            // Judged with the queue, after the turn.
            Event::SrqLimit(_) => return Ok(()),
            Event::QpFatal(qpn)
            | Event::QpRequestError(qpn)
            | Event::QpAccessError(qpn)
            | Event::LastWqeReached(qpn) => qpn,
            _ => return Err(format!("{event:?} has no reason")),
        };
        let Some(number) = self.by_qpn.get(&(host, qpn.value())).copied() else {
            return Err(format!("{event:?} names no queue pair"));
        };
        let side = &self.sides[number];
        let explained = match event {
            Event::LastWqeReached(_) => {
                self.model.programs[number].srq.is_some() && (side.ended.is_some() || side.leaving)
            }
            _ => matches!(side.ended, Some((StreamEnd::Terminated(_), _))),
        };
        match explained {
            true => Ok(()),
            false => Err(format!("side {number}: {event:?} has no reason")),
        }
    }

    fn poll_completions(&mut self, host: usize) -> Check {
        for number in 0..self.sides.len() {
            if self.model.programs[number].host == host {
                self.poll(number, Queue::Send)?;
                self.poll(number, Queue::Receive)?;
            }
        }
        Ok(())
    }

    /// Empties a completion queue and checks what was in it, and whether its waiter was woken.
    fn poll(&mut self, number: usize, queue: Queue) -> Check {
        let side = &self.sides[number];
        let (cq, arming) = match queue {
            Queue::Send => (side.send_cq.clone(), side.arming[0]),
            Queue::Receive => (side.recv_cq.clone(), side.arming[1]),
        };
        let mut found = Vec::new();
        cq.poll(usize::MAX, |completion| found.push(completion))
            .map_err(|_| "a completion queue overflowed".to_string())?;
        let mut waiter = Waiter::new(arming);
        for completion in found {
            self.tell(|| format!("side {number} {completion:?}"));
            let solicited = match queue {
                Queue::Send => {
                    completions::sent(self, number, &completion)?;
                    Some(completion.status != Status::Success)
                }
                Queue::Receive => arrivals::received(self, number, &completion)?,
            };
            waiter.saw(solicited);
        }
        let host = self.model.programs[number].host;
        let woken = self.hosts[host].notified.remove(&cq.id().0).unwrap_or(0);
        if let (true, Some(arm)) = (woken > 0, arming) {
            cq.arm(arm);
        }
        if self.is_blind(number) {
            return Ok(());
        }
        waiter
            .check(woken)
            .map_err(|what| format!("side {number} {queue:?}: {what}"))
    }
}

/// The completion queues of a side.
#[derive(Copy, Clone, Debug)]
enum Queue {
    Send,
    Receive,
}
