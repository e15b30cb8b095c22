//! The end of connections and of the whole run, and what must hold then.

use super::model::{Cause, Mark, Phase};
use super::{Check, PATIENCE_NS, Streams};
use nonic_core::iwarp::StreamEnd;

impl Streams {
    /// Is a connection done, or has it nothing more to do? Then it is ended.
    pub(super) fn look(&mut self, number: usize) -> Check {
        let pair = [2 * number, 2 * number + 1];
        if pair.iter().all(|side| self.is_over(*side)) {
            return self.finalize(number);
        }
        if self.is_idle(number) {
            self.connections[number].closing = true;
            for side in pair {
                if self.connections[number].closers[side % 2] {
                    self.close(side)?;
                }
            }
        }
        let age_ns = self.now_ns - self.connections[number].connect_at_ns;
        if age_ns > PATIENCE_NS {
            let connection = &mut self.connections[number];
            if connection.given_up || connection.causes.is_empty() {
                return Err(format!(
                    "connection {number} does not end: {}",
                    self.describe(number)
                ));
            }
            connection.given_up = true;
            connection.connect_at_ns = self.now_ns;
            for side in pair {
                self.abort(side)?;
            }
        }
        self.connections[number].looked += 1;
        let delay_ns = 20_000 << self.connections[number].looked.min(13);
        self.mark(delay_ns, Mark::Look(number));
        Ok(())
    }

    fn is_over(&self, number: usize) -> bool {
        let side = &self.sides[number];
        matches!(side.phase, Phase::Closed) && (side.gone || side.closed || side.params.is_none())
    }

    /// Whether both programs are connected and have nothing more to do, and nothing is under way.
    fn is_idle(&self, number: usize) -> bool {
        [2 * number, 2 * number + 1].iter().all(|side| {
            let (here, peer) = (&self.sides[*side], &self.sides[side ^ 1]);
            here.is_attached()
                && here.ended.is_none()
                && !here.leaving
                && here.next_op == here.ops.len()
                && here.outstanding.iter().all(|index| !here.signaled(*index))
                && self.hosts[here.host].nic.send_room(here.qpn) == Some(here.send_depth as usize)
                && here.unsent.is_empty()
                && peer.received == here.messages.len()
                && self.pipes[*side].is_empty()
        })
    }

    fn describe(&self, number: usize) -> String {
        let pair = [2 * number, 2 * number + 1].map(|side| {
            let side_now = &self.sides[side];
            format!(
                "side {side}: {:?}, {} of {} posted, {} outstanding, {} unsent, {} received of {}, over: {}",
                side_now.ended,
                side_now.next_op,
                side_now.ops.len(),
                side_now.outstanding.len(),
                side_now.unsent.len(),
                side_now.received,
                self.sides[side ^ 1].messages.len(),
                self.is_over(side)
            )
        });
        let connection = &self.connections[number];
        format!(
            "{:?} {:?} {}",
            connection.trouble,
            connection.causes,
            pair.join("; ")
        )
    }

    /// Both sockets are closed: every request and receive must have ended, and the queue pairs go.
    fn finalize(&mut self, number: usize) -> Check {
        for side in [2 * number, 2 * number + 1] {
            let host = self.sides[side].host;
            if self.sides[side].gone || !self.hosts[host].up {
                continue;
            }
            if self.sides[side].params.is_none() {
                self.abort(side)?;
            }
            let side_now = &self.sides[side];
            let promised = side_now.params.is_some_and(|params| params.rtr.is_some());
            let mut unsignaled = side_now.outstanding.iter();
            // Those that succeeded in silence may be the last.
            let open = unsignaled.any(|index| side_now.signaled(*index) || side_now.failed);
            if open || !side_now.waiting.is_empty() {
                return Err(format!(
                    "side {side}: requests or receives never ended: {}",
                    self.describe(number)
                ));
            }
            if promised && side % 2 == 1 && side_now.received > 0 && !side_now.established {
                return Err(format!("side {side}: never established"));
            }
            let qpn = side_now.qpn;
            self.sides[side].gone = true;
            let now = self.now();
            if !self.hosts[host].nic.destroy_qp(now, qpn) {
                return Err(format!("side {side}: destroy_qp knows no such queue pair"));
            }
            self.attend(host)?;
        }
        if !self.connections[number].blind {
            self.check_read_to_the_end(number)?;
            if self.connections[number].closing {
                self.check_complete(number)?;
            }
        }
        self.connections[number].done = true;
        Ok(())
    }

