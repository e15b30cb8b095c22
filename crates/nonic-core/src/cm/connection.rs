//! The state of one connection, and the messages that are written from it.

use super::config::CmConfig;
use super::params::{AcceptParams, CmError, ConnectParams, ListenerId, RejectParams};
use super::repetition::Repetition;
use super::state::CmState;
use crate::roce::qp1::Route;
use crate::time::Time;
use nonic_wire::cm::{
    CmMad, Dreq, INFO_LEN, IpHeader, Message, Mra, PrivateData, Rej, RejectReason, Rep, Req, ReqPath, Rtu,
    ServiceId, Subject, gid_of,
};
use nonic_wire::{Qpn, Service};
use std::time::Duration;

/// Which side began the connection.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Role {
    Active,
    Passive,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) state: CmState,
    pub(super) role: Role,
    pub(super) route: Route,
    pub(super) local_id: u32,
    /// Zero until the peer has sent it.
    pub(super) remote_id: u32,
    /// Of the exchange that began it.
    pub(super) transaction_id: u64,
    /// What was asked for.
    pub(super) service_id: ServiceId,
    pub(super) service: Service,
    pub(super) local_qpn: Qpn,
    pub(super) remote_qpn: Qpn,
    /// The listener that the request reached, on the passive side.
    pub(super) listener: Option<ListenerId>,
    /// Whether this is about a datagram service.
    pub(super) datagram: bool,
    /// The program gave it up, so no more events are reported for it.
    pub(super) orphan: bool,
    /// What to send again.
    pub(super) last: Option<Box<CmMad>>,
    /// When the peer was last asked whether it still has this connection.
    pub(super) questioned_at: Option<Time>,
    /// Its request to disconnect waits for others to be answered.
    pub(super) held: bool,
    /// How long to wait for an answer.
    pub(super) patience: Duration,
    pub(super) max_retries: u8,
    pub(super) retries_left: u8,
    /// How long a request is repeated to a peer without a listener at that port.
    pub(super) unserved_grace: Duration,
    /// Until when the request is repeated to a peer without a listener; set by its first refusal.
    pub(super) unserved_until: Option<Time>,
    pub(super) repetition: Repetition,
    /// Repetitions left to a host that refuses messages; `None` while it does not.
    pub(super) refused_retries_left: Option<u8>,
    pub(super) timewait: Duration,
    pub(super) deadline: Option<Time>,
}

impl Connection {
    /// A REJ about it.
    pub(super) fn rej(&self, reason: RejectReason) -> Rej {
        let subject = match self.role {
            Role::Passive if self.state.is_pending() || self.state == CmState::TimeWait => Subject::Req,
            Role::Passive => Subject::Other,
            Role::Active if self.remote_id != 0 => Subject::Rep,
            Role::Active => Subject::Other,
        };
        Rej::new(self.local_id, self.remote_id, subject, reason)
    }

    /// Until when the request is repeated to a peer without a listener, if this refusal is the first.
    pub(super) fn unserved_until(&self, now: Time) -> Time {
        self.unserved_until.unwrap_or(now + self.unserved_grace)
    }

    /// How long a final answer is remembered: until the peer, should all answers to it be lost, has given up asking.
    pub(super) fn linger(&self, config: &CmConfig, asked_for_time: bool) -> Duration {
        let asking = self.patience * (u32::from(self.max_retries) + 2);
        let waiting = if asked_for_time {
            config.time(config.service_timeout)
        } else {
            Duration::ZERO
        };
        (asking + waiting).max(config.linger)
    }

    /// Whether a repeated message comes sooner than its sender promised to wait, as early repetitions do. It is
    /// answered, since its sender may doubt that this side is alive; but there is no need to ask it for much time.
    fn is_early(&self, now: Time) -> bool {
        matches!(self.state, CmState::ReqReceived | CmState::RepReceived)
            && now.since(self.repetition.since) < self.patience / 2
    }

    /// An MRA in answer to a message that came again at this time.
    pub(super) fn mra(&self, now: Time, config: &CmConfig) -> Mra {
        Mra {
            local_comm_id: self.local_id,
            remote_comm_id: self.remote_id,
            subject: match self.role {
                Role::Active => Subject::Rep,
                Role::Passive => Subject::Req,
            },
            service_timeout: if self.is_early(now) {
                config.response_timeout
            } else {
                config.service_timeout
            },
            private_data: PrivateData::default(),
        }
    }

    pub(super) fn dreq(&self, private_data: &[u8]) -> Result<Dreq, CmError> {
        Ok(Dreq {
            local_comm_id: self.local_id,
            remote_comm_id: self.remote_id,
            remote_qpn: self.remote_qpn,
            private_data: fit(private_data)?,
        })
    }

