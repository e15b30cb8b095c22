//! Direct access between processes of one host: the requester's thread executes WRITEs and READs itself, in the memory of
//! the target's process, by `process_vm_writev` and `process_vm_readv`. The target's processor takes no part. Peers map
//! memory that we allocated ourselves instead ([`mapping`]); then the requester executes atomics itself, too.
//!
//! The core decides when that may be done ([`nonic_core::DirectAccess`]); this module does it.
//!
//! - The target [publishes](publication) its keys and queue pairs in memory that other processes can only read. It gives
//!   that memory to peers whose lane it takes ([`crate::link::lane`]). The requester ([`requester`]) checks there what the
//!   responder would.
//! - In the lane's memory the requester announces the access that is under way. The target waits for that before it gives memory
//!   back to its program ([`revocation`]). It is told nothing else.
//! - Direct access refuses whatever is unusual; such requests go as records.
//!
//! The kernel decides each time whether the requester may do it: what a process could not do to another one anyway, it
//! cannot do through this. The requester finds out once for each lane whether it is possible, by reading a random number at
//! an address that the target publishes. That also proves that the target's process ID means the same to both.

mod access;
mod availability;
#[cfg(any(all(test, not(loom)), feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod mapping;
mod publication;
mod requester;
mod revocation;
mod targets;

pub use availability::{DirectRoad, LaneRoad, roads};
pub(crate) use mapping::Question;
pub(crate) use publication::Publication;
pub(crate) use requester::{Peers, Reached};
pub(crate) use revocation::IncomingAccess;

use nonic_core::{Direct, DirectAccess, DirectRequest, Qpn, Target};
use requester::Requester;
use std::sync::Arc;
use targets::Targets;

/// What the links of a shard need for direct access over their lanes.
#[derive(Clone, Debug)]
pub(crate) struct DirectLinks {
    /// What this device publishes.
    pub(crate) publication: Arc<Publication>,
    /// The processes whose memory the shard reaches.
    pub(crate) peers: Arc<Peers>,
}

impl DirectLinks {
    /// For another shard of a device.
    pub(crate) fn new(publication: &Arc<Publication>) -> Self {
        DirectLinks {
            publication: Arc::clone(publication),
            peers: Arc::default(),
        }
    }
}

/// Direct access of one shard, both ways.
pub(crate) struct ShardAccess {
    requester: Requester,
    targets: Targets,
}

impl ShardAccess {
    pub(crate) fn new(links: &DirectLinks) -> Self {
        ShardAccess {
            requester: Requester::new(Arc::clone(&links.peers)),
            targets: Targets::new(Arc::clone(&links.publication)),
        }
    }
}

impl DirectAccess for ShardAccess {
    fn execute(&mut self, request: &DirectRequest<'_>) -> Direct {
        self.requester.execute(request).unwrap_or(Direct::Refused)
    }

    fn execute_run(&mut self, requests: &[DirectRequest<'_>]) -> usize {
        self.requester.execute_run(requests).unwrap_or(0)
    }

    fn publish(&mut self, qpn: Qpn, target: Option<&Target>) {
        match target {
            Some(target) => self.targets.publish(qpn, target),
            None => self.targets.withdraw(qpn),
        }
    }
}
