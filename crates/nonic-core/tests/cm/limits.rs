//! Every table of the connection manager has a limit.

use crate::cm::bench::*;
use nonic_core::cm::{AcceptParams, CmConfig, CmError, ConnectParams, RejectParams};
use nonic_core::{Psn, Qpn};
use nonic_wire::cm::{Message, RejectReason, ServiceId};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

#[test]
fn private_data_has_room_for_so_much_and_no_more() {
    let too_long = |given, room| Err(CmError::TooLong { given, room });
    let bytes = [1; 256];
    let mut pair = Pair::new();
    let now = pair.client.now;
    let params = |length: usize| ConnectParams {
        private_data: &bytes[..length],
        ..params(CLIENT, SERVER, 0x111)
    };
    assert_eq!(
        pair.client.cm.connect(now, &params(57)).map(|_| ()),
        too_long(57, 56)
    );
    let ours = pair.client.cm.connect(now, &params(56)).unwrap();
    let req = pair.client.sent_one();
    pair.server.receive(&req);
    let theirs = pair.server.request().connection;
    let accept = |length: usize| AcceptParams {
        private_data: &bytes[..length],
        ..AcceptParams::new(Qpn::new(0x222), Psn::new(0))
    };
    let reject = |length: usize, info: usize| RejectParams {
        info: &bytes[..info],
        private_data: &bytes[..length],
        ..RejectParams::default()
    };
    assert_eq!(
        pair.server.cm.reject(now, theirs, &reject(149, 0)),
        too_long(149, 148)
    );
    assert_eq!(
        pair.server.cm.reject(now, theirs, &reject(0, 73)),
        too_long(73, 72)
    );
    assert_eq!(
        pair.server.cm.accept(now, theirs, &accept(197)),
        too_long(197, 196)
    );
    pair.server.silent();
    pair.server.cm.accept(now, theirs, &accept(196)).unwrap();
    let rep = pair.server.sent_one();
    pair.client.receive(&rep);
    pair.client.events();
    assert_eq!(
        pair.client.cm.establish(now, ours, &bytes[..225]),
        too_long(225, 224)
    );
    pair.client.cm.establish(now, ours, &bytes[..224]).unwrap();
    pair.client.sent();
    assert_eq!(
        pair.client.cm.disconnect(now, ours, &bytes[..221]),
        too_long(221, 220)
    );
    pair.client.cm.disconnect(now, ours, &bytes[..220]).unwrap();
}

#[test]
fn private_data_without_an_address_has_all_the_room() {
    let bytes = [1; 92];
    let mut client = Side::new(CLIENT, 1);
    let params = ConnectParams {
        ip: None,
        service_id: ServiceId(0x1234_5678_9abc_def0),
        private_data: &bytes,
        ..params(CLIENT, SERVER, 0x111)
    };
    client.cm.connect(client.now, &params).unwrap();
    let req = client.sent_one();
    let mut server = Side::new(SERVER, 2);
    server.cm.listen(params.service_id, None, 1).unwrap();
    server.receive(&req);
    assert_eq!(server.request().private_data, bytes);
}

#[test]
fn a_full_backlog_drops_requests_until_the_program_answers() {
    let mut server = Side::new(SERVER, 2);
    server.cm.listen(SERVICE, None, 2).unwrap();
    let mut client = Side::new(CLIENT, 1);
    for qpn in 0x100..0x103 {
        client.connect_with(SERVER, qpn, b"");
    }
    let requests = client.sent();
    requests.iter().for_each(|req| server.receive(req));
    let events = server.events();
    assert_eq!((events.len(), server.sent().len()), (2, 0));
    assert_eq!(server.cm.counters().backlog_full, 1);
    // An answer makes room, and the third asks again.
    server.accept(events[0].connection());
    server.sent();
    server.receive(&requests[2]);
    server.request();
    assert_eq!(server.cm.usage().pending, 2);
}

#[test]
fn a_full_table_is_a_reason_to_refuse_and_an_error() {
    let small = CmConfig {
        max_connections: 1,
        ..config()
    };
    let mut server = Side::with(SERVER, 2, small);
    server.listen();
    let mut client = Side::new(CLIENT, 1);
    client.connect_with(SERVER, 0x100, b"");
    client.connect_with(SERVER, 0x101, b"");
    for req in client.sent() {
        server.receive(&req);
    }
    assert_eq!(
        expect_message!(server.sent_one(), Rej).reason,
        RejectReason::NO_RESOURCES
    );
    let refused = server.cm.connect(server.now, &params(SERVER, CLIENT, 0x222));
    assert_eq!(refused, Err(CmError::Limit));
}

