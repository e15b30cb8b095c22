//! Access to the recent events of queue pairs.

use super::Nic;
use crate::record::Recorded;
use nonic_wire::Qpn;

impl Nic {
    /// The last events of a queue pair, the oldest first; none if there is no such queue pair.
    pub fn recorded(&self, qpn: Qpn) -> impl DoubleEndedIterator<Item = &Recorded> {
        self.resources.recorder.of(qpn)
    }

    /// From now on, [`Nic::poll_recorded`] tells of every event of every queue pair.
    pub fn tell_recorded(&mut self) {
        self.resources.recorder.tell();
    }

    /// The next event that was not yet returned here, if [`Nic::tell_recorded`] was called.
    pub fn poll_recorded(&mut self) -> Option<(Qpn, Recorded)> {
        self.resources.recorder.poll()
    }

    /// Whether there is one.
    pub fn has_recorded(&self) -> bool {
        self.resources.recorder.has_untold()
    }
}
