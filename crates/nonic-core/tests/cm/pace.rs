//! A program that disconnects many connections at once.

use crate::cm::bench::*;
use nonic_core::cm::{AcceptParams, CmEvent, ConnectionId};
use nonic_core::{Psn, Qpn};
use std::collections::BTreeSet;
use std::time::Duration;

/// More requests to disconnect than any peer's socket should get at once.
const MANY: u32 = 200;

fn many() -> (Pair, Vec<ConnectionId>) {
    let mut pair = Pair::new();
    let connect = |index| {
        let ours = pair.client.connect_with(SERVER, 100 + index, b"");
        let req = pair.client.sent_one();
        pair.server.receive(&req);
        let theirs = pair.server.request().connection;
        let params = AcceptParams::new(Qpn::new(1000 + index), Psn::new(1));
        pair.server
            .cm
            .accept(pair.server.now, theirs, &params)
            .expect("it waits for us");
        let rep = pair.server.sent_one();
        pair.client.receive(&rep);
        pair.client.establish(ours);
        let rtu = pair.client.sent_one();
        pair.server.receive(&rtu);
        assert!(matches!(pair.server.event(), CmEvent::Established { .. }));
        ours
    };
    let ids = (0..MANY).map(connect).collect();
    pair.client.events();
    (pair, ids)
}

fn abandon(side: &mut Side, ids: &[ConnectionId]) {
    for id in ids {
        side.cm.abandon(side.now, *id).expect("connected");
    }
}

#[test]
fn requests_to_disconnect_go_a_few_at_a_time_and_answers_let_the_others_go() {
    let (mut pair, ids) = many();
    abandon(&mut pair.client, &ids);
    let mut told = 0;
    for most in [64, 64, 64, 8, 0] {
        let requests = pair.client.sent();
        assert_eq!(requests.len(), most);
        for request in requests {
            pair.server.receive(&request);
            let answer = pair.server.sent_one();
            assert!(matches!(pair.server.event(), CmEvent::Disconnected { .. }));
            told += 1;
            pair.client.receive(&answer);
        }
    }
    assert_eq!(told, MANY);
    pair.client.pass(Duration::from_secs(1));
    pair.client.expect_empty();
}

#[test]
fn where_nobody_answers_they_go_all_the_same() {
    let (mut pair, ids) = many();
    abandon(&mut pair.client, &ids);
    let mut asked = BTreeSet::new();
    for _ in 0..4 {
        for request in pair.client.sent() {
            asked.insert(expect_message!(request, Dreq).local_comm_id);
        }
        pair.client.pass(Duration::from_millis(10));
    }
    assert_eq!(asked.len(), MANY as usize);
    // And are given up in the end.
    for _ in 0..100 {
        pair.client.pass(PATIENCE);
    }
    pair.client.sent();
    pair.client.expect_empty();
}

#[test]
fn nothing_is_held_back_for_a_peer_that_is_gone() {
    let (mut pair, ids) = many();
    abandon(&mut pair.client, &ids);
    assert_eq!(pair.client.sent().len(), 64);
    // The server's host says that the process has ended.
    pair.client.cm.peer_gone(pair.client.now, SERVER, |_| true);
    pair.client.pass(Duration::from_secs(1));
    pair.client.sent();
    pair.client.expect_empty();
}

#[test]
fn a_program_that_ends_holds_nothing_back() {
    let (mut pair, ids) = many();
    abandon(&mut pair.client, &ids[..100]);
    pair.client.cm.abandon_all(pair.client.now);
    assert_eq!(pair.client.sent().len(), MANY as usize);
}
