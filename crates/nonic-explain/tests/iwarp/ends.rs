//! Explanations of stream ends: for each way, what both sides say names the cause and the next step.

use super::bench::{End, IOVA, Pair, Peer, Setup, solo};
use nonic_core::iwarp::{StreamClosed, StreamRole};
use nonic_core::{RemoteAddress, SendOp, Status};
use nonic_explain::Explanation;
use nonic_wire::iwarp::{Header, SendKind, Tagged, Terminate, TerminateCode as Code};
use std::time::Duration;

#[track_caller]
fn says(end: &End, status: Option<Status>, words: &[&str]) {
    let explanation = Explanation::of_queue_pair(&end.nic, end.qpn, status);
    let said = explanation.expect("there is something to explain").to_string();
    for word in words {
        assert!(said.contains(word), "{word:?} is missing in: {said}");
    }
}

/// The FPDU of a Terminate.
fn terminate(peer: &mut Peer, code: Code) -> Vec<u8> {
    let mut body = [0; Terminate::MAX_LEN];
    let length = Terminate::new(code).emit(&mut body);
    peer.frame(Header::Terminate { msn: 1 }, &body[..length])
}

/// An initiator that has heard nothing of its peer yet.
fn starting() -> (End, Peer) {
    let setup = Setup::default();
    let mut end = End::new(1, &setup);
    end.attach(&setup.params(StreamRole::Initiator));
    (end, Peer::new(&setup))
}

#[test]
fn every_code_of_a_terminate_that_comes_is_explained() {
    for &code in Code::ALL {
        // Some mean something only before anything else has come: behind that they are taken for what Linux's siw means by them.
        let (mut end, mut peer) = match code.is_only_at_startup() {
            true => starting(),
            false => solo(&Setup::default()),
        };
        end.recv(1, 0, 64);
        let frame = terminate(&mut peer, code);
        end.receive(&frame);
        assert_eq!(end.received(), [(1, Status::Flushed)]);
        let told = code.to_string();
        let words = [
            "The peer ended the stream with a Terminate",
            &told,
            "That means: ",
            "Try: ",
        ];
        says(&end, None, &words);
        says(
            &end,
            Some(Status::Flushed),
            &[&words[..], &["was flushed"]].concat(),
        );
        let said = Explanation::of_queue_pair(&end.nic, end.qpn, None)
            .expect("it failed")
            .to_string();
        assert!(
            !said.contains('{') && !said.contains("no specification") || code.code == 0xff,
            "{said}"
        );
    }
}

#[test]
fn a_code_that_nobody_has_defined_is_said_to_be_that() {
    let (mut end, mut peer) = solo(&Setup::default());
    let frame = terminate(&mut peer, Code::new(7, 3, 0x21));
    end.receive(&frame);
    says(&end, None, &["unknown layer: unknown error (7/3/21)", "tcpdump"]);
}

#[test]
fn a_read_that_is_refused_names_key_and_terminate_on_both_sides() {
    let mut pair = Pair::new();
    let remote = RemoteAddress {
        rkey: pair.b.key.value() ^ 0x55,
        ..pair.b.remote(0)
    };
    pair.a.send(7, SendOp::Read(remote), 0, 64);
    pair.exchange();
    assert_eq!(pair.a.completed(), [(7, Status::RemoteAccess)]);
    let code = "RDMAP: invalid STag (0/1/00)";
    let here = ["The peer refused the READ of 64 bytes", "with a Terminate", code];
    says(&pair.a, Some(Status::RemoteAccess), &here);
    says(&pair.a, None, &here);
    let there = [
        "refused the peer's READ of 64 bytes",
        "there is no such key here",
        "The peer was told by a Terminate",
        code,
    ];
    says(&pair.b, None, &there);
}

