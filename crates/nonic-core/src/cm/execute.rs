//! Executes the rows of the state table: sends messages, reports events, enters the next state and sets the timers.

use super::config::CmConfig;
use super::connection::{Connection, Role};
use super::event::{CmEvent, ConnectResponse, Disconnect, SidrResponse};
use super::params::ConnectionId;
use super::repetition::Repetition;
use super::state::{CmNotice, CmReply, CmState, CmTransition, Input, cm_transition};
use super::{Cm, RemoteId};
use crate::roce::qp1::{ManagementDatagram, Route};
use crate::time::Time;
use nonic_wire::cm::{CmMad, Drep, INFO_LEN, Message, PrivateData, RejectReason, Rep, SidrRep, SidrStatus};
use nonic_wire::{Qpn, Service};
use std::net::IpAddr;
use std::time::Duration;

impl Cm {
    /// Starts a connection of this side.
    pub(super) fn start(&mut self, now: Time, mut connection: Connection, message: Message) {
        let id = connection.local_id;
        connection.transaction_id = self.fresh_transaction();
        let mad = CmMad {
            transaction_id: connection.transaction_id,
            message,
        };
        let deadline = connection
            .repetition
            .first(now, connection.patience, &self.config);
        let route = connection.route;
        connection.last = Some(Box::new(mad));
        self.connections.insert(id, connection);
        self.unanswered.insert((route.remote, id));
        self.set_deadline(id, Some(deadline));
        self.transmit(route, mad);
        self.press_if_refused(now, id);
    }

