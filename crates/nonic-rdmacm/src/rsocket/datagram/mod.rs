//! Datagram sockets: a UDP socket that gives the address, and a queue pair for each address of ours that is used.
//!
//! What goes by UDP instead of RDMA: the first messages to a peer, until it has told its queue pair, and messages that
//! are longer than the device's MTU. All of it happens in the calling threads; there is no other.
//!
//! Nothing is promised of a datagram, so a peer that has started again is not noticed. A peer that was silent for a
//! while is therefore asked again for its queue pair.
//!
//! Read first: [`DatagramSocket`]; then [`port::Port`], a queue pair; the protocol is in [`super::protocol::datagram`].

mod port;
mod udp;

use super::protocol::datagram::{DatagramSource, Purpose};
use super::settings::Settings;
use super::vector::Vector;
use super::wait::{Progress, Waitable, wait};
use super::wait_limit::WaitLimit;
use super::waker::{Waiters, readable};
use crate::address;
use crate::convert::canonical;
use crate::refusal;
use libc::{c_int, pollfd};
use nonic_abi::errno::{Errno, refused};
use port::{Port, Route, SLOT};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use udp::Udp;

/// Peers whose queue pairs are remembered. Others are talked to by UDP.
const MAX_PEERS: usize = 4096;

/// How long a peer may be silent before it is asked again where it is.
const SILENCE: Duration = Duration::from_secs(1);

/// How often a peer that sends by UDP is told where we are.
const ANSWER_INTERVAL: Duration = Duration::from_millis(50);

/// For how long all messages follow one that was too long for RDMA, so that they do not overtake it.
const FOLLOWING: Duration = Duration::from_millis(100);

/// A datagram socket.
pub(crate) struct DatagramSocket {
    fd: RawFd,
    state: Mutex<DatagramState>,
}

/// What its lock protects.
pub(crate) struct DatagramState {
    pub(crate) settings: Settings,
    pub(crate) udp: Udp,
    ports: Vec<Port>,
    peers: HashMap<SocketAddr, Peer>,
    connected: Option<SocketAddr>,
    received: VecDeque<Datagram>,
    received_bytes: usize,
    waiters: Waiters,
    /// The program has closed it.
    is_closed: bool,
}

/// A peer that we talk to.
struct Peer {
    /// Which of our ports.
    port: usize,
    /// Once it has told.
    route: Option<Route>,
    heard: Instant,
    /// When it was told where we are.
    told: Option<Instant>,
    /// When it was last sent a message that is too long for RDMA.
    long: Option<Instant>,
}

impl Peer {
    /// Whether it is time to tell it where we are. It counts as told.
    fn is_to_be_told(&mut self) -> bool {
        let due = self.told.is_none_or(|told| told.elapsed() > ANSWER_INTERVAL);
        if due {
            self.told = Some(Instant::now());
        }
        due
    }
}

/// A message for the program.
pub(crate) struct Datagram {
    source: SocketAddr,
    bytes: Vec<u8>,
}

impl DatagramSocket {
    pub(crate) fn new(settings: Settings, is_v6: bool) -> Result<Self, Errno> {
        let udp = Udp::new(is_v6)?;
        Ok(DatagramSocket {
            fd: udp.as_raw_fd(),
            state: Mutex::new(DatagramState {
                settings,
                udp,
                ports: Vec::new(),
                peers: HashMap::new(),
                connected: None,
                received: VecDeque::new(),
                received_bytes: 0,
                waiters: Waiters::default(),
                is_closed: false,
            }),
        })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd
    }

    pub(crate) fn bind(&self, local: SocketAddr) -> Result<(), Errno> {
        self.lock().udp.bind(local)
    }

    pub(crate) fn connect(&self, remote: SocketAddr) -> Result<(), Errno> {
        let mut state = self.lock();
        state.udp.connect(remote)?;
        let remote = canonical(remote);
        state.find(remote)?;
        state.connected = Some(remote);
        Ok(())
    }

