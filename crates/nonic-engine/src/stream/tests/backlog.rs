//! Which peers the program hears of, which wait and which are hung up on. The sockets are real, the time is what the test
//! says.

use super::{LOCAL, SOON, START};
use crate::os::poller::Poller;
use crate::stream::Streams;
use crate::stream::silent::Silent;
use nonic_core::cm::{CmEvent, ConnectRequest, ConnectionId, ListenerId, RejectParams};
use nonic_core::iwarp::startup::StartupConfig;
use nonic_core::{KeyTable, Nic, NicConfig, SeededEntropy, Time};
use nonic_wire::cm::{RejectReason, ServiceId};
use socket2::{Domain, SockRef, Socket, Type};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

const REQUEST: &[u8] = b"MPA ID Req Frame\x40\x01\x00\x01";

/// A program that listens.
struct Server {
    streams: Streams,
    poller: Poller,
    nic: Nic,
    listener: ListenerId,
    address: SocketAddr,
    now: Time,
}

impl Server {
    fn listening(backlog: usize) -> Self {
        let poller = Poller::new().expect("a poller");
        let streams = Streams::new(vec![LOCAL.into()], StartupConfig::default(), &poller, None);
        let mut streams = streams.expect("descriptors");
        let listener = streams.listen(ServiceId(0), |_| true, backlog).expect("a port");
        let (_, socket) = &streams.listening[0];
        let address = SockRef::from(socket).local_addr().expect("bound");
        let entropy = Box::new(SeededEntropy::new(1));
        Server {
            streams,
            poller,
            nic: Nic::new(NicConfig::default(), Arc::new(KeyTable::new()), entropy),
            listener,
            address: address.as_socket().expect("an IP address"),
            now: START,
        }
    }

    /// Looks at the sockets until it is so.
    fn until(&mut self, what: &str, is_so: impl Fn(&Streams) -> bool) {
        let started = Instant::now();
        while !is_so(&self.streams) {
            assert!(started.elapsed() < SOON, "{what}");
            self.poller
                .wait(Some(Duration::from_millis(20)))
                .expect("descriptors");
            self.streams.receive(self.now, &mut self.nic);
            if self.streams.next_timeout().is_some_and(|at| at <= self.now) {
                self.streams.handle_timeout(self.now, &mut self.nic);
            }
        }
    }

    /// A peer at this address that has connected, and was taken.
    fn peer(&mut self, from: Ipv4Addr) -> TcpStream {
        let peer = connect(from, self.address);
        let taken = self.streams.counters.streams_accepted + 1;
        self.until("it is taken", |streams| {
            streams.counters.streams_accepted == taken
        });
        peer
    }

    /// A peer that has asked, and says this of itself.
    fn asking(&mut self, word: u8) -> TcpStream {
        let mut peer = self.peer(Ipv4Addr::LOCALHOST);
        ask(&mut peer, word);
        self.until("its request comes", |streams| streams.silent.is_empty());
        peer
    }

    /// The requests that the program gets, by the word of each.
    fn told(&mut self) -> Vec<(ConnectionId, u8)> {
        let events = std::iter::from_fn(|| self.streams.poll_event());
        let requests = events.map(|event| match event {
            CmEvent::Request(request) => word_of(&request),
            other => panic!("{other:?}"),
        });
        requests.collect()
    }

    fn reject(&mut self, id: ConnectionId) {
        let nothing = RejectParams {
            reason: RejectReason::CONSUMER_DEFINED,
            info: &[],
            private_data: &[],
        };
        let rejected = self.streams.reject(self.now, &mut self.nic, id, &nothing);
        rejected.expect("it was told of");
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.streams.handle_timeout(self.now, &mut self.nic);
    }
}

fn word_of(request: &ConnectRequest) -> (ConnectionId, u8) {
    (request.connection, request.private_data[0])
}

fn words(told: &[(ConnectionId, u8)]) -> Vec<u8> {
    told.iter().map(|(_, word)| *word).collect()
}

fn connect(from: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let from = SocketAddr::new(IpAddr::V4(from), 0);
    socket
        .bind(&from.into())
        .expect("every address of 127.0.0.0/8 is ours");
    socket.connect(&to.into()).expect("it listens");
    socket.set_read_timeout(Some(SOON)).expect("a limit");
    socket.into()
}

fn ask(peer: &mut TcpStream, word: u8) {
    peer.write_all(&[REQUEST, &[word]].concat()).expect("sent");
}

/// Whether the server has hung up.
fn is_over(peer: &mut TcpStream) -> bool {
    peer.set_nonblocking(true).expect("set");
    match peer.read(&mut [0]) {
        Ok(0) => true,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
        Ok(_) => panic!("nobody has answered"),
    }
}