    /// A timer fired. Its entry is gone from the set already.
    pub(super) fn expire(&mut self, now: Time, id: u32) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        connection.deadline = None;
        if connection.held {
            self.release(now, id);
            return;
        }
        let (state, address) = (connection.state, connection.route.remote);
        let refused = connection.refused_retries_left.is_some();
        let free = !refused && connection.repetition.free;
        let left = connection
            .refused_retries_left
            .as_mut()
            .unwrap_or(&mut connection.retries_left);
        let input = match state {
            CmState::TimeWait | CmState::Answered => Input::Expired,
            _ if *left == 0 && !free => Input::Exhausted,
            _ => {
                *left -= u8::from(!free);
                self.counters.retries += 1;
                Input::Timeout
            }
        };
        self.apply(now, id, input, None, None);
        if refused && (state, input) == (CmState::DreqSent, Input::Exhausted) {
            self.nobody_left(now, address);
        }
    }

    /// Executes the row for this input; returns whether there is one.
    pub(super) fn apply(
        &mut self,
        now: Time,
        id: u32,
        input: Input,
        incoming: Option<&CmMad>,
        given: Option<Message>,
    ) -> bool {
        let Some(row) = self
            .connections
            .get(&id)
            .and_then(|c| cm_transition(c.state, input))
        else {
            return false;
        };
        let outgoing = self.outgoing(now, id, row.send, incoming, given);
        let event = self.event(id, row.tell, input, incoming);
        self.remember(id, row, outgoing);
        let wait = self.hold(id, row);
        if let (Some(mad), Some(connection), None) = (outgoing, self.connections.get(&id), wait) {
            let route = connection.route;
            if incoming.is_some() {
                self.answer_network(route, mad);
            } else {
                self.transmit(route, mad);
            }
        }
        self.events.extend(event);
        self.enter(now, id, row.next, input, incoming);
        if let Some(wait) = wait {
            self.set_deadline(id, Some(now + wait));
        } else if row.next == CmState::DreqSent {
            self.press_if_refused(now, id);
        }
        true
    }

    /// Holds back a request to disconnect while enough others are under way; returns for how long at most.
    fn hold(&mut self, id: u32, row: CmTransition) -> Option<Duration> {
        let connection = self.connections.get_mut(&id)?;
        if row.next != CmState::DreqSent || connection.state == CmState::DreqSent {
            return None;
        }
        let wait = self.pace.admit(connection.route.remote, id).err();
        connection.held = wait.is_some();
        wait
    }

    /// Sends a request to disconnect that was held back, if it is.
    pub(super) fn release(&mut self, now: Time, id: u32) -> bool {
        let Some(connection) = self.connections.get_mut(&id).filter(|c| c.held) else {
            return false;
        };
        connection.held = false;
        let deadline = connection
            .repetition
            .first(now, connection.patience, &self.config);
        let route = connection.route;
        let request = connection.last.as_deref().copied();
        self.pace.goes(route.remote);
        self.set_deadline(id, Some(deadline));
        if let Some(mad) = request {
            self.transmit(route, mad);
        }
        self.press_if_refused(now, id);
        true
    }

    /// A request to disconnect is answered or given up: the next one may go.
    fn pass_on(&mut self, now: Time, address: IpAddr, was_held: bool) {
        if !was_held {
            self.pace.ended(address);
        }
        while let Some(next) = self.pace.next(address) {
            // One that is over needs no request any more.
            self.release(now, next);
        }
    }

    /// The message to send, whole.
    fn outgoing(
        &mut self,
        now: Time,
        id: u32,
        send: CmReply,
        incoming: Option<&CmMad>,
        given: Option<Message>,
    ) -> Option<CmMad> {
        let connection = self.connections.get(&id)?;
        let message = match send {
            CmReply::Nothing => return None,
            CmReply::Again => return connection.last.as_deref().copied(),
            CmReply::Given => given?,
            CmReply::Mra => Message::Mra(connection.mra(now, &self.config)),
            CmReply::RejConsumer => Message::Rej(connection.rej(RejectReason::CONSUMER_DEFINED)),
            CmReply::RejStale => Message::Rej(connection.rej(RejectReason::STALE_CONN)),
            CmReply::RejUnknown => Message::Rej(connection.rej(RejectReason::INVALID_COMM_ID)),
            CmReply::RejTimeout => {
                // The peer may not have told its identifier: our adapter and ours name the connection then.
                let mut rej = connection.rej(RejectReason::TIMEOUT);
                rej.info[..8].copy_from_slice(&self.config.ca_guid.to_be_bytes());
                rej.info_len = 8;
                Message::Rej(rej)
            }
            CmReply::Dreq => Message::Dreq(connection.dreq(&[]).ok()?),
            CmReply::Question => Message::Dreq(connection.question()),
            CmReply::Drep => Message::Drep(Drep {
                local_comm_id: connection.local_id,
                remote_comm_id: connection.remote_id,
                private_data: PrivateData::default(),
            }),
            CmReply::SidrReject => Message::SidrRep(SidrRep {
                request_id: connection.remote_id,
                status: SidrStatus::REJECT,
                info_len: 0,
                qpn: Qpn::default(),
                service_id: connection.service_id,
                qkey: 0,
                info: [0; INFO_LEN],
                private_data: PrivateData::default(),
            }),
        };
        // A request of the passive side begins an exchange of its own; answers belong to what they answer.
        let begins = matches!(message, Message::Dreq(_)) && connection.role == Role::Passive;
        let transaction_id = match incoming {
            _ if begins => self.fresh_transaction(),
            Some(mad) if !matches!(message, Message::Dreq(_)) => mad.transaction_id,
            _ => connection.transaction_id,
        };
        Some(CmMad {
            transaction_id,
            message,
        })
    }

    /// Keeps what may have to be sent again, and nothing else.
    fn remember(&mut self, id: u32, row: CmTransition, outgoing: Option<CmMad>) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let drop_it = match row.next {
            CmState::TimeWait | CmState::Closed => true,
            // A REP is not sent again once its RTU is here.
            CmState::Established | CmState::Answered => {
                row.send == CmReply::Nothing && connection.state != row.next
            }
            _ => false,
        };
        let keep_it = matches!(
            row.send,
            CmReply::Given | CmReply::Dreq | CmReply::RejConsumer | CmReply::RejTimeout | CmReply::SidrReject
        );
        if drop_it {
            connection.last = None;
        } else if keep_it {
            connection.last = outgoing.map(Box::new);
        }
    }

    /// The event to report, unless the program gave the connection up.
    fn event(&self, id: u32, tell: CmNotice, input: Input, incoming: Option<&CmMad>) -> Option<CmEvent> {
        let connection = self
            .connections
            .get(&id)
            .filter(|connection| !connection.orphan)?;
        let service = connection.service;
        let qpn = connection.local_qpn;
        let refused = self.was_refused(connection);
        let connection = ConnectionId(id);
        let message = incoming.map(|mad| mad.message);
        Some(match (tell, message) {
            (CmNotice::Nothing, _) => return None,
            (CmNotice::Response, Some(Message::Rep(rep))) => {
                CmEvent::Response(Box::new(response(connection, service, &rep)))
            }
            (CmNotice::Response, _) => return None,
            (CmNotice::Established, message) => CmEvent::Established {
                connection,
                private_data: match message {
                    Some(Message::Rtu(rtu)) => rtu.private_data.0.to_vec(),
                    _ => Vec::new(),
                },
            },
            (CmNotice::Rejected, Some(Message::Rej(rej))) => CmEvent::Rejected {
                connection,
                qpn,
                reason: rej.reason,
                info: rej.info().to_vec(),
                private_data: rej.private_data.0.to_vec(),
            },
            // We rejected it ourselves: the peer's queue pair is taken.
            (CmNotice::Rejected, _) => CmEvent::Rejected {
                connection,
                qpn,
                reason: RejectReason::STALE_CONN,
                info: Vec::new(),
                private_data: Vec::new(),
            },
            (CmNotice::Unreachable, _) => CmEvent::Unreachable {
                connection,
                qpn,
                refused,
            },
            (CmNotice::Disconnected, message) => CmEvent::Disconnected {
                connection,
                qpn,
                cause: match input {
                    Input::Dreq => Disconnect::Remote,
                    Input::Drep => Disconnect::Local,
                    Input::Rej | Input::Gone | Input::Unknown => Disconnect::Unknown,
                    _ => Disconnect::TimedOut,
                },
                private_data: match message {
                    Some(Message::Dreq(dreq)) => dreq.private_data.0.to_vec(),
                    Some(Message::Drep(drep)) => drep.private_data.0.to_vec(),
                    _ => Vec::new(),
                },
            },
            (CmNotice::TimewaitExit, _) => CmEvent::TimewaitExit { connection },
            (CmNotice::SidrResponse, Some(Message::SidrRep(rep))) => {
                CmEvent::SidrResponse(Box::new(sidr_response(connection, &rep)))
            }
            (CmNotice::SidrResponse, _) => return None,
        })
    }

    /// Moves to the next state: limits, counts and timers.
    fn enter(&mut self, now: Time, id: u32, next: CmState, input: Input, incoming: Option<&CmMad>) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let before = std::mem::replace(&mut connection.state, next);
        let changed = before != next;
        if before.is_pending() && !next.is_pending() {
            self.pending -= 1;
            if let Some(listener) = connection.listener {
                self.listeners.end(listener);
            }
        }
        if changed || incoming.is_some() {
            // The peer answered.
            connection.refused_retries_left = None;
        }
        if next.is_unanswered() {
            self.unanswered.insert((connection.route.remote, id));
        } else {
            self.unanswered.remove(&(connection.route.remote, id));
        }
        if changed {
            connection.repetition = Repetition::new(now);
        }
        if changed && before == CmState::Answered {
            self.lingering -= 1;
        }
        if changed && next == CmState::Answered {
            self.lingering += 1;
            // Its queue pair never was connected, or is the program's to use again.
            unlink_qpn(&mut self.by_qpn, connection);
        }
        let deadline = deadline(&self.config, connection, now, before, input, incoming);
        let (address, was_held) = (connection.route.remote, connection.held);
        if changed {
            connection.held &= next == CmState::DreqSent;
        }
        self.set_deadline(id, deadline);
        if changed && before == CmState::DreqSent {
            self.pass_on(now, address, was_held);
        }
        if next == CmState::Closed
            || (next == CmState::Answered && self.lingering > self.config.max_lingering)
        {
            self.forget(id);
        }
    }

    fn forget(&mut self, id: u32) {
        self.set_deadline(id, None);
        let Some(connection) = self.connections.remove(&id) else {
            return;
        };
        if connection.state == CmState::Answered {
            self.lingering -= 1;
        }
        unlink_qpn(&mut self.by_qpn, &connection);
        if connection.role == Role::Passive {
            self.by_remote.remove(&RemoteId {
                ip: connection.route.remote,
                id: connection.remote_id,
                datagram: connection.datagram,
            });
        }
    }

    pub(super) fn set_deadline(&mut self, id: u32, deadline: Option<Time>) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        if connection.deadline == deadline && deadline.is_some_and(|at| self.timers.contains(&(at, id))) {
            return;
        }
        if let Some(old) = std::mem::replace(&mut connection.deadline, deadline) {
            self.timers.remove(&(old, id));
        }
        self.timers.extend(deadline.map(|at| (at, id)));
    }

    /// Sends an answer to something that arrived, unless too many wait already.
    pub(super) fn answer_network(&mut self, route: Route, mad: CmMad) {
        if self.outbox.len() >= self.config.max_queued_answers {
            self.counters.dropped += 1;
        } else {
            self.transmit(route, mad);
        }
    }

    fn transmit(&mut self, route: Route, mad: CmMad) {
        self.counters.sent += 1;
        self.outbox.push_back(ManagementDatagram {
            route,
            mad: mad.emit(),
        });
    }
}

