//! The program's calls: to listen, to connect, to accept and to end.

use super::connection::{Ask, Asked, Connection, Phase, Stage};
use super::socket::{ListeningSocket, StreamSocket};
use super::{LISTENERS, Listener, Streams};
use nonic_core::cm::{
    AcceptParams, CmError, CmEvent, CmState, ConnectParams, ConnectionId, ListenerId, RejectParams,
};
use nonic_core::iwarp::startup::{Startup, StartupRequest};
use nonic_core::{Nic, QpAttributes, QpState, Qpn, Service, Time};
use nonic_wire::cm::{RejectReason, ServiceId};
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::time::Duration;

/// How long TCP may take to connect, unless the program has less patience.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

impl Streams {
    /// Takes connections for a service at every address that is `wanted`.
    pub(crate) fn listen(
        &mut self,
        service_id: ServiceId,
        wanted: impl Fn(IpAddr) -> bool,
        backlog: usize,
    ) -> io::Result<ListenerId> {
        let id = ListenerId(self.next_listener);
        self.next_listener += 1;
        let mut sockets = Vec::new();
        for address in self.addresses.clone() {
            if !wanted(address.ip) {
                continue;
            }
            let watched = ListeningSocket::bind(address, port_of(service_id)).and_then(|socket| {
                let place = self.listening.vacant_key();
                self.readiness.watch(&socket, LISTENERS + place as u64)?;
                self.listening.insert((id, socket));
                Ok(place)
            });
            match watched {
                Ok(place) => sockets.push(place),
                Err(error) => {
                    sockets.into_iter().for_each(|place| {
                        self.listening.remove(place);
                    });
                    return Err(error);
                }
            }
        }
        if sockets.is_empty() {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        let listener = Listener {
            service_id,
            backlog: backlog.max(1),
            waiting: 0,
            held: VecDeque::new(),
            sockets,
        };
        self.listeners.insert(id, listener);
        Ok(id)
    }

    /// Takes no more connections. Requests that the program has received stay to be answered.
    pub(crate) fn unlisten(&mut self, id: ListenerId) -> bool {
        let Some(listener) = self.listeners.remove(&id) else {
            return false;
        };
        for place in listener.sockets {
            self.listening.remove(place);
        }
        let unheard = self.connections.iter().filter(|(_, connection)| {
            let asked = connection.asked.as_ref();
            asked.is_some_and(|asked| asked.listener == id && !matches!(asked.stage, Stage::Told))
        });
        let unheard: Vec<usize> = unheard.map(|(slot, _)| slot).collect();
        unheard.into_iter().for_each(|slot| self.remove(slot));
        true
    }

    /// Asks a peer for a connection.
    pub(crate) fn connect(&mut self, now: Time, params: &ConnectParams<'_>) -> Result<ConnectionId, CmError> {
        if params.service != Service::Rc {
            return Err(CmError::Service(params.service));
        }
        let room = Startup::max_private_data(true);
        if params.private_data.len() > room {
            return Err(CmError::TooLong {
                given: params.private_data.len(),
                room,
            });
        }
        let ask = Ask {
            ird: u16::from(params.responder_resources),
            ord: u16::from(params.initiator_depth),
            private_data: params.private_data.to_vec(),
            enhanced: self.config.enhanced,
            give_up_at: now + params.patience.unwrap_or(CONNECT_TIMEOUT),
            unserved_until: None,
        };
        let own = self.addresses.iter().find(|own| own.ip == params.route.local);
        let own = own.copied().unwrap_or_else(|| params.route.local.into());
        let port = port_of(params.service_id);
        let remote = match params.route.remote {
            IpAddr::V4(ip) => SocketAddr::new(ip.into(), port),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, own.scope_id).into(),
        };
        let id = self.fresh_id();
        let own_port = params.ip.map_or(0, |ip| ip.source_port);
        let opened = StreamSocket::connect(own, own_port, remote).and_then(|socket| {
            let deadline = ask.give_up_at;
            let phase = Phase::Connecting(Box::new(ask));
            let slot = self.insert(socket, id, phase, (own.with_port(0), remote))?;
            let connection = &mut self.connections[slot];
            (connection.qpn, connection.known) = (Some(params.qpn), true);
            self.set_deadline(slot, Some(deadline));
            Ok(())
        });
        if opened.is_err() {
            // Reported like any other peer that cannot be reached.
            self.events.push_back(CmEvent::Unreachable {
                connection: id,
                qpn: params.qpn,
                refused: false,
            });
        }
        Ok(id)
    }

