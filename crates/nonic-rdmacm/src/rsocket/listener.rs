//! Listening sockets.
//!
//! The service accepts a request when it comes; the program takes established connections. Requests for which the queue
//! has no room wait unanswered until it has, and so do those that come in the first moment.

use super::backlog::Request;
use super::identifier::Identifier;
use super::protocol::Hello;
use super::settings::Settings;
use super::socket::Socket;
use super::stream::{Phase, StreamSocket, StreamState};
use super::stream_queue_pair::{StreamQueuePair, parameters};
use super::table;
use super::wait::{Waitable, wait};
use crate::connection;
use nonic_abi::errno::{Errno, refused};
use std::os::fd::RawFd;
use std::sync::{Arc, MutexGuard};

impl StreamSocket {
    /// A request to connect has come.
    pub(crate) fn handle_request(self: &Arc<Self>, identifier: Identifier, data: &[u8]) {
        let Some(hello) = Hello::parse(data) else {
            refuse(&identifier);
            return;
        };
        let mut state = self.lock();
        let Phase::Listening(listening) = &mut state.phase else {
            return;
        };
        if !listening.takes_requests() {
            refuse(&identifier);
            return;
        }
        listening.push(Request { identifier, hello });
        let settles_for = listening.settles_for();
        if !settles_for.is_zero() {
            drop(state);
            std::thread::sleep(settles_for);
            state = self.lock();
        }
        self.accept_waiting(state);
    }

    /// Accepts as many as there is room for.
    fn accept_waiting<'a>(self: &'a Arc<Self>, mut state: MutexGuard<'a, StreamState>) {
        while let Phase::Listening(listening) = &mut state.phase {
            let Some(request) = listening.next_request() else {
                break;
            };
            let settings = state.settings.clone();
            drop(state);
            let accepted = StreamSocket::accept(request, settings, self);
            state = self.lock();
            if accepted.is_err() {
                // The peer that asked has been refused, or has gone.
                state.one_less_accepting();
            }
        }
    }

    fn accept(request: Request, settings: Settings, listener: &Arc<StreamSocket>) -> Result<(), Errno> {
        let socket = StreamSocket::new(settings, listener.is_v6())?;
        request.identifier.give_to(socket.fd());
        let id = request.identifier.id();
        let settings = socket.lock().settings.clone();
        let mut queue_pair = StreamQueuePair::new(request.identifier, &settings).inspect_err(|_| {
            let _ = connection::reject(&id, std::ptr::null(), 0);
        })?;
        queue_pair.greeted(request.hello);
        let hello = queue_pair.hello().emit();
        let mut state = socket.lock();
        state.phase = Phase::Accepting(queue_pair, Arc::downgrade(listener));
        table::insert(Arc::clone(&socket) as Arc<dyn Socket>);
        let accepted = connection::accept(&id, &parameters(&hello, id.is_iwarp()));
        drop(state);
        accepted.inspect_err(|_| drop(table::remove(socket.fd())))
    }

    /// A connection this listener accepted is established, or is not to be.
    pub(super) fn handle_accepted(self: &Arc<Self>, socket: Option<Arc<StreamSocket>>) {
        let mut state = self.lock();
        state.one_less_accepting();
        let Phase::Listening(listening) = &mut state.phase else {
            drop(state);
            if let Some(socket) = socket {
                socket.abandon();
            }
            return;
        };
        if let Some(socket) = socket {
            listening.established.push_back(socket);
            state.waiters.wake();
        }
        self.accept_waiting(state);
    }

    /// The next connection's number.
    pub(crate) fn next_connection(self: &Arc<Self>) -> Result<RawFd, Errno> {
        let state = self.lock();
        let limit = state.settings.receive_limit(0);
        let mut state = wait(&**self, state, limit, |state| match &state.phase {
            Phase::Listening(listening) => listening.is_shut_down || !listening.established.is_empty(),
            _ => true,
        })?;
        let Phase::Listening(listening) = &mut state.phase else {
            return Err(refused(
                libc::EINVAL,
                "the socket does not listen",
                "call rlisten first",
            ));
        };
        let socket = listening.established.pop_front().ok_or_else(|| {
            refused(
                libc::EINVAL,
                "the socket was shut down while it waited for a connection",
                "end the loop that accepts",
            )
        })?;
        self.accept_waiting(state);
        Ok(socket.fd())
    }
}

impl StreamState {
    fn one_less_accepting(&mut self) {
        if let Phase::Listening(listening) = &mut self.phase {
            listening.one_less_accepting();
        }
    }
}

fn refuse(identifier: &Identifier) {
    // It may have given up by itself.
    let _ = connection::reject(&identifier.id(), std::ptr::null(), 0);
}
