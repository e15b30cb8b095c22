//! Connection events of a stream socket: the service calls this with each event of the connection manager.

use super::protocol::Hello;
use super::socket::ConnectionEvent;
use super::stream::{Phase, StreamSocket, ask};
use super::table;
use super::wait::{Progress, Waitable};
use crate::address;
use libc::c_int;
use nonic_abi::rdma_cma::rdma_cm_id;
use std::sync::Arc;

/// How often a connection is asked for again with another queue pair.
const MAX_ATTEMPTS: u32 = 8;

impl StreamSocket {
    pub(super) fn handle_event(self: &Arc<Self>, event: ConnectionEvent) {
        match event {
            ConnectionEvent::Request {
                identifier,
                private_data,
            } => self.handle_request(identifier, &private_data),
            ConnectionEvent::Established { id, private_data } => self.handle_established(id, &private_data),
            ConnectionEvent::Stale { id } if self.ask_again(id) => {}
            ConnectionEvent::Stale { id } => self.handle_failed(id, libc::ECONNREFUSED),
            ConnectionEvent::Failed { id, errno } => self.handle_failed(id, errno),
            ConnectionEvent::Disconnected { id } => self.handle_disconnected(id),
        }
    }

    /// The connection is there.
    fn handle_established(self: &Arc<Self>, id: *mut rdma_cm_id, data: &[u8]) {
        let mut state = self.lock();
        if !state.phase.is_of(id) {
            return;
        }
        let mut told = None;
        let mut is_orphan = false;
        state.phase = match std::mem::replace(&mut state.phase, Phase::Closed) {
            Phase::Connecting(mut queue_pair) => match Hello::parse(data) {
                Some(peer) => {
                    queue_pair.greeted(peer);
                    Phase::Open(queue_pair)
                }
                None => {
                    state.error = libc::EPROTO;
                    Phase::Failed(libc::EPROTO)
                }
            },
            Phase::Accepting(queue_pair, listener) => {
                told = listener.upgrade();
                is_orphan = told.is_none();
                Phase::Open(queue_pair)
            }
            other => other,
        };
        state.progress();
        state.waiters.wake();
        drop(state);
        if let Some(listener) = told {
            listener.handle_accepted(Some(Arc::clone(self)));
        }
        if is_orphan {
            self.abandon();
        }
    }

    /// The peer has refused since it remembers our queue pair from an earlier connection: numbers come again, and a peer
    /// forgets them a while after we do. So it is asked again with another queue pair. Tells whether it is.
    fn ask_again(&self, id: *mut rdma_cm_id) -> bool {
        let mut state = self.lock();
        if !state.phase.is_of(id) || state.attempts >= MAX_ATTEMPTS {
            return false;
        }
        let Phase::Connecting(queue_pair) = &state.phase else {
            return false;
        };
        let (local, remote) = {
            let id = queue_pair.identifier.id();
            let addresses = id.state();
            (addresses.local, addresses.remote)
        };
        let Some(remote) = remote else {
            return false;
        };
        let asked = self.new_identifier().and_then(|identifier| {
            if let Some(local) = local {
                address::bind(&identifier.id(), local)?;
            }
            ask(identifier, remote, &state.settings)
        });
        let Ok(queue_pair) = asked else {
            return false;
        };
        state.attempts += 1;
        state.phase = Phase::Connecting(queue_pair);
        true
    }

    /// There will be no connection.
    fn handle_failed(self: &Arc<Self>, id: *mut rdma_cm_id, errno: c_int) {
        let mut state = self.lock();
        if !state.phase.is_of(id) || !state.phase.is_opening() {
            return;
        }
        state.error = errno;
        let before = std::mem::replace(&mut state.phase, Phase::Failed(errno));
        state.waiters.wake();
        drop(state);
        if let Phase::Accepting(_, listener) = &before {
            // Only the listener knows of it.
            drop(table::remove(self.fd()));
            if let Some(listener) = listener.upgrade() {
                listener.handle_accepted(None);
            }
        }
    }

    /// The peer has disconnected.
    fn handle_disconnected(self: &Arc<Self>, id: *mut rdma_cm_id) {
        let mut state = self.lock();
        if !state.phase.is_of(id) {
            return;
        }
        if state.phase.is_opening() {
            drop(state);
            self.handle_failed(id, libc::ECONNRESET);
            return;
        }
        // What came before counts.
        state.progress();
        if let Some(queue_pair) = state.phase.queue_pair() {
            queue_pair.hang_up();
        }
        state.waiters.wake();
    }
}
