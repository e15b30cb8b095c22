//! Messages that get no answer.

use crate::cm::bench::*;
use nonic_core::cm::{CmConfig, CmEvent, CmState, ConnectParams, Disconnect};
use nonic_wire::cm::RejectReason;
use std::time::Duration;

#[test]
fn a_request_is_repeated_as_often_as_configured_and_then_given_up() {
    let mut client = Side::new(CLIENT, 1);
    let id = client.connect(SERVER);
    let req = client.sent_one();
    assert_eq!(client.cm.poll_timeout(), Some(client.now + PATIENCE));
    for _ in 0..3 {
        client.pass(PATIENCE - Duration::from_nanos(1));
        client.silent();
        client.pass(Duration::from_nanos(1));
        assert_eq!(client.sent_one(), req);
        assert_eq!(client.events(), []);
    }
    client.pass(PATIENCE);
    assert!(matches!(client.event(), CmEvent::Unreachable { connection, .. } if connection == id));
    // The peer's program may be about to accept.
    assert_eq!(
        expect_message!(client.sent_one(), Rej).reason,
        RejectReason::TIMEOUT
    );
    client.expect_empty();
}

/// As [`config`], and a lost message is sent again soon.
fn eager() -> CmConfig {
    CmConfig {
        early_repeats: 2,
        early_pause: EARLY,
        ..config()
    }
}

const EARLY: Duration = Duration::from_micros(500);

#[test]
fn a_lost_request_is_sent_again_soon_and_the_peer_given_up_no_sooner() {
    let mut client = Side::with(CLIENT, 1, eager());
    client.connect(SERVER);
    let req = client.sent_one();
    for pause in [EARLY, 2 * EARLY, PATIENCE - 3 * EARLY, PATIENCE, PATIENCE] {
        client.pass(pause - Duration::from_nanos(1));
        client.silent();
        client.pass(Duration::from_nanos(1));
        assert_eq!(client.sent_one(), req);
        assert_eq!(client.events(), []);
    }
    client.pass(PATIENCE);
    assert!(matches!(client.event(), CmEvent::Unreachable { .. }));
}

#[test]
fn early_repetitions_end_with_the_first_wait() {
    let config = CmConfig {
        early_repeats: 200,
        ..eager()
    };
    let mut client = Side::with(CLIENT, 1, config);
    client.connect(SERVER);
    client.sent_one();
    client.pass(PATIENCE - Duration::from_nanos(1));
    client.sent();
    for _ in 0..3 {
        client.pass(Duration::from_nanos(1));
        client.sent_one();
        client.pass(PATIENCE - Duration::from_nanos(1));
        client.silent();
    }
}

#[test]
fn a_lost_reply_and_a_lost_goodbye_are_sent_again_soon() {
    let mut client = Side::with(CLIENT, 1, eager());
    let mut server = Side::with(SERVER, 2, eager());
    server.listen();
    let ours = client.connect(SERVER);
    server.receive(&client.sent_one());
    let theirs = server.request().connection;
    server.accept(theirs);
    let rep = server.sent_one();
    server.pass(EARLY);
    assert_eq!(server.sent_one(), rep);
    client.receive(&rep);
    client.events();
    client.establish(ours);
    server.receive(&client.sent_one());
    server.events();
    client.cm.disconnect(client.now, ours, &[]).expect("connected");
    let dreq = client.sent_one();
    client.pass(EARLY);
    assert_eq!(client.sent_one(), dreq);
    server.receive(&dreq);
    client.receive(&server.sent_one());
    client.expect_state(ours, CmState::TimeWait);
}

#[test]
fn whoever_repeats_a_request_early_is_asked_for_little_time() {
    let mut client = Side::with(CLIENT, 1, eager());
    let mut server = Side::new(SERVER, 2);
    server.listen();
    client.connect(SERVER);
    let req = client.sent_one();
    server.receive(&req);
    server.request();
    server.pass(EARLY);
    server.receive(&req);
    let early = server.sent_one();
    assert_eq!(
        expect_message!(early, Mra).service_timeout,
        config().response_timeout
    );
    // Nothing is sent early to a peer that has asked for time.
    client.pass(EARLY / 2);
    client.receive(&early);
    client.pass(PATIENCE);
    client.silent();
    server.pass(PATIENCE);
    server.receive(&req);
    let late = expect_message!(server.sent_one(), Mra);
    assert_eq!(late.service_timeout, config().service_timeout);
}

