//! Peers that are gone, while their hosts still answer for them.

use crate::cm::bench::*;
use nonic_core::cm::{CmConfig, CmEvent, CmState, ConnectionId, Disconnect, ResolveParams, Route};
use nonic_wire::cm::{Message, RejectReason};
use std::time::Duration;

const MOMENT: Duration = Duration::from_millis(10);
/// Within which a host that refuses messages must have been given up.
const GIVEN_UP: Duration = Duration::from_millis(900);
/// Before which it must not: a program that will listen may be about to start.
const NOT_YET: Duration = Duration::from_millis(650);

/// Waits as long as Linux does for an answer.
fn patient() -> CmConfig {
    CmConfig {
        response_timeout: 20,
        packet_lifetime: 14,
        max_cm_retries: 15,
        ..config()
    }
}

fn client() -> Side {
    Side::with(CLIENT, 1, patient())
}

/// Lets time pass until something is told, with every message refused if `all_refused` and else only the first.
/// Answers what is told, how long it took, and how many messages were sent.
fn refused(side: &mut Side, all_refused: bool) -> (CmEvent, Duration, usize) {
    let begun = side.now;
    let mut messages = 0;
    for _ in 0..100_000 {
        for _ in side.sent() {
            messages += 1;
            if all_refused || messages == 1 {
                side.cm.unreachable(side.now, SERVER);
            }
        }
        if let Some(event) = side.events().into_iter().next() {
            return (event, side.now.since(begun), messages);
        }
        side.pass(MOMENT);
    }
    panic!("never told");
}

#[test]
fn a_request_that_a_host_refuses_ends_soon_but_not_at_once() {
    for all_refused in [true, false] {
        let mut client = client();
        let id = client.connect(SERVER);
        let (event, elapsed, messages) = refused(&mut client, all_refused);
        // A single refusal may have been a moment in which no process had the port, or forged.
        assert!(
            matches!(event, CmEvent::Unreachable { connection, refused, .. } if connection == id && refused == all_refused),
            "{event:?}"
        );
        assert!(elapsed >= NOT_YET && elapsed < GIVEN_UP, "{elapsed:?}");
        assert_eq!(
            messages,
            1 + 14 + 1,
            "the request, fourteen times again, and its withdrawal"
        );
        client.sent();
        client.expect_empty();
    }
}

#[test]
fn a_question_for_a_datagram_service_that_a_host_refuses_ends_as_soon() {
    let mut client = client();
    let resolve = ResolveParams {
        route: Route {
            local: CLIENT,
            remote: SERVER,
        },
        service_id: SERVICE,
        ip: None,
        private_data: b"",
    };
    client.cm.resolve(client.now, &resolve).expect("there is room");
    let (event, elapsed, _) = refused(&mut client, true);
    assert!(
        matches!(event, CmEvent::Unreachable { refused: true, .. }),
        "{event:?}"
    );
    assert!(elapsed < GIVEN_UP, "{elapsed:?}");
    client.expect_empty();
}

#[test]
fn any_number_of_refusals_of_one_attempt_is_one_refusal() {
    let mut client = client();
    client.connect(SERVER);
    for _ in 0..100 {
        client.cm.unreachable(client.now, SERVER);
        client.pass(Duration::from_micros(100));
    }
    assert!(matches!(
        ended(&mut client),
        CmEvent::Unreachable { refused: false, .. }
    ));
}

#[test]
fn a_refusal_long_ago_does_not_make_the_next_one_the_second() {
    let mut client = client();
    client.cm.unreachable(client.now, SERVER);
    client.pass(patient().refused_memory);
    client.connect(SERVER);
    client.cm.unreachable(client.now, SERVER);
    assert!(matches!(
        ended(&mut client),
        CmEvent::Unreachable { refused: false, .. }
    ));
}

#[test]
fn a_host_that_said_something_since_has_not_refused() {
    let mut client = client();
    client.connect(SERVER);
    client.cm.unreachable(client.now, SERVER);
    client.pass(Duration::from_millis(60));
    client.cm.unreachable(client.now, SERVER);
    let mut server = Side::new(SERVER, 9);
    server.connect(CLIENT);
    client.receive(&server.sent_one());
    assert!(matches!(
        ended(&mut client),
        CmEvent::Unreachable { refused: false, .. }
    ));
}

