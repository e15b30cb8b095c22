//! The start of a connection, until it is a queue pair's: TCP connects, the two ends negotiate, the programs decide.

use super::Streams;
use super::calls::CONNECT_TIMEOUT;
use super::connection::{Ask, Asked, Connection, Phase};
use super::socket::Read;
use crate::config::UNSERVED_GRACE;
use nonic_core::cm::{CmEvent, ConnectRequest, ConnectResponse, ConnectionId, Route};
use nonic_core::iwarp::startup::{Startup, StartupConfig, StartupError, StartupEvent, StartupRequest};
use nonic_core::{AckTimeout, Nic, PathMtu, Psn, Qpn, Service, Time};
use nonic_wire::cm::{IpHeader, RejectReason};
use std::io;
use std::time::Duration;

/// How long a peer that was rejected gets to close the connection; then we do.
const LINGER: Duration = Duration::from_secs(2);

/// Where the peer has no listener, it is tried again after this.
const UNSERVED_PAUSE: Duration = Duration::from_millis(10);

impl Streams {
    /// TCP has an answer.
    pub(super) fn go_on_connecting(&mut self, now: Time, slot: usize) {
        let connection = &mut self.connections[slot];
        if !connection.writable {
            return;
        }
        if let Some(error) = connection.socket.error() {
            self.refused(now, slot, &error);
            return;
        }
        if let Ok((local, _)) = connection.socket.addresses() {
            connection.local = local;
        }
        if let Some(transcript) = &mut connection.socket.transcript {
            transcript.connected();
        }
        let Phase::Connecting(ask) = &connection.phase else {
            return;
        };
        let ask = ask.clone();
        let config = StartupConfig {
            enhanced: ask.enhanced,
            ..self.config
        };
        let request = StartupRequest {
            ird: ask.ird,
            ord: ask.ord,
            private_data: &ask.private_data,
        };
        let Ok(mut startup) = Startup::connect(now, &config, &request) else {
            // Its length was looked at when it was asked for.
            self.unreachable(slot, &io::ErrorKind::InvalidInput.into());
            return;
        };
        startup.poll_transmit(connection.unsent.end());
        let again = ask.enhanced.then(|| {
            Box::new(Ask {
                enhanced: false,
                ..(*ask).clone()
            })
        });
        self.set_deadline(slot, startup.poll_timeout());
        let startup = Box::new(startup);
        self.enter(slot, Phase::Starting { startup, again });
        self.write_unsent(slot);
    }

    /// TCP did not connect. A peer without a listener may have one in a moment.
    fn refused(&mut self, now: Time, slot: usize, error: &io::Error) {
        if let Phase::Connecting(ask) = &self.connections[slot].phase {
            if error.kind() == io::ErrorKind::ConnectionRefused {
                let until = ask.unserved_until.unwrap_or(now + UNSERVED_GRACE);
                let until = until.min(ask.give_up_at);
                if now < until {
                    let mut ask = ask.clone();
                    ask.unserved_until = Some(until);
                    self.set_deadline(slot, Some(now + UNSERVED_PAUSE));
                    self.enter(slot, Phase::Refused(ask));
                    return;
                }
            }
        }
        self.unreachable(slot, error);
    }

    /// The peer is not there, or does not answer.
    pub(super) fn unreachable(&mut self, slot: usize, error: &io::Error) {
        let Connection { id, qpn, known, .. } = self.connections[slot];
        if let (true, Some(qpn)) = (known, qpn) {
            self.events.push_back(match error.kind() {
                // As hardware has it: the peer rejected it.
                io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => CmEvent::Rejected {
                    connection: id,
                    qpn,
                    reason: RejectReason::INVALID_SERVICE_ID,
                    info: Vec::new(),
                    private_data: Vec::new(),
                },
                _ => CmEvent::Unreachable {
                    connection: id,
                    qpn,
                    refused: false,
                },
            });
        }
        self.remove(slot);
    }

