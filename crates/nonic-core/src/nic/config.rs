//! Limits of a NIC, and the parameters that queue pairs are created from.

use crate::counters::Counters;
use crate::iwarp::IwarpConfig;
use crate::outbox::Outbox;
use crate::queue_pair::{AckTimeout, PathMtu, QpCapacity, QpContext, QpState, RnrTimer, Traffic};
use crate::record::Recorder;
use crate::resources::NicResources;
use crate::roce::context::RoceContext;
use crate::roce::rc::{ReorderConfig, ReorderMemory};
use crate::roce::window::{PeerTable, WindowConfig};
use crate::roce::xrc::XrcTable;
use crate::time::Time;
use crate::verbs::cq::CompletionQueue;
use crate::verbs::memory::{Access, KeyTable, Keys, PdId};
use crate::verbs::rq::{ReceiveQueue, Receives};
use nonic_wire::{Flow, Psn, Qpn, ROCE_PORT, Service};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// Limits and habits of a NIC.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NicConfig {
    /// The largest path MTU, and the size of the largest datagram.
    pub port_mtu: PathMtu,
    /// How much may be under way to a peer.
    pub window: WindowConfig,
    /// What is done about packets that come out of order.
    pub reorder: ReorderConfig,
    /// Whether to accept packets whose IPv4 Identification has to be solved for (peers other than nonic send any).
    /// Leaves 16 bits of error detection for those.
    pub lenient_icrc: bool,
    /// Send or receive requests in a queue, at most.
    pub max_wr: u32,
    /// Elements in a scatter/gather list, at most.
    pub max_sge: u32,
    /// Bytes of inline data, at most.
    pub max_inline_data: u32,
    /// READs and atomics outstanding per queue pair and direction, at most.
    pub max_rd_atomic: u8,
    /// The most bytes that are moved into or out of the memory of a peer on this host at once: other queue pairs have
    /// their turn between the pieces of a longer message.
    pub direct_piece: u32,
    /// From so many bytes on, a request waits until everything before it is answered if it can then be executed in the
    /// memory of a peer on this host: the gain over packets is larger than the wait for an answer. A peer that delays
    /// acknowledgements until its program's next call may take a millisecond, so it is not worth it for small requests.
    pub direct_worth: u32,
    /// From so many bytes on, a SEND to a peer on this host with nothing before or behind it names its bytes, and the receiver fetches
    /// them if it can: one copy in place of one into a record and one out of it.
    pub pull_worth: u32,
    /// Bytes of payload in a record to a peer on this host. A longer message takes several. Of SENDs from
    /// [`NicConfig::pull_worth`] on that are not alone, records have up to four times as many.
    pub record_piece: u32,
    /// Habits of iWARP queue pairs.
    pub iwarp: IwarpConfig,
}

impl Default for NicConfig {
    fn default() -> Self {
        NicConfig {
            port_mtu: PathMtu::Mtu4096,
            window: WindowConfig::default(),
            reorder: ReorderConfig::default(),
            lenient_icrc: true,
            max_wr: 32768,
            max_sge: 32,
            max_inline_data: 1024,
            max_rd_atomic: 128,
            direct_piece: 1 << 20,
            direct_worth: 1 << 20,
            pull_worth: 32 << 10,
            record_piece: 16 << 10,
            iwarp: IwarpConfig::default(),
        }
    }
}

impl NicConfig {
    /// What the queue pairs of a NIC share, with these keys.
    pub(super) fn resources(&self, keys: Arc<KeyTable>) -> NicResources {
        NicResources {
            now: Time::ZERO,
            keys: Keys::new(keys),
            outbox: Outbox::default(),
            events: VecDeque::new(),
            counters: Counters::default(),
            peers: PeerTable::default(),
            reorder: ReorderMemory::new(self.reorder),
            endpoints: Vec::new(),
            xrc: XrcTable::default(),
            recorder: Recorder::default(),
            direct: None,
            lanes: None,
            record_piece: self.record_piece,
            direct_piece: self.direct_piece,
            direct_worth: self.direct_worth,
            pull_worth: self.pull_worth,
            missing_receives: None,
        }
    }
}

