//! Publishes what the peer of a queue pair may execute by itself, if it is on this host. Republished when it changes,
//! and withdrawn before anything ends that it relied on.

use super::RoceQueuePair;
use crate::direct::Target;
use crate::queue_pair::QpState;
use crate::resources::NicResources;
use crate::verbs::memory::Access;
use nonic_wire::Service;

impl RoceQueuePair {
    /// Publishes what the peer may do, if that has changed.
    pub(crate) fn publish(&mut self, nic: &mut NicResources) {
        let target = self.target();
        if nic.direct.is_none() || self.published.as_deref() == target.as_ref() {
            return;
        }
        self.withdraw(nic);
        if let (Some(target), Some(direct)) = (target, nic.direct.as_deref_mut()) {
            direct.publish(self.roce.common.qpn, Some(&target));
            self.published = Some(Box::new(target));
        }
    }

    /// Publishes it again, to a direct access that was just set.
    pub(crate) fn publish_anew(&mut self, nic: &mut NicResources) {
        self.published = None;
        self.publish(nic);
    }

    /// The peer may do nothing by itself any more. When this returns, nothing of the kind is under way.
    pub(super) fn withdraw(&mut self, nic: &mut NicResources) {
        let published = self.published.take();
        if let (Some(_), Some(direct)) = (published, nic.direct.as_deref_mut()) {
            direct.publish(self.roce.common.qpn, None);
        }
    }

    /// What the peer may do at this moment. A queue pair in RTR that has heard nothing yet makes its peer write a
    /// record: its program waits for the event that comes with it.
    fn target(&self) -> Option<Target> {
        let roce = &self.roce;
        let common = &roce.common;
        let serves = match common.state {
            QpState::Rts | QpState::Sqd => true,
            QpState::Rtr => roce.heard,
            _ => false,
        };
        let mut access = common.access & (Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC);
        if common.max_dest_rd_atomic == 0 {
            access -= Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        }
        // Also with no right at all: it fetches the bytes of SENDs.
        let serves = serves && common.service == Service::Rc && roce.path.is_some();
        serves.then_some(Target {
            local: roce.flow.src,
            remote: roce.flow.dst,
            peer: roce.dest_qpn,
            pd: common.pd,
            access,
            first: roce.rq_psn,
        })
    }
}