/// When the state that a connection has just entered, or was confirmed in, ends by itself.
fn deadline(
    config: &CmConfig,
    connection: &mut Connection,
    now: Time,
    before: CmState,
    input: Input,
    incoming: Option<&CmMad>,
) -> Option<Time> {
    let changed = before != connection.state;
    match connection.state {
        CmState::ReqSent | CmState::RepSent | CmState::DreqSent | CmState::SidrReqSent => {
            if input == Input::Timeout && connection.refused_retries_left.is_some() {
                Some(now + config.refused_pause)
            } else if input == Input::Timeout {
                Some(connection.repetition.next(now, connection.patience, config))
            } else if input == Input::Unserved {
                connection.unserved_until = Some(connection.unserved_until(now));
                connection.retries_left = connection.max_retries;
                let at = now + config.unserved_pause;
                connection.repetition.again(at);
                Some(at)
            } else if changed {
                connection.retries_left = connection.max_retries;
                Some(connection.repetition.first(now, connection.patience, config))
            } else {
                connection.deadline
            }
        }
        CmState::MraReqReceived | CmState::MraRepReceived => {
            // Each MRA costs an attempt, so the wait ends.
            connection.repetition.free = false;
            connection.retries_left = connection.retries_left.saturating_sub(1);
            let exponent = match incoming.map(|mad| mad.message) {
                Some(Message::Mra(mra)) => mra.service_timeout,
                _ => 0,
            };
            Some(now + config.time(exponent) + connection.patience)
        }
        CmState::TimeWait if changed => Some(now + connection.timewait),
        CmState::TimeWait => connection.deadline,
        CmState::Answered if changed => {
            let asked_for_time = matches!(before, CmState::MraReqSent | CmState::MraRepSent);
            Some(now + connection.linger(config, asked_for_time))
        }
        CmState::Answered => connection.deadline,
        _ => None,
    }
}

