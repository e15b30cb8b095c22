//! Long SENDs to a peer on the same host with nothing before or behind them: their records name the bytes, and the receiver fetches them
//! from the sender's memory. To programs they are SENDs as any other.

use crate::support::{Pair, Setup, SharedHost, outcomes, pattern, us};
use crate::{completed, post, received, recv};
use nonic_core::{Access, Data, QpState, RecordAnswer, SendFlags, SendOp, Sge, Status};
use nonic_wire::NakCode;

/// Two nodes on one host. SENDs of 2,000 bytes and more are fetched, 4,096 bytes at a time.
fn pulling() -> (Pair, SharedHost) {
    SharedHost::pair(&Setup {
        direct_piece: 4500,
        pull_worth: 2000,
        ..Setup::rc()
    })
}

/// Executes the next record of the first node.
fn deliver(pair: &mut Pair) -> Option<RecordAnswer> {
    let host = pair.host();
    host.deliver(&pair.a, &mut pair.b)
}

fn answer(pair: &mut Pair) -> usize {
    let host = pair.host();
    host.answer(&mut pair.a)
}

#[test]
fn a_long_send_is_one_record_without_its_bytes() {
    let (mut pair, host) = pulling();
    recv!(pair.b, 9, 100, 4000);
    pair.a.fill(0, &pattern(1, 3000));
    post!(pair.a, 1, SendOp::Send, 0, 3000);
    assert_eq!(pair.host().waiting(&pair.a), 1);
    assert_eq!(pair.a.nic.counters().tx_bytes, 32, "a header that names memory");
    assert_eq!(deliver(&mut pair), Some(RecordAnswer::Executed));
    let done = received!(pair.b, [(9, Status::Success)]);
    assert_eq!(done[0].byte_len, 3000);
    assert_eq!(pair.b.bytes(100, 3000), pattern(1, 3000));
    assert_eq!(host.pieces(), (1, 1));
    completed!(pair.a, []);
    answer(&mut pair);
    completed!(pair.a, [(1, Status::Success)]);
}

#[test]
fn a_longer_one_is_fetched_in_pieces_and_completes_once() {
    let (mut pair, host) = pulling();
    recv!(pair.b, 9, 0, 10_000);
    pair.a.fill(0, &pattern(2, 10_000));
    post!(pair.a, 1, SendOp::SendWithImmediate(77), 0, 10_000);
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
    let done = received!(pair.b, [(9, Status::Success)]);
    assert_eq!((done[0].byte_len, done[0].immediate), (10_000, Some(77)));
    assert_eq!(pair.b.bytes(0, 10_000), pattern(2, 10_000));
    assert_eq!(host.pieces(), (3, 3), "4096 bytes at a time");
}

#[test]
fn short_ones_and_lists_of_places_and_inline_data_carry_their_bytes() {
    let (mut pair, host) = pulling();
    for wr_id in 1..=3 {
        recv!(pair.b, wr_id, 5000 * wr_id as usize, 5000);
    }
    post!(pair.a, 1, SendOp::Send, 0, 1999);
    pair.exchange();
    let places = [pair.a.sge(0, 1500), pair.a.sge(3000, 1500)];
    let posted = pair
        .a
        .post(2, SendOp::Send, Data::Sges(&places), SendFlags::SIGNALED);
    posted.expect("two places");
    pair.exchange();
    post!(pair.a, 3, SendOp::Send, 0, 2000);
    pair.exchange();
    assert_eq!(
        outcomes(&pair.a.completions()),
        [1, 2, 3].map(|wr_id| (wr_id, Status::Success))
    );
    assert_eq!(host.pieces(), (1, 1), "the last one");
}

#[test]
fn one_of_several_carries_its_bytes() {
    let (mut pair, host) = pulling();
    for wr_id in 1..=3 {
        recv!(pair.b, wr_id, 5000 * wr_id as usize, 5000);
    }
    post!(pair.a, 1, SendOp::Send, 0, 3000);
    post!(pair.a, 2, SendOp::Send, 100, 3000);
    post!(pair.a, 3, SendOp::Send, 200, 3000);
    pair.exchange();
    assert_eq!(
        outcomes(&pair.a.completions()),
        [1, 2, 3].map(|wr_id| (wr_id, Status::Success))
    );
    assert_eq!(
        host.pieces(),
        (1, 1),
        "the first, which was alone when it was posted"
    );
}

#[test]
fn what_cannot_be_fetched_comes_once_more_with_its_bytes_into_the_same_receive() {
    let (mut pair, host) = pulling();
    recv!(pair.b, 8, 0, 6000);
    recv!(pair.b, 9, 8000, 6000);
    pair.a.fill(0, &pattern(3, 6000));
    host.state().refuses_after = Some(0);
    post!(pair.a, 1, SendOp::Send, 0, 6000);
    post!(pair.a, 2, SendOp::Send, 0, 3000);
    assert_eq!(deliver(&mut pair), Some(RecordAnswer::Unreadable));
    received!(pair.b, []);
    answer(&mut pair);
    pair.exchange();
    completed!(pair.a, [(1, Status::Success), (2, Status::Success)]);
    let done = received!(pair.b, [(8, Status::Success), (9, Status::Success)]);
    assert_eq!((done[0].byte_len, done[1].byte_len), (6000, 3000));
    assert_eq!(pair.b.bytes(0, 6000), pattern(3, 6000));
    assert_eq!(pair.b.bytes(8000, 3000), pattern(3, 3000));
    assert_eq!(host.pieces(), (1, 0), "the peer is not asked again");
}