    /// Opens the connection to a peer once more.
    pub(super) fn connect_again(&mut self, slot: usize, ask: Box<Ask>, deadline: Time) -> io::Result<()> {
        let connection = &mut self.connections[slot];
        let socket = StreamSocket::connect(
            connection.local.into(),
            connection.local.port(),
            connection.remote,
        )?;
        self.readiness.watch(&socket, slot as u64)?;
        connection.socket = socket;
        connection.transcribe(self.capture.as_ref());
        (connection.readable, connection.writable, connection.hung_up) = (false, false, false);
        self.set_deadline(slot, Some(deadline));
        self.enter(slot, Phase::Connecting(ask));
        Ok(())
    }

    /// Accepts a request to connect.
    pub(crate) fn accept(
        &mut self,
        now: Time,
        nic: &mut Nic,
        id: ConnectionId,
        params: &AcceptParams<'_>,
    ) -> Result<(), CmError> {
        let (slot, startup) = self.undecided(id)?;
        let room = Startup::max_private_data(true);
        let too_long = CmError::TooLong {
            given: params.private_data.len(),
            room,
        };
        let answer = StartupRequest {
            ird: u16::from(params.responder_resources),
            ord: u16::from(params.initiator_depth),
            private_data: params.private_data,
        };
        let agreed = startup.accept(&answer).map_err(|_| too_long)?;
        // The peer may send as soon as it has the Reply.
        nic.stream_attach(now, params.qpn, &agreed)
            .map_err(|_| CmError::State(CmState::ReqReceived))?;
        let connection = &mut self.connections[slot];
        let mut reply = Vec::new();
        if let Phase::Starting { startup, .. } = &mut connection.phase {
            startup.poll_transmit(&mut reply);
        }
        connection.unsent.end().extend_from_slice(&reply);
        connection.qpn = Some(params.qpn);
        self.enter(slot, Phase::Attached(params.qpn));
        self.by_qpn.insert(params.qpn, slot);
        self.answered(slot);
        if agreed.rtr.is_none() {
            self.events.push_back(CmEvent::Established {
                connection: id,
                private_data: Vec::new(),
            });
        }
        self.stand_in_line(slot);
        self.serve_line(now, nic);
        Ok(())
    }

    /// Rejects a request to connect, or gives up a connection that a peer accepted.
    pub(crate) fn reject(
        &mut self,
        now: Time,
        nic: &mut Nic,
        id: ConnectionId,
        params: &RejectParams<'_>,
    ) -> Result<(), CmError> {
        if self.undecided(id).is_err() {
            return self.abandon(now, nic, id);
        }
        let (slot, startup) = self.undecided(id)?;
        let room = Startup::max_private_data(true);
        startup
            .reject(params.private_data)
            .map_err(|_| CmError::TooLong {
                given: params.private_data.len(),
                room,
            })?;
        self.answered(slot);
        self.forget(slot);
        self.go_on_starting(now, nic, slot);
        Ok(())
    }

    /// Ends a connection in good order.
    pub(crate) fn disconnect(&mut self, now: Time, nic: &mut Nic, id: ConnectionId) -> Result<(), CmError> {
        let slot = self.slot_of(id)?;
        match self.connections[slot].phase {
            Phase::Attached(qpn) => {
                set_state(nic, now, qpn, QpState::Sqd);
                self.attend(now, nic);
                Ok(())
            }
            _ => Err(CmError::State(CmState::ReqReceived)),
        }
    }

