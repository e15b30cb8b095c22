//! Snapshots of a reliable connection for tools that inspect a running process.

use super::{Requester, Responder};
use crate::queue_pair::QueuePairView;

impl Requester {
    /// Adds what it is at; sequence numbers mean something once it `sends`.
    pub(crate) fn show(&self, view: &mut QueuePairView, sends: bool) {
        view.sequence.next = sends.then(|| self.sequence.next().psn());
        view.sequence.unacknowledged = sends.then(|| self.sequence.una().psn());
        view.in_flight_bytes = self.counted();
        view.round_trip = self
            .retry
            .round_trip
            .is_known()
            .then(|| self.retry.round_trip.smoothed());
        view.retries_left = self.retry.retries_left();
        view.rnr_retries_left = self.retry.rnr_retries_left();
        view.recovering = self.loss.has_lost();
        view.troubles.timeouts = self.troubles.timeouts;
        view.troubles.retransmitted_packets = self.troubles.retransmitted_packets;
        view.troubles.naks_received = self.troubles.naks_received;
        view.troubles.rnr_naks_received = self.troubles.rnr_naks_received;
    }
}

impl Responder {
    /// Adds what it is at; what it expects means something once it `receives`.
    pub(crate) fn show(&self, view: &mut QueuePairView, receives: bool) {
        view.sequence.expected = receives.then(|| self.expected());
        let refusals = self.replies.refusals();
        view.troubles.naks_sent = refusals.naks;
        view.troubles.rnr_naks_sent = refusals.rnr_naks;
    }
}
