//! Requests and replies that are refused or ignored.

use crate::cm::bench::*;
use nonic_core::cm::{CmError, CmEvent, CmState, Disconnect, RejectParams};
use nonic_wire::cm::{Message, Rej, RejectReason, Req, ServiceId, Subject};
use std::net::IpAddr;
use std::time::Duration;

#[track_caller]
fn reason(event: &CmEvent) -> RejectReason {
    match event {
        CmEvent::Rejected { reason, .. } => *reason,
        other => panic!("not rejected: {other:?}"),
    }
}

/// What the server says to a request that `change` has been at.
fn refusal(change: impl Fn(&mut Req)) -> Option<RejectReason> {
    let mut pair = Pair::new();
    pair.client.connect(SERVER);
    let sent = pair.client.sent_one();
    let mut req = expect_message!(sent, Req);
    change(&mut req);
    pair.server
        .receive_from(CLIENT, sent.mad.transaction_id, Message::Req(req));
    let answers = pair.server.sent();
    if pair.server.cm.usage().connections > 0 {
        assert_eq!(answers, []);
        return None;
    }
    assert_eq!(pair.server.events(), []);
    let rej = expect_message!(answers[0], Rej);
    assert_eq!(
        (rej.local_comm_id, rej.remote_comm_id, rej.subject),
        (0, req.local_comm_id, Subject::Req)
    );
    Some(rej.reason)
}

#[test]
fn malformed_requests_are_refused_with_their_reason() {
    assert_eq!(refusal(|_| {}), None);
    let no_service = |req: &mut Req| req.service_id = ServiceId(SERVICE.0 + 1);
    assert_eq!(refusal(no_service), Some(RejectReason::INVALID_SERVICE_ID));
    let reliable_datagram = |req: &mut Req| req.transport = 2;
    assert_eq!(
        refusal(reliable_datagram),
        Some(RejectReason::INVALID_TRANSPORT_TYPE)
    );
    let unknown_extension = |req: &mut Req| (req.transport, req.extended_transport) = (3, 2);
    assert_eq!(
        refusal(unknown_extension),
        Some(RejectReason::INVALID_TRANSPORT_TYPE)
    );
    for mtu in [0, 6, 15] {
        assert_eq!(refusal(|req| req.path_mtu = mtu), Some(RejectReason::INVALID_MTU));
    }
    let elsewhere = |req: &mut Req| req.primary.local_gid = "fd00::1".parse().unwrap();
    assert_eq!(refusal(elsewhere), Some(RejectReason::INVALID_GID));
    let management = |req: &mut Req| req.local_qpn = nonic_core::Qpn::GSI;
    assert_eq!(refusal(management), Some(RejectReason::NO_QP));
    let no_header = |req: &mut Req| req.private_data.0[0] = 9;
    assert_eq!(refusal(no_header), Some(RejectReason::UNSUPPORTED));
    assert_eq!(
        refusal(|req| req.local_comm_id = 0),
        Some(RejectReason::INVALID_COMM_ID)
    );
}

#[test]
fn nobody_listening_is_a_reason() {
    let mut client = Side::new(CLIENT, 1);
    let mut server = Side::new(SERVER, 2);
    let id = client.connect(SERVER);
    let req = client.sent_one();
    server.receive(&req);
    let rej = server.sent_one();
    server.expect_empty();
    client.receive(&rej);
    let event = client.event();
    assert_eq!(
        (reason(&event), event.connection()),
        (RejectReason::INVALID_SERVICE_ID, id)
    );
    client.expect_empty();
}

/// A client that repeats its request where there is no listener, for twice as long as it waits before it does; and how
/// long it waits.
fn patient() -> (Side, Duration) {
    let pause = config().unserved_pause;
    let config = nonic_core::cm::CmConfig {
        unserved_grace: 2 * pause,
        ..config()
    };
    (Side::with(CLIENT, 1, config), pause)
}

/// The client asks, and is told that there is no listener.
fn ask_in_vain(client: &mut Side, server: &mut Side) {
    let req = client.sent_one();
    server.receive(&req);
    let rej = server.sent_one();
    client.receive(&rej);
}

#[test]
fn one_who_begins_to_listen_in_a_moment_is_asked_again() {
    let (mut client, pause) = patient();
    let mut server = Side::new(SERVER, 2);
    let id = client.connect(SERVER);
    let req = client.sent_one();
    server.receive(&req);
    let rej = server.sent_one();
    client.receive(&rej);
    client.silent();
    server.listen();
    client.pass(pause);
    let again = client.sent_one();
    assert_eq!(again, req);
    server.receive(&again);
    assert!(matches!(server.event(), CmEvent::Request(_)));
    client.expect_state(id, CmState::ReqSent);
}