    /// Sends one message; tells how long it was.
    pub(crate) fn send(
        &self,
        vector: &mut Vector<'_>,
        to: Option<SocketAddr>,
        flags: c_int,
    ) -> Result<usize, Errno> {
        let mut state = self.lock();
        let to = to.map(canonical).or(state.connected).ok_or_else(|| {
            refused(
                libc::EDESTADDRREQ,
                "no destination was named, and the socket is not connected",
                "use rsendto, or rconnect first",
            )
        })?;
        let length = vector.left();
        let mut bytes = vec![0; length];
        // SAFETY: as many bytes as there is room for.
        unsafe { vector.copy_to(bytes.as_mut_ptr(), length) };
        let port = state.find(to)?;
        if state.is_by_udp(to, length) {
            // Perhaps the peer has told meanwhile.
            state.hear();
        }
        if state.is_by_udp(to, length) {
            state.send_by_udp(port, to, &bytes)?;
            return Ok(length);
        }
        let limit = state.settings.send_limit(flags);
        if !state.ports[port].has_slot() {
            state = wait(self, state, limit, |state| {
                state.is_closed || state.ports[port].has_slot()
            })?;
        }
        if state.is_closed {
            return Err(refusal::socket_closed());
        }
        let DatagramState { ports, peers, .. } = &mut *state;
        match peers.get(&to).and_then(|peer| peer.route.as_ref()) {
            Some(route) => ports[port].send(route, &bytes)?,
            None => state.send_by_udp(port, to, &bytes)?,
        }
        Ok(length)
    }

    /// Receives one message: its length and where it is from.
    pub(crate) fn receive(
        &self,
        vector: &mut Vector<'_>,
        flags: c_int,
    ) -> Result<(usize, SocketAddr), Errno> {
        let mut state = self.lock();
        let limit = state.settings.receive_limit(flags);
        if state.received.is_empty() {
            state = wait(self, state, limit, |state| {
                state.is_closed || !state.received.is_empty()
            })?;
        }
        let datagram = state.received.front().ok_or_else(refusal::socket_closed)?;
        let length = datagram.bytes.len().min(vector.left());
        // SAFETY: no longer than the message.
        unsafe { vector.copy_from(datagram.bytes.as_ptr(), length) };
        let source = state.udp.presentable(datagram.source);
        let whole = datagram.bytes.len();
        if flags & libc::MSG_PEEK == 0 {
            state.received.pop_front();
            state.received_bytes -= whole;
        }
        Ok(match flags & libc::MSG_TRUNC != 0 {
            true => (whole, source),
            false => (length, source),
        })
    }

    /// Waits for what was sent to leave, and ends.
    pub(crate) fn close(&self) {
        let state = self.lock();
        let limit = WaitLimit::new(true, Some(SILENCE));
        let mut state = wait(self, state, limit, |state| state.ports.iter().all(Port::is_idle))
            .unwrap_or_else(|_| self.lock());
        state.is_closed = true;
        state.peers.clear();
        state.ports.clear();
        state.waiters.wake();
    }
}

impl DatagramState {
    /// Its queues are made, as large as was wanted then.
    pub(crate) fn has_queues(&self) -> bool {
        !self.ports.is_empty()
    }

    /// Whether a message to a peer goes by UDP.
    fn is_by_udp(&self, to: SocketAddr, length: usize) -> bool {
        self.peers.get(&to).is_none_or(|peer| {
            peer.route.is_none()
                || length > self.ports[peer.port].max_payload()
                || peer.heard.elapsed() > SILENCE
                || peer.long.is_some_and(|long| long.elapsed() < FOLLOWING)
        })
    }

    /// The port to talk to a peer from. The peer is remembered if there is room.
    fn find(&mut self, remote: SocketAddr) -> Result<usize, Errno> {
        if let Some(peer) = self.peers.get(&remote) {
            return Ok(peer.port);
        }
        let bound = self.udp.local_with_port()?;
        let ip = address::source_for(Some(bound), remote)?;
        let local = SocketAddr::new(ip, bound.port());
        let port = match self.ports.iter().position(|port| port.local() == local) {
            Some(port) => port,
            None => {
                self.ports.push(Port::new(local, &self.settings)?);
                self.ports.len() - 1
            }
        };
        if self.peers.len() < MAX_PEERS {
            let peer = Peer {
                port,
                route: None,
                heard: Instant::now(),
                told: None,
                long: None,
            };
            self.peers.insert(remote, peer);
        }
        Ok(port)
    }