/// Lets time pass, with nothing more from the network, until something is told.
fn ended(side: &mut Side) -> CmEvent {
    for _ in 0..100_000 {
        side.sent();
        if let Some(event) = side.events().into_iter().next() {
            return event;
        }
        side.pass(MOMENT);
    }
    panic!("never told");
}

#[test]
fn a_host_that_refused_lately_need_not_refuse_again() {
    let mut client = client();
    client.connect(SERVER);
    refused(&mut client, true);
    client.sent();
    client.connect(SERVER);
    let begun = client.now;
    let event = ended(&mut client);
    assert!(client.now.since(begun) < GIVEN_UP);
    // What it said twice when it was asked before holds for this request too.
    assert!(
        matches!(event, CmEvent::Unreachable { refused: true, .. }),
        "{event:?}"
    );
    // And is believed to be there again after a while, or when it says something.
    for says_something in [false, true] {
        let mut client = self::client();
        client.cm.unreachable(client.now, SERVER);
        if says_something {
            let mut server = Side::new(SERVER, 9);
            server.connect(CLIENT);
            client.receive(&server.sent_one());
        } else {
            client.pass(patient().refused_memory);
        }
        client.sent();
        client.connect(SERVER);
        client.sent();
        client.pass(Duration::from_secs(4));
        client.silent();
    }
}

#[test]
fn refusals_in_the_name_of_any_number_of_hosts_take_no_room() {
    let mut client = client();
    for host in 0..100_000_u32 {
        client
            .cm
            .unreachable(client.now, std::net::Ipv4Addr::from(host).into());
    }
    client.expect_empty();
}

#[test]
fn without_a_refusal_the_peer_has_all_its_time() {
    let mut client = client();
    client.connect(SERVER);
    client.sent();
    client.cm.unreachable(client.now, CLIENT);
    client.pass(Duration::from_secs(4));
    client.silent();
}

#[test]
fn a_port_that_is_taken_again_in_time_is_as_if_nothing_had_happened() {
    let mut client = client();
    let mut server = Side::with(SERVER, 2, patient());
    server.listen();
    let id = client.connect(SERVER);
    client.sent_one();
    client.cm.unreachable(client.now, SERVER);
    for _ in 0..8 {
        client.pass(Duration::from_millis(50));
        client.sent_one();
        client.cm.unreachable(client.now, SERVER);
    }
    client.pass(Duration::from_millis(50));
    let req = client.sent_one();
    server.receive(&req);
    let theirs = server.request().connection;
    // The program takes its time, for which the peer is asked when the request comes again.
    client.pass(Duration::from_millis(50));
    let req = client.sent_one();
    server.receive(&req);
    let mra = server.sent_one();
    client.receive(&mra);
    client.pass(Duration::from_secs(2));
    client.silent();
    client.expect_state(id, CmState::MraReqReceived);
    server.accept(theirs);
    let rep = server.sent_one();
    client.receive(&rep);
    assert!(matches!(client.event(), CmEvent::Response(_)));
}

/// Connections of a side to the server, established.
fn established(client: &mut Side, count: u32) -> Vec<ConnectionId> {
    let mut server = Side::with(SERVER, 2, patient());
    server
        .cm
        .listen(SERVICE, None, 1 << 20)
        .expect("nobody listens yet");
    let mut ids = Vec::new();
    for number in 0..count {
        let id = client.connect_with(SERVER, 0x1000 + number, b"");
        let req = client.sent_one();
        server.receive(&req);
        let theirs = server.request().connection;
        let params =
            nonic_core::cm::AcceptParams::new(nonic_core::Qpn::new(0x2000 + number), nonic_core::Psn::new(1));
        server.cm.accept(server.now, theirs, &params).expect("it waits");
        let rep = server.sent_one();
        client.receive(&rep);
        client.events();
        client.establish(id);
        client.sent();
        ids.push(id);
    }
    ids
}

#[test]
fn what_is_established_is_not_touched_by_a_refusal() {
    let mut client = client();
    let ids = established(&mut client, 2);
    for _ in 0..100 {
        client.cm.unreachable(client.now, SERVER);
        client.pass(MOMENT);
    }
    client.silent();
    client.expect_state(ids[0], CmState::Established);
    assert_eq!(client.cm.poll_timeout(), None);
}

