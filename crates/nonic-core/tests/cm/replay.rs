//! Conversations recorded between two Linux hosts, with our machine in place of either.
//!
//! The machine is given the recorded host's numbers and its program's calls at the recorded places; every message
//! it sends must be the recorded one, byte for byte.

use nonic_core::cm::{
    AcceptParams, AnswerParams, Cm, CmConfig, CmEvent, CmState, ConnectParams, ConnectionId, ResolveParams,
    Route,
};
use nonic_core::{AckTimeout, Entropy, PathMtu, Qpn, Service, Time};
use nonic_wire::cm::{CmMad, IpHeader, Message, ServiceId};
use nonic_wire::{Packet, pcap};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

const CONNECTIONS: [&str; 5] = [
    "rxe_cm_rping",
    "rxe_cm_rping_ipv6",
    "rxe_cm_rping_mtu4096",
    "rxe_cm_rping_mtu_mixed",
    "rxe_cm_ucmatose",
];

#[test]
fn as_the_active_side_we_say_what_linux_said() {
    for name in CONNECTIONS {
        let mut replay = Replay::new(name, true);
        replay.run();
        assert_eq!(replay.told, ["Response", "Disconnected"], "{name}");
        replay.finish(["TimewaitExit"]);
    }
}

#[test]
fn as_the_passive_side_we_say_what_linux_said() {
    for name in CONNECTIONS {
        let mut replay = Replay::new(name, false);
        replay.run();
        assert_eq!(replay.told, ["Request", "Established", "Disconnected"], "{name}");
        replay.finish(["TimewaitExit"]);
    }
}

#[test]
fn a_refusal_for_want_of_a_listener_is_as_recorded() {
    let mut replay = Replay::new("rxe_cm_reject_nolistener", false);
    replay.run();
    assert_eq!(replay.told, [] as [&str; 0]);
    replay.finish([]);
    let mut replay = Replay::new("rxe_cm_reject_nolistener", true);
    replay.run();
    assert_eq!(replay.told, ["Rejected"]);
    replay.finish([]);
}

#[test]
fn a_datagram_service_is_resolved_as_recorded() {
    let mut replay = Replay::new("rxe_cm_udaddy_sidr", true);
    replay.run();
    assert_eq!(replay.told, ["SidrResponse"]);
    replay.finish([]);
    let mut replay = Replay::new("rxe_cm_udaddy_sidr", false);
    replay.run();
    assert_eq!(replay.told, ["SidrRequest"]);
    replay.finish([]);
}

/// Numbers that were drawn once.
struct Drawn(VecDeque<u32>);

impl Entropy for Drawn {
    fn next_u32(&mut self) -> u32 {
        self.0.pop_front().expect("no more was drawn in the recording")
    }
}

struct Recorded {
    at: Time,
    route: Route,
    mad: CmMad,
    bytes: Vec<u8>,
}

struct Replay {
    name: &'static str,
    recorded: Vec<Recorded>,
    us: IpAddr,
    cm: Cm,
    connection: Option<ConnectionId>,
    told: Vec<&'static str>,
    now: Time,
}

impl Replay {
    fn new(name: &'static str, active: bool) -> Self {
        let recorded = read(name);
        let first = &recorded[0];
        let us = if active {
            first.route.local
        } else {
            first.route.remote
        };
        let ours: Vec<&Recorded> = recorded.iter().filter(|r| r.route.local == us).collect();
        let mut config = CmConfig {
            response_timeout: 20,
            packet_lifetime: 18,
            ..CmConfig::default()
        };
        let mut drawn = VecDeque::new();
        for (index, mine) in ours.iter().enumerate() {
            let transaction = [
                (mine.mad.transaction_id >> 32) as u32,
                mine.mad.transaction_id as u32,
            ];
            match &mine.mad.message {
                Message::Req(req) => {
                    config.ca_guid = req.local_ca_guid;
                    drawn.push_back(req.local_comm_id);
                    drawn.extend(transaction);
                }
                Message::SidrReq(req) => {
                    drawn.push_back(req.request_id);
                    drawn.extend(transaction);
                }
                Message::Rep(rep) => {
                    config.ca_guid = rep.local_ca_guid;
                    drawn.push_back(rep.local_comm_id);
                }
                // Never seen on the wire.
                Message::SidrRep(_) => drawn.push_back(1),
                Message::Dreq(_) if !active && index > 0 => drawn.extend(transaction),
                _ => {}
            }
        }
        let mut cm = Cm::new(config, Box::new(Drawn(drawn)));
        let served = !recorded.iter().any(|r| matches!(r.mad.message, Message::Rej(_)));
        if let (false, true, Some(service)) = (active, served, first.mad.message.service_id()) {
            cm.listen(service, Some(us), 1).unwrap();
        }
        let now = first.at;
        Replay {
            name,
            recorded,
            us,
            cm,
            connection: None,
            told: Vec::new(),
            now,
        }
    }

    fn run(&mut self) {
        for recorded in std::mem::take(&mut self.recorded) {
            self.now = recorded.at;
            self.cm.handle_timeout(self.now);
            if recorded.route.local == self.us {
                self.call(&recorded);
                let sent = self.cm.poll_transmit().expect("something is sent, as recorded");
                assert_eq!(CmMad::parse(&sent.mad), Ok(recorded.mad), "{}", self.name);
                assert_eq!(sent.mad[..], recorded.bytes, "{}", self.name);
                assert_eq!(sent.route, recorded.route, "{}", self.name);
            } else {
                let route = Route {
                    local: recorded.route.remote,
                    remote: recorded.route.local,
                };
                self.cm.handle_mad(self.now, route, &recorded.bytes);
            }
            self.listen_to_events();
        }
        assert_eq!(self.cm.poll_transmit(), None, "{}", self.name);
    }

