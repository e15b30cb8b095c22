//! Two connection managers and a test that carries their messages.

use nonic_core::cm::{
    AcceptParams, Cm, CmConfig, CmEvent, CmState, ConnectParams, ConnectRequest, ConnectionId, ListenerId,
    RejectParams, Route,
};
use nonic_core::{ManagementDatagram, Psn, Qpn, SeededEntropy, Time};
use nonic_wire::cm::{CmMad, IpHeader, Message, PortSpace, ServiceId};
use std::net::IpAddr;
use std::time::Duration;

pub(crate) const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
pub(crate) const SERVER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
pub(crate) const SERVICE: ServiceId = ServiceId::from_port(PortSpace::Tcp, 7000);

/// One wait for an answer with [`config`]: 4.096 µs × 2^10, and twice 4.096 µs × 2^5 for the way.
pub(crate) const PATIENCE: Duration = Duration::from_nanos((4096 << 10) + 2 * (4096 << 5));

/// Short times, few attempts.
pub(crate) fn config() -> CmConfig {
    CmConfig {
        ca_guid: 0x0200_00ff_fe00_0001,
        response_timeout: 10,
        packet_lifetime: 5,
        service_timeout: 14,
        max_cm_retries: 3,
        early_repeats: 0,
        timewait_min: Duration::from_millis(20),
        linger: Duration::from_millis(50),
        ..CmConfig::default()
    }
}

/// One side: a machine, its address, and what it was asked for.
pub(crate) struct Side {
    pub(crate) cm: Cm,
    pub(crate) ip: IpAddr,
    pub(crate) now: Time,
}

impl Side {
    pub(crate) fn new(ip: IpAddr, seed: u64) -> Self {
        Self::with(ip, seed, config())
    }

    pub(crate) fn with(ip: IpAddr, seed: u64, config: CmConfig) -> Self {
        Side {
            cm: Cm::new(config, Box::new(SeededEntropy::new(seed))),
            ip,
            now: Time::from_ns(1_000),
        }
    }

    pub(crate) fn listen(&mut self) -> ListenerId {
        self.cm.listen(SERVICE, None, 8).expect("nobody listens yet")
    }

    /// Everything it wants to send, parsed.
    pub(crate) fn sent(&mut self) -> Vec<Sent> {
        std::iter::from_fn(|| self.cm.poll_transmit())
            .map(|transmit| Sent {
                mad: CmMad::parse(&transmit.mad).expect("we send what we can read"),
                transmit,
            })
            .collect()
    }

    /// The one message it wants to send.
    #[track_caller]
    pub(crate) fn sent_one(&mut self) -> Sent {
        let sent = self.sent();
        assert_eq!(sent.len(), 1, "{sent:?}");
        sent.into_iter().next().expect("counted")
    }

    pub(crate) fn events(&mut self) -> Vec<CmEvent> {
        std::iter::from_fn(|| self.cm.poll_event()).collect()
    }

    #[track_caller]
    pub(crate) fn event(&mut self) -> CmEvent {
        let events = self.events();
        assert_eq!(events.len(), 1, "{events:?}");
        events.into_iter().next().expect("counted")
    }

    #[track_caller]
    pub(crate) fn silent(&mut self) {
        assert_eq!(self.sent(), []);
        assert_eq!(self.events(), []);
    }

    pub(crate) fn receive(&mut self, sent: &Sent) {
        let route = Route {
            local: sent.transmit.route.remote,
            remote: sent.transmit.route.local,
        };
        self.cm.handle_mad(self.now, route, &sent.transmit.mad);
    }

    /// A message written by hand.
    pub(crate) fn receive_from(&mut self, from: IpAddr, transaction_id: u64, message: Message) {
        let route = Route {
            local: self.ip,
            remote: from,
        };
        let mad = CmMad {
            transaction_id,
            message,
        };
        self.cm.handle_mad(self.now, route, &mad.emit());
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.cm.handle_timeout(self.now);
    }

    pub(crate) fn connect(&mut self, to: IpAddr) -> ConnectionId {
        self.connect_with(to, 0x111, b"hello")
    }

    pub(crate) fn connect_with(&mut self, to: IpAddr, qpn: u32, private_data: &[u8]) -> ConnectionId {
        let params = ConnectParams {
            private_data,
            ..params(self.ip, to, qpn)
        };
        self.cm.connect(self.now, &params).expect("there is room")
    }