#[test]
fn silent_peers_take_no_place_in_the_backlog() {
    let mut server = Server::listening(3);
    let _silent: Vec<_> = (0..20).map(|_| server.peer(Ipv4Addr::LOCALHOST)).collect();
    let mut honest = server.peer(Ipv4Addr::LOCALHOST);
    ask(&mut honest, b'h');
    server.until("its request comes", Streams::has_events);
    assert_eq!(words(&server.told()), b"h");
}

#[test]
fn requests_beyond_the_backlog_wait_for_a_place_in_their_order() {
    let mut server = Server::listening(3);
    let _peers: Vec<_> = (0..8).map(|word| server.asking(word)).collect();
    let mut told = server.told();
    assert_eq!(words(&told), [0, 1, 2]);
    for next in 3..8 {
        server.reject(told.remove(0).0);
        let more = server.told();
        assert_eq!(words(&more), [next]);
        told.extend(more);
    }
    for (id, _) in told {
        server.reject(id);
    }
    assert_eq!(server.told(), []);
    let listener = &server.streams.listeners[&server.listener];
    assert_eq!((listener.waiting, listener.held.len()), (0, 0));
}

#[test]
fn a_peer_that_gives_up_while_it_waits_is_not_told_of() {
    let mut server = Server::listening(1);
    let _first = server.asking(1);
    let second = server.asking(2);
    let _third = server.asking(3);
    drop(second);
    server.until("it is noticed", |streams| streams.connections.len() == 2);
    let told = server.told();
    assert_eq!(words(&told), [1]);
    server.reject(told[0].0);
    assert_eq!(words(&server.told()), [3]);
}

#[test]
fn nobody_waits_for_ever() {
    let mut server = Server::listening(1);
    let _first = server.asking(1);
    let mut second = server.asking(2);
    server.pass(Duration::from_secs(59));
    assert!(!is_over(&mut second), "it may still be told of");
    server.pass(Duration::from_secs(2));
    second.set_nonblocking(false).expect("set");
    assert_eq!(second.read(&mut [0]).expect("the end"), 0);
    let told = server.told();
    assert_eq!(words(&told), [1], "the program may take its time");
    server.reject(told[0].0);
    assert_eq!(server.told(), []);
}

#[test]
fn the_oldest_silent_peer_makes_room_for_a_new_one() {
    let mut server = Server::listening(1);
    server.streams.silent = Silent::with_limit(4);
    let mut peers: Vec<_> = (0..4).map(|_| server.peer(Ipv4Addr::LOCALHOST)).collect();
    assert!(!is_over(&mut peers[0]));
    let mut fifth = server.peer(Ipv4Addr::LOCALHOST);
    peers[0].set_nonblocking(false).expect("set");
    assert_eq!(peers[0].read(&mut [0]).expect("the end"), 0);
    assert!(!is_over(&mut peers[1]) && !is_over(&mut fifth));
    assert_eq!(server.streams.counters.streams_refused, 1);
}

#[test]
fn a_peer_whose_request_is_there_is_not_taken_for_silent() {
    let mut server = Server::listening(1);
    server.streams.silent = Silent::with_limit(2);
    let mut honest = server.peer(Ipv4Addr::LOCALHOST);
    // Its request is in the socket, and was not read when the peers come that push the oldest out.
    ask(&mut honest, b'h');
    let _silent: Vec<_> = (0..8)
        .map(|_| connect(Ipv4Addr::LOCALHOST, server.address))
        .collect();
    let Server { streams, nic, .. } = &mut server;
    streams.take_connections(START, nic, 0);
    assert_eq!(words(&server.told()), b"h");
    assert!(!is_over(&mut honest));
}

#[test]
fn a_host_with_many_silent_peers_pushes_out_its_own() {
    let mut server = Server::listening(1);
    server.streams.silent = Silent::with_limit(8);
    let mut other = server.peer(Ipv4Addr::new(127, 0, 0, 2));
    let _flood: Vec<_> = (0..40).map(|_| server.peer(Ipv4Addr::LOCALHOST)).collect();
    assert!(!is_over(&mut other), "the oldest of all, and not in the way");
    other.set_nonblocking(false).expect("set");
    ask(&mut other, b'o');
    server.until("its request comes", Streams::has_events);
    assert_eq!(words(&server.told()), b"o");
}

#[test]
fn who_waits_goes_with_the_listener_and_who_was_told_of_stays() {
    let mut server = Server::listening(1);
    let mut told_of = server.asking(1);
    let mut held = server.asking(2);
    let mut silent = server.peer(Ipv4Addr::LOCALHOST);
    assert!(server.streams.unlisten(server.listener));
    for gone in [&mut held, &mut silent] {
        assert_eq!(gone.read(&mut [0]).expect("the end"), 0);
    }
    assert!(!is_over(&mut told_of));
    assert_eq!(words(&server.told()), [1]);
    assert!(server.streams.silent.is_empty());
}
