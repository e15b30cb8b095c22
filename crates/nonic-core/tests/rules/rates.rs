//! A queue pair with a rate: its requests leave no faster, its answers as ever.

use crate::support::{Pair, Setup, ms};
use crate::{completed, post, recv, sent};
use nonic_core::{Destination, QpAttributes, SendOp};
use std::time::Duration;

/// 8 Mbit/s: a kilobyte in a millisecond.
const RATE: u32 = 8_000;

fn limited(setup: &Setup) -> Pair {
    let mut pair = Pair::new(setup);
    limit(&mut pair, RATE);
    pair
}

fn limit(pair: &mut Pair, rate: u32) {
    let qpn = pair.a.qpn;
    let set = QpAttributes {
        rate_limit: Some(rate),
        ..QpAttributes::default()
    };
    pair.a.modify(qpn, &set).expect("RTS to RTS takes a rate");
}

/// Bytes that leave in so many steps of time.
fn bytes_in(pair: &mut Pair, steps: u32, step: Duration) -> usize {
    let mut bytes = 0;
    for _ in 0..steps {
        bytes += pair
            .a
            .transmit()
            .iter()
            .map(|wire| wire.bytes.len())
            .sum::<usize>();
        pair.a.advance(step);
    }
    bytes
}

#[test]
fn unreliable_messages_and_datagrams_leave_at_their_rate() {
    for setup in [Setup::uc(), Setup::ud()] {
        let mut pair = limited(&setup);
        let to: Option<Destination> = (setup.service == nonic_wire::Service::Ud).then(|| pair.to_b());
        for wr_id in 0..60 {
            match to {
                Some(to) => pair
                    .a
                    .post_to(wr_id, SendOp::Send, (0, 1000), to)
                    .expect("posted"),
                None => post!(pair.a, wr_id, SendOp::Send, 0, 1000),
            }
        }
        let bytes = bytes_in(&mut pair, 500, Duration::from_micros(100));
        assert!((47_000..=53_000).contains(&bytes), "{bytes} bytes in 50 ms");
    }
}

#[test]
fn a_reliable_connection_takes_one_too() {
    let mut pair = limited(&Setup::rc());
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 40_000);
    let mut waited = 0;
    while pair.a.completions().is_empty() {
        pair.exchange();
        pair.advance(ms(1));
        waited += 1;
    }
    assert!((38..=46).contains(&waited), "{waited} ms for 40 kB");
    assert_eq!(pair.a.nic.counters().retransmitted_packets, 0);
}

#[test]
fn answers_do_not_wait() {
    let mut pair = limited(&Setup::rc());
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 40_000);
    while !pair.a.transmit().is_empty() {}
    recv!(pair.a, 7, 0, 8);
    post!(pair.b, 2, SendOp::Send, 0, 8);
    let packets = pair.b.transmit();
    pair.a.receive_all(&packets);
    sent!(pair.a, [RC_ACKNOWLEDGE]);
}

#[test]
fn without_a_rate_again_everything_leaves_at_once() {
    let mut pair = limited(&Setup::uc());
    for wr_id in 0..20 {
        post!(pair.a, wr_id, SendOp::Send, 0, 1000);
    }
    assert!(pair.a.transmit().len() < 4);
    limit(&mut pair, 0);
    assert!(pair.a.transmit().len() > 16);
    assert_eq!(pair.a.completions().len(), 20);
}

#[test]
fn it_is_told_when_asked_and_ends_with_a_reset() {
    let mut pair = limited(&Setup::rc());
    let rate = |pair: &Pair| pair.a.nic.query_qp(pair.a.qpn).expect("it exists").rate_limit;
    assert_eq!(rate(&pair), Some(RATE));
    pair.a.go_to(nonic_core::QpState::Reset);
    assert_eq!(rate(&pair), Some(0));
    completed!(pair.a, []);
}