    pub(crate) fn connect_within(&mut self, to: IpAddr, patience: Duration) -> ConnectionId {
        let params = ConnectParams {
            patience: Some(patience),
            ..params(self.ip, to, 0x111)
        };
        self.cm.connect(self.now, &params).expect("there is room")
    }

    pub(crate) fn accept(&mut self, id: ConnectionId) {
        let params = AcceptParams {
            private_data: b"welcome",
            ..AcceptParams::new(Qpn::new(0x222), Psn::new(0x2222))
        };
        self.cm.accept(self.now, id, &params).expect("it waits for us");
    }

    pub(crate) fn reject(&mut self, id: ConnectionId) {
        let params = RejectParams {
            private_data: b"sorry",
            ..RejectParams::default()
        };
        self.cm.reject(self.now, id, &params).expect("it waits for us");
    }

    pub(crate) fn establish(&mut self, id: ConnectionId) {
        self.cm.establish(self.now, id, b"").expect("the peer accepted");
    }

    pub(crate) fn disconnect(&mut self, id: ConnectionId) {
        self.cm.disconnect(self.now, id, b"").expect("it is connected");
    }

    #[track_caller]
    pub(crate) fn expect_state(&self, id: ConnectionId, state: CmState) {
        assert_eq!(self.cm.state(id), Some(state));
    }

    /// Nothing is left but listeners.
    #[track_caller]
    pub(crate) fn expect_empty(&self) {
        let usage = self.cm.usage();
        let expected = nonic_core::cm::CmUsage {
            listeners: usage.listeners,
            ..Default::default()
        };
        assert_eq!(usage, expected);
    }

    #[track_caller]
    pub(crate) fn request(&mut self) -> ConnectRequest {
        match self.event() {
            CmEvent::Request(request) => *request,
            other => panic!("not a request: {other:?}"),
        }
    }
}

/// What a program that connects by address would say.
pub(crate) fn params(from: IpAddr, to: IpAddr, qpn: u32) -> ConnectParams<'static> {
    let route = Route {
        local: from,
        remote: to,
    };
    ConnectParams {
        ip: Some(IpHeader {
            source_port: 40_000,
            source: from,
            destination: to,
        }),
        ..ConnectParams::new(route, SERVICE, Qpn::new(qpn), Psn::new(0x1111))
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sent {
    pub(crate) transmit: ManagementDatagram,
    pub(crate) mad: CmMad,
}

/// Two sides, the second of which listens.
pub(crate) struct Pair {
    pub(crate) client: Side,
    pub(crate) server: Side,
}

impl Pair {
    pub(crate) fn new() -> Self {
        let mut server = Side::new(SERVER, 2);
        server.listen();
        Pair {
            client: Side::new(CLIENT, 1),
            server,
        }
    }

    /// REQ has arrived; the server's program has it. Answers both names.
    pub(crate) fn requested() -> (Self, ConnectionId, ConnectionId) {
        let mut pair = Pair::new();
        let ours = pair.client.connect(SERVER);
        let req = pair.client.sent_one();
        pair.server.receive(&req);
        let theirs = pair.server.request().connection;
        (pair, ours, theirs)
    }

    /// REP is on its way.
    pub(crate) fn accepted() -> (Self, ConnectionId, ConnectionId, Sent) {
        let (mut pair, ours, theirs) = Pair::requested();
        pair.server.accept(theirs);
        let rep = pair.server.sent_one();
        (pair, ours, theirs, rep)
    }

    /// Both sides are established.
    pub(crate) fn established() -> (Self, ConnectionId, ConnectionId) {
        let (mut pair, ours, theirs, rep) = Pair::accepted();
        pair.client.receive(&rep);
        pair.client.events();
        pair.client.establish(ours);
        let rtu = pair.client.sent_one();
        pair.server.receive(&rtu);
        pair.server.events();
        pair.client.expect_state(ours, CmState::Established);
        pair.server.expect_state(theirs, CmState::Established);
        (pair, ours, theirs)
    }
}

macro_rules! expect_message {
    ($sent:expr, $kind:ident) => {
        match $sent.mad.message {
            nonic_wire::cm::Message::$kind(message) => message,
            other => panic!("not a {}: {other:?}", stringify!($kind)),
        }
    };
}
pub(crate) use expect_message;
