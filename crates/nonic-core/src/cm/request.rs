//! Incoming requests: to connect (REQ), or to resolve a datagram service (SIDR_REQ).

use super::Cm;
use super::RemoteId;
use super::connection::Role;
use super::event::{CmEvent, ConnectRequest, SidrRequest};
use super::params::{ConnectionId, ListenerId};
use super::state::{CmState, Input};
use crate::queue_pair::{AckTimeout, PathMtu};
use crate::roce::qp1::Route;
use crate::time::Time;
use nonic_wire::cm::{
    CmMad, INFO_LEN, IpHeader, Message, PortSpace, PrivateData, Rej, RejectReason, Req, ServiceId, SidrRep,
    SidrReq, SidrStatus, Subject, gid_of,
};
use nonic_wire::{Qpn, Service};

/// What is checked of a request before a connection is made of it.
struct Checked {
    service: Service,
    path_mtu: PathMtu,
    ip: Option<IpHeader>,
}

impl Cm {
    pub(super) fn request(&mut self, now: Time, route: Route, mad: &CmMad, req: &Req) {
        let remote = RemoteId {
            ip: route.remote,
            id: req.local_comm_id,
            datagram: false,
        };
        if let Some(id) = self.by_remote.get(&remote).copied() {
            self.deliver(now, Some(id), Input::Req, mad);
            return;
        }
        if let Err(reason) = self.try_request(now, route, mad, req, remote) {
            self.counters.refused += 1;
            let rej = Rej::new(0, req.local_comm_id, Subject::Req, reason);
            self.answer_to(route, mad, Message::Rej(rej));
        }
    }

    fn try_request(
        &mut self,
        now: Time,
        route: Route,
        mad: &CmMad,
        req: &Req,
        remote: RemoteId,
    ) -> Result<(), RejectReason> {
        if req.local_comm_id == 0 {
            return Err(RejectReason::INVALID_COMM_ID);
        }
        let checked = check(route, req)?;
        let address = checked.ip.map_or(route.local, |ip| ip.destination);
        let listener = self.listeners.find(req.service_id, address);
        let listener = listener.ok_or(RejectReason::INVALID_SERVICE_ID)?;
        if let Some(old) = self.by_qpn.get(&(route.remote, req.local_qpn)).copied() {
            self.question(now, old, mad);
            return Err(RejectReason::STALE_CONN);
        }
        if !self.has_room(listener) {
            self.counters.backlog_full += 1;
            return Ok(());
        }
        let id = self.fresh_id().map_err(|_| RejectReason::NO_RESOURCES)?;
        let mut connection = self.connection(now, CmState::ReqReceived, Role::Passive, route, id);
        connection.remote_id = req.local_comm_id;
        connection.transaction_id = mad.transaction_id;
        connection.service_id = req.service_id;
        connection.service = checked.service;
        connection.remote_qpn = req.local_qpn;
        connection.listener = Some(listener);
        connection.patience = self.config.patience(req.local_cm_response_timeout);
        connection.max_retries = req.max_cm_retries;
        connection.timewait = self.config.timewait(req.primary.local_ack_timeout);
        self.connections.insert(id, connection);
        self.by_remote.insert(remote, id);
        self.listeners.begin(listener);
        self.pending += 1;
        let request = describe(id, listener, route, req, &checked);
        self.events.push_back(CmEvent::Request(Box::new(request)));
        Ok(())
    }

    /// Whether one more request may wait for its program.
    fn has_room(&self, listener: ListenerId) -> bool {
        self.listeners.has_room(listener) && self.events.len() < self.config.max_queued_events
    }

    pub(super) fn sidr_request(&mut self, now: Time, route: Route, mad: &CmMad, req: &SidrReq) {
        let remote = RemoteId {
            ip: route.remote,
            id: req.request_id,
            datagram: true,
        };
        if let Some(id) = self.by_remote.get(&remote).copied() {
            self.deliver(now, Some(id), Input::SidrReq, mad);
            return;
        }
        if let Err(status) = self.try_sidr_request(now, route, mad, req, remote) {
            self.counters.refused += 1;
            let rep = SidrRep {
                request_id: req.request_id,
                status,
                info_len: 0,
                qpn: Qpn::default(),
                service_id: req.service_id,
                qkey: 0,
                info: [0; INFO_LEN],
                private_data: PrivateData::default(),
            };
            self.answer_to(route, mad, Message::SidrRep(rep));
        }
    }

