//! Sockets that wait for connections.
//!
//! A request is accepted when it comes, by the service; the program takes what is established. Those for which the
//! queue has no room wait unanswered until it has.

use super::identifier::Identifier;
use super::link::Link;
use super::protocol::Hello;
use super::stream::{Phase, State, StreamSocket};
use super::table::Socket;
use super::wait::{Waitable, wait};
use crate::connection::{self, NO_PARAMETERS};
use libc::c_int;
use nonic_abi::errno::Errno;
use nonic_abi::rdma_cma::rdma_conn_param;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::{Arc, MutexGuard};

/// Requests that may wait for room. More are refused.
const MAX_WAITING: usize = 1024;

/// A queue of connections.
pub(crate) struct Listening {
    identifier: Identifier,
    backlog: usize,
    /// Accepted, and not established yet.
    accepting: usize,
    pub(super) established: VecDeque<Arc<StreamSocket>>,
    waiting: VecDeque<Request>,
    /// The program has had enough.
    pub(super) is_shut_down: bool,
}

/// Somebody who wants to connect.
struct Request {
    identifier: Identifier,
    hello: Hello,
}

impl Listening {
    pub(super) fn new(identifier: Identifier, backlog: c_int) -> Self {
        Listening {
            identifier,
            backlog: backlog.max(1) as usize,
            accepting: 0,
            established: VecDeque::new(),
            waiting: VecDeque::new(),
            is_shut_down: false,
        }
    }

    pub(super) fn identifier(&self) -> &Identifier {
        &self.identifier
    }

    pub(super) fn set_backlog(&mut self, backlog: c_int) {
        self.backlog = backlog.max(1) as usize;
    }

    fn has_room(&self) -> bool {
        self.accepting + self.established.len() < self.backlog
    }

    fn next_request(&mut self) -> Option<Request> {
        if !self.has_room() {
            return None;
        }
        let request = self.waiting.pop_front()?;
        self.accepting += 1;
        Some(request)
    }
}

impl StreamSocket {
    /// The service heard of somebody.
    pub(crate) fn handle_request(self: &Arc<Self>, identifier: Identifier, data: &[u8]) {
        let Some(hello) = Hello::parse(data) else {
            refuse(&identifier);
            return;
        };
        let mut state = self.lock();
        let Phase::Listening(listening) = &mut state.phase else {
            return;
        };
        if listening.is_shut_down || listening.waiting.len() >= MAX_WAITING {
            refuse(&identifier);
            return;
        }
        listening.waiting.push_back(Request { identifier, hello });
        self.accept_waiting(state);
    }

    /// Accepts as many as there is room for.
    fn accept_waiting<'a>(self: &'a Arc<Self>, mut state: MutexGuard<'a, State>) {
        while let Phase::Listening(listening) = &mut state.phase
            && let Some(request) = listening.next_request()
        {
            let settings = state.settings.clone();
            drop(state);
            let accepted = StreamSocket::accept(request, settings, self);
            state = self.lock();
            if accepted.is_err() {
                // Whoever asked has been refused, or has gone.
                state.one_less_accepting();
            }
        }
    }

    fn accept(
        request: Request,
        settings: super::settings::Settings,
        listener: &Arc<StreamSocket>,
    ) -> Result<(), Errno> {
        let socket = StreamSocket::new(settings, listener.is_v6())?;
        request.identifier.give_to(socket.fd());
        let id = request.identifier.id();
        let settings = socket.lock().settings.clone();
        let mut link = Link::new(request.identifier, &settings).inspect_err(|_| {
            let _ = connection::reject(&id, std::ptr::null(), 0);
        })?;
        link.greeted(request.hello);
        let hello = link.hello().emit();
        let mut state = socket.lock();
        state.phase = Phase::Accepting(link, Arc::downgrade(listener));
        Socket::Stream(Arc::clone(&socket)).insert();
        let accepted = connection::accept(&id, &parameters(&hello));
        drop(state);
        accepted.inspect_err(|_| drop(Socket::remove(socket.fd())))
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
        let patience = state.settings.patience_to_receive(0);
        let mut state = wait(&**self, state, patience, |state| match &state.phase {
            Phase::Listening(listening) => listening.is_shut_down || !listening.established.is_empty(),
            _ => true,
        })?;
        let Phase::Listening(listening) = &mut state.phase else {
            return Err(libc::EINVAL);
        };
        let socket = listening.established.pop_front().ok_or(libc::EINVAL)?;
        self.accept_waiting(state);
        Ok(socket.fd())
    }
}

impl State {
    fn one_less_accepting(&mut self) {
        if let Phase::Listening(listening) = &mut self.phase {
            listening.accepting = listening.accepting.saturating_sub(1);
        }
    }
}

fn refuse(identifier: &Identifier) {
    // It may have given up by itself.
    let _ = connection::reject(&identifier.id(), std::ptr::null(), 0);
}

/// What is said when nothing else was: retry for ever, since receives come back when the program reads.
pub(super) fn parameters(hello: &[u8]) -> rdma_conn_param {
    rdma_conn_param {
        private_data: hello.as_ptr().cast(),
        private_data_len: hello.len() as u8,
        responder_resources: 0,
        initiator_depth: 0,
        ..NO_PARAMETERS
    }
}