#[test]
fn a_write_that_is_refused_ends_the_stream_behind_its_completion() {
    let mut pair = Pair::new();
    let remote = RemoteAddress {
        va: IOVA + Setup::default().memory as u64 - 10,
        ..pair.b.remote(0)
    };
    pair.a.recv(1, 0, 64);
    pair.a.send(7, SendOp::Write(remote), 0, 64);
    pair.exchange();
    // Nothing on this wire acknowledges a WRITE: it is done when TCP has taken it.
    assert_eq!(pair.a.completed(), [(7, Status::Success)]);
    assert_eq!(pair.a.received(), [(1, Status::Flushed)]);
    let here = [
        "was flushed",
        "DDP: base or bounds violation (1/1/01)",
        "a request of this side runs out of what is registered",
        "look at the peer as well",
    ];
    says(&pair.a, Some(Status::Flushed), &here);
    says(
        &pair.b,
        None,
        &["the range is out of bounds", "DDP: base or bounds"],
    );
}

#[test]
fn the_cause_is_still_known_when_the_terminate_has_left_later() {
    let (mut end, mut peer) = solo(&Setup::default());
    let header = Header::Write(Tagged {
        last: true,
        stag: 0x1234,
        to: 0,
    });
    let bad = peer.frame(header, &[1; 8]);
    end.receive(&bad);
    let words = ["there is no such key here", "DDP: invalid STag (1/1/00)"];
    says(&end, None, &words);
    end.advance(Duration::from_millis(5));
    end.transmit();
    says(&end, None, &words);
}

#[test]
fn messages_without_a_fitting_receive_are_named() {
    let setup = Setup::default();
    let (mut end, mut peer) = solo(&setup);
    let send = |msn, bytes: &[u8], peer: &mut Peer| {
        let (kind, mo, last) = (SendKind::default(), 0, true);
        peer.frame(Header::Send { kind, msn, mo, last }, bytes)
    };
    let lonely = send(1, &[1; 8], &mut peer);
    end.receive(&lonely);
    end.advance(setup.iwarp.receive_grace + Duration::from_millis(1));
    says(
        &end,
        None,
        &[
            "a message of the peer found no receive at this side",
            "(1/2/02)",
            "post receives",
        ],
    );

    let (mut end, mut peer) = solo(&setup);
    end.recv(1, 0, 100);
    let long = send(1, &[1; 300], &mut peer);
    end.receive(&long);
    let words = ["300 bytes or more came, 100 fit", "(1/2/05)", "longest message"];
    says(&end, None, &words);
    assert_eq!(end.received(), [(1, Status::LocalLength)]);
}

#[test]
fn a_damaged_frame_is_named() {
    let (mut end, mut peer) = solo(&Setup::default());
    let header = Header::Write(Tagged {
        last: true,
        stag: end.key.value(),
        to: IOVA,
    });
    let mut bad = peer.frame(header, &[1; 8]);
    *bad.last_mut().expect("a CRC") ^= 1;
    end.receive(&bad);
    let words = [
        "This side ended the stream",
        "MPA: CRC error (2/0/02)",
        "bytes of the peer arrived at this side damaged",
        "middlebox",
    ];
    says(&end, None, &words);
}

#[test]
fn a_peer_that_closes_is_no_failure_but_explains_what_is_flushed() {
    let (mut end, _) = solo(&Setup::default());
    end.recv(1, 0, 64);
    end.nic.stream_closed(end.now, end.qpn, StreamClosed::ByPeer);
    assert_eq!(end.received(), [(1, Status::Flushed)]);
    assert_eq!(Explanation::of_queue_pair(&end.nic, end.qpn, None), None);
    says(
        &end,
        Some(Status::Flushed),
        &["was flushed", "The peer closed the connection", "or is killed"],
    );
}

#[test]
fn a_connection_that_breaks_or_never_begins_is_named() {
    let setup = Setup::default();
    let (mut end, _) = solo(&setup);
    end.recv(1, 0, 64);
    end.nic.stream_closed(end.now, end.qpn, StreamClosed::Broken);
    says(&end, None, &["The TCP connection broke", "process lives"]);
    says(&end, Some(Status::Flushed), &["was flushed", "it was reset"]);

    let mut end = End::new(1, &setup);
    end.attach(&setup.params(StreamRole::Responder));
    end.advance(setup.iwarp.rtr_timeout + Duration::from_millis(1));
    says(
        &end,
        None,
        &["did not send the first message", "see what the peer's"],
    );
}