    fn listen_to_events(&mut self) {
        while let Some(event) = self.cm.poll_event() {
            self.connection = Some(event.connection());
            self.told.push(match event {
                CmEvent::Request(_) => "Request",
                CmEvent::Response(_) => "Response",
                CmEvent::Established { .. } => "Established",
                CmEvent::Rejected { .. } => "Rejected",
                CmEvent::Unreachable { .. } => "Unreachable",
                CmEvent::Disconnected { .. } => "Disconnected",
                CmEvent::TimewaitExit { .. } => "TimewaitExit",
                CmEvent::SidrRequest(_) => "SidrRequest",
                CmEvent::SidrResponse(_) => "SidrResponse",
            });
        }
    }

    /// What the program must have called for this message to be sent; nothing if the machine sends it by itself.
    fn call(&mut self, recorded: &Recorded) {
        let (now, route) = (self.now, recorded.route);
        let connection = self.connection.unwrap_or(ConnectionId(0));
        match &recorded.mad.message {
            Message::Req(req) => {
                let params = ConnectParams {
                    service: Service::Rc,
                    responder_resources: req.responder_resources,
                    initiator_depth: req.initiator_depth,
                    retry_count: req.retry_count,
                    rnr_retry_count: req.rnr_retry_count,
                    path_mtu: PathMtu::from_bytes(128 << req.path_mtu).unwrap(),
                    ack_timeout: AckTimeout::from_exponent(req.primary.local_ack_timeout).unwrap(),
                    flow_label: req.primary.flow_label,
                    traffic_class: req.primary.traffic_class,
                    ip: IpHeader::parse(&req.private_data.0).ok(),
                    private_data: &req.private_data.0[IpHeader::LEN..],
                    ..ConnectParams::new(route, req.service_id, req.local_qpn, req.starting_psn)
                };
                self.connection = Some(self.cm.connect(now, &params).unwrap());
            }
            Message::Rep(rep) => {
                let params = AcceptParams {
                    responder_resources: rep.responder_resources,
                    initiator_depth: rep.initiator_depth,
                    rnr_retry_count: rep.rnr_retry_count,
                    target_ack_delay: rep.target_ack_delay,
                    private_data: &rep.private_data.0,
                    ..AcceptParams::new(rep.local_qpn, rep.starting_psn)
                };
                self.cm.accept(now, connection, &params).unwrap();
            }
            Message::Rtu(rtu) => self.cm.establish(now, connection, &rtu.private_data.0).unwrap(),
            Message::Dreq(dreq) => self.cm.disconnect(now, connection, &dreq.private_data.0).unwrap(),
            Message::SidrReq(req) => {
                let params = ResolveParams {
                    route,
                    service_id: req.service_id,
                    ip: IpHeader::parse(&req.private_data.0).ok(),
                    private_data: &req.private_data.0[IpHeader::LEN..],
                };
                self.connection = Some(self.cm.resolve(now, &params).unwrap());
            }
            Message::SidrRep(rep) => {
                assert_eq!(rep.service_id, ServiceId(0x0111_1c06));
                let params = AnswerParams {
                    status: rep.status,
                    qpn: Qpn::new(0x75),
                    qkey: rep.qkey,
                    info: &[],
                    private_data: &rep.private_data.0,
                };
                self.cm.answer(now, connection, &params).unwrap();
            }
            Message::Drep(_) | Message::Rej(_) => {}
            other => panic!("{}: not in the recordings: {other:?}", self.name),
        }
    }

    /// After a while nothing is left.
    fn finish<const N: usize>(mut self, told: [&str; N]) {
        self.told.clear();
        if N > 0 {
            let id = self.connection.expect("there was one");
            assert_eq!(self.cm.state(id), Some(CmState::TimeWait));
        }
        self.cm.handle_timeout(self.now + Duration::from_secs(600));
        self.listen_to_events();
        assert_eq!(self.told, told, "{}", self.name);
        assert_eq!(self.cm.usage().connections, 0, "{}", self.name);
    }
}

/// The management datagrams of a capture.
fn read(name: &str) -> Vec<Recorded> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/data/captures")
        .join(format!("{name}.pcap"));
    let file = std::fs::read(path).expect("the captures are part of the repository");
    let reader = pcap::Reader::new(&file).expect("a classic pcap file");
    let mut recorded = Vec::new();
    for frame in reader {
        let frame = frame.expect("the capture is whole");
        let datagram = frame.datagram().expect("the capture holds UDP only");
        let packet = Packet::parse(datagram.payload).expect("nothing is damaged");
        if packet.headers.bth.dest_qp == Qpn::GSI {
            recorded.push(Recorded {
                at: Time::from_ns(frame.timestamp_ns),
                route: Route {
                    local: datagram.flow.src,
                    remote: datagram.flow.dst,
                },
                mad: CmMad::parse(packet.payload).expect("a message"),
                bytes: packet.payload.to_vec(),
            });
        }
    }
    assert!(recorded.len() >= 2, "{name}");
    recorded
}