    fn try_sidr_request(
        &mut self,
        now: Time,
        route: Route,
        mad: &CmMad,
        req: &SidrReq,
        remote: RemoteId,
    ) -> Result<(), SidrStatus> {
        let ip = ip_header(req.service_id, &req.private_data.0).map_err(|_| SidrStatus::UNSUPPORTED)?;
        let address = ip.map_or(route.local, |ip| ip.destination);
        let listener = self.listeners.find(req.service_id, address);
        let listener = listener.ok_or(SidrStatus::UNSUPPORTED)?;
        if !self.has_room(listener) {
            self.counters.backlog_full += 1;
            return Ok(());
        }
        let id = self.fresh_id().map_err(|_| SidrStatus::NO_QP)?;
        let mut connection = self.connection(now, CmState::SidrReqReceived, Role::Passive, route, id);
        connection.remote_id = req.request_id;
        connection.transaction_id = mad.transaction_id;
        connection.service_id = req.service_id;
        connection.service = Service::Ud;
        connection.datagram = true;
        connection.listener = Some(listener);
        self.connections.insert(id, connection);
        self.by_remote.insert(remote, id);
        self.listeners.begin(listener);
        self.pending += 1;
        let header = if ip.is_some() { IpHeader::LEN } else { 0 };
        self.events.push_back(CmEvent::SidrRequest(Box::new(SidrRequest {
            connection: ConnectionId(id),
            listener,
            service_id: req.service_id,
            route,
            ip,
            private_data: req.private_data.0[header..].to_vec(),
        })));
        Ok(())
    }
}

/// What is wrong with a request, whichever listener it is for.
fn check(route: Route, req: &Req) -> Result<Checked, RejectReason> {
    let service = match (req.transport, req.extended_transport) {
        (0, _) => Service::Rc,
        (1, _) => Service::Uc,
        (3, 1) => Service::Xrc,
        _ => return Err(RejectReason::INVALID_TRANSPORT_TYPE),
    };
    let path_mtu = PathMtu::from_bytes(128u32 << req.path_mtu).ok_or(RejectReason::INVALID_MTU)?;
    // Answers go where the request came from; a path that leads elsewhere would be another peer's.
    if req.primary.local_gid != gid_of(route.remote) {
        return Err(RejectReason::INVALID_GID);
    }
    if matches!(req.local_qpn, Qpn::SMI | Qpn::GSI | Qpn::MULTICAST) {
        return Err(RejectReason::NO_QP);
    }
    let ip = ip_header(req.service_id, &req.private_data.0).map_err(|()| RejectReason::UNSUPPORTED)?;
    Ok(Checked {
        service,
        path_mtu,
        ip,
    })
}

/// The header that services at IP addresses have, and others do not.
fn ip_header(service_id: ServiceId, private_data: &[u8]) -> Result<Option<IpHeader>, ()> {
    match service_id.port() {
        Some((PortSpace::Tcp | PortSpace::Udp | PortSpace::Ipoib, _)) => {
            IpHeader::parse(private_data).map(Some).map_err(|_| ())
        }
        Some((PortSpace::Ib, _)) | None => Ok(None),
    }
}

fn describe(id: u32, listener: ListenerId, route: Route, req: &Req, checked: &Checked) -> ConnectRequest {
    let header = if checked.ip.is_some() { IpHeader::LEN } else { 0 };
    ConnectRequest {
        connection: ConnectionId(id),
        listener,
        service_id: req.service_id,
        route,
        ip: checked.ip,
        service: checked.service,
        remote_qpn: req.local_qpn,
        starting_psn: req.starting_psn,
        responder_resources: req.initiator_depth,
        initiator_depth: req.responder_resources,
        flow_control: req.flow_control,
        retry_count: req.retry_count,
        rnr_retry_count: req.rnr_retry_count,
        srq: req.srq,
        path_mtu: checked.path_mtu,
        ack_timeout: AckTimeout::from_exponent(req.primary.local_ack_timeout).unwrap_or(AckTimeout::INFINITE),
        flow_label: req.primary.flow_label,
        traffic_class: req.primary.traffic_class,
        remote_ca_guid: req.local_ca_guid,
        private_data: req.private_data.0[header..].to_vec(),
    }
}
