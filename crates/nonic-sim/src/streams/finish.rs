//! The end of connections and of the whole run, and what must hold then.

use super::model::{Cause, Mark, Phase};
use super::{Check, PATIENCE_NS, Streams};
use crate::program::finish;
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
        let age_ns = self.model.now_ns - self.connections[number].connect_at_ns;
        if age_ns > PATIENCE_NS {
            let connection = &mut self.connections[number];
            if connection.given_up || connection.causes.is_empty() {
                return Err(format!(
                    "connection {number} does not end: {}",
                    self.describe(number)
                ));
            }
            connection.given_up = true;
            connection.connect_at_ns = self.model.now_ns;
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
            let (here, program) = (&self.sides[*side], &self.model.programs[*side]);
            let room = self.hosts[program.host].nic.send_room(program.qpn);
            here.is_attached()
                && here.ended.is_none()
                && !here.leaving
                && program.next_op == program.ops.len()
                && program.outstanding.iter().all(|index| !program.signaled(*index))
                && room == Some(program.send_depth as usize)
                && here.unsent.is_empty()
                && self.model.programs[side ^ 1].received == program.messages.len()
                && self.pipes[*side].is_empty()
        })
    }

    fn describe(&self, number: usize) -> String {
        let pair = [2 * number, 2 * number + 1].map(|side| {
            let (side_now, program) = (&self.sides[side], &self.model.programs[side]);
            format!(
                "side {side}: {:?}, {} of {} posted, {} outstanding, {} unsent, {} received of {}, over: {}",
                side_now.ended,
                program.next_op,
                program.ops.len(),
                program.outstanding.len(),
                side_now.unsent.len(),
                program.received,
                self.model.programs[side ^ 1].messages.len(),
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
            let host = self.model.programs[side].host;
            if self.sides[side].gone || !self.hosts[host].up {
                continue;
            }
            if self.sides[side].params.is_none() {
                self.abort(side)?;
            }
            self.model
                .check_requests_ended(side)
                .and_then(|()| self.model.check_receives_ended(side))
                .map_err(|what| format!("{what}: {}", self.describe(number)))?;
            let (side_now, program) = (&self.sides[side], &self.model.programs[side]);
            let promised = side_now.params.is_some_and(|params| params.rtr.is_some());
            if promised && side % 2 == 1 && program.received > 0 && !side_now.established {
                return Err(format!("side {side}: never established"));
            }
            let qpn = program.qpn;
            self.sides[side].gone = true;
            let now = self.now();
            if !self.hosts[host].nic.destroy_qp(now, qpn) {
                return Err(format!("side {side}: destroy_qp knows no such queue pair"));
            }
            self.attend(host)?;
        }
        if !self.is_blind(2 * number) {
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
            let (here, written) = (&self.model.programs[side], &self.observers[side ^ 1]);
            let told = matches!(self.sides[side].ended, Some((StreamEnd::PeerClosed, _)));
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
            let (here, peer) = (&self.model.programs[side], &self.model.programs[side ^ 1]);
            let undone = here.next_op < here.ops.len() || peer.received < here.messages.len();
            if undone || here.failed.is_some() {
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
        let now = self.now();
        for (number, host) in self.hosts.iter_mut().enumerate() {
            if host.up {
                finish::check_nothing_held(number, now, &mut host.nic)?;
            }
        }
        self.check_keys()?;
        for number in 0..self.sides.len() {
            self.model.settle_lost(number);
        }
        self.model.settle_cells()?;
        self.model.settle_words()?;
        self.model.compare_arenas()
    }

    fn check_keys(&self) -> Check {
        for (number, host) in self.hosts.iter().enumerate().filter(|(_, host)| host.up) {
            self.model.check_keys(number, host.pd, host.nic.keys(), 1)?;
        }
        Ok(())
    }
}
