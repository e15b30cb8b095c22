//! A connection manager under hostile peers and a careless program.
//!
//! The input is read as a script: messages (nonsense, made up, or fitting answers to what was sent), calls in and
//! out of turn, and time. Whatever it says:
//! - nothing panics, and every table keeps its limit;
//! - every connection is told to end at most once, and nothing is told after that;
//! - once the program has given everything up, nothing is left.

use arbitrary::{Arbitrary, Unstructured};
use nonic_core::cm::{
    AcceptParams, AnswerParams, Cm, CmConfig, CmEvent, CmUsage, ConnectParams, ConnectionId, ListenerId,
    RejectParams, ResolveParams, Route,
};
use nonic_core::{Psn, Qpn, SeededEntropy, Service, Time};
use nonic_wire::cm::{
    Apr, CmMad, Drep, Dreq, IpHeader, Message, Mra, PortSpace, Rej, RejectReason, Rep, Rtu, ServiceId,
    SidrRep, SidrReq, SidrStatus, Subject, gid_of,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// Runs the script in `bytes`, as far as a fuzzer's patience goes.
pub fn messages(bytes: &[u8]) {
    run(bytes, 400);
}

/// Runs at most `max_actions` steps of the script in `bytes`.
pub fn run(bytes: &[u8], max_actions: usize) {
    let mut world = World::new();
    let mut script = Unstructured::new(bytes);
    for _ in 0..max_actions {
        if script.is_empty() {
            break;
        }
        let Ok(action) = script.arbitrary::<Action>() else {
            break;
        };
        world.act(action);
        world.look();
    }
    world.finish();
}

const US: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

#[derive(Arbitrary, Debug)]
enum Action {
    Bytes(Box<[u8; 256]>),
    Request {
        peer: u8,
        id: u8,
        qpn: u8,
        port: u8,
        timeout: u8,
        retries: u8,
        odd: u8,
    },
    Ask {
        peer: u8,
        id: u8,
        port: u8,
    },
    /// A message that fits something we sent.
    Answer {
        sent: u8,
        kind: u8,
        id: u8,
        qpn: u8,
        detail: u8,
    },
    Listen {
        port: u8,
        backlog: u8,
    },
    Unlisten {
        which: u8,
    },
    Connect {
        peer: u8,
        port: u8,
        qpn: u8,
        extended: bool,
    },
    Resolve {
        peer: u8,
        port: u8,
    },
    Call {
        which: u8,
        call: u8,
        length: u8,
    },
    Time {
        ms: u16,
    },
    /// A peer's process ends, and its host says so.
    Gone {
        peer: u8,
        which: u8,
    },
}

struct World {
    cm: Cm,
    now: Time,
    /// Connections the program knows of, and whether they were disconnected.
    known: BTreeMap<ConnectionId, bool>,
    ended: BTreeSet<ConnectionId>,
    listeners: Vec<ListenerId>,
    sent: Vec<(Route, CmMad)>,
}

fn config() -> CmConfig {
    CmConfig {
        response_timeout: 10,
        packet_lifetime: 4,
        max_cm_retries: 2,
        service_timeout: 12,
        max_timeout: 16,
        timewait_min: Duration::from_millis(5),
        linger: Duration::from_millis(20),
        max_connections: 24,
        max_lingering: 6,
        max_listeners: 4,
        max_queued_answers: 32,
        max_queued_events: 16,
        ..CmConfig::default()
    }
}

fn peer(number: u8) -> IpAddr {
    // One of the peers is ourselves.
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1 + number % 3))
}

fn service(port: u8) -> ServiceId {
    match port % 4 {
        0 => ServiceId(u64::from(port)),
        1 => ServiceId::from_port(PortSpace::Udp, 1),
        other => ServiceId::from_port(PortSpace::Tcp, u16::from(other)),
    }
}