/// What a queue pair is created from.
#[derive(Clone, Debug)]
pub struct QpInit {
    /// RC, UC, UD, or XRC for an initiator (a target is created by [`Nic::create_xrc_target`](crate::Nic)).
    pub service: Service,
    /// Its protection domain.
    pub pd: PdId,
    /// Where sends complete.
    pub send_cq: Arc<CompletionQueue>,
    /// Where receives complete.
    pub recv_cq: Arc<CompletionQueue>,
    /// A shared receive queue, instead of one of its own.
    pub srq: Option<Arc<ReceiveQueue>>,
    /// Queue sizes.
    pub capacity: QpCapacity,
    /// Whether every send completes, signaled or not.
    pub signal_all: bool,
}

/// Why a queue pair was not created.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The service is not offered.
    #[error("this service is not offered")]
    Unsupported,
    /// A size is above the NIC's limit.
    #[error("{0} is above what the device offers")]
    Limit(&'static str),
    /// The shared receive queue belongs to another protection domain.
    #[error("the shared receive queue belongs to another protection domain")]
    Domain,
    /// The queue pair number asked for is in use or reserved.
    #[error("the queue pair number is in use or reserved")]
    QpnInUse,
    /// No queue pair number is free.
    #[error("no queue pair number is free")]
    NoQpn,
    /// There is no memory for it.
    #[error("there is no memory for it")]
    NoMemory,
    /// No shared receive queue number is free.
    #[error("no shared receive queue number is free")]
    NoSrqNumber,
}

impl QpInit {
    pub(super) fn check(&self, config: &NicConfig) -> Result<(), CreateError> {
        if !matches!(
            self.service,
            Service::Rc | Service::Uc | Service::Ud | Service::Xrc
        ) {
            return Err(CreateError::Unsupported);
        }
        let capacity = &self.capacity;
        let limits = [
            (capacity.max_send_wr, config.max_wr, "max_send_wr"),
            (capacity.max_recv_wr, config.max_wr, "max_recv_wr"),
            (capacity.max_send_sge, config.max_sge, "max_send_sge"),
            (capacity.max_recv_sge, config.max_sge, "max_recv_sge"),
            (
                capacity.max_inline_data,
                config.max_inline_data,
                "max_inline_data",
            ),
        ];
        if let Some((_, _, name)) = limits.into_iter().find(|(asked, limit, _)| asked > limit) {
            return Err(CreateError::Limit(name));
        }
        if self.service == Service::Xrc && self.srq.is_some() {
            return Err(CreateError::Unsupported);
        }
        if self.srq.as_ref().is_some_and(|srq| srq.pd() != self.pd) {
            return Err(CreateError::Domain);
        }
        Ok(())
    }

    /// What no transport is needed for.
    pub(super) fn into_common(self, qpn: Qpn, state: QpState) -> QpContext {
        let capacity = self.capacity;
        let rq = match self.srq {
            Some(srq) => Receives::Shared(srq),
            None => Receives::own(
                self.pd,
                capacity.max_recv_wr as usize,
                capacity.max_recv_sge as usize,
            ),
        };
        QpContext {
            qpn,
            service: self.service,
            state,
            pd: self.pd,
            send_cq: self.send_cq,
            recv_cq: self.recv_cq,
            rq,
            capacity,
            signal_all: self.signal_all,
            access: Access::empty(),
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
            traffic: Traffic::default(),
        }
    }

    pub(super) fn into_context(self, qpn: Qpn, config: &NicConfig) -> RoceContext {
        let unspecified = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let common = self.into_common(qpn, QpState::Reset);
        RoceContext {
            common,
            domain: None,
            qkey: 0,
            path: None,
            flow: Flow {
                src: unspecified,
                dst: unspecified,
                src_port: ROCE_PORT,
                dst_port: ROCE_PORT,
            },
            peer: None,
            mtu: config.port_mtu.bytes(),
            dest_qpn: Qpn::new(0),
            timeout: AckTimeout::INFINITE,
            retry_count: 0,
            rnr_retry: 0,
            min_rnr_timer: RnrTimer::from_code(0).expect("zero is a valid code"),
            sq_psn: Psn::new(0),
            rq_psn: Psn::new(0),
            heard: false,
        }
    }
}
