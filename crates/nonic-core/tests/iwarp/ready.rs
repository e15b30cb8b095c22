//! An initiator whose peer says nothing: Linux's siw misses what comes right behind its Reply.

use super::bench::{End, Peer, Setup};
use nonic_core::SendOp;
use nonic_core::iwarp::{Rtr, StreamRole};
use nonic_wire::iwarp::{Header, Tagged};
use std::time::Duration;

const READY: Header = Header::Write(Tagged {
    last: true,
    stag: 1,
    to: 0,
});

fn initiator(rtr: Option<Rtr>) -> (End, Peer) {
    let setup = Setup {
        rtr,
        ..Setup::default()
    };
    let mut end = End::new(1, &setup);
    end.attach(&setup.params(StreamRole::Initiator));
    (end, Peer::new(&setup))
}

/// How often it says that it is ready, from now on.
fn said_again(end: &mut End, peer: &mut Peer) -> usize {
    let mut times = 0;
    for _ in 0..400 {
        end.advance(Duration::from_millis(10));
        let said = peer.read(&end.transmit());
        assert!(said.iter().all(|(header, _)| *header == READY), "{said:?}");
        times += said.len();
    }
    times
}

#[test]
fn an_initiator_that_hears_nothing_says_a_few_times_more_that_it_is_ready() {
    let (mut end, mut peer) = initiator(Some(Rtr::Write));
    end.send(1, SendOp::Send, 0, 16);
    assert_eq!(peer.read(&end.transmit()).len(), 2, "ready, and the message");
    assert_eq!(said_again(&mut end, &mut peer), 3);
}

#[test]
fn whoever_was_heard_once_is_not_told_again() {
    let (mut end, mut peer) = initiator(Some(Rtr::Write));
    assert_eq!(peer.read(&end.transmit()).len(), 1);
    let write = peer.frame(READY, &[]);
    end.receive(&write);
    assert_eq!(said_again(&mut end, &mut peer), 0);
}

#[test]
fn nothing_is_said_again_where_a_write_was_not_agreed_on() {
    for (rtr, first) in [(None, 0), (Some(Rtr::Read), 1)] {
        let (mut end, mut peer) = initiator(rtr);
        assert_eq!(peer.read(&end.transmit()).len(), first);
        assert_eq!(said_again(&mut end, &mut peer), 0);
    }
}
