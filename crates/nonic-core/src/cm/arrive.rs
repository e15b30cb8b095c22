//! Incoming messages about connections that already exist: finds the connection and checks that the message belongs to
//! it.
//!
//! Requests, which create connections, are in `request`.

use super::Cm;
use super::RemoteId;
use super::connection::Role;
use super::state::{CmState, Input};
use crate::roce::qp1::Route;
use crate::time::Time;
use nonic_wire::cm::{
    Apr, CmMad, Drep, Dreq, INFO_LEN, Lap, Message, PrivateData, Rej, RejectReason, Rep, Rtu, SidrStatus,
    Subject,
};
use nonic_wire::{Qpn, Service};

impl Cm {
    pub(super) fn arrive(&mut self, now: Time, route: Route, mad: &CmMad) {
        match &mad.message {
            Message::Req(req) => self.request(now, route, mad, req),
            Message::SidrReq(req) => self.sidr_request(now, route, mad, req),
            Message::Rep(rep) => self.reply(now, route, mad, rep),
            Message::Rtu(rtu) => self.ready(now, route, mad, rtu),
            Message::Rej(rej) => self.rejection(now, route, mad, rej),
            Message::Dreq(dreq) => self.disconnect_request(now, route, mad, dreq),
            Message::Drep(drep) => {
                let id = self.known(route, drep.remote_comm_id, drep.local_comm_id);
                let questioned = id.is_some_and(|id| {
                    let connection = &self.connections[&id];
                    connection.state == CmState::Established && connection.questioned_at.is_some()
                });
                let input = if questioned { Input::Unknown } else { Input::Drep };
                self.deliver(now, id, input, mad);
            }
            Message::Mra(mra) => {
                let (input, id) = match mra.subject {
                    Subject::Req => (
                        Input::MraOfReq,
                        self.asked(route, mad, mra.remote_comm_id, mra.local_comm_id),
                    ),
                    Subject::Rep => (
                        Input::MraOfRep,
                        self.known(route, mra.remote_comm_id, mra.local_comm_id),
                    ),
                    // Of alternate paths, which we never ask for.
                    Subject::Other | Subject::Reserved => return self.counters.ignored += 1,
                };
                // Each extension costs one of the attempts left, so it cannot go on for ever.
                let id = id.filter(|id| self.connections[id].retries_left > 0);
                self.deliver(now, id, input, mad);
            }
            Message::SidrRep(rep) => {
                let id = self.connections.get(&rep.request_id).filter(|connection| {
                    connection.datagram
                        && connection.role == Role::Active
                        && connection.route.remote == route.remote
                        && connection.transaction_id == mad.transaction_id
                });
                let id = id.map(|connection| connection.local_id);
                let unserved = rep.status == SidrStatus::UNSUPPORTED && self.asks_again(now, id);
                let input = if unserved { Input::Unserved } else { Input::SidrRep };
                self.deliver(now, id, input, mad);
            }
            Message::Lap(lap) => self.alternate_path(route, mad, lap),
            Message::Apr(_) => self.counters.ignored += 1,
        }
    }

    /// The connection with these two identifiers, if the message comes from its peer.
    fn known(&self, route: Route, ours: u32, theirs: u32) -> Option<u32> {
        let connection = self.connections.get(&ours)?;
        let matches = !connection.datagram
            && theirs != 0
            && connection.remote_id == theirs
            && connection.route.remote == route.remote;
        matches.then_some(ours)
    }

    /// As [`Cm::known`], or our own request that this message answers: its sender's identifier is new to us then.
    fn asked(&self, route: Route, mad: &CmMad, ours: u32, theirs: u32) -> Option<u32> {
        self.known(route, ours, theirs).or_else(|| {
            let connection = self.connections.get(&ours)?;
            let matches = !connection.datagram
                && connection.role == Role::Active
                && connection.remote_id == 0
                && connection.route.remote == route.remote
                && connection.transaction_id == mad.transaction_id;
            matches.then_some(ours)
        })
    }

    /// Gives a message to its connection. Returns whether there is one.
    pub(super) fn deliver(&mut self, now: Time, id: Option<u32>, input: Input, mad: &CmMad) -> bool {
        let Some(id) = id else {
            self.counters.unknown += 1;
            return false;
        };
        if !self.apply(now, id, input, Some(mad), None) {
            self.counters.ignored += 1;
        }
        true
    }