    /// A side that is told that the peer closed has taken every message that was written before.
    fn check_read_to_the_end(&self, number: usize) -> Check {
        for side in [2 * number, 2 * number + 1] {
            let (here, written) = (&self.sides[side], &self.observers[side ^ 1]);
            let told = matches!(here.ended, Some((StreamEnd::PeerClosed, _)));
            let cut = self.connections[number].causes.contains(&Cause::Stream);
            if let (Some(written), true, false) = (written, told, cut) {
                if (here.received as u64) < written.messages {
                    return Err(format!(
                        "side {side}: the peer closed behind {} messages, and {} came",
                        written.messages, here.received
                    ));
                }
            }
        }
        Ok(())
    }

    /// Nothing went wrong: everything must have been done.
    fn check_complete(&self, number: usize) -> Check {
        for side in [2 * number, 2 * number + 1] {
            let (here, peer) = (&self.sides[side], &self.sides[side ^ 1]);
            if here.next_op < here.ops.len() || here.failed || peer.received < here.messages.len() {
                return Err(format!(
                    "side {side}: closed before everything was done: {}",
                    self.describe(number)
                ));
            }
        }
        Ok(())
    }

    /// Everything has ended. Memory must be as expected, byte for byte.
    pub(super) fn check_the_end(&mut self) -> Check {
        if let Some(number) = self.connections.iter().position(|connection| !connection.done) {
            return Err(format!(
                "connection {number} never ended: {}",
                self.describe(number)
            ));
        }
        for (number, host) in self.hosts.iter().enumerate() {
            let usage = host.nic.usage();
            if host.up && (usage.queue_pairs, usage.send_requests, usage.unpublished) != (0, 0, 0) {
                return Err(format!("host {number} leaks: {usage:?}"));
            }
        }
        self.check_keys()?;
        self.settle_interrupted();
        for number in 0..self.cells.len() {
            let cell = &self.cells[number];
            cell.settle(number, &mut self.arenas[cell.arena])
                .or_else(|what| self.excuse(cell.arena, what))?;
        }
        for number in 0..self.words.len() {
            let word = &self.words[number];
            word.settle(&mut self.arenas[word.arena])
                .or_else(|what| self.excuse(word.arena, format!("word {number}: {what}")))?;
        }
        for (number, arena) in self.arenas.iter().enumerate() {
            if let Some(at) = arena.first_difference() {
                let what = format!(
                    "memory {number}: the byte at {at} of {} is not what it should be",
                    arena.size
                );
                self.excuse(number, what)?;
            }
        }
        Ok(())
    }

    /// Memory that a damaged stream without CRCs may write may hold anything.
    fn excuse(&self, arena: usize, what: String) -> Check {
        let mut sides = 0..self.sides.len();
        match sides.any(|side| self.sides[side].arena == arena && self.is_blind(side)) {
            true => Ok(()),
            false => Err(what),
        }
    }

    /// Keys that were invalidated or revoked are gone, all others are there.
    fn check_keys(&self) -> Check {
        for (number, export) in self.exports.iter().enumerate() {
            let host = &self.hosts[self.arenas[export.arena].host];
            let there = host
                .nic
                .keys()
                .find(export.key, host.pd, nonic_core::Qpn::new(0))
                .is_ok();
            if there && export.revoked_ns.is_some() {
                return Err(format!("key {number} is still there"));
            }
        }
        Ok(())
    }

    /// What was under way when a queue pair or a host went may have been done in part.
    fn settle_interrupted(&mut self) {
        for number in 0..self.sides.len() {
            for index in std::mem::take(&mut self.sides[number].outstanding) {
                self.settle_partial_fetch(number, index);
            }
            let arena = self.sides[number].arena;
            if let Some(index) = self.sides[number].waiting.front().copied() {
                let buffer = self.sides[number].receives[index].buffer.clone();
                self.settle_partial_receive(number, arena, &buffer);
            }
            let Some(srq) = self.sides[number].srq else {
                continue;
            };
            for index in self.srqs[srq].waiting.clone() {
                let (arena, buffer) = (
                    self.srqs[srq].arena,
                    self.srqs[srq].receives[index].buffer.clone(),
                );
                self.settle_partial_receive(number, arena, &buffer);
            }
        }
    }
}