fn response(connection: ConnectionId, service: Service, rep: &Rep) -> ConnectResponse {
    ConnectResponse {
        connection,
        remote_qpn: match service {
            Service::Xrc => Qpn::new(rep.local_eecn),
            _ => rep.local_qpn,
        },
        starting_psn: rep.starting_psn,
        responder_resources: rep.initiator_depth,
        initiator_depth: rep.responder_resources,
        flow_control: rep.flow_control,
        rnr_retry_count: rep.rnr_retry_count,
        target_ack_delay: rep.target_ack_delay,
        srq: rep.srq,
        remote_ca_guid: rep.local_ca_guid,
        private_data: rep.private_data.0.to_vec(),
    }
}

fn sidr_response(connection: ConnectionId, rep: &SidrRep) -> SidrResponse {
    SidrResponse {
        connection,
        status: rep.status,
        qpn: rep.qpn,
        qkey: rep.qkey,
        info: rep.info[..usize::from(rep.info_len).min(INFO_LEN)].to_vec(),
        private_data: rep.private_data.0.to_vec(),
    }
}

fn unlink_qpn(by_qpn: &mut std::collections::HashMap<(std::net::IpAddr, Qpn), u32>, connection: &Connection) {
    let key = (connection.route.remote, connection.remote_qpn);
    if by_qpn.get(&key) == Some(&connection.local_id) {
        by_qpn.remove(&key);
    }
}

impl CmEvent {
    /// Which connection it is about.
    pub fn connection(&self) -> ConnectionId {
        match self {
            CmEvent::Request(request) => request.connection,
            CmEvent::Response(response) => response.connection,
            CmEvent::SidrRequest(request) => request.connection,
            CmEvent::SidrResponse(response) => response.connection,
            CmEvent::Established { connection, .. }
            | CmEvent::Rejected { connection, .. }
            | CmEvent::Unreachable { connection, .. }
            | CmEvent::Disconnected { connection, .. }
            | CmEvent::TimewaitExit { connection } => *connection,
        }
    }
}