    fn reply(&mut self, now: Time, route: Route, mad: &CmMad, rep: &Rep) {
        if rep.local_comm_id == 0 {
            return self.counters.ignored += 1;
        }
        let id = self.asked(route, mad, rep.remote_comm_id, rep.local_comm_id);
        let Some(connection) = id.and_then(|id| self.connections.get_mut(&id)) else {
            self.counters.unknown += 1;
            // Its sender would wait for an RTU that never comes.
            return self.reject_unknown(route, mad, rep.local_comm_id, rep.remote_comm_id, Subject::Rep);
        };
        if connection.role == Role::Passive {
            return self.counters.ignored += 1;
        }
        let mut input = Input::Rep;
        if matches!(connection.state, CmState::ReqSent | CmState::MraReqReceived) {
            connection.remote_id = rep.local_comm_id;
            let qpn = match connection.service {
                Service::Xrc => Qpn::new(rep.local_eecn),
                _ => rep.local_qpn,
            };
            let local_id = connection.local_id;
            match self.by_qpn.entry((route.remote, qpn)) {
                std::collections::hash_map::Entry::Vacant(vacant) => {
                    vacant.insert(local_id);
                    connection.remote_qpn = qpn;
                }
                std::collections::hash_map::Entry::Occupied(older) => {
                    input = Input::StaleRep;
                    let older = *older.get();
                    self.question(now, older, mad);
                }
            }
        }
        self.deliver(now, id, input, mad);
    }

    /// The peer, or an impostor, starts a new connection with this connection's queue pair: asks the peer whether it
    /// still has this one. However many such messages arrive, one question is outstanding at a time.
    pub(super) fn question(&mut self, now: Time, id: u32, mad: &CmMad) {
        let round_trip = 2 * self.config.time(self.config.packet_lifetime);
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let under_way = |at: Time| now.since(at) < round_trip;
        if !connection.questioned_at.is_some_and(under_way) {
            connection.questioned_at = Some(now);
            self.apply(now, id, Input::Stale, Some(mad), None);
        }
    }

    fn ready(&mut self, now: Time, route: Route, mad: &CmMad, rtu: &Rtu) {
        let id = self.known(route, rtu.remote_comm_id, rtu.local_comm_id);
        if id.is_some_and(|id| self.connections[&id].role == Role::Active) {
            return self.counters.ignored += 1;
        }
        if !self.deliver(now, id, Input::Rtu, mad) && rtu.local_comm_id != 0 {
            // The sender believes that it is connected.
            self.reject_unknown(route, mad, rtu.local_comm_id, rtu.remote_comm_id, Subject::Other);
        }
    }

    fn rejection(&mut self, now: Time, route: Route, mad: &CmMad, rej: &Rej) {
        let id = if rej.remote_comm_id == 0 {
            // The peer withdraws a request before it learnt our identifier.
            let remote = RemoteId {
                ip: route.remote,
                id: rej.local_comm_id,
                datagram: false,
            };
            self.by_remote.get(&remote).copied()
        } else {
            self.asked(route, mad, rej.remote_comm_id, rej.local_comm_id)
        };
        let unserved = rej.reason == RejectReason::INVALID_SERVICE_ID && self.asks_again(now, id);
        let input = if unserved { Input::Unserved } else { Input::Rej };
        self.deliver(now, id, input, mad);
    }

    /// Whether to repeat a request that found no listener.
    fn asks_again(&self, now: Time, id: Option<u32>) -> bool {
        id.and_then(|id| self.connections.get(&id))
            .is_some_and(|connection| {
                matches!(connection.state, CmState::ReqSent | CmState::SidrReqSent)
                    && !connection.orphan
                    && now < connection.unserved_until(now)
            })
    }

    fn disconnect_request(&mut self, now: Time, route: Route, mad: &CmMad, dreq: &Dreq) {
        let id = self.known(route, dreq.remote_comm_id, dreq.local_comm_id);
        if id.is_some_and(|id| self.connections[&id].local_qpn != dreq.remote_qpn) {
            return self.counters.ignored += 1;
        }
        if !self.deliver(now, id, Input::Dreq, mad) {
            // A connection that is not known counts as disconnected, so that its sender need not wait.
            let drep = Drep {
                local_comm_id: dreq.remote_comm_id,
                remote_comm_id: dreq.local_comm_id,
                private_data: PrivateData::default(),
            };
            self.answer_to(route, mad, Message::Drep(drep));
        }
    }

    /// Refuses alternate paths: the network finds its own.
    fn alternate_path(&mut self, route: Route, mad: &CmMad, lap: &Lap) {
        if self.known(route, lap.remote_comm_id, lap.local_comm_id).is_none() {
            return self.counters.unknown += 1;
        }
        let apr = Apr {
            local_comm_id: lap.remote_comm_id,
            remote_comm_id: lap.local_comm_id,
            info_len: 0,
            status: Apr::UNSUPPORTED,
            info: [0; INFO_LEN],
            private_data: PrivateData::default(),
        };
        self.answer_to(route, mad, Message::Apr(apr));
    }

    fn reject_unknown(&mut self, route: Route, mad: &CmMad, theirs: u32, ours: u32, subject: Subject) {
        let rej = Rej::new(ours, theirs, subject, RejectReason::INVALID_COMM_ID);
        self.answer_to(route, mad, Message::Rej(rej));
    }

    /// Answers a message that belongs to no connection.
    pub(super) fn answer_to(&mut self, route: Route, mad: &CmMad, message: Message) {
        let answer = CmMad {
            transaction_id: mad.transaction_id,
            message,
        };
        self.answer_network(route, answer);
    }
}
