//! A request from a queue pair that is connected already: either its process died and another one has the number, or
//! the request is forged. The peer is asked; its connection ends only if the peer says that it has none.

use crate::cm::bench::*;
use nonic_core::Qpn;
use nonic_core::cm::{CmEvent, CmState, ConnectionId, Disconnect};
use nonic_wire::cm::{Drep, Message, PrivateData, RejectReason, Req};
use std::time::Duration;

/// More than the time within which a peer is asked no more than once.
const ROUND: Duration = Duration::from_millis(1);

/// Both sides established, and the server ready for any number of requests.
fn connected() -> (Pair, ConnectionId, ConnectionId) {
    let (mut pair, ours, theirs) = Pair::established();
    // The backlog is not what is tried here.
    pair.server
        .cm
        .listen(SERVICE_OF_ANYBODY, None, 1 << 20)
        .expect("nobody listens yet");
    (pair, ours, theirs)
}

const SERVICE_OF_ANYBODY: nonic_wire::cm::ServiceId =
    nonic_wire::cm::ServiceId::from_port(nonic_wire::cm::PortSpace::Tcp, 7001);

/// A request with an identifier of its own that claims to come from a queue pair of the client.
fn forged(number: u32, qpn: u32) -> Req {
    let mut stranger = Side::new(CLIENT, 99);
    stranger.connect_with(SERVER, qpn, b"");
    let mut req = expect_message!(stranger.sent_one(), Req);
    req.local_comm_id = 0x7000_0000 + number;
    req.service_id = SERVICE_OF_ANYBODY;
    req
}

/// Carries messages to and fro until neither side has one to send.
fn carry(pair: &mut Pair) {
    for _ in 0..8 {
        for sent in pair.server.sent() {
            pair.client.receive(&sent);
        }
        for sent in pair.client.sent() {
            pair.server.receive(&sent);
        }
    }
    pair.server.silent_but_for_requests();
}

impl Side {
    #[track_caller]
    fn silent_but_for_requests(&mut self) {
        assert_eq!(self.sent(), []);
        let events = self.events();
        let all_requests = events.iter().all(|event| matches!(event, CmEvent::Request(_)));
        assert!(all_requests, "{events:?}");
    }
}

#[test]
fn forged_requests_from_every_queue_pair_of_a_peer_end_nothing() {
    let (mut pair, ours, theirs) = connected();
    for number in 0..4096 {
        let req = Message::Req(forged(number, number + 2));
        pair.server.receive_from(CLIENT, 1, req);
        carry(&mut pair);
    }
    pair.server.expect_state(theirs, CmState::Established);
    pair.client.expect_state(ours, CmState::Established);
    assert_eq!(pair.client.events(), []);
    pair.server.pass(Duration::from_secs(600));
    pair.server.expect_state(theirs, CmState::Established);
}

#[test]
fn a_flood_of_forged_requests_asks_a_peer_seldom() {
    let (mut pair, ours, theirs) = connected();
    let mut questions = 0;
    for number in 0..10_000 {
        pair.server
            .receive_from(CLIENT, 1, Message::Req(forged(number, 0x111)));
        let sent = pair.server.sent();
        questions += sent
            .iter()
            .filter(|sent| matches!(sent.mad.message, Message::Dreq(_)))
            .count();
        sent.iter().for_each(|sent| pair.client.receive(sent));
        assert_eq!(
            pair.client.sent(),
            [],
            "a peer that has the connection says nothing"
        );
        pair.server.pass(Duration::from_micros(1));
    }
    assert!((1..=100).contains(&questions), "{questions}");
    pair.server.expect_state(theirs, CmState::Established);
    pair.client.expect_state(ours, CmState::Established);
}