#[test]
fn last_words_are_remembered_only_so_many_at_a_time() {
    let forgetful = CmConfig {
        max_lingering: 4,
        ..config()
    };
    let mut server = Side::with(SERVER, 2, forgetful);
    server.listen();
    let mut client = Side::new(CLIENT, 1);
    for qpn in 0x100..0x120 {
        client.connect_with(SERVER, qpn, b"");
        let req = client.sent_one();
        server.receive(&req);
        let id = server.request().connection;
        server.reject(id);
    }
    let usage = server.cm.usage();
    assert_eq!((usage.connections, usage.lingering, usage.remote_ids), (4, 4, 4));
}

#[test]
fn answers_pile_up_only_so_far() {
    let small = CmConfig {
        max_queued_answers: 3,
        ..config()
    };
    let mut server = Side::with(SERVER, 2, small);
    let mut client = Side::new(CLIENT, 1);
    client.connect(SERVER);
    let req = client.sent_one();
    for _ in 0..10 {
        server.receive(&req);
    }
    assert_eq!(server.sent().len(), 3);
    assert_eq!(server.cm.counters().dropped, 7);
}

#[test]
fn events_pile_up_only_so_far() {
    let small = CmConfig {
        max_queued_events: 4,
        ..config()
    };
    let mut server = Side::with(SERVER, 2, small);
    server.listen();
    let mut client = Side::new(CLIENT, 1);
    for qpn in 0x100..0x180 {
        // Asked and withdrawn: the backlog is never full.
        let id = client.connect_with(SERVER, qpn, b"");
        client.cm.abandon(client.now, id).unwrap();
        for sent in client.sent() {
            server.receive(&sent);
        }
    }
    assert!(server.events().len() <= 5);
}

#[test]
fn a_service_has_one_listener_per_address() {
    let mut cm = Side::new(SERVER, 1).cm;
    let v4 = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let v6 = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let first = cm.listen(SERVICE, Some(SERVER), 1).unwrap();
    assert_eq!(cm.listen(SERVICE, Some(SERVER), 1), Err(CmError::InUse));
    assert_eq!(cm.listen(SERVICE, Some(v4), 1), Err(CmError::InUse));
    assert_eq!(cm.listen(SERVICE, None, 1), Err(CmError::InUse));
    cm.listen(SERVICE, Some(CLIENT), 1).unwrap();
    cm.listen(SERVICE, Some(v6), 1).unwrap();
    cm.listen(ServiceId(1), None, 1).unwrap();
    assert!(cm.unlisten(first));
    assert!(!cm.unlisten(first));
    cm.listen(SERVICE, Some(SERVER), 1).unwrap();
}

#[test]
fn listening_at_one_address_is_not_listening_at_another() {
    let mut server = Side::new(SERVER, 2);
    server
        .cm
        .listen(SERVICE, Some(IpAddr::from([10, 0, 0, 9])), 1)
        .unwrap();
    let mut client = Side::new(CLIENT, 1);
    client.connect(SERVER);
    let req = client.sent_one();
    server.receive(&req);
    assert_eq!(
        expect_message!(server.sent_one(), Rej).reason,
        RejectReason::INVALID_SERVICE_ID
    );
}

#[test]
fn identifiers_carry_their_block() {
    let blocked = CmConfig {
        id_block: Some(0xabc),
        ..config()
    };
    let mut client = Side::with(CLIENT, 1, blocked);
    let ids: Vec<u32> = (0x100..0x180)
        .map(|qpn| client.connect_with(SERVER, qpn, b"").0)
        .collect();
    assert!(ids.iter().all(|id| id >> 20 == 0xabc));
    let distinct: std::collections::BTreeSet<&u32> = ids.iter().collect();
    assert_eq!(distinct.len(), ids.len());
}

#[test]
fn what_is_no_message_is_counted_and_dropped() {
    let mut server = Side::new(SERVER, 2);
    let route = nonic_core::cm::Route {
        local: SERVER,
        remote: CLIENT,
    };
    server.cm.handle_mad(server.now, route, &[0; 256]);
    server.cm.handle_mad(server.now, route, &[1; 7]);
    server.silent();
    assert_eq!(server.cm.counters().malformed, 2);
    server.receive_from(CLIENT, 1, Message::Drep(Default::default()));
    server.silent();
    assert_eq!(server.cm.counters().unknown, 1);
}