    pub(super) fn read_starting(&mut self, now: Time, nic: &mut Nic, slot: usize) {
        self.write_unsent(slot);
        let Some(connection) = self.connections.get_mut(slot) else {
            return;
        };
        let mut rest = 0..0;
        if connection.readable {
            let Phase::Starting { startup, .. } = &mut connection.phase else {
                return;
            };
            match connection.socket.read(&mut self.input) {
                Ok(Read::Bytes(length)) => {
                    connection.readable = length == self.input.len() || connection.hung_up;
                    let used = startup.handle_bytes(&self.input[..length]);
                    rest = used..length;
                }
                Ok(Read::Nothing) => connection.readable = false,
                Ok(Read::End) | Err(_) => {
                    connection.readable = false;
                    startup.handle_closed();
                }
            }
        }
        self.go_on_starting(now, nic, slot);
        let attached = self
            .connections
            .get(slot)
            .and_then(|connection| match connection.phase {
                Phase::Attached(qpn) => Some(qpn),
                _ => None,
            });
        if let (Some(qpn), false) = (attached, rest.is_empty()) {
            // What came behind the Reply is the queue pair's.
            nic.stream_received(now, qpn, &self.input[rest]);
        }
    }

    /// Start-up may have come to something.
    pub(super) fn go_on_starting(&mut self, now: Time, nic: &mut Nic, slot: usize) {
        loop {
            let Some(connection) = self.connections.get_mut(slot) else {
                return;
            };
            let Phase::Starting { startup, .. } = &mut connection.phase else {
                return;
            };
            startup.poll_transmit(connection.unsent.end());
            let deadline = startup.poll_timeout();
            let event = startup.poll_event();
            let over = startup.is_over();
            connection.deadline = deadline.or(connection.held_until());
            match event {
                Some(event) => self.started(now, nic, slot, event),
                None if over => {
                    // Rejected by us: it is closed behind the Reply.
                    self.begin_to_end(now, slot);
                    return;
                }
                None => {
                    self.write_unsent(slot);
                    return;
                }
            }
        }
    }

    fn started(&mut self, now: Time, nic: &mut Nic, slot: usize, event: StartupEvent) {
        let connection = &mut self.connections[slot];
        let (id, qpn) = (connection.id, connection.qpn);
        match event {
            StartupEvent::ConnectRequest {
                peer_ird,
                peer_ord,
                private_data,
            } => {
                if let Some(request) = connection.request(peer_ird, peer_ord, private_data) {
                    self.requested(now, slot, request);
                }
            }
            StartupEvent::Accepted {
                params,
                peer_ird,
                peer_ord,
                private_data,
            } => {
                let Some(qpn) = qpn else { return };
                if nic.stream_attach(now, qpn, &params).is_err() {
                    // The program has destroyed it, or uses it for something else.
                    self.events.push_back(CmEvent::Unreachable {
                        connection: id,
                        qpn,
                        refused: false,
                    });
                    self.remove(slot);
                    return;
                }
                self.enter(slot, Phase::Attached(qpn));
                self.by_qpn.insert(qpn, slot);
                let response = response(id, peer_ird, peer_ord, private_data);
                self.events.push_back(CmEvent::Response(Box::new(response)));
            }
            StartupEvent::Rejected { private_data } => {
                self.tell_of_refusal(now, slot, RejectReason::CONSUMER_DEFINED, private_data);
            }
            StartupEvent::Failed { error, try_plain } => self.failed(now, slot, error, try_plain),
        }
    }

    /// Start-up came to nothing.
    fn failed(&mut self, now: Time, slot: usize, error: StartupError, try_plain: bool) {
        let connection = &mut self.connections[slot];
        let again = match &mut connection.phase {
            Phase::Starting { again, .. } if try_plain => again.take(),
            _ => None,
        };
        if again.is_some_and(|ask| self.connect_again(slot, ask, now + CONNECT_TIMEOUT).is_ok()) {
            return;
        }
        let Connection { id, qpn, known, .. } = self.connections[slot];
        match error {
            StartupError::Timeout => {
                if let (true, Some(qpn)) = (known, qpn) {
                    self.events.push_back(CmEvent::Unreachable {
                        connection: id,
                        qpn,
                        refused: false,
                    });
                }
                self.remove(slot);
            }
            _ => self.tell_of_refusal(now, slot, RejectReason::TIMEOUT, Vec::new()),
        }
    }

