//! Resolving datagram services.

use crate::cm::bench::*;
use nonic_core::Qpn;
use nonic_core::cm::{AnswerParams, CmEvent, ConnectionId, ResolveParams, Route, SidrRequest};
use nonic_wire::cm::{IpHeader, Message, PortSpace, ServiceId, SidrStatus};
use std::time::Duration;

const DATAGRAMS: ServiceId = ServiceId::from_port(PortSpace::Udp, 7001);

fn resolve(client: &mut Side) -> ConnectionId {
    let params = ResolveParams {
        route: Route {
            local: CLIENT,
            remote: SERVER,
        },
        service_id: DATAGRAMS,
        ip: Some(IpHeader {
            source_port: 1,
            source: CLIENT,
            destination: SERVER,
        }),
        private_data: b"who",
    };
    client.cm.resolve(client.now, &params).unwrap()
}

fn answer() -> AnswerParams<'static> {
    AnswerParams {
        status: SidrStatus::VALID,
        qpn: Qpn::new(0x75),
        qkey: 0x0123_4567,
        info: b"",
        private_data: b"me",
    }
}

/// A server that has the question, the question's name on both sides, and the question.
fn asked() -> (Side, Side, ConnectionId, SidrRequest, Sent) {
    let mut client = Side::new(CLIENT, 1);
    let mut server = Side::new(SERVER, 2);
    server.cm.listen(DATAGRAMS, None, 8).unwrap();
    let ours = resolve(&mut client);
    let req = client.sent_one();
    server.receive(&req);
    let CmEvent::SidrRequest(request) = server.event() else {
        panic!("not a question");
    };
    (client, server, ours, *request, req)
}

#[test]
fn a_service_is_asked_for_and_answered() {
    let (mut client, mut server, ours, request, _) = asked();
    assert_eq!(request.service_id, DATAGRAMS);
    assert!(request.private_data.starts_with(b"who\0") && request.private_data.len() == 180);
    server
        .cm
        .answer(server.now, request.connection, &answer())
        .unwrap();
    let rep = server.sent_one();
    client.receive(&rep);
    let CmEvent::SidrResponse(response) = client.event() else {
        panic!("not an answer");
    };
    assert_eq!((response.connection, response.status), (ours, SidrStatus::VALID));
    assert_eq!((response.qpn, response.qkey), (Qpn::new(0x75), 0x0123_4567));
    assert!(response.private_data.starts_with(b"me\0"));
    client.expect_empty();
    server.pass(Duration::from_secs(1));
    server.expect_empty();
}

#[test]
fn a_repeated_question_reaches_the_program_once_and_gets_the_same_answer() {
    let (_, mut server, _, request, req) = asked();
    server.receive(&req);
    server.silent();
    server
        .cm
        .answer(server.now, request.connection, &answer())
        .unwrap();
    let rep = server.sent_one();
    server.receive(&req);
    assert_eq!(server.sent_one(), rep);
    assert_eq!(server.events(), []);
}

#[test]
fn nobody_listening_is_an_answer() {
    let mut client = Side::new(CLIENT, 1);
    let mut server = Side::new(SERVER, 2);
    resolve(&mut client);
    let req = client.sent_one();
    server.receive(&req);
    let rep = server.sent_one();
    server.expect_empty();
    client.receive(&rep);
    let CmEvent::SidrResponse(response) = client.event() else {
        panic!("not an answer");
    };
    assert_eq!(response.status, SidrStatus::UNSUPPORTED);
}

#[test]
fn no_answer_is_noticed() {
    let mut client = Side::new(CLIENT, 1);
    let id = resolve(&mut client);
    for _ in 0..4 {
        client.sent_one();
        client.pass(PATIENCE);
    }
    assert!(matches!(client.event(), CmEvent::Unreachable { connection, .. } if connection == id));
    client.silent();
    client.expect_empty();
}

#[test]
fn an_abandoned_question_is_refused() {
    let (_, mut server, _, request, _) = asked();
    server.cm.abandon(server.now, request.connection).unwrap();
    let rep = server.sent_one();
    assert_eq!(expect_message!(rep, SidrRep).status, SidrStatus::REJECT);
}

#[test]
fn an_answer_with_another_transaction_is_not_believed() {
    let (mut client, mut server, _, request, _) = asked();
    server
        .cm
        .answer(server.now, request.connection, &answer())
        .unwrap();
    let rep = server.sent_one();
    let message = Message::SidrRep(expect_message!(rep, SidrRep));
    client.receive_from(SERVER, rep.mad.transaction_id ^ 1, message);
    client.silent();
}