#[test]
fn one_that_can_be_fetched_only_in_part_is_finished_with_its_bytes() {
    let (mut pair, host) = pulling();
    recv!(pair.b, 9, 0, 10_000);
    pair.a.fill(0, &pattern(4, 10_000));
    host.state().refuses_after = Some(1);
    post!(pair.a, 1, SendOp::Send, 0, 10_000);
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
    let done = received!(pair.b, [(9, Status::Success)]);
    assert_eq!(done[0].byte_len, 10_000);
    assert_eq!(pair.b.bytes(0, 10_000), pattern(4, 10_000));
    assert_eq!(host.pieces(), (2, 1));
}

#[test]
fn without_a_receive_it_waits_as_any_other() {
    let (mut pair, host) = pulling();
    post!(pair.a, 1, SendOp::Send, 0, 3000);
    assert!(matches!(deliver(&mut pair), Some(RecordAnswer::NotReady(_))));
    assert_eq!(host.pieces(), (0, 0), "nothing is fetched without a place for it");
    answer(&mut pair);
    recv!(pair.b, 9, 0, 3000);
    pair.advance(us(650));
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
    received!(pair.b, [(9, Status::Success)]);
    assert_eq!(host.pieces(), (1, 1));
}

#[test]
fn one_that_is_too_long_for_its_receive_fails_both_sides_and_places_nothing() {
    let (mut pair, host) = pulling();
    recv!(pair.b, 9, 0, 2500);
    let before = pair.b.bytes(0, 3000);
    post!(pair.a, 1, SendOp::Send, 0, 3000);
    assert_eq!(
        deliver(&mut pair),
        Some(RecordAnswer::Refused(NakCode::InvalidRequest))
    );
    received!(pair.b, [(9, Status::LocalLength)]);
    answer(&mut pair);
    completed!(pair.a, [(1, Status::RemoteInvalidRequest)]);
    assert_eq!(pair.b.bytes(0, 3000), before);
    assert_eq!(host.pieces(), (0, 0));
}

#[test]
fn a_receive_that_may_not_be_written_takes_nothing() {
    let (mut pair, host) = pulling();
    let key = pair.b.register(|spec| spec.access = Access::empty());
    let sge = Sge {
        lkey: key.value(),
        ..pair.b.sge(0, 3000)
    };
    pair.b.post_recv(9, &[sge]).expect("posted");
    post!(pair.a, 1, SendOp::Send, 0, 3000);
    deliver(&mut pair);
    received!(pair.b, [(9, Status::LocalProtection)]);
    assert_eq!(host.pieces(), (0, 0));
}

#[test]
fn memory_that_is_taken_back_before_it_was_fetched_is_a_fault_of_the_sender() {
    let (mut pair, host) = pulling();
    recv!(pair.b, 9, 0, 3000);
    let key = pair.a.register(|_| {});
    let sge = Sge {
        lkey: key.value(),
        ..pair.a.sge(0, 3000)
    };
    let posted = pair
        .a
        .post(1, SendOp::Send, Data::Sges(&[sge]), SendFlags::SIGNALED);
    posted.expect("the key was good");
    assert!(pair.a.keys().revoke(key.value()));
    assert_eq!(deliver(&mut pair), Some(RecordAnswer::Unreadable));
    answer(&mut pair);
    pair.exchange();
    completed!(pair.a, [(1, Status::LocalProtection)]);
    assert_eq!(host.pieces(), (1, 0));
}

#[test]
fn a_receive_that_waits_for_a_send_to_come_again_is_flushed_with_the_others() {
    let (mut pair, host) = pulling();
    recv!(pair.b, 8, 0, 3000);
    recv!(pair.b, 9, 0, 3000);
    host.state().refuses_after = Some(0);
    post!(pair.a, 1, SendOp::Send, 0, 3000);
    assert_eq!(deliver(&mut pair), Some(RecordAnswer::Unreadable));
    pair.b.go_to(QpState::Error);
    received!(pair.b, [(8, Status::Flushed), (9, Status::Flushed)]);
}

#[test]
fn a_sender_that_is_published_with_no_right_at_all_is_fetched_from() {
    let (mut pair, host) = SharedHost::pair(&Setup {
        pull_worth: 2000,
        access: Access::empty(),
        ..Setup::rc()
    });
    recv!(pair.b, 9, 0, 3000);
    post!(pair.a, 1, SendOp::Send, 0, 3000);
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
    received!(pair.b, [(9, Status::Success)]);
    assert_eq!(host.pieces(), (1, 1));
}

#[test]
fn a_peer_that_says_so_of_a_send_that_carries_its_bytes_gets_it_again() {
    let (mut pair, _host) = pulling();
    recv!(pair.b, 9, 0, 64);
    post!(pair.a, 1, SendOp::Send, 0, 64);
    pair.host().state().lanes[0].records[0].answer = Some(RecordAnswer::Unreadable);
    answer(&mut pair);
    completed!(pair.a, []);
    pair.advance(us(100_000));
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
}