    /// Asks whether the peer still has this connection, without ending it. The DREQ names a queue pair that no
    /// connection can have. A peer that has the connection ignores such a DREQ, as the specification wants and Linux
    /// does. A peer that does not answers it like every DREQ about an unknown connection, with a DREP.
    pub(super) fn question(&self) -> Dreq {
        Dreq {
            local_comm_id: self.local_id,
            remote_comm_id: self.remote_id,
            remote_qpn: Qpn::MULTICAST,
            private_data: PrivateData::default(),
        }
    }

    pub(super) fn rtu(&self, private_data: &[u8]) -> Result<Rtu, CmError> {
        Ok(Rtu {
            local_comm_id: self.local_id,
            remote_comm_id: self.remote_id,
            private_data: fit(private_data)?,
        })
    }

    pub(super) fn rej_with(&self, params: &RejectParams<'_>) -> Result<Message, CmError> {
        let mut rej = self.rej(params.reason);
        (rej.info, rej.info_len) = info(params.info)?;
        rej.private_data = fit(params.private_data)?;
        Ok(Message::Rej(rej))
    }

    pub(super) fn rep(&self, config: &CmConfig, params: &AcceptParams<'_>) -> Result<Message, CmError> {
        let extended = self.service == Service::Xrc;
        Ok(Message::Rep(Rep {
            local_comm_id: self.local_id,
            remote_comm_id: self.remote_id,
            local_qkey: 0,
            local_qpn: if extended { Qpn::default() } else { params.qpn },
            local_eecn: if extended { params.qpn.value() } else { 0 },
            starting_psn: params.starting_psn,
            responder_resources: params.responder_resources,
            initiator_depth: params.initiator_depth,
            target_ack_delay: params.target_ack_delay,
            failover_accepted: 0,
            flow_control: params.flow_control,
            rnr_retry_count: params.rnr_retry_count,
            srq: params.srq || extended,
            local_ca_guid: config.ca_guid,
            private_data: fit(params.private_data)?,
        }))
    }
}

/// The REQ of a call to connect.
pub(super) fn req(local_id: u32, config: &CmConfig, params: &ConnectParams<'_>) -> Result<Message, CmError> {
    let (transport, extended_transport) = match params.service {
        Service::Rc => (0, 0),
        Service::Uc => (1, 0),
        Service::Xrc => (3, 1),
        other => return Err(CmError::Service(other)),
    };
    Ok(Message::Req(Req {
        local_comm_id: local_id,
        service_id: params.service_id,
        local_ca_guid: config.ca_guid,
        local_qkey: 0,
        local_qpn: params.qpn,
        responder_resources: params.responder_resources,
        local_eecn: 0,
        initiator_depth: params.initiator_depth,
        remote_eecn: 0,
        remote_cm_response_timeout: config.response_timeout,
        transport,
        flow_control: params.flow_control,
        starting_psn: params.starting_psn,
        local_cm_response_timeout: config.response_timeout,
        retry_count: params.retry_count,
        pkey: 0xffff,
        path_mtu: params.path_mtu as u8,
        rdc_exists: false,
        rnr_retry_count: params.rnr_retry_count,
        max_cm_retries: config.max_cm_retries,
        srq: params.srq,
        extended_transport,
        primary: ReqPath {
            // RoCE has no local identifiers; all ones say so.
            local_lid: 0xffff,
            remote_lid: 0xffff,
            local_gid: gid_of(params.route.local),
            remote_gid: gid_of(params.route.remote),
            flow_label: params.flow_label,
            packet_rate: 0,
            traffic_class: params.traffic_class,
            hop_limit: 64,
            service_level: 0,
            subnet_local: false,
            local_ack_timeout: params.ack_timeout.exponent(),
        },
        alternate: ReqPath::default(),
        private_data: behind_header(params.ip, params.private_data)?,
    }))
}

/// Private data as it stands in a message, if there is room.
pub(super) fn fit<const N: usize>(bytes: &[u8]) -> Result<PrivateData<N>, CmError> {
    PrivateData::new(bytes).ok_or(CmError::TooLong {
        given: bytes.len(),
        room: N,
    })
}

/// Private data behind the IP header, if there is one.
pub(super) fn behind_header<const N: usize>(
    header: Option<IpHeader>,
    bytes: &[u8],
) -> Result<PrivateData<N>, CmError> {
    let Some(header) = header else {
        return fit(bytes);
    };
    let whole = [&header.emit()[..], bytes].concat();
    PrivateData::new(&whole).ok_or(CmError::TooLong {
        given: bytes.len(),
        room: N - IpHeader::LEN,
    })
}

/// Additional information as it stands in a message.
pub(super) fn info(bytes: &[u8]) -> Result<([u8; INFO_LEN], u8), CmError> {
    let data = fit::<INFO_LEN>(bytes)?;
    Ok((data.0, bytes.len() as u8))
}
