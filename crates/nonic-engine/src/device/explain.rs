//! Explanations: what happened to a queue pair lately, and why it failed.

use super::Device;
use nonic_core::record::Recorded;
use nonic_core::{Qpn, Status};
use nonic_explain::Explanation;

impl Device {
    /// The last events of a queue pair, the oldest first.
    pub fn recorded(&self, qpn: Qpn) -> Vec<Recorded> {
        self.inner.turn_of(qpn).nic.recorded(qpn).cloned().collect()
    }

    /// Why a request of a queue pair ended with this status; without a status, why the queue pair failed. `None` if nothing
    /// went wrong.
    pub fn explain(&self, qpn: Qpn, status: Option<Status>) -> Option<Explanation> {
        Explanation::of_queue_pair(&self.inner.turn_of(qpn).nic, qpn, status)
    }
}