#[test]
fn one_who_is_asked_again_has_as_long_to_answer_as_before() {
    // Most of the wait is over by then if it is counted from the refusal on.
    let pause = PATIENCE / 4 * 3;
    let config = nonic_core::cm::CmConfig {
        unserved_grace: 2 * pause,
        unserved_pause: pause,
        ..config()
    };
    let mut client = Side::with(CLIENT, 1, config);
    let mut server = Side::new(SERVER, 2);
    client.connect(SERVER);
    ask_in_vain(&mut client, &mut server);
    client.pass(pause);
    client.sent_one();
    assert_eq!(client.cm.poll_timeout(), Some(client.now + PATIENCE));
}

#[test]
fn one_who_never_listens_is_asked_for_as_long_as_configured() {
    let (mut client, pause) = patient();
    let mut server = Side::new(SERVER, 2);
    client.connect(SERVER);
    for _ in 0..2 {
        ask_in_vain(&mut client, &mut server);
        client.silent();
        client.pass(pause);
    }
    ask_in_vain(&mut client, &mut server);
    assert_eq!(reason(&client.event()), RejectReason::INVALID_SERVICE_ID);
    client.expect_empty();
}

#[test]
fn nobody_is_asked_for_longer_than_the_program_has_patience() {
    let (mut client, pause) = patient();
    let mut server = Side::new(SERVER, 2);
    client.connect_within(SERVER, pause);
    ask_in_vain(&mut client, &mut server);
    client.silent();
    client.pass(pause);
    ask_in_vain(&mut client, &mut server);
    assert_eq!(reason(&client.event()), RejectReason::INVALID_SERVICE_ID);
    client.expect_empty();
}

#[test]
fn a_rejection_carries_reason_information_and_private_data() {
    let (mut pair, ours, theirs) = Pair::requested();
    let params = RejectParams {
        reason: RejectReason::NO_QP,
        info: b"info",
        private_data: b"sorry",
    };
    pair.server.cm.reject(pair.server.now, theirs, &params).unwrap();
    let rej = pair.server.sent_one();
    pair.client.receive(&rej);
    let CmEvent::Rejected {
        connection,
        reason,
        info,
        private_data,
        ..
    } = pair.client.event()
    else {
        panic!("not rejected");
    };
    assert_eq!(
        (connection, reason, &info[..]),
        (ours, RejectReason::NO_QP, &b"info"[..])
    );
    assert!(private_data.starts_with(b"sorry\0") && private_data.len() == 148);
    pair.client.expect_empty();
}

#[test]
fn a_reply_can_be_rejected_and_the_passive_side_hears_of_it() {
    let (mut pair, ours, theirs, rep) = Pair::accepted();
    pair.client.receive(&rep);
    pair.client.events();
    pair.client.reject(ours);
    let rej = pair.client.sent_one();
    assert_eq!(expect_message!(rej, Rej).subject, Subject::Rep);
    pair.server.receive(&rej);
    let event = pair.server.event();
    assert_eq!(
        (reason(&event), event.connection()),
        (RejectReason::CONSUMER_DEFINED, theirs)
    );
    pair.client.pass(Duration::from_secs(9));
    pair.server.pass(Duration::from_secs(9));
    pair.client.expect_empty();
    pair.server.expect_empty();
}

#[test]
fn a_rejected_request_is_rejected_again_when_repeated_without_asking_the_program() {
    let (mut pair, _, theirs) = Pair::requested();
    pair.server.reject(theirs);
    let lost = pair.server.sent_one();
    pair.client.pass(PATIENCE);
    let again = pair.client.sent_one();
    pair.server.receive(&again);
    assert_eq!(pair.server.events(), []);
    assert_eq!(pair.server.sent_one(), lost);
    pair.server.pass(Duration::from_secs(1));
    pair.server.expect_empty();
}

#[test]
fn a_peer_that_was_asked_for_time_gets_its_rejection_however_late_it_asks_again() {
    let (mut pair, _, theirs) = Pair::requested();
    pair.client.pass(PATIENCE);
    let req = pair.client.sent_one();
    pair.server.receive(&req);
    let mra = pair.server.sent_one();
    pair.client.receive(&mra);
    pair.server.reject(theirs);
    let lost = pair.server.sent_one();
    // Longer than last words are remembered otherwise, but what was asked for.
    let asked_for = Duration::from_nanos(4096 << 14) + PATIENCE;
    assert!(asked_for > config().linger);
    pair.client.pass(asked_for);
    pair.server.pass(asked_for);
    let again = pair.client.sent_one();
    pair.server.receive(&again);
    assert_eq!(pair.server.events(), []);
    assert_eq!(pair.server.sent_one(), lost);
}

