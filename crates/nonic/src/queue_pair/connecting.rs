//! Connecting a queue pair: the options, and the steps from RESET to RTS.

use crate::endpoint::Endpoint;
use nonic_core::{Access, AckTimeout, ModifyError, Path, PathMtu, Psn, QpAttributes, QpState, RnrTimer};
use std::time::Duration;

/// How to connect. The defaults suit a local network: the largest packets that both ends take, every right (a key
/// limits what can be done with it further), an acknowledgement within 50 ms, 7 retries, endless retries to a peer
/// without a posted receive, 16 READs and atomics under way, a silent peer given up after 10 seconds, no keepalive.
///
/// ```
/// use nonic::{Access, ConnectOptions, PathMtu, Rc};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let domain = nonic::Device::open("roce_lo")?.domain();
/// let options = ConnectOptions {
///     mtu: Some(PathMtu::Mtu1024),
///     access: Access::REMOTE_READ, // and nothing else
///     ..ConnectOptions::default()
/// };
/// let (left, right) = (domain.pair::<Rc>()?, domain.pair::<Rc>()?);
/// let (here, there) = (left.endpoint(), right.endpoint());
/// let (left, right) = (left.connect_with(&there, &options)?, right.connect_with(&here, &options)?);
/// # Ok(()) }
/// ```
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// The largest packet; the smaller of the two ends' if not given.
    #[doc(alias = "path_mtu")]
    pub mtu: Option<PathMtu>,
    /// What the peer may do to memory it has keys for.
    #[doc(alias = "qp_access_flags")]
    pub access: Access,
    /// How long to wait for an acknowledgement before repeating.
    pub timeout: AckTimeout,
    /// How often to repeat, up to 7.
    #[doc(alias("retry_cnt", "retry_count"))]
    pub retries: u8,
    /// How often to try a peer that has no receive ready; 7, the default, is for ever: a SEND to a peer that never posts a receive is
    /// then never done, and `NONIC_LOG=warn` says so. With less it fails, as
    /// [`Status::RnrRetryExceeded`](crate::Status::RnrRetryExceeded).
    #[doc(alias("rnr_retry", "rnr_retry_count"))]
    pub rnr_retries: u8,
    /// How long a peer should wait when we have no receive ready.
    #[doc(alias = "min_rnr_timer")]
    pub rnr_timer: RnrTimer,
    /// READs and atomics under way, in each direction.
    #[doc(alias(
        "max_rd_atomic",
        "max_dest_rd_atomic",
        "initiator_depth",
        "responder_resources"
    ))]
    pub fetches: u8,
    /// How long to wait for a silent peer when connecting by address and port; about so long, as an attempt takes about
    /// four seconds. Where there is no listener, the request is repeated for 750 ms, since the program may be about to
    /// start; then the peer is given up.
    pub patience: Duration,
    /// How often to probe the peer, once connected by address and port; never, if not given. A peer that does not
    /// answer for as long again, at least two seconds, is given up: the connection has ended, as
    /// [`CloseReason::Unreachable`](crate::CloseReason::Unreachable).
    ///
    /// A probe is a WRITE without bytes (over iWARP a READ), which the peer's NIC answers by itself and which the
    /// peer's `access` must permit, as its default does. Probes take none of the queue pair's capacity. Peers of unreliable
    /// connections are not probed.
    pub keepalive: Option<Duration>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        ConnectOptions {
            mtu: None,
            access: Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC | Access::FLUSH_GLOBAL,
            timeout: AckTimeout::at_least(Duration::from_millis(50)),
            retries: 7,
            rnr_retries: 7,
            rnr_timer: RnrTimer::at_least(Duration::from_micros(100)),
            fetches: 16,
            patience: Duration::from_secs(10),
            keepalive: None,
        }
    }
}

/// READs and atomics under way, as the two ends agreed. A side that only answers, as hosts of storage do, begins none.
#[derive(Copy, Clone, Debug)]
pub(crate) struct FetchLimits {
    /// By us.
    pub(crate) begun: u8,
    /// By the peer.
    pub(crate) answered: u8,
}

impl FetchLimits {
    pub(crate) fn both(limit: u8) -> Self {
        FetchLimits {
            begun: limit,
            answered: limit,
        }
    }
}

/// The steps that connect a queue pair.
pub(crate) struct ConnectSteps<'a> {
    pub(crate) engine: &'a nonic_engine::Device,
    pub(crate) own: &'a Endpoint,
    pub(crate) gid_index: u8,
    pub(crate) options: &'a ConnectOptions,
    /// Of a reliable service.
    pub(crate) fetches: Option<FetchLimits>,
    pub(crate) first_sent: Psn,
    pub(crate) first_received: Psn,
}

impl ConnectSteps<'_> {
    /// Takes them, one after the other.
    pub(crate) fn take(&self, peer: &Endpoint) -> Result<(), ModifyError> {
        let options = self.options;
        self.modify(&QpAttributes {
            state: Some(QpState::Init),
            access: Some(options.access),
            pkey_index: Some(0),
            port: Some(1),
            ..QpAttributes::default()
        })?;
        self.modify(&QpAttributes {
            state: Some(QpState::Rtr),
            path: Some(Path {
                gid_index: self.gid_index,
                remote: peer.ip,
            }),
            path_mtu: Some(options.mtu.unwrap_or_else(|| peer.mtu.min(self.own.mtu))),
            dest_qpn: Some(peer.qpn),
            rq_psn: Some(self.first_received),
            max_dest_rd_atomic: self.fetches.map(|fetches| fetches.answered),
            min_rnr_timer: self.fetches.map(|_| options.rnr_timer),
            ..QpAttributes::default()
        })?;
        self.modify(&QpAttributes {
            state: Some(QpState::Rts),
            sq_psn: Some(self.first_sent),
            timeout: self.fetches.map(|_| options.timeout),
            retry_count: self.fetches.map(|_| options.retries),
            rnr_retry: self.fetches.map(|_| options.rnr_retries),
            max_rd_atomic: self.fetches.map(|fetches| fetches.begun),
            ..QpAttributes::default()
        })
    }

    fn modify(&self, set: &QpAttributes) -> Result<(), ModifyError> {
        self.engine.modify_qp(self.own.qpn, set)
    }
}