    /// Gives a connection up in whatever state it is; the program hears no more of it.
    pub(crate) fn abandon(&mut self, now: Time, nic: &mut Nic, id: ConnectionId) -> Result<(), CmError> {
        let slot = self.slot_of(id)?;
        let undecided = self.undecided(id).is_ok();
        if undecided {
            let nothing = RejectParams {
                reason: RejectReason::CONSUMER_DEFINED,
                info: &[],
                private_data: &[],
            };
            return self.reject(now, nic, id, &nothing);
        }
        let phase = &self.connections[slot].phase;
        let attached = match phase {
            Phase::Attached(qpn) => Some(*qpn),
            _ => None,
        };
        self.forget(slot);
        match attached {
            // In good order if it can be: the program may have nothing under way.
            Some(qpn) => {
                set_state(nic, now, qpn, QpState::Sqd);
                self.attend(now, nic);
            }
            None => self.remove(slot),
        }
        Ok(())
    }

    /// A connection whose program has to decide.
    fn undecided(&mut self, id: ConnectionId) -> Result<(usize, &mut Startup), CmError> {
        let slot = self.slot_of(id)?;
        let connection = &mut self.connections[slot];
        match &mut connection.phase {
            Phase::Starting { startup, .. }
                if matches!(
                    connection.asked,
                    Some(Asked {
                        stage: Stage::Told,
                        ..
                    })
                ) =>
            {
                Ok((slot, &mut **startup))
            }
            _ => Err(CmError::State(CmState::Established)),
        }
    }

    fn slot_of(&self, id: ConnectionId) -> Result<usize, CmError> {
        self.by_id.get(&id).copied().ok_or(CmError::NoSuchConnection)
    }

    pub(super) fn fresh_id(&mut self) -> ConnectionId {
        loop {
            let id = ConnectionId(self.next_id);
            self.next_id = self.next_id.wrapping_add(1).max(1);
            if !self.by_id.contains_key(&id) {
                return id;
            }
        }
    }

    pub(super) fn insert(
        &mut self,
        socket: StreamSocket,
        id: ConnectionId,
        phase: Phase,
        ends: (SocketAddr, SocketAddr),
    ) -> io::Result<usize> {
        let slot = self.connections.vacant_key();
        self.readiness.watch(&socket, slot as u64)?;
        let mut connection = Connection::new(socket, id, phase, ends);
        connection.transcribe(self.capture.as_ref());
        self.starting += usize::from(connection.is_starting());
        self.connections.insert(connection);
        self.by_id.insert(id, slot);
        Ok(slot)
    }

    /// The program hears no more of a connection.
    pub(super) fn forget(&mut self, slot: usize) {
        let connection = &mut self.connections[slot];
        connection.known = false;
        self.by_id.remove(&connection.id);
    }

    /// Closes a connection.
    pub(super) fn remove(&mut self, slot: usize) {
        if !self.connections.contains(slot) {
            return;
        }
        self.answered(slot);
        self.forget(slot);
        let connection = self.connections.remove(slot);
        if let Phase::Attached(qpn) = connection.phase {
            self.by_qpn.remove(&qpn);
        }
        self.starting -= usize::from(connection.is_starting());
        if self.hot == Some(slot) {
            self.hot = None;
        }
    }
}

/// The port of a service: the lower half of its number, below the port space.
fn port_of(service_id: ServiceId) -> u16 {
    service_id.0 as u16
}

/// A queue pair that is gone, or in another state, is no concern.
fn set_state(nic: &mut Nic, now: Time, qpn: Qpn, state: QpState) {
    let set = QpAttributes {
        state: Some(state),
        ..QpAttributes::default()
    };
    let _ = nic.modify_qp(now, qpn, &set);
}