impl World {
    fn new() -> Self {
        World {
            cm: Cm::new(config(), Box::new(SeededEntropy::new(7))),
            now: Time::from_ns(1),
            known: BTreeMap::new(),
            ended: BTreeSet::new(),
            listeners: Vec::new(),
            sent: Vec::new(),
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Bytes(bytes) => self.arrive(peer(bytes[255]), &*bytes),
            Action::Request {
                peer: from,
                id,
                qpn,
                port,
                timeout,
                retries,
                odd,
            } => self.request(peer(from), [id, qpn, port, timeout, retries, odd]),
            Action::Ask { peer: from, id, port } => self.ask(peer(from), id, port),
            Action::Answer {
                sent,
                kind,
                id,
                qpn,
                detail,
            } => self.reply(sent, kind, id, qpn, detail),
            Action::Listen { port, backlog } => {
                let listened = self.cm.listen(service(port), None, usize::from(backlog % 4));
                self.listeners.extend(listened);
            }
            Action::Unlisten { which } => {
                if !self.listeners.is_empty() {
                    let index = usize::from(which) % self.listeners.len();
                    assert!(self.cm.unlisten(self.listeners.swap_remove(index)));
                }
            }
            Action::Connect {
                peer: to,
                port,
                qpn,
                extended,
            } => self.connect(peer(to), port, qpn, extended),
            Action::Resolve { peer: to, port } => self.resolve(peer(to), port),
            Action::Call { which, call, length } => self.call(which, call, length),
            Action::Time { ms } => {
                self.now = self.now + Duration::from_micros(u64::from(ms) * 100);
                self.cm.handle_timeout(self.now);
            }
            Action::Gone { peer: who, which } => {
                let is_its = |id: u32| id % 4 == u32::from(which % 4);
                self.cm.peer_gone(self.now, peer(who), is_its);
            }
        }
    }

    fn connect(&mut self, to: IpAddr, port: u8, qpn: u8, extended: bool) {
        let qpn = Qpn::new(2 + u32::from(qpn % 4));
        let params = ConnectParams {
            service: if extended { Service::Xrc } else { Service::Rc },
            ip: Some(header(US, to)),
            ..ConnectParams::new(route(to), service(port), qpn, Psn::new(1))
        };
        if let Ok(id) = self.cm.connect(self.now, &params) {
            self.meet(id);
        }
    }

    fn resolve(&mut self, to: IpAddr, port: u8) {
        let params = ResolveParams {
            route: route(to),
            service_id: service(port),
            ip: Some(header(US, to)),
            private_data: &[],
        };
        if let Ok(id) = self.cm.resolve(self.now, &params) {
            self.meet(id);
        }
    }

    fn ask(&mut self, from: IpAddr, id: u8, port: u8) {
        let mut req = SidrReq {
            request_id: u32::from(id % 8),
            service_id: service(port),
            ..SidrReq::default()
        };
        req.private_data.0[..IpHeader::LEN].copy_from_slice(&header(from, US).emit());
        self.say(from, u64::from(id), Message::SidrReq(req));
    }

    fn request(&mut self, from: IpAddr, [id, qpn, port, timeout, retries, odd]: [u8; 6]) {
        // A sensible request first, then what the script would rather have.
        let template = CmMad {
            transaction_id: u64::from(id),
            message: Message::Rtu(Rtu::default()),
        };
        let mut bytes = template.emit();
        bytes[17] = 0x10;
        let Ok(CmMad {
            message: Message::Req(mut req),
            ..
        }) = CmMad::parse(&bytes)
        else {
            unreachable!("any bytes of this kind are a request");
        };
        req.local_comm_id = u32::from(id % 8);
        req.service_id = service(port);
        req.local_qpn = Qpn::new(u32::from(qpn % 6) + u32::from(odd != 1));
        req.path_mtu = if odd == 2 { qpn } else { 3 };
        req.transport = if odd == 3 { qpn } else { 0 };
        req.primary.local_gid = gid_of(if odd == 4 { US } else { from });
        req.primary.local_ack_timeout = timeout & 31;
        req.local_cm_response_timeout = timeout & 31;
        req.max_cm_retries = retries & 15;
        if odd != 5 {
            req.private_data.0[..IpHeader::LEN].copy_from_slice(&header(from, US).emit());
        }
        self.say(from, u64::from(id), Message::Req(req));
    }

