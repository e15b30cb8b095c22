//! Hosts that refuse messages (ICMP port unreachable), because no process there holds the port.
//!
//! That may be over in a moment, when another process takes the port; and anyone can forge such a refusal in a host's
//! name. So a refusal is a hint, and has no effect on established connections. Requests that wait for an answer are
//! repeated soon, a few times, and given up if none comes. A live peer answers a repeated request, if only to ask for
//! time.

use super::Cm;
use super::connection::Connection;
use super::state::{CmState, Input};
use crate::time::Time;
use std::net::IpAddr;

impl Cm {
    /// The host at this address says that it refuses messages: no process holds the port there. Requests that wait for
    /// an answer from there end within `max_refused_retries` × `refused_pause` unless one comes, requests to connect
    /// within `max_refused_requests` × `refused_pause`. Established connections go on.
    pub fn unreachable(&mut self, now: Time, address: IpAddr) {
        self.refusing.note(now, address, self.config.refused_memory);
        for id in self.unanswered_by(address) {
            self.press(now, id);
        }
    }

    /// Repeats a request that was just sent soon, if its host refused a message lately.
    pub(super) fn press_if_refused(&mut self, now: Time, id: u32) {
        let memory = self.config.refused_memory;
        let address = self
            .connections
            .get(&id)
            .map(|connection| connection.route.remote);
        if address.is_some_and(|address| self.refusing.has(now, address, memory)) {
            self.press(now, id);
        }
    }

    /// Repeats a request soon, and only a limited number of times from now on.
    fn press(&mut self, now: Time, id: u32) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        if connection.held || connection.refused_retries_left.is_some() {
            return;
        }
        connection.refused_retries_left = Some(match connection.state {
            CmState::ReqSent | CmState::SidrReqSent => self.config.max_refused_requests,
            _ => self.config.max_refused_retries,
        });
        let soon = now + self.config.refused_pause;
        let deadline = connection.deadline.map_or(soon, |at| at.min(soon));
        self.set_deadline(id, Some(deadline));
    }

    /// A host refused a request to disconnect for so long that no process can be left there: the others are given up
    /// too.
    pub(super) fn nobody_left(&mut self, now: Time, address: IpAddr) {
        let mut ids = self.unanswered_by(address);
        ids.retain(|id| self.connections[id].state == CmState::DreqSent);
        // Those held back end first; otherwise they would be released one by one as the others end.
        ids.sort_by_key(|id| !self.connections[id].held);
        for id in ids {
            self.apply(now, id, Input::Exhausted, None, None);
        }
    }

    /// Whether a request that is given up was refused by its host, as far as one can know: more than one attempt was, and
    /// nothing came in answer to any.
    pub(super) fn was_refused(&self, connection: &Connection) -> bool {
        let pause = self.config.refused_pause;
        connection.refused_retries_left.is_some() && self.refusing.repeatedly(connection.route.remote, pause)
    }

    fn unanswered_by(&self, address: IpAddr) -> Vec<u32> {
        let those = self.unanswered.range((address, 0)..=(address, u32::MAX));
        those.map(|(_, id)| *id).collect()
    }
}