#[test]
fn a_forged_request_ends_no_connection_that_is_being_made() {
    let (mut pair, ours, theirs, rep) = Pair::accepted();
    pair.server.cm.listen(SERVICE_OF_ANYBODY, None, 8).expect("free");
    pair.server
        .receive_from(CLIENT, 1, Message::Req(forged(1, 0x111)));
    let rej = expect_message!(pair.server.sent_one(), Rej);
    assert_eq!(rej.reason, RejectReason::STALE_CONN);
    pair.client.receive(&rep);
    pair.client.events();
    pair.client.establish(ours);
    let rtu = pair.client.sent_one();
    pair.server.receive(&rtu);
    pair.server.expect_state(theirs, CmState::Established);
}

#[test]
fn a_request_to_the_side_that_connected_ends_nothing_either() {
    let (mut pair, ours, theirs) = Pair::established();
    pair.client.listen();
    let mut stranger = Side::new(SERVER, 99);
    stranger.connect_with(CLIENT, 0x222, b"");
    let req = stranger.sent_one();
    pair.client.receive(&req);
    let sent = pair.client.sent();
    sent.iter().for_each(|sent| pair.server.receive(sent));
    pair.server.silent();
    pair.client.expect_state(ours, CmState::Established);
    pair.server.expect_state(theirs, CmState::Established);
}

/// The client's process is killed; its successor gets the same queue pair number and asks again and again, losing
/// the first `lost` questions about the old connection. Returns how long it took, in rounds.
fn rounds_until_welcome(lost: usize) -> usize {
    let (mut pair, _, theirs) = Pair::established();
    let mut successor = Side::new(CLIENT, 1234);
    let mut lost_so_far = 0;
    for round in 0..100 {
        successor.connect(SERVER);
        let req = successor.sent_one();
        pair.server.receive(&req);
        for sent in pair.server.sent() {
            let is_question = matches!(sent.mad.message, Message::Dreq(_));
            if is_question && lost_so_far < lost {
                lost_so_far += 1;
                continue;
            }
            successor.receive(&sent);
        }
        for sent in successor.sent() {
            pair.server.receive(&sent);
        }
        for event in pair.server.events() {
            match event {
                CmEvent::Disconnected {
                    connection, cause, ..
                } => {
                    assert_eq!((connection, cause), (theirs, Disconnect::Unknown));
                }
                CmEvent::TimewaitExit { .. } => {}
                CmEvent::Request(_) => return round,
                other => panic!("{other:?}"),
            }
        }
        successor.events();
        pair.server.pass(ROUND);
        successor.now = pair.server.now;
    }
    panic!("the successor never got its connection");
}

/// The timewait of the connections made here, in rounds.
fn timewait() -> usize {
    let ack_timeout = params(CLIENT, SERVER, 1).ack_timeout.duration().expect("finite");
    ack_timeout.max(config().timewait_min).as_millis() as usize
}

#[test]
fn a_peer_that_began_anew_with_its_number_is_welcome_after_the_timewait() {
    assert!(rounds_until_welcome(0) <= timewait() + 2);
}

#[test]
fn lost_questions_are_asked_again_with_the_next_request() {
    assert!(rounds_until_welcome(3) <= timewait() + 6);
}

#[test]
fn an_answer_to_a_question_nobody_asked_is_ignored() {
    let (mut pair, ours, theirs) = Pair::established();
    let drep = Drep {
        local_comm_id: ours.0,
        remote_comm_id: theirs.0,
        private_data: PrivateData::default(),
    };
    pair.server.receive_from(CLIENT, 7, Message::Drep(drep));
    pair.server.silent();
    pair.server.expect_state(theirs, CmState::Established);
}

#[test]
fn the_question_names_a_queue_pair_that_nobody_can_have() {
    let (mut pair, ours, theirs) = Pair::established();
    let mut successor = Side::new(CLIENT, 1234);
    successor.connect(SERVER);
    pair.server.receive(&successor.sent_one());
    let question = expect_message!(pair.server.sent()[0], Dreq);
    assert_eq!(
        (
            question.local_comm_id,
            question.remote_comm_id,
            question.remote_qpn
        ),
        (theirs.0, ours.0, Qpn::MULTICAST)
    );
}
