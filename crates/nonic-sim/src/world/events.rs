//! After a NIC's turn: looks at its events and completion queues.

use super::model::{Life, Mark};
use super::{Check, World};
use crate::program::events::Waiter;
use crate::program::post::{RECEIVE, SHARED, from_wr_id};
use nonic_core::{Completion, Event, Status};

impl World {
    /// Takes the events and completions of a NIC after its turn.
    pub(super) fn after_drive(&mut self, station: usize) -> Check {
        let host = self.current[station];
        self.note_network();
        if self.fabric.nic(station).has_unpublished() {
            return Err(format!("NIC {station}: completions are left after publishing"));
        }
        let events = self.fabric.take_events(station);
        // First what explains failures that other queues report.
        for event in &events {
            if let Event::CqError(cq) = event {
                self.cq_overflowed(cq.0 as usize)?;
            }
        }
        for cq in self.hosts[host].cqs.clone() {
            self.poll(cq, host, &events)?;
        }
        self.check_flushed()?;
        for event in &events {
            self.note_event(host, *event)?;
        }
        for srq in self.hosts[host].srqs.clone() {
            self.unblock(srq);
            self.model.check_limit(srq, &events)?;
        }
        Ok(())
    }

    /// Empties a completion queue and checks what was in it, and whether its waiter was woken.
    fn poll(&mut self, cq: usize, host: usize, events: &[Event]) -> Check {
        let Some(queue) = self.cqs[cq].queue.clone() else {
            return Ok(());
        };
        let mut polled: Vec<Completion> = Vec::new();
        if self.cqs[cq].overflowed {
            return Ok(());
        }
        let overflow = queue
            .poll(usize::MAX, |completion| polled.push(completion))
            .is_err();
        if overflow || events.contains(&Event::CqError(queue.id())) {
            return self.cq_overflowed(cq);
        }
        let mut waiter = Waiter::new(self.cqs[cq].arming);
        for completion in &polled {
            self.tell(|| describe(cq, completion));
            self.note_completed(host, completion);
            let solicited = if completion.wr_id & RECEIVE == 0 {
                self.sent(completion)?;
                Some(completion.status != Status::Success)
            } else {
                self.received(completion, host)?
            };
            waiter.saw(solicited);
        }
        let woken = events
            .iter()
            .filter(|event| **event == Event::Completion(queue.id()))
            .count();
        waiter.check(woken).map_err(|what| {
            let count = polled.len();
            format!("CQ {cq}: {what}, {count} completions")
        })?;
        if let (true, Some(arm)) = (woken > 0, self.cqs[cq].arming) {
            queue.arm(arm);
        }
        Ok(())
    }

    fn cq_overflowed(&mut self, cq: usize) -> Check {
        if !self.cqs[cq].may_overflow {
            return Err(format!("CQ {cq} overflowed though it has room for everything"));
        }
        self.cqs[cq].overflowed = true;
        for (qp, program) in self.qps.iter_mut().zip(&mut self.model.programs) {
            let uses = qp.send_cq == cq || qp.recv_cq == cq;
            if uses && !matches!(qp.life, Life::Gone | Life::Planned) {
                qp.life = Life::Overflowed;
                program.blind = true;
                program.outstanding.clear();
                program.waiting.clear();
            }
        }
        Ok(())
    }

    fn note_event(&mut self, host: usize, event: Event) -> Check {
        self.tell(|| format!("host {host}: {event:?}"));
        let qp_of = |qpn: nonic_core::Qpn| self.by_qpn.get(&(host, qpn.value())).copied();
        match event {
            Event::SqDrained(qpn) => {
                let Some(number) = qp_of(qpn) else {
                    return Err(format!("{event:?} for no queue pair"));
                };
                self.sq_drained(number)
            }
            Event::QpRequestError(qpn) | Event::QpAccessError(qpn) => {
                let explained = qp_of(qpn).is_some_and(|number| {
                    let qp = &self.qps[number];
                    qp.may_be_refused || matches!(qp.life, Life::Gone | Life::Overflowed)
                });
                if explained {
                    Ok(())
                } else {
                    Err(format!("{event:?}, which nothing explains"))
                }
            }
            Event::QpFatal(qpn) => {
                let explained = qp_of(qpn).is_some_and(|number| self.qps[number].life == Life::Overflowed);
                if explained {
                    Ok(())
                } else {
                    Err(format!("{event:?}, which nothing explains"))
                }
            }
            Event::LastWqeReached(qpn) => {
                let explained = qp_of(qpn).is_some_and(|number| {
                    let ended = self.error_is_explained(number) || self.qps[number].life == Life::Gone;
                    self.model.programs[number].srq.is_some() && ended
                });
                match explained {
                    true => Ok(()),
                    false => Err(format!("{event:?}, which nothing explains")),
                }
            }
            Event::DeviceFatal => Err(format!("{event:?}, which nothing explains")),
            _ => Ok(()),
        }
    }

    fn sq_drained(&mut self, number: usize) -> Check {
        match self.qps[number].life {
            Life::Draining => {
                self.qps[number].life = Life::Drained;
                let delay_ns = self.prng.below(300_000);
                self.fabric.mark(delay_ns, Mark::Undrain(number));
                Ok(())
            }
            Life::Drained | Life::Alive => Err(format!("QP {number}: drained though not asked to, or twice")),
            // The failure came first.
            _ => Ok(()),
        }
    }

    /// Comes back to a shared queue that was full.
    fn unblock(&mut self, number: usize) {
        let srq = &mut self.model.srqs[number];
        let room = srq.queue.as_ref().is_some_and(|queue| queue.len() < srq.depth);
        if room && std::mem::take(&mut srq.blocked) {
            self.fabric.mark(500, Mark::SharedReceive(number));
        }
    }
}

fn describe(cq: usize, completion: &Completion) -> String {
    let (owner, index) = from_wr_id(completion.wr_id);
    let kind = match (completion.wr_id & RECEIVE != 0, completion.wr_id & SHARED != 0) {
        (false, _) => "QP",
        (true, false) => "receive of QP",
        (true, true) => "receive of SRQ",
    };
    format!(
        "CQ {cq}: {kind} {owner} number {index}: {:?} {:?} {} bytes, imm {:?}",
        completion.opcode, completion.status, completion.byte_len, completion.immediate
    )
}
