//! Publishes what the peer of a queue pair may execute by itself, if it is on this host. Republished when it changes,
//! and withdrawn before anything ends that it relied on.

use super::{RoceQueuePair, ServiceMachine};
use crate::direct::Target;
use crate::queue_pair::QpState;
use crate::resources::NicResources;
use crate::roce::emit::Fatal;
use crate::verbs::memory::Access;
use nonic_wire::Service;

impl RoceQueuePair {
    /// Publishes what the peer may do, if that has changed.
    pub(crate) fn publish(&mut self, nic: &mut NicResources<'_>) {
        if nic.direct.is_none() || self.is_published_as(self.target().as_ref()) {
            return;
        }
        if self.published.is_some() {
            // With nothing permitted, the sequence stands still, and what was executed before is known for certain.
            self.withdraw(nic);
            let responder = match &mut self.machine {
                ServiceMachine::Rc { responder, .. } => responder.as_packets(),
                _ => None,
            };
            if let Some(responder) = responder {
                if let Err(Fatal) = responder.catch_up(&self.roce, nic) {
                    self.enter_error(nic);
                    return;
                }
            }
        }
        if let (Some(target), Some(direct)) = (self.target(), nic.direct.as_deref_mut()) {
            direct.publish(self.roce.common.qpn, Some(&target));
            self.published = Some(Box::new(target));
        }
    }

    /// Publishes it again, to a direct access that was just set.
    pub(crate) fn publish_anew(&mut self, nic: &mut NicResources<'_>) {
        self.published = None;
        self.publish(nic);
    }

    /// The peer may do nothing by itself any more. When this returns, nothing of the kind is under way.
    pub(super) fn withdraw(&mut self, nic: &mut NicResources<'_>) {
        let published = self.published.take();
        if let (Some(_), Some(direct)) = (published, nic.direct.as_deref_mut()) {
            direct.publish(self.roce.common.qpn, None);
        }
    }

    /// What the peer may do at this moment. A queue pair in RTR that has heard nothing yet makes its peer send a
    /// packet: its program waits for the event that comes with it.
    fn target(&self) -> Option<Target> {
        let roce = &self.roce;
        let common = &roce.common;
        let ServiceMachine::Rc { responder, .. } = &self.machine else {
            return None;
        };
        let serves = match common.state {
            QpState::Rts | QpState::Sqd => true,
            QpState::Rtr => roce.heard,
            _ => false,
        };
        let mut access = common.access & (Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC);
        if common.max_dest_rd_atomic == 0 {
            access -= Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        }
        let serves = serves && common.service == Service::Rc && roce.path.is_some() && !access.is_empty();
        serves.then(|| Target {
            local: roce.flow.src,
            remote: roce.flow.dst,
            peer: roce.dest_qpn,
            pd: common.pd,
            access,
            expected: responder.expected_directly(roce),
        })
    }

    /// Whether the peer knows of this target. How far the sequence has gone is told separately.
    fn is_published_as(&self, target: Option<&Target>) -> bool {
        match (&self.published, target) {
            (None, None) => true,
            (Some(published), Some(target)) => {
                let expected = published.expected;
                **published == Target { expected, ..*target }
            }
            _ => false,
        }
    }
}
