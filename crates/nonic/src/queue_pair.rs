//! Queue pairs: made, connected by exchanging endpoints, and used through two independent halves.

mod builder;
mod receive;
mod send;

pub use builder::{ConnectOptions, Prepared, QueuePairBuilder};
pub use receive::ReceiveQueue;
pub(crate) use receive::post_receive;
pub use send::{Peer, RefusedBatch, SendQueue};

use crate::completion::CompletionQueue;
use crate::device::{Device, Domain};
use crate::endpoint::Endpoint;
use crate::memory::Lease;
use crate::outstanding::Lane;
use crate::transport::Transport;
use nonic_core::{ModifyError, PostError, QpAttributes, QpState, Qpn};
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;

/// A queue pair ready for use. Take it apart to use its halves on different threads.
#[derive(Debug)]
pub struct QueuePair<T: Transport> {
    /// Where sends, writes, reads and atomics are posted.
    pub sq: SendQueue<T>,
    /// Where receives are posted.
    pub rq: ReceiveQueue<T>,
}

impl<T: Transport> QueuePair<T> {
    /// Its number.
    pub fn qpn(&self) -> Qpn {
        self.sq.handle.qpn
    }

    /// What peers need to reach it.
    pub fn endpoint(&self) -> Endpoint {
        self.sq.handle.endpoint
    }

    pub(crate) fn device(&self) -> &Device {
        &self.sq.handle.domain.device
    }

    /// Brings it to the error state: what is posted completes as flushed.
    pub(crate) fn fail(&self) -> Result<(), ModifyError> {
        let failed = QpAttributes {
            state: Some(QpState::Error),
            ..QpAttributes::default()
        };
        self.device().engine.modify_qp(self.qpn(), &failed)
    }

    /// Its state: peers and errors can change it at any time.
    pub fn state(&self) -> QpState {
        self.sq.handle.state()
    }
}

/// The queue pair itself, shared by its halves; destroyed with the last.
pub(crate) struct Handle {
    pub(crate) domain: Domain,
    pub(crate) qpn: Qpn,
    pub(crate) send_queue: CompletionQueue,
    pub(crate) send_lane: Lane,
    pub(crate) recv_queue: CompletionQueue,
    pub(crate) recv_lane: Lane,
    pub(crate) endpoint: Endpoint,
    pub(crate) gid_index: u8,
    /// Keeps the shared receive queue alive.
    pub(crate) srq: Option<Arc<nonic_core::ReceiveQueue>>,
}

impl Handle {
    pub(crate) fn state(&self) -> QpState {
        // It exists as long as this handle.
        self.domain.device.engine.qp_state(self.qpn).unwrap_or_default()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.domain.device.engine.destroy_qp(self.qpn);
        // The NIC is done with the buffers of its requests; nobody will ask for their completions.
        self.send_queue.close_lane(self.send_lane);
        self.recv_queue.close_lane(self.recv_lane);
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

/// The buffers of one request: one lease, or several that are gathered or scattered in order.
#[derive(Debug, Default)]
pub struct Buffers(pub(crate) SmallVec<[Lease; 1]>);

impl From<Lease> for Buffers {
    fn from(lease: Lease) -> Self {
        Buffers(SmallVec::from_buf([lease]))
    }
}

impl From<Vec<Lease>> for Buffers {
    fn from(leases: Vec<Lease>) -> Self {
        Buffers(SmallVec::from_vec(leases))
    }
}

impl From<SmallVec<[Lease; 1]>> for Buffers {
    fn from(leases: SmallVec<[Lease; 1]>) -> Self {
        Buffers(leases)
    }
}

impl IntoIterator for Buffers {
    type Item = Lease;
    type IntoIter = smallvec::IntoIter<[Lease; 1]>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl Buffers {
    pub(crate) fn sges(&self) -> SmallVec<[nonic_core::Sge; 4]> {
        self.0.iter().map(Lease::sge).collect()
    }
}

/// A request that was not taken, and its buffers back.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Refused {
    /// Why.
    #[source]
    pub error: PostError,
    /// What it was posted with.
    pub buffers: Buffers,
}