    /// The connection is rejected: the program learns of it, and what is still unsent is sent.
    fn tell_of_refusal(&mut self, now: Time, slot: usize, reason: RejectReason, private_data: Vec<u8>) {
        let Connection { id, qpn, known, .. } = self.connections[slot];
        if known {
            self.events.push_back(CmEvent::Rejected {
                connection: id,
                // Passive, it has none: the peer has gone while the program was thinking.
                qpn: qpn.unwrap_or(Qpn::new(0)),
                reason,
                info: Vec::new(),
                private_data,
            });
        }
        self.answered(slot);
        self.forget(slot);
        self.begin_to_end(now, slot);
    }

    /// Sends what is still unsent, then waits for the peer to close the connection. Closing first would be as good, but siw
    /// does not read what we sent once it has seen the end of the stream.
    fn begin_to_end(&mut self, now: Time, slot: usize) {
        if self.connections[slot].unsent.is_empty() {
            self.connections[slot].socket.finish();
            self.remove(slot);
            return;
        }
        self.enter(slot, Phase::Ending);
        self.set_deadline(slot, Some(now + LINGER));
        self.end(slot);
    }

    /// Sends the rest, and closes the connection when the peer has done so.
    pub(super) fn end(&mut self, slot: usize) {
        self.write_unsent(slot);
        let Some(connection) = self.connections.get_mut(slot) else {
            return;
        };
        if connection.readable && matches!(connection.read(&mut self.input), Ok(Read::End) | Err(_)) {
            self.remove(slot);
        }
    }

    /// Writes what waits for room; on the wire of a connection that broke there is none, and reading tells so.
    fn write_unsent(&mut self, slot: usize) {
        let connection = &mut self.connections[slot];
        if connection.unsent.is_empty() {
            return;
        }
        self.counters.sends += 1;
        if connection.unsent.write(&mut connection.socket).is_err() {
            if matches!(connection.phase, Phase::Ending) {
                self.remove(slot);
            }
            return;
        }
        connection.writable = connection.unsent.is_empty();
    }
}

impl Connection {
    /// The request that the program gets of a peer that asks. What only RoCE has is zero.
    fn request(&self, peer_ird: u16, peer_ord: u16, private_data: Vec<u8>) -> Option<Box<ConnectRequest>> {
        let Asked {
            listener, service_id, ..
        } = *self.asked.as_ref()?;
        let (local, remote) = (self.local.ip(), self.remote.ip());
        Some(Box::new(ConnectRequest {
            connection: self.id,
            listener,
            service_id,
            route: Route { local, remote },
            ip: Some(IpHeader {
                source_port: self.remote.port(),
                source: remote,
                destination: local,
            }),
            service: Service::Rc,
            remote_qpn: Qpn::new(0),
            starting_psn: Psn::new(0),
            responder_resources: depth(peer_ord),
            initiator_depth: depth(peer_ird),
            flow_control: false,
            retry_count: 0,
            rnr_retry_count: 0,
            srq: false,
            path_mtu: PathMtu::Mtu256,
            ack_timeout: AckTimeout::INFINITE,
            flow_label: 0,
            traffic_class: 0,
            remote_ca_guid: 0,
            private_data,
        }))
    }
}

/// The response that the program gets of a peer that accepted.
fn response(
    connection: ConnectionId,
    peer_ird: u16,
    peer_ord: u16,
    private_data: Vec<u8>,
) -> ConnectResponse {
    ConnectResponse {
        connection,
        remote_qpn: Qpn::new(0),
        starting_psn: Psn::new(0),
        responder_resources: depth(peer_ord),
        initiator_depth: depth(peer_ird),
        flow_control: false,
        rnr_retry_count: 0,
        target_ack_delay: 0,
        srq: false,
        remote_ca_guid: 0,
        private_data,
    }
}

/// How many READs, as the connection manager counts them.
fn depth(depth: u16) -> u8 {
    u8::try_from(depth).unwrap_or(u8::MAX)
}
