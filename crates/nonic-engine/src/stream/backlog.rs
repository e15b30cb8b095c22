//! The backlog: incoming connections, from TCP's accept to the request that the program receives.
//!
//! Requests that the program has received and not answered count against its backlog. A request beyond that is held until
//! there is a place; the program gets held requests in the order in which they came. On RoCE the peer retransmits such a
//! request until there is a place; here TCP carries it once, so this side keeps it. Peers that ask for nothing take no
//! place ([`super::silent`]).

use super::connection::{Asked, Phase, Stage};
use super::silent::share_of_descriptors;
use super::{Streams, TURNS_PER_CALL};
use nonic_core::cm::{CmEvent, ConnectRequest};
use nonic_core::iwarp::startup::Startup;
use nonic_core::{Nic, Time};
use std::time::Duration;

/// Without a descriptor for a connection that waits, it is tried again after this.
const ACCEPT_INTERVAL: Duration = Duration::from_millis(100);
/// Requests to one listener that are held, at most; fewer where that would be more than a quarter of the process's descriptors.
const MOST_HELD: usize = 1024;
const LEAST_HELD: usize = 8;
/// How long a request is held, unless the peer gives up: about as long as RoCE's connection manager repeats one.
const HELD_FOR: Duration = Duration::from_secs(60);

impl Streams {
    /// Takes connections that wait at a socket; the rest of them in a moment, if there are many.
    pub(super) fn take_connections(&mut self, now: Time, nic: &mut Nic, place: usize) {
        for _ in 0..TURNS_PER_CALL {
            if !self.take_connection(now, nic, place) {
                return;
            }
        }
        // No edge tells of those that wait already.
        self.accept_again = Some(now);
    }

    /// Takes a connection. Whether there may be another.
    fn take_connection(&mut self, now: Time, nic: &mut Nic, place: usize) -> bool {
        let Some((listener, socket)) = self.listening.get(place) else {
            return false;
        };
        let listener = *listener;
        let (socket, peer) = match socket.accept() {
            Ok(Some(accepted)) => accepted,
            Ok(None) => return false,
            // A silent peer has the descriptor that this one needs.
            Err(_) if self.make_room(now, nic) => return true,
            Err(_) => {
                self.accept_again = Some(now + ACCEPT_INTERVAL);
                return false;
            }
        };
        let Some(service_id) = self.listeners.get(&listener).map(|listener| listener.service_id) else {
            return false;
        };
        let Ok((local, _)) = socket.addresses() else {
            return true;
        };
        if self.silent.is_full() {
            self.make_room(now, nic);
        }
        let startup = Box::new(Startup::listen(now, &self.config));
        let deadline = startup.poll_timeout();
        let phase = Phase::Starting { startup, again: None };
        let id = self.fresh_id();
        if let Ok(slot) = self.insert(socket, id, phase, (local, peer)) {
            self.connections[slot].opened_for = Some(service_id);
            self.connections[slot].asked = Some(Asked {
                listener,
                service_id,
                stage: Stage::Silent,
            });
            self.silent.add(slot, peer.ip());
            self.set_deadline(slot, deadline);
            self.counters.streams_accepted += 1;
        }
        true
    }

    /// Hangs up on a silent peer. Whether there was one, or it turned out not to be silent.
    fn make_room(&mut self, now: Time, nic: &mut Nic) -> bool {
        let Some(slot) = self.silent.victim() else {
            return false;
        };
        // Its request may be in the socket, not read yet.
        self.connections[slot].readable = true;
        self.read_starting(now, nic, slot);
        let asked = self.connections.get(slot).and_then(|c| c.asked.as_ref());
        if asked.is_some_and(|asked| matches!(asked.stage, Stage::Silent)) {
            self.refuse(slot);
        }
        true
    }

    /// The request of a peer is there: the program gets it, now or when there is a place.
    pub(super) fn requested(&mut self, now: Time, slot: usize, request: Box<ConnectRequest>) {
        self.silent.remove(slot);
        let Some(listener) = self.listeners.get_mut(&request.listener) else {
            return;
        };
        if listener.waiting < listener.backlog {
            self.tell(slot, request);
            return;
        }
        if listener.held.len() >= share_of_descriptors(MOST_HELD, LEAST_HELD) {
            self.refuse(slot);
            return;
        }
        listener.held.push_back(slot);
        let until = now + HELD_FOR;
        if let Some(asked) = &mut self.connections[slot].asked {
            asked.stage = Stage::Held { request, until };
        }
        self.set_deadline(slot, Some(until));
    }

    fn tell(&mut self, slot: usize, request: Box<ConnectRequest>) {
        if let Some(listener) = self.listeners.get_mut(&request.listener) {
            listener.waiting += 1;
        }
        let connection = &mut self.connections[slot];
        connection.known = true;
        connection.deadline = None;
        if let Some(asked) = &mut connection.asked {
            asked.stage = Stage::Told;
        }
        self.events.push_back(CmEvent::Request(request));
    }

    /// Hangs up on a peer that the program has not heard of.
    pub(super) fn refuse(&mut self, slot: usize) {
        self.counters.streams_refused += 1;
        self.remove(slot);
    }

    /// A request has been answered, or the peer is gone: another may have its place.
    pub(super) fn answered(&mut self, slot: usize) {
        let Some(asked) = self.connections[slot].asked.take() else {
            return;
        };
        if matches!(asked.stage, Stage::Silent) {
            self.silent.remove(slot);
        }
        let Some(listener) = self.listeners.get_mut(&asked.listener) else {
            return;
        };
        match asked.stage {
            Stage::Silent => {}
            Stage::Held { .. } => listener.held.retain(|held| *held != slot),
            Stage::Told => {
                listener.waiting = listener.waiting.saturating_sub(1);
                let next = listener.held.pop_front();
                let asked =
                    next.and_then(|next| self.connections[next].asked.as_mut().map(|asked| (next, asked)));
                if let Some((next, asked)) = asked {
                    if let Stage::Held { request, .. } = std::mem::replace(&mut asked.stage, Stage::Told) {
                        self.tell(next, request);
                    }
                }
            }
        }
    }
}