    fn send_by_udp(&mut self, port: usize, to: SocketAddr, bytes: &[u8]) -> Result<(), Errno> {
        let lookup = self.ports[port].lookup(Purpose::Data);
        let header = lookup.emit();
        if header.len() + bytes.len() > SLOT {
            return Err(refused(
                libc::EMSGSIZE,
                format!("the message has {} bytes", bytes.len()),
                "send shorter ones: a datagram is one packet",
            ));
        }
        if let Some(peer) = self.peers.get_mut(&to) {
            // Asked; the answer has as long again.
            peer.heard = Instant::now();
            if bytes.len() > self.ports[port].max_payload() {
                peer.long = Some(peer.heard);
            }
        }
        self.udp.send(to, &header, bytes)
    }

    /// Takes what came by UDP; tells whether anything did.
    fn hear(&mut self) -> bool {
        const MAX_AT_ONCE: usize = 64;
        let mut buffer = [0; SLOT];
        for heard in 0..MAX_AT_ONCE {
            let Some((source, lookup, bytes)) = self.udp.receive(&mut buffer) else {
                return heard > 0;
            };
            let Some((lookup, bytes)) = lookup.zip(Some(bytes)) else {
                continue;
            };
            let Ok(port) = self.find(source) else {
                continue;
            };
            if lookup.purpose == Purpose::Data && self.peers.get_mut(&source).is_some_and(Peer::is_to_be_told)
            {
                let answer = self.ports[port].lookup(Purpose::Control).emit();
                // If it is lost, the peer's next message asks again.
                let _ = self.udp.send(source, &answer, &[]);
            }
            let DatagramState { ports, peers, .. } = self;
            if let Some(peer) = peers.get_mut(&source) {
                peer.heard = Instant::now();
                if peer.route.as_ref().is_none_or(|route| route.qpn() != lookup.qpn) {
                    peer.route = ports[port].route(source.ip(), lookup.qpn).ok();
                }
            }
            if lookup.purpose == Purpose::Data {
                let bytes = bytes.to_vec();
                self.deliver(Datagram { source, bytes });
            }
        }
        true
    }

    fn deliver(&mut self, datagram: Datagram) {
        let limit = (self.settings.receive_buffer as usize).max(SLOT);
        if self.received_bytes + datagram.bytes.len() > limit
            || self.connected.is_some_and(|peer| peer != datagram.source)
        {
            // As with UDP: what there is no room for, or was not asked for, is gone.
            return;
        }
        self.received_bytes += datagram.bytes.len();
        self.received.push_back(datagram);
    }

    /// Takes what came by RDMA.
    fn take_completions(&mut self) -> bool {
        let mut happened = false;
        let mut arrived = Vec::new();
        for port in &mut self.ports {
            happened |= port.take_completions(&mut arrived);
        }
        for bytes in arrived {
            let Some((DatagramSource(source), header)) = DatagramSource::parse(&bytes) else {
                continue;
            };
            if let Some(peer) = self.peers.get_mut(&source) {
                peer.heard = Instant::now();
            }
            let bytes = bytes[header..].to_vec();
            self.deliver(Datagram { source, bytes });
        }
        happened
    }
}

impl Waitable for DatagramSocket {
    type State = DatagramState;

    fn lock(&self) -> MutexGuard<'_, DatagramState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress for DatagramState {
    fn advance(&mut self) -> bool {
        let heard = self.udp.is_its_turn() && self.hear();
        let taken = self.take_completions();
        heard || taken || self.hear()
    }

    fn arm(&mut self, polled: &mut Vec<pollfd>) {
        polled.push(readable(self.udp.as_raw_fd()));
        for port in &mut self.ports {
            port.arm();
            polled.push(readable(port.event_fd()));
        }
    }

    fn disarm(&mut self, polled: &[pollfd]) {
        for port in &mut self.ports {
            let has_event = |polled: &pollfd| polled.fd == port.event_fd() && polled.revents != 0;
            if polled.iter().any(has_event) {
                port.take_event();
            }
        }
    }

    fn waiters(&mut self) -> &mut Waiters {
        &mut self.waiters
    }

    fn silence(&self) -> Option<Duration> {
        None
    }

    fn probe(&mut self) {}

    fn events(&mut self, wanted: i16) -> i16 {
        if self.is_closed {
            return libc::POLLNVAL;
        }
        let mut events = 0;
        if !self.received.is_empty() {
            events |= libc::POLLIN | libc::POLLRDNORM;
        }
        if self.ports.iter().all(Port::has_slot) {
            events |= libc::POLLOUT | libc::POLLWRNORM;
        }
        events & wanted
    }
}