    /// An answer, fitting or not, to something we sent.
    fn reply(&mut self, sent: u8, kind: u8, id: u8, qpn: u8, detail: u8) {
        if self.sent.is_empty() {
            return;
        }
        let (route, mad) = self.sent[usize::from(sent) % self.sent.len()];
        let ours = sender_id(&mad.message);
        let theirs = match mad.message.receiver_id() {
            Some(told) if id < 224 => told,
            _ => u32::from(id % 8),
        };
        let subject =
            [Subject::Req, Subject::Rep, Subject::Other, Subject::Reserved][usize::from(detail % 4)];
        let qpn = Qpn::new(2 + u32::from(qpn % 4));
        let message = match kind % 10 {
            2 => {
                let ours = if detail & 128 == 0 { ours } else { 0 };
                Message::Rej(Rej::new(theirs, ours, subject, RejectReason(u16::from(detail))))
            }
            // What we said ourselves, thrown back.
            9 => mad.message,
            kind => answer(kind, theirs, ours, qpn, subject, detail),
        };
        self.say(route.remote, mad.transaction_id, message);
    }

    fn call(&mut self, which: u8, call: u8, length: u8) {
        let Some(id) = self
            .known
            .keys()
            .nth(usize::from(which) % self.known.len().max(1))
            .copied()
        else {
            return;
        };
        let data = vec![1; usize::from(length)];
        let qpn = Qpn::new(2 + u32::from(length % 4));
        let before = self.cm.state(id);
        let outcome = match call % 6 {
            0 => {
                let params = AcceptParams {
                    private_data: &data,
                    ..AcceptParams::new(qpn, Psn::new(1))
                };
                self.cm.accept(self.now, id, &params)
            }
            1 => {
                let params = RejectParams {
                    private_data: &data,
                    ..RejectParams::default()
                };
                let outcome = self.cm.reject(self.now, id, &params);
                outcome.inspect(|()| self.part(id))
            }
            2 => self.cm.establish(self.now, id, &data),
            3 => self.cm.disconnect(self.now, id, &data),
            4 => {
                let outcome = self.cm.abandon(self.now, id);
                outcome.inspect(|()| self.part(id))
            }
            _ => {
                let params = AnswerParams {
                    status: SidrStatus::VALID,
                    qpn,
                    qkey: 1,
                    info: &[],
                    private_data: &data,
                };
                let outcome = self.cm.answer(self.now, id, &params);
                outcome.inspect(|()| self.part(id))
            }
        };
        if outcome.is_err() {
            assert_eq!(self.cm.state(id), before, "a call that was refused did something");
        }
    }

    fn say(&mut self, from: IpAddr, transaction_id: u64, message: Message) {
        self.arrive(
            from,
            &CmMad {
                transaction_id,
                message,
            }
            .emit(),
        );
    }

    fn arrive(&mut self, from: IpAddr, bytes: &[u8]) {
        self.cm.handle_mad(self.now, route(from), bytes);
    }

    fn meet(&mut self, id: ConnectionId) {
        assert!(
            self.known.insert(id, false).is_none(),
            "an identifier was given twice"
        );
        self.ended.remove(&id);
    }

    fn part(&mut self, id: ConnectionId) {
        assert!(self.known.remove(&id).is_some(), "an end for what is not known");
        self.ended.insert(id);
    }

