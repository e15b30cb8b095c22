//! Queue pairs: made, connected by exchanging endpoints, and used through two independent halves.

mod builder;
mod handle;
mod receive;
mod send;

pub use builder::{ConnectOptions, Prepared, QueuePairBuilder};
pub use receive::ReceiveQueue;
pub use send::{Peer, RefusedBatch, SendQueue};

use crate::device::Device;
use crate::endpoint::Endpoint;
use crate::transport::Transport;
use nonic_core::{ModifyError, QpAttributes, QpState, Qpn};

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
    #[doc(alias = "qp_num")]
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
    #[doc(alias("ibv_query_qp", "ibv_qp_state"))]
    pub fn state(&self) -> QpState {
        self.sq.handle.state()
    }
}
