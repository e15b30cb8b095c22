//! How long a connection is tried where the peer has no listener. The sockets are real, the time is what the test says.

mod backlog;

use super::Streams;
use super::connection::Phase;
use crate::config::UNSERVED_GRACE;
use crate::os::poller::Poller;
use nonic_core::cm::{CmEvent, ConnectParams, Route};
use nonic_core::iwarp::startup::StartupConfig;
use nonic_core::{KeyTable, Nic, NicConfig, Psn, Qpn, SeededEntropy, Time};
use nonic_wire::cm::{RejectReason, ServiceId};
use socket2::{Domain, Socket, Type};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const START: Time = Time::from_ns(1_000_000_000);
/// What the kernel may take to answer.
const SOON: Duration = Duration::from_secs(20);

/// A port that is taken, so that no other process can come to listen there.
struct Port {
    socket: Socket,
    number: u16,
}

impl Port {
    fn taken() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.bind(&SocketAddr::new(LOCAL, 0).into()).expect("a port");
        let bound = socket.local_addr().expect("bound").as_socket();
        let number = bound.expect("an IP address").port();
        Port { socket, number }
    }

    fn listen(&self) {
        self.socket.listen(1).expect("the port is ours");
        self.socket.set_read_timeout(Some(SOON)).expect("a limit");
    }
}

struct Client {
    streams: Streams,
    poller: Poller,
    nic: Nic,
}

impl Client {
    /// A client that begins to connect at [`START`].
    fn asking(port: &Port, patience: Option<Duration>) -> Self {
        let poller = Poller::new().expect("a poller");
        let streams = Streams::new(vec![LOCAL.into()], StartupConfig::default(), &poller, None);
        let entropy = Box::new(SeededEntropy::new(1));
        let mut client = Client {
            streams: streams.expect("descriptors"),
            poller,
            nic: Nic::new(NicConfig::default(), Arc::new(KeyTable::new()), entropy),
        };
        let route = Route {
            local: LOCAL,
            remote: LOCAL,
        };
        let service = ServiceId(port.number.into());
        let params = ConnectParams {
            patience,
            ..ConnectParams::new(route, service, Qpn::new(5), Psn::new(0))
        };
        client.streams.connect(START, &params).expect("asked");
        client
    }

    /// Waits for the kernel's answer. The refusal, if the program gets one.
    fn hear(&mut self, now: Time) -> Option<RejectReason> {
        let started = Instant::now();
        let asking = |streams: &Streams| {
            let mut connections = streams.connections.iter();
            connections.any(|(_, connection)| matches!(connection.phase, Phase::Connecting(_)))
        };
        while asking(&self.streams) {
            assert!(started.elapsed() < SOON, "no answer");
            self.poller.wait(Some(SOON)).expect("descriptors");
            self.streams.receive(now, &mut self.nic);
        }
        match self.streams.poll_event() {
            Some(CmEvent::Rejected { reason, .. }) => Some(reason),
            Some(other) => panic!("{other:?}"),
            None => None,
        }
    }

    /// Asks in vain until the program learns of it; after how long that is.
    fn told_after(&mut self) -> Duration {
        let mut now = START;
        loop {
            if let Some(reason) = self.hear(now) {
                assert_eq!(reason, RejectReason::INVALID_SERVICE_ID);
                return now.since(START);
            }
            assert!(now.since(START) < SOON, "it never ends");
            now = self.streams.next_timeout().expect("it is asked again");
            self.streams.handle_timeout(now, &mut self.nic);
        }
    }
}

#[test]
fn a_port_that_comes_to_be_listened_on_within_a_second_is_reached() {
    let port = Port::taken();
    let mut client = Client::asking(&port, None);
    assert_eq!(client.hear(START), None);
    let almost = START + (UNSERVED_GRACE - Duration::from_millis(1));
    client.streams.handle_timeout(almost, &mut client.nic);
    assert_eq!(client.hear(almost), None, "nobody listens yet");
    port.listen();
    let later = almost + Duration::from_millis(20);
    client.streams.handle_timeout(later, &mut client.nic);
    port.socket.accept().expect("it has come");
    assert_eq!(client.hear(later), None);
}

#[test]
fn where_nobody_ever_listens_the_program_is_told_within_a_second() {
    let told = Client::asking(&Port::taken(), None).told_after();
    assert!(UNSERVED_GRACE < Duration::from_secs(1));
    assert!(
        (UNSERVED_GRACE..UNSERVED_GRACE + Duration::from_millis(50)).contains(&told),
        "{told:?}"
    );
}

#[test]
fn a_program_with_less_patience_is_told_earlier() {
    let patience = Duration::from_millis(200);
    let told = Client::asking(&Port::taken(), Some(patience)).told_after();
    assert!(
        (patience..patience + Duration::from_millis(50)).contains(&told),
        "{told:?}"
    );
}