#[test]
fn a_program_with_little_patience_gives_up_sooner_and_never_later() {
    for (patience, repeated) in [
        (Duration::ZERO, 0),
        (PATIENCE, 0),
        (PATIENCE + Duration::from_nanos(1), 1),
        (2 * PATIENCE, 1),
        (1000 * PATIENCE, 3),
    ] {
        let mut client = Side::new(CLIENT, 1);
        let params = ConnectParams {
            patience: Some(patience),
            ..params(CLIENT, SERVER, 0x100)
        };
        client.cm.connect(client.now, &params).expect("asked");
        client.sent_one();
        for _ in 0..repeated {
            client.pass(PATIENCE);
            client.sent_one();
        }
        client.pass(PATIENCE);
        assert!(
            matches!(client.event(), CmEvent::Unreachable { .. }),
            "{patience:?}"
        );
    }
}

#[test]
fn a_reply_is_repeated_as_often_as_the_request_allows() {
    let (mut pair, _, theirs, rep) = Pair::accepted();
    for _ in 0..3 {
        pair.server.pass(PATIENCE);
        assert_eq!(pair.server.sent_one(), rep);
    }
    pair.server.pass(PATIENCE);
    assert!(matches!(pair.server.event(), CmEvent::Unreachable { connection, .. } if connection == theirs));
    assert_eq!(
        expect_message!(pair.server.sent_one(), Rej).reason,
        RejectReason::TIMEOUT
    );
    pair.server.pass(Duration::from_secs(1));
    pair.server.expect_empty();
}

#[test]
fn a_peer_that_comes_too_late_is_told() {
    let (mut pair, ours, _, rep) = Pair::accepted();
    pair.client.receive(&rep);
    pair.client.events();
    pair.client.establish(ours);
    let rtu = pair.client.sent_one();
    for _ in 0..4 {
        pair.server.pass(PATIENCE);
    }
    pair.server.sent();
    assert!(matches!(pair.server.event(), CmEvent::Unreachable { .. }));
    pair.server.receive(&rtu);
    let rej = pair.server.sent_one();
    assert_eq!(pair.server.events(), []);
    pair.client.receive(&rej);
    assert!(matches!(
        pair.client.event(),
        CmEvent::Disconnected {
            cause: Disconnect::Unknown,
            ..
        }
    ));
    pair.client.expect_state(ours, CmState::TimeWait);
}

#[test]
fn the_peers_timeout_is_believed_within_limits() {
    let patient = CmConfig {
        response_timeout: 31,
        ..config()
    };
    let mut client = Side::with(CLIENT, 1, patient);
    let mut server = Side::new(SERVER, 2);
    server.listen();
    client.connect(SERVER);
    let req = client.sent_one();
    server.receive(&req);
    let id = server.request().connection;
    server.accept(id);
    let wait = server.cm.poll_timeout().expect("it waits").since(server.now);
    assert!(wait < Duration::from_secs(70), "{wait:?}");
}

#[test]
fn requests_that_keep_coming_do_not_keep_a_reply_waiting() {
    let mut pair = Pair::new();
    pair.client.connect(SERVER);
    let req = pair.client.sent_one();
    pair.server.receive(&req);
    let theirs = pair.server.request().connection;
    pair.server.accept(theirs);
    for _ in 0..100 {
        pair.server.pass(PATIENCE / 10);
        pair.server.receive(&req);
    }
    assert!(
        pair.server
            .events()
            .iter()
            .any(|event| matches!(event, CmEvent::Unreachable { connection, .. } if *connection == theirs))
    );
    pair.server.sent();
    // Nor do they keep it in memory.
    for _ in 0..10 {
        pair.server.pass(Duration::from_millis(49));
        pair.server.receive(&req);
    }
    assert!(pair.server.cm.usage().connections <= 1);
}

#[test]
fn time_that_passes_in_one_leap_is_handled_step_by_step() {
    let mut client = Side::new(CLIENT, 1);
    client.connect(SERVER);
    client.sent();
    client.pass(Duration::from_secs(1000));
    assert_eq!(client.sent().len(), 1);
    assert!(client.cm.poll_timeout().expect("it waits on") > client.now);
}