#[test]
fn a_withdrawn_request_is_taken_back_from_the_program() {
    let (mut pair, ours, theirs) = Pair::requested();
    pair.client.cm.abandon(pair.client.now, ours).unwrap();
    let rej = pair.client.sent_one();
    let message = expect_message!(rej, Rej);
    assert_eq!(
        (message.reason, message.remote_comm_id),
        (RejectReason::TIMEOUT, 0)
    );
    assert_eq!(message.info(), config().ca_guid.to_be_bytes());
    pair.client.expect_empty();
    pair.server.receive(&rej);
    let event = pair.server.event();
    assert_eq!(
        (reason(&event), event.connection()),
        (RejectReason::TIMEOUT, theirs)
    );
    assert_eq!(
        pair.server
            .cm
            .reject(pair.server.now, theirs, &RejectParams::default()),
        Err(CmError::State(CmState::Answered))
    );
}

#[test]
fn a_reply_to_nobody_is_rejected_so_that_its_sender_need_not_wait() {
    let (mut pair, ours, theirs, rep) = Pair::accepted();
    pair.client.cm.abandon(pair.client.now, ours).unwrap();
    let _lost = pair.client.sent_one();
    pair.client.receive(&rep);
    let rej = pair.client.sent_one();
    pair.server.receive(&rej);
    let event = pair.server.event();
    assert_eq!(
        (reason(&event), event.connection()),
        (RejectReason::INVALID_COMM_ID, theirs)
    );
}

#[test]
fn ready_to_use_for_nobody_ends_the_connection_of_its_sender() {
    let (mut pair, ours, _, rep) = Pair::accepted();
    pair.client.receive(&rep);
    pair.client.events();
    pair.client.establish(ours);
    let rtu = pair.client.sent_one();
    let mut restarted = Side::new(SERVER, 77);
    restarted.receive(&rtu);
    let rej = restarted.sent_one();
    pair.client.receive(&rej);
    assert!(matches!(
        pair.client.event(),
        CmEvent::Disconnected {
            cause: Disconnect::Unknown,
            ..
        }
    ));
}

#[test]
fn a_rejection_from_a_stranger_is_not_believed() {
    let (mut pair, ours, _) = Pair::requested();
    let rej = Message::Rej(Rej::new(5, ours.0, Subject::Req, RejectReason::NO_QP));
    // The address is wrong, then the transaction.
    pair.client.receive_from(IpAddr::from([10, 0, 0, 66]), 0, rej);
    pair.client.receive_from(SERVER, 0, rej);
    pair.client.silent();
    pair.client.expect_state(ours, CmState::ReqSent);
}

#[test]
fn a_reply_with_a_queue_pair_that_is_taken_is_rejected() {
    let (mut pair, ours, _) = Pair::established();
    let second = pair.client.connect_with(SERVER, 0x112, b"");
    let req = pair.client.sent_one();
    let mut successor = Side::new(SERVER, 55);
    successor.listen();
    successor.receive(&req);
    let theirs = successor.request().connection;
    successor.accept(theirs);
    let rep = successor.sent_one();
    pair.client.receive(&rep);
    let event = pair.client.event();
    assert_eq!(
        (reason(&event), event.connection()),
        (RejectReason::STALE_CONN, second)
    );
    let sent = pair.client.sent();
    let [question, rej] = &sent[..] else {
        panic!("{sent:?}");
    };
    successor.receive(rej);
    assert_eq!(reason(&successor.event()), RejectReason::STALE_CONN);
    // Whether the older one still lives is for the peer to say.
    pair.client.expect_state(ours, CmState::Established);
    successor.receive(question);
    let drep = successor.sent_one();
    pair.client.receive(&drep);
    pair.client.expect_state(ours, CmState::TimeWait);
}

#[test]
fn alternate_paths_are_not_offered() {
    let (mut pair, ours, theirs) = Pair::established();
    let lap = nonic_wire::cm::Lap {
        local_comm_id: ours.0,
        remote_comm_id: theirs.0,
        remote_qpn: nonic_core::Qpn::new(0x222),
        remote_cm_response_timeout: 20,
        local_lid: 0,
        remote_lid: 0,
        local_gid: std::net::Ipv6Addr::LOCALHOST,
        remote_gid: std::net::Ipv6Addr::LOCALHOST,
        flow_label: 0,
        traffic_class: 0,
        hop_limit: 1,
        packet_rate: 0,
        service_level: 0,
        subnet_local: false,
        local_ack_timeout: 19,
        private_data: Default::default(),
    };
    pair.server.receive_from(CLIENT, 42, Message::Lap(lap));
    let apr = pair.server.sent_one();
    assert_eq!(expect_message!(apr, Apr).status, nonic_wire::cm::Apr::UNSUPPORTED);
    pair.server.expect_state(theirs, CmState::Established);
}
