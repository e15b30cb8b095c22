//! How connections are established.

use crate::cm::bench::*;
use nonic_core::cm::{AcceptParams, CmError, CmEvent, CmState, ConnectParams};
use nonic_core::{PathMtu, Psn, Qpn, Service};

#[test]
fn a_request_reaches_the_program_with_all_it_needs() {
    let mut pair = Pair::new();
    let params = ConnectParams {
        responder_resources: 3,
        initiator_depth: 5,
        retry_count: 6,
        rnr_retry_count: 2,
        path_mtu: PathMtu::Mtu4096,
        private_data: b"hello",
        ..params(CLIENT, SERVER, 0x111)
    };
    pair.client.cm.connect(pair.client.now, &params).unwrap();
    let req = pair.client.sent_one();
    pair.server.receive(&req);
    let request = pair.server.request();
    assert_eq!(request.service_id, SERVICE);
    assert_eq!((request.route.local, request.route.remote), (SERVER, CLIENT));
    assert_eq!(request.ip, params.ip);
    assert_eq!(request.service, Service::Rc);
    assert_eq!(
        (request.remote_qpn, request.starting_psn),
        (Qpn::new(0x111), Psn::new(0x1111))
    );
    assert_eq!((request.retry_count, request.rnr_retry_count), (6, 2));
    assert_eq!(
        (request.path_mtu, request.ack_timeout),
        (PathMtu::Mtu4096, params.ack_timeout)
    );
    // What the peer can answer is what we may ask, and the other way round.
    assert_eq!((request.responder_resources, request.initiator_depth), (5, 3));
    assert_eq!(request.private_data[..6], *b"hello\0");
    assert_eq!(request.private_data.len(), 56);
}

#[test]
fn a_reply_reaches_the_program_with_all_it_needs() {
    let (mut pair, ours, theirs) = Pair::requested();
    let params = AcceptParams {
        responder_resources: 4,
        initiator_depth: 9,
        rnr_retry_count: 3,
        private_data: b"welcome",
        ..AcceptParams::new(Qpn::new(0x222), Psn::new(0x2222))
    };
    pair.server.cm.accept(pair.server.now, theirs, &params).unwrap();
    let rep = pair.server.sent_one();
    pair.client.receive(&rep);
    let CmEvent::Response(response) = pair.client.event() else {
        panic!("not a response");
    };
    assert_eq!(response.connection, ours);
    assert_eq!(
        (response.remote_qpn, response.starting_psn),
        (Qpn::new(0x222), Psn::new(0x2222))
    );
    assert_eq!((response.responder_resources, response.initiator_depth), (9, 4));
    assert_eq!(response.rnr_retry_count, 3);
    assert_eq!(response.private_data[..8], *b"welcome\0");
    pair.client.expect_state(ours, CmState::RepReceived);
    pair.server.expect_state(theirs, CmState::RepSent);
}

#[test]
fn ready_to_use_establishes_the_passive_side() {
    let (mut pair, ours, theirs, rep) = Pair::accepted();
    pair.client.receive(&rep);
    pair.client.events();
    pair.client.cm.establish(pair.client.now, ours, b"go").unwrap();
    let rtu = pair.client.sent_one();
    pair.server.receive(&rtu);
    let CmEvent::Established {
        connection,
        private_data,
    } = pair.server.event()
    else {
        panic!("not established");
    };
    assert_eq!((connection, &private_data[..3]), (theirs, &b"go\0"[..]));
    pair.client.silent();
    pair.server.silent();
    assert_eq!(pair.client.cm.poll_timeout(), None);
    assert_eq!(pair.server.cm.poll_timeout(), None);
}

#[test]
fn data_that_overtakes_the_last_message_establishes_too() {
    let (mut pair, ours, theirs, rep) = Pair::accepted();
    pair.server.establish(theirs);
    assert!(matches!(pair.server.event(), CmEvent::Established { connection, .. } if connection == theirs));
    // The message comes after all: nothing is told twice.
    pair.client.receive(&rep);
    pair.client.establish(ours);
    let rtu = pair.client.sent_one();
    pair.server.receive(&rtu);
    pair.server.silent();
}

#[test]
fn extended_connections_name_their_queue_pair_elsewhere() {
    let mut pair = Pair::new();
    let params = ConnectParams {
        service: Service::Xrc,
        ..params(CLIENT, SERVER, 0x111)
    };
    pair.client.cm.connect(pair.client.now, &params).unwrap();
    let req = pair.client.sent_one();
    let message = expect_message!(req, Req);
    assert_eq!((message.transport, message.extended_transport), (3, 1));
    pair.server.receive(&req);
    let request = pair.server.request();
    assert_eq!(request.service, Service::Xrc);
    pair.server.accept(request.connection);
    let rep = pair.server.sent_one();
    let message = expect_message!(rep, Rep);
    assert_eq!(
        (message.local_qpn, message.local_eecn, message.srq),
        (Qpn::new(0), 0x222, true)
    );
    pair.client.receive(&rep);
    let CmEvent::Response(response) = pair.client.event() else {
        panic!("not a response");
    };
    assert_eq!(response.remote_qpn, Qpn::new(0x222));
}

#[test]
fn datagram_queue_pairs_are_not_connected() {
    let mut client = Side::new(CLIENT, 1);
    let params = ConnectParams {
        service: Service::Ud,
        ..params(CLIENT, SERVER, 0x111)
    };
    assert_eq!(
        client.cm.connect(client.now, &params),
        Err(CmError::Service(Service::Ud))
    );
    client.expect_empty();
}

#[test]
fn calls_out_of_turn_are_refused_and_change_nothing() {
    let (mut pair, ours, theirs) = Pair::requested();
    let accept = AcceptParams::new(Qpn::new(1), Psn::new(1));
    assert_eq!(
        pair.client.cm.accept(pair.client.now, ours, &accept),
        Err(CmError::State(CmState::ReqSent))
    );
    assert_eq!(
        pair.server.cm.establish(pair.server.now, theirs, b""),
        Err(CmError::State(CmState::ReqReceived))
    );
    assert_eq!(
        pair.server.cm.disconnect(pair.server.now, theirs, b""),
        Err(CmError::State(CmState::ReqReceived))
    );
    let nobody = nonic_core::cm::ConnectionId(0);
    assert_eq!(
        pair.server.cm.disconnect(pair.server.now, nobody, b""),
        Err(CmError::NoSuchConnection)
    );
    pair.client.silent();
    pair.server.silent();
}

#[test]
fn two_programs_in_one_process_connect_through_one_manager() {
    let mut side = Side::new(CLIENT, 1);
    side.listen();
    let active = side.connect(CLIENT);
    let req = side.sent_one();
    side.receive(&req);
    let passive = side.request().connection;
    side.accept(passive);
    let rep = side.sent_one();
    side.receive(&rep);
    side.events();
    side.establish(active);
    let rtu = side.sent_one();
    side.receive(&rtu);
    side.events();
    side.disconnect(active);
    let dreq = side.sent_one();
    side.receive(&dreq);
    let drep = side.sent_one();
    side.receive(&drep);
    assert_eq!(side.events().len(), 2);
    side.pass(std::time::Duration::from_secs(1));
    assert_eq!(side.events().len(), 2);
    side.expect_empty();
}
