//! The peer's answers to READs, which come as tagged segments, and to atomics.

use super::outstanding::{Answer, Outstanding};
use super::requester::Requester;
use crate::verbs::memory::{Keys, SgFault};
use nonic_wire::iwarp::Tagged;

/// What is wrong with an answer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum BadAnswer {
    /// Nothing of the kind was asked for.
    Unexpected,
    /// It is more, less or elsewhere than was asked for.
    Range,
    /// Not the next message number.
    Msn,
    /// The memory for it is gone: this side's fault. Which request fails.
    Local(u64),
}

impl Requester {
    /// Takes a segment of a READ's answer.
    pub(super) fn handle_read_response(
        &mut self,
        keys: &Keys,
        to: &Tagged,
        payload: &[u8],
    ) -> Result<(), BadAnswer> {
        let Some(Outstanding { number, answer, .. }) = self.outstanding.front_mut() else {
            return Err(BadAnswer::Unexpected);
        };
        let Answer::Read {
            sink,
            received,
            length,
        } = answer
        else {
            return Err(BadAnswer::Unexpected);
        };
        if to.stag != *sink {
            return Err(BadAnswer::Unexpected);
        }
        let left = (*length - *received) as usize;
        let fits = if to.last {
            payload.len() == left
        } else {
            payload.len() < left
        };
        if to.to != u64::from(*received) || !fits {
            return Err(BadAnswer::Range);
        }
        let offset = u64::from(*received);
        *received += payload.len() as u32;
        let number = *number;
        if let (Some(number), false) = (number, payload.is_empty()) {
            if self.scatter(keys, number, offset, payload).is_err() {
                return Err(BadAnswer::Local(number));
            }
        }
        if to.last {
            self.answered(number);
        }
        Ok(())
    }

    /// Takes the answer to an atomic.
    pub(super) fn handle_atomic_response(
        &mut self,
        keys: &Keys,
        msn: u32,
        request_id: u32,
        original: u64,
    ) -> Result<(), BadAnswer> {
        if msn != self.atomic_msn {
            return Err(BadAnswer::Msn);
        }
        let Some(Outstanding { number, answer, .. }) = self.outstanding.front().copied() else {
            return Err(BadAnswer::Unexpected);
        };
        if answer != (Answer::Atomic { request_id }) {
            return Err(BadAnswer::Unexpected);
        }
        self.atomic_msn = msn.wrapping_add(1);
        if let Some(number) = number {
            if self.scatter(keys, number, 0, &original.to_ne_bytes()).is_err() {
                return Err(BadAnswer::Local(number));
            }
        }
        self.answered(number);
        Ok(())
    }

    /// Places a part of the answer to a request.
    fn scatter(&self, keys: &Keys, number: u64, offset: u64, bytes: &[u8]) -> Result<(), SgFault> {
        match self.queue.get((number - self.front) as usize) {
            Some(request) => request.wqe.payload.scatter(keys, offset, bytes),
            None => Ok(()),
        }
    }

    fn answered(&mut self, number: Option<u64>) {
        self.outstanding.pop_front();
        let at = number.map(|number| (number - self.front) as usize);
        if let Some(request) = at.and_then(|at| self.queue.get_mut(at)) {
            request.answered = true;
        }
    }

    /// The READ that a Terminate complains about, by the sink it named: some peers do not copy its number right. An atomic, which
    /// has none, by its number.
    pub(super) fn find_refused(&self, sink: Option<u32>, msn: u32) -> Option<u64> {
        let refused = self
            .outstanding
            .iter()
            .find(|outstanding| match outstanding.answer {
                Answer::Read { sink: own, .. } => sink == Some(own),
                Answer::Atomic { .. } => sink.is_none() && outstanding.msn == msn,
            });
        refused.and_then(|outstanding| outstanding.number)
    }
}
