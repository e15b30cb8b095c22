//! On whose behalf a peer's request is executed. An extended reliable connection serves many receive queues.

use crate::memory::PdId;
use crate::resources::{NicResources, Received};
use crate::roce::context::RoceContext;
use crate::roce::xrc::XrcSrq;
use crate::rq::RecvWqe;

/// On whose behalf a request is executed: the queue pair's, or the SRQ's that it names.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Served<'a> {
    pub(crate) roce: &'a RoceContext,
    pub(crate) srq: Option<&'a XrcSrq>,
}

impl Served<'_> {
    /// The domain memory keys must belong to.
    pub(crate) fn pd(&self) -> PdId {
        self.srq.map_or(self.roce.common.pd, |srq| srq.rq.pd())
    }

    /// Takes the next receive.
    pub(crate) fn take_recv(&self, nic: &mut NicResources<'_>) -> Option<RecvWqe> {
        let own = &self.roce.common.rq;
        nic.take_recv(self.srq.map_or(own, |srq| &srq.rq))
    }

    /// Ends a receive.
    pub(crate) fn complete_recv(&self, nic: &mut NicResources<'_>, received: Received) {
        let own = &self.roce.common.recv_cq;
        nic.complete_recv(self.srq.map_or(own, |srq| &srq.cq), received);
    }
}
