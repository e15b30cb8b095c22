//! The table of listeners: services by address, and how many requests wait for each.

use super::params::{CmError, ListenerId};
use super::views::ListenerView;
use nonic_wire::cm::ServiceId;
use std::collections::HashMap;
use std::net::IpAddr;

#[derive(Debug, Default)]
pub(super) struct Listeners {
    by_service: HashMap<ServiceId, Vec<ListenerId>>,
    by_id: HashMap<ListenerId, Listener>,
    next: u64,
}

#[derive(Debug)]
struct Listener {
    service_id: ServiceId,
    address: Option<IpAddr>,
    backlog: usize,
    pending: usize,
}

impl Listeners {
    pub(super) fn add(
        &mut self,
        service_id: ServiceId,
        address: Option<IpAddr>,
        backlog: usize,
    ) -> Result<ListenerId, CmError> {
        let taken = self.by_service.get(&service_id);
        let overlap = |id: &ListenerId| overlap(self.by_id[id].address, address);
        if taken.is_some_and(|ids| ids.iter().any(overlap)) {
            return Err(CmError::InUse);
        }
        self.next += 1;
        let id = ListenerId(self.next);
        self.by_service.entry(service_id).or_default().push(id);
        let listener = Listener {
            service_id,
            address,
            backlog: backlog.max(1),
            pending: 0,
        };
        self.by_id.insert(id, listener);
        Ok(id)
    }

    pub(super) fn remove(&mut self, id: ListenerId) -> bool {
        let Some(listener) = self.by_id.remove(&id) else {
            return false;
        };
        if let Some(ids) = self.by_service.get_mut(&listener.service_id) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_service.remove(&listener.service_id);
            }
        }
        true
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// All of them, for people.
    pub(super) fn views(&self) -> impl Iterator<Item = ListenerView> {
        self.by_id.values().map(|listener| ListenerView {
            service_id: listener.service_id,
            address: listener.address,
            pending: listener.pending,
            backlog: listener.backlog,
        })
    }

    /// The listener for this service at this address.
    pub(super) fn find(&self, service_id: ServiceId, address: IpAddr) -> Option<ListenerId> {
        let ids = self.by_service.get(&service_id)?;
        let matches = |id: &&ListenerId| overlap(self.by_id[*id].address, Some(address));
        ids.iter().find(matches).copied()
    }

    pub(super) fn has_room(&self, id: ListenerId) -> bool {
        self.by_id.get(&id).is_some_and(|l| l.pending < l.backlog)
    }

    pub(super) fn begin(&mut self, id: ListenerId) {
        if let Some(listener) = self.by_id.get_mut(&id) {
            listener.pending += 1;
        }
    }

    pub(super) fn end(&mut self, id: ListenerId) {
        // The listener may be gone, and its requests still be with the program.
        if let Some(listener) = self.by_id.get_mut(&id) {
            listener.pending = listener.pending.saturating_sub(1);
        }
    }
}

/// Whether one address could be meant by both.
fn overlap(a: Option<IpAddr>, b: Option<IpAddr>) -> bool {
    let (Some(a), Some(b)) = (a, b) else {
        return true;
    };
    a == b || (a.is_ipv4() == b.is_ipv4() && (a.is_unspecified() || b.is_unspecified()))
}