    /// Takes what is to be sent and told, and checks it.
    fn look(&mut self) {
        while let Some(transmit) = self.cm.poll_transmit() {
            let mad = CmMad::parse(&transmit.mad).expect("we send what we can read");
            if self.sent.len() >= 16 {
                self.sent.remove(0);
            }
            self.sent.push((transmit.route, mad));
        }
        while let Some(event) = self.cm.poll_event() {
            let id = event.connection();
            match event {
                CmEvent::Request(_) | CmEvent::SidrRequest(_) => self.meet(id),
                CmEvent::Rejected { .. } | CmEvent::Unreachable { .. } | CmEvent::SidrResponse(_) => {
                    self.part(id)
                }
                CmEvent::TimewaitExit { .. } => {
                    assert_eq!(
                        self.known.get(&id),
                        Some(&true),
                        "timewait without a disconnection"
                    );
                    self.part(id);
                }
                CmEvent::Disconnected { .. } => {
                    let told = self.known.insert(id, true);
                    assert_eq!(told, Some(false), "disconnected twice, or before anything else");
                }
                CmEvent::Response(_) | CmEvent::Established { .. } => {
                    assert_eq!(self.known.get(&id), Some(&false), "connected after the end");
                }
            }
        }
        let usage = self.cm.usage();
        let limits = config();
        assert!(usage.connections <= limits.max_connections, "{usage:?}");
        assert!(usage.lingering <= limits.max_lingering, "{usage:?}");
        assert!(
            usage.timers <= usage.connections && usage.remote_ids <= usage.connections,
            "{usage:?}"
        );
        assert!(
            usage.remote_qpns <= usage.connections && usage.pending <= usage.connections,
            "{usage:?}"
        );
        assert!(
            self.cm.poll_timeout().is_none_or(|at| at > self.now),
            "a timer that does not fire"
        );
        // Whatever is known to the program is known to the machine.
        for id in self.known.keys() {
            assert!(self.cm.state(*id).is_some(), "{id:?} vanished");
        }
    }

    fn finish(mut self) {
        for id in self.known.keys().copied().collect::<Vec<_>>() {
            self.cm.abandon(self.now, id).expect("everything can be given up");
            self.part(id);
        }
        for listener in std::mem::take(&mut self.listeners) {
            self.cm.unlisten(listener);
        }
        self.look();
        // A few dozen timeouts at most: retries, then timewait.
        for _ in 0..200 {
            let Some(at) = self.cm.poll_timeout() else {
                break;
            };
            self.now = at;
            self.cm.handle_timeout(self.now);
            self.look();
        }
        assert_eq!(self.cm.usage(), CmUsage::default());
    }
}

fn header(source: IpAddr, destination: IpAddr) -> IpHeader {
    IpHeader {
        source_port: 9,
        source,
        destination,
    }
}

fn route(remote: IpAddr) -> Route {
    Route { local: US, remote }
}

/// What the sender of a message calls its connection, or its question.
fn sender_id(message: &Message) -> u32 {
    match message {
        Message::Req(m) => m.local_comm_id,
        Message::Rep(m) => m.local_comm_id,
        Message::Rtu(m) => m.local_comm_id,
        Message::Dreq(m) => m.local_comm_id,
        Message::Drep(m) => m.local_comm_id,
        Message::Mra(m) => m.local_comm_id,
        Message::Rej(m) => m.local_comm_id,
        Message::SidrReq(m) => m.request_id,
        _ => 0,
    }
}

/// A message about the connection with these two identifiers.
fn answer(
    kind: u8,
    local_comm_id: u32,
    remote_comm_id: u32,
    qpn: Qpn,
    subject: Subject,
    detail: u8,
) -> Message {
    match kind {
        0 => Message::Rep(Rep {
            local_comm_id,
            remote_comm_id,
            local_qpn: qpn,
            local_eecn: qpn.value(),
            ..Rep::default()
        }),
        1 => Message::Rtu(Rtu {
            local_comm_id,
            remote_comm_id,
            ..Rtu::default()
        }),
        3 => Message::Mra(Mra {
            local_comm_id,
            remote_comm_id,
            subject,
            service_timeout: detail >> 3,
            ..Mra::default()
        }),
        4 | 5 => Message::Dreq(Dreq {
            local_comm_id,
            remote_comm_id,
            remote_qpn: qpn,
            ..Dreq::default()
        }),
        6 => Message::Drep(Drep {
            local_comm_id,
            remote_comm_id,
            ..Drep::default()
        }),
        7 => Message::SidrRep(SidrRep {
            request_id: remote_comm_id,
            status: SidrStatus(detail % 3),
            info_len: detail,
            qpn,
            service_id: ServiceId(1),
            qkey: 1,
            info: [0; 72],
            private_data: Default::default(),
        }),
        _ => Message::Apr(Apr {
            local_comm_id,
            remote_comm_id,
            info_len: detail,
            status: 0,
            info: [0; 72],
            private_data: Default::default(),
        }),
    }
}