#[test]
fn disconnecting_from_a_host_that_refuses_messages_ends_soon() {
    let mut client = client();
    let ids = established(&mut client, 1);
    client.disconnect(ids[0]);
    let (event, elapsed, _) = refused(&mut client, true);
    assert!(
        matches!(
            event,
            CmEvent::Disconnected {
                cause: Disconnect::TimedOut,
                ..
            }
        ),
        "{event:?}"
    );
    // No program that would answer is about to start.
    let half = NOT_YET / 2;
    assert!(elapsed >= half && elapsed < 2 * half, "{elapsed:?}");
    client.pass(Duration::from_secs(1));
    client.events();
    client.expect_empty();
}

#[test]
fn any_number_of_connections_to_a_host_that_refuses_messages_ends_as_soon() {
    let mut client = client();
    let ids = established(&mut client, 1000);
    for id in &ids {
        client.disconnect(*id);
    }
    let begun = client.now;
    let (mut told, mut messages) = (0, 0);
    while told < ids.len() {
        for _ in client.sent() {
            messages += 1;
            client.cm.unreachable(client.now, SERVER);
        }
        told += client
            .events()
            .iter()
            .filter(|event| matches!(event, CmEvent::Disconnected { .. }))
            .count();
        client.pass(MOMENT);
        assert!(client.now.since(begun) < GIVEN_UP, "{told} told");
    }
    assert!(messages <= 8 * ids.len(), "{messages}");
    client.pass(Duration::from_secs(10));
    client.events();
    client.sent();
    client.expect_empty();
}

#[test]
fn a_flood_of_refusals_neither_hurries_nor_delays() {
    let mut client = client();
    client.connect(SERVER);
    client.sent();
    let begun = client.now;
    let mut messages = 0;
    while client.events().is_empty() {
        for _ in 0..100 {
            client.cm.unreachable(client.now, SERVER);
        }
        messages += client.sent().len();
        client.pass(Duration::from_millis(1));
        assert!(client.now.since(begun) < GIVEN_UP);
    }
    assert!(client.now.since(begun) >= NOT_YET);
    assert_eq!(messages, 14);
}

/// What the connection manager of another process of a host answers to a message for one that has ended.
fn on_behalf_of_the_dead(message: Message) -> Vec<Message> {
    let config = CmConfig {
        id_block: Some(0x2),
        ..patient()
    };
    let mut other = Side::with(SERVER, 77, config);
    other.listen();
    other.receive_from(CLIENT, 4711, message);
    let sent = other.sent();
    assert!(sent.iter().all(|sent| sent.mad.transaction_id == 4711));
    other.silent();
    other.expect_empty();
    sent.into_iter().map(|sent| sent.mad.message).collect()
}

#[test]
fn a_process_answers_for_one_of_its_host_that_has_ended() {
    let config = CmConfig {
        id_block: Some(0x1),
        ..patient()
    };
    let mut server = Side::with(SERVER, 2, config);
    server.listen();
    let mut client = client();
    let ours = client.connect(SERVER);
    let req = client.sent_one();
    server.receive(&req);
    let theirs = server.request().connection;
    server.accept(theirs);
    let rep = server.sent_one();
    client.receive(&rep);
    client.events();
    client.establish(ours);
    let rtu = client.sent_one();
    client.disconnect(ours);
    let dreq = client.sent_one();
    // RTU: a peer that believes that it is connected learns that it is not.
    let answers = on_behalf_of_the_dead(rtu.mad.message);
    assert!(
        matches!(&answers[..], [Message::Rej(rej)] if rej.reason == RejectReason::INVALID_COMM_ID
            && rej.remote_comm_id == ours.0),
        "{answers:?}"
    );
    // DREQ: it is over.
    let answers = on_behalf_of_the_dead(dreq.mad.message);
    assert!(matches!(answers[..], [Message::Drep(_)]), "{answers:?}");
    client.receive_from(SERVER, dreq.mad.transaction_id, answers[0]);
    client.expect_state(ours, CmState::TimeWait);
    // Answers to requests of the dead process belong to no connection.
    let mut rep = expect_message!(rep, Rep);
    (rep.local_comm_id, rep.remote_comm_id) = (ours.0, theirs.0);
    let answers = on_behalf_of_the_dead(Message::Rep(rep));
    assert!(matches!(answers[..], [Message::Rej(_)]), "{answers:?}");
    let drep = expect_message!(
        {
            let mut pair = Pair::established();
            pair.0.client.disconnect(pair.1);
            let dreq = pair.0.client.sent_one();
            pair.0.server.receive(&dreq);
            pair.0.server.sent_one()
        },
        Drep
    );
    assert_eq!(on_behalf_of_the_dead(Message::Drep(drep)), []);
}
