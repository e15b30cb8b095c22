//! Direct access, the requester's side: which requests it executes in the memory of a peer on the same host, and when. All others are
//! records.

use crate::support::{Pair, Setup, SharedHost, pattern, us};
use crate::{completed, expect_nothing, post, received, recv, sent};
use nonic_core::{
    Access, CompletionOpcode, Data, Direct, Event, QpState, RecordAnswer, RemoteAddress, SendFlags, SendOp,
    Status,
};

/// Two nodes on one host that move messages in pieces of 1000 bytes.
fn in_pieces() -> (Pair, SharedHost) {
    SharedHost::pair(&Setup {
        direct_piece: 1000,
        ..Setup::rc()
    })
}

/// Executes the next record of the first node.
fn deliver(pair: &mut Pair) -> Option<RecordAnswer> {
    let host = pair.host();
    host.deliver(&pair.a, &mut pair.b)
}

#[test]
fn a_write_and_a_read_need_no_record() {
    let (mut pair, _host) = SharedHost::pair(&Setup::rc());
    pair.a.fill(0, &pattern(1, 5000));
    pair.b.fill(8000, &pattern(2, 3000));
    let (there, from) = (pair.b.remote(100), pair.b.remote(8000));
    post!(pair.a, 1, SendOp::Write(there), 0, 5000);
    post!(pair.a, 2, SendOp::Read(from), 9000, 3000);
    sent!(pair.a, []);
    let done = completed!(pair.a, [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(done[1].opcode, CompletionOpcode::Read);
    assert_eq!(done[1].byte_len, 3000);
    assert_eq!(pair.b.bytes(100, 5000), pattern(1, 5000));
    assert_eq!(pair.a.bytes(9000, 3000), pattern(2, 3000));
    let counters = pair.a.nic.counters();
    assert_eq!(counters.direct_writes, 1);
    assert_eq!(counters.direct_reads, 1);
    assert_eq!(counters.direct_bytes, 8000);
    assert_eq!(pair.a.nic.poll_timeout(), None, "no answer is waited for");
    assert_eq!(pair.host().waiting(&pair.a), 0);
    expect_nothing!(pair.b);
}

#[test]
fn inline_data_goes_the_same_way() {
    let (mut pair, _host) = SharedHost::pair(&Setup::rc());
    let op = SendOp::Write(pair.b.remote(64));
    pair.a
        .post(1, op, Data::Inline(&pattern(3, 200)), SendFlags::empty())
        .expect("posted");
    sent!(pair.a, []);
    assert_eq!(pair.b.bytes(64, 200), pattern(3, 200));
}

#[test]
fn what_goes_directly_takes_no_number() {
    let (mut pair, host) = SharedHost::pair(&Setup::rc());
    recv!(pair.b, 9, 0, 64);
    let (write, read) = (pair.b.remote(100), pair.b.remote(8000));
    post!(pair.a, 1, SendOp::Write(write), 0, 5000);
    post!(pair.a, 2, SendOp::Read(read), 9000, 3000);
    post!(pair.a, 3, SendOp::Send, 0, 64);
    assert_eq!(
        deliver(&mut pair),
        Some(RecordAnswer::Executed),
        "it is the first record"
    );
    received!(pair.b, [(9, Status::Success)]);
    pair.exchange();
    // And the direct way goes on where the record ended.
    post!(pair.a, 4, SendOp::Write(write), 0, 8);
    sent!(pair.a, []);
    let all = [1, 2, 3, 4].map(|wr_id| (wr_id, Status::Success));
    assert_eq!(crate::support::outcomes(&pair.a.completions()), all);
    assert_eq!(host.pieces(), (3, 3));
}

#[test]
fn what_needs_the_targets_processor_goes_as_records() {
    let (mut pair, host) = SharedHost::pair(&Setup::rc());
    let remote = pair.b.remote(64);
    // The last one has nothing to move.
    let requests = [
        (SendOp::Send, 8),
        (SendOp::WriteWithImmediate(remote, 7), 8),
        (SendOp::AtomicWrite(remote), 8),
        (SendOp::Write(remote), 0),
    ];
    for (id, (op, length)) in requests.into_iter().enumerate() {
        recv!(pair.b, 1, 0, 64);
        post!(pair.a, id as u64, op, 0, length);
        assert_eq!(pair.host().waiting(&pair.a), 1, "{op:?}");
        pair.exchange();
        completed!(pair.a, [(id as u64, Status::Success)]);
    }
    assert_eq!(host.pieces(), (0, 0));
}

#[test]
fn an_atomic_needs_no_record_and_brings_what_was_there() {
    let (mut pair, host) = SharedHost::pair(&Setup::rc());
    pair.b.set_word(64, 5);
    let remote = pair.b.remote(64);
    post!(pair.a, 1, SendOp::FetchAdd { remote, add: 3 }, 0, 8);
    let swap = |compare, swap| SendOp::CompareSwap {
        remote,
        compare,
        swap,
    };
    post!(pair.a, 2, swap(8, 100), 8, 8);
    post!(pair.a, 3, swap(8, 200), 16, 8);
    sent!(pair.a, []);
    let done = completed!(
        pair.a,
        [(1, Status::Success), (2, Status::Success), (3, Status::Success)]
    );
    assert_eq!(done[0].opcode, CompletionOpcode::FetchAdd);
    assert_eq!(done[1].opcode, CompletionOpcode::CompareSwap);
    assert_eq!([0, 8, 16].map(|at| pair.a.word(at)), [5, 8, 100]);
    assert_eq!(pair.b.word(64), 100);
    assert_eq!(pair.a.nic.counters().direct_atomics, 3);
    assert_eq!(
        pair.a.nic.counters().direct_bytes,
        0,
        "WRITEs and READs move bytes"
    );
    // The next one is the first record.
    host.state().refuses_after = Some(0);
    post!(pair.a, 4, SendOp::FetchAdd { remote, add: 1 }, 0, 8);
    assert_eq!(deliver(&mut pair), Some(RecordAnswer::Fetched(100)));
    pair.exchange();
    completed!(pair.a, [(4, Status::Success)]);
    assert_eq!((pair.a.word(0), pair.b.word(64)), (100, 101));
}

#[test]
fn an_atomic_is_executed_once_whichever_way_it_goes() {
    let (mut pair, host) = SharedHost::pair(&Setup::rc());
    let remote = pair.b.remote(64);
    // Refused at every other request: none is tried twice, and none is done both ways.
    for round in 0..20 {
        let asked = host.pieces().0;
        host.state().refuses_after = (round % 2 == 0).then_some(asked);
        post!(pair.a, round, SendOp::FetchAdd { remote, add: 1 }, 0, 8);
        pair.exchange();
        completed!(pair.a, [(round, Status::Success)]);
        assert_eq!(pair.a.word(0), round);
        assert_eq!(host.pieces().0, asked + 1);
    }
    assert_eq!(pair.b.word(64), 20);
    assert_eq!(pair.a.nic.counters().direct_atomics, 10);
}

#[test]
fn a_refused_atomic_says_nothing_about_writes() {
    let (mut pair, host) = SharedHost::pair(&Setup {
        direct_worth: 2000,
        ..Setup::rc()
    });
    let remote = pair.b.remote(64);
    post!(pair.a, 1, SendOp::Write(remote), 0, 8);
    let asked = host.pieces().0;
    host.state().refuses_after = Some(asked);
    post!(pair.a, 2, SendOp::FetchAdd { remote, add: 1 }, 0, 8);
    host.state().refuses_after = None;
    post!(pair.a, 3, SendOp::Write(remote), 0, 2000);
    sent!(pair.a, []);
    assert_eq!(pair.host().waiting(&pair.a), 1, "the atomic");
    // The long WRITE waits for the direct way, as it would without the atomic.
    assert_eq!(host.pieces().0, asked + 1);
}

#[test]
fn an_atomic_whose_result_has_no_place_is_not_executed() {
    let (mut pair, host) = SharedHost::pair(&Setup::rc());
    let key = pair.a.register(|spec| spec.access = Access::empty());
    let sge = nonic_core::Sge {
        lkey: key.value(),
        ..pair.a.sge(0, 8)
    };
    let op = SendOp::FetchAdd {
        remote: pair.b.remote(64),
        add: 1,
    };
    pair.a
        .post(1, op, Data::Sges(&[sge]), SendFlags::SIGNALED)
        .expect("posted");
    pair.exchange();
    completed!(pair.a, [(1, Status::LocalProtection)]);
    assert_eq!(pair.b.word(64), 0);
    assert_eq!(host.pieces(), (0, 0));
}

#[test]
fn a_result_whose_place_is_lost_meanwhile_fails_the_request_and_is_not_asked_for_again() {
    let (mut pair, host) = SharedHost::pair(&Setup::rc());
    let key = pair.a.register(|_| {});
    let sge = nonic_core::Sge {
        lkey: key.value(),
        ..pair.a.sge(0, 8)
    };
    let op = SendOp::FetchAdd {
        remote: pair.b.remote(64),
        add: 1,
    };
    // Another thread revokes the key while the word is being changed.
    let keys = pair.a.keys().clone();
    host.state().meanwhile = Some(Box::new(move || assert!(keys.revoke(key.value()))));
    pair.a
        .post(1, op, Data::Sges(&[sge]), SendFlags::SIGNALED)
        .expect("posted");
    sent!(pair.a, []);
    completed!(pair.a, [(1, Status::LocalProtection)]);
    assert_eq!(pair.a.state(), QpState::Error);
    assert_eq!(pair.b.word(64), 1, "it was executed, and once");
    assert_eq!(host.pieces(), (1, 1));
}

#[test]
fn an_atomic_that_is_not_permitted_fails_as_ever() {
    let (mut pair, _host) = SharedHost::pair(&Setup::rc());
    let remote = pair.b.remote(60);
    post!(pair.a, 1, SendOp::FetchAdd { remote, add: 1 }, 0, 8);
    pair.exchange();
    completed!(pair.a, [(1, Status::RemoteInvalidRequest)]);
    let (mut pair, _host) = SharedHost::pair(&Setup::rc());
    let key = pair
        .b
        .register(|spec| spec.access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ);
    let remote = RemoteAddress {
        rkey: key.value(),
        ..pair.b.remote(64)
    };
    post!(pair.a, 1, SendOp::FetchAdd { remote, add: 1 }, 0, 8);
    pair.exchange();
    completed!(pair.a, [(1, Status::RemoteAccess)]);
    assert_eq!(pair.b.word(64), 0);
}

#[test]
fn nothing_goes_directly_while_a_record_is_under_way() {
    let (mut pair, host) = SharedHost::pair(&Setup::rc());
    recv!(pair.b, 9, 0, 64);
    let remote = pair.b.remote(100);
    post!(pair.a, 1, SendOp::Send, 0, 64);
    post!(pair.a, 2, SendOp::Write(remote), 0, 64);
    sent!(pair.a, []);
    assert_eq!(pair.host().waiting(&pair.a), 2);
    assert_eq!(host.pieces(), (0, 0));
    // Executed is not answered: both are still under way.
    while deliver(&mut pair).is_some() {}
    post!(pair.a, 3, SendOp::Write(remote), 0, 64);
    pair.exchange();
    completed!(
        pair.a,
        [(1, Status::Success), (2, Status::Success), (3, Status::Success)]
    );
    assert_eq!(host.pieces(), (0, 0));
    post!(pair.a, 4, SendOp::Write(remote), 0, 64);
    sent!(pair.a, []);
    assert_eq!(host.pieces(), (1, 1));
}

#[test]
fn a_long_request_waits_for_the_direct_way_if_it_is_open() {
    let (mut pair, host) = SharedHost::pair(&Setup {
        direct_worth: 2000,
        ..Setup::rc()
    });
    let remote = pair.b.remote(100);
    let mut ids = 0..;
    // It is not known yet that the peer can be reached, so nothing waits.
    for waits in [false, true] {
        recv!(pair.b, 9, 0, 64);
        for (op, length) in [
            (SendOp::Send, 64),
            (SendOp::Write(remote), 1999),
            (SendOp::Write(remote), 2000),
            (SendOp::Read(remote), 3000),
        ] {
            post!(pair.a, ids.next().expect("endless"), op, 0, length);
        }
        sent!(pair.a, []);
        assert_eq!(pair.host().waiting(&pair.a), if waits { 3 } else { 8 });
        pair.exchange();
        assert_eq!(host.pieces(), if waits { (3, 3) } else { (0, 0) });
        post!(pair.a, ids.next().expect("endless"), SendOp::Write(remote), 0, 8);
        pair.exchange();
        let done = pair.a.completions();
        assert!(done.iter().all(|completion| completion.status == Status::Success));
        assert_eq!(done.len(), 5);
    }
    // Once it has been refused, nothing waits for it.
    host.state().refuses_after = Some(0);
    post!(pair.a, 20, SendOp::Write(remote), 0, 8);
    post!(pair.a, 21, SendOp::Write(remote), 0, 2000);
    sent!(pair.a, []);
    assert_eq!(pair.host().waiting(&pair.a), 3);
}

#[test]
fn a_request_that_waits_for_the_direct_way_survives_a_pause() {
    let (mut pair, host) = SharedHost::pair(&Setup {
        direct_worth: 2000,
        ..Setup::rc()
    });
    let remote = pair.b.remote(100);
    post!(pair.a, 1, SendOp::Write(remote), 0, 8);
    post!(pair.a, 2, SendOp::Send, 0, 64);
    post!(pair.a, 3, SendOp::Write(remote), 0, 2000);
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
    recv!(pair.b, 9, 0, 64);
    pair.advance(us(700));
    pair.exchange();
    completed!(pair.a, [(2, Status::Success), (3, Status::Success)]);
    assert_eq!(host.pieces(), (2, 2));
}

#[test]
fn nothing_goes_directly_while_the_peer_asks_for_quiet() {
    let (mut pair, host) = SharedHost::pair(&Setup::rc());
    post!(pair.a, 1, SendOp::Send, 0, 64);
    pair.exchange_records();
    let remote = pair.b.remote(100);
    post!(pair.a, 2, SendOp::Write(remote), 0, 64);
    sent!(pair.a, []);
    assert_eq!(pair.host().waiting(&pair.a), 0);
    assert_eq!(host.pieces(), (0, 0));
    recv!(pair.b, 9, 0, 64);
    pair.advance(us(700));
    pair.exchange();
    completed!(pair.a, [(1, Status::Success), (2, Status::Success)]);
}

#[test]
fn what_is_refused_goes_as_a_record_with_the_ordinary_outcome() {
    let (mut pair, host) = SharedHost::pair(&Setup::rc());
    host.state().refuses_after = Some(0);
    pair.a.fill(0, &pattern(1, 3000));
    let remote = pair.b.remote(100);
    post!(pair.a, 1, SendOp::Write(remote), 0, 3000);
    post!(pair.a, 2, SendOp::Read(remote), 8000, 3000);
    pair.exchange();
    completed!(pair.a, [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(pair.a.bytes(8000, 3000), pattern(1, 3000));
    assert_eq!(
        host.pieces(),
        (1, 0),
        "a request that is refused is not tried again"
    );
    // A wrong key is reported as ever.
    host.state().refuses_after = None;
    let wrong = RemoteAddress { rkey: 1, ..remote };
    post!(pair.a, 3, SendOp::Write(wrong), 0, 8);
    pair.exchange();
    completed!(pair.a, [(3, Status::RemoteAccess)]);
    assert_eq!(pair.b.events(), [Event::QpAccessError(pair.b.qpn)]);
}

#[test]
fn a_request_refused_in_the_middle_goes_as_records_from_its_beginning() {
    for op in [SendOp::Write, SendOp::Read] {
        let (mut pair, host) = in_pieces();
        pair.a.fill(0, &pattern(1, 4096));
        pair.b.fill(100, &pattern(1, 4096));
        host.state().refuses_after = Some(2);
        let remote = pair.b.remote(100);
        post!(pair.a, 1, op(remote), 0, 4096);
        post!(pair.a, 2, SendOp::Write(remote), 8192, 8);
        assert_eq!(pair.a.transmit().len(), 0, "a piece is not the whole");
        completed!(pair.a, []);
        pair.exchange();
        completed!(pair.a, [(1, Status::Success), (2, Status::Success)]);
        assert_eq!(host.pieces().1, 2);
        assert_eq!(pair.a.nic.counters().direct_writes, 0);
        assert_eq!(pair.a.bytes(8, 4088), pair.b.bytes(108, 4088));
        assert_eq!(pair.b.bytes(108, 4088)[..], pattern(1, 4096)[8..]);
    }
}

#[test]
fn a_request_that_is_wrong_at_its_end_touches_nothing() {
    let (mut pair, host) = in_pieces();
    let key = pair.b.register(|spec| spec.length = 2000);
    let outside = RemoteAddress {
        rkey: key.value(),
        ..pair.b.remote(0)
    };
    pair.a.fill(0, &pattern(1, 4000));
    post!(pair.a, 1, SendOp::Write(outside), 0, 2001);
    pair.exchange();
    completed!(pair.a, [(1, Status::RemoteAccess)]);
    assert_eq!(pair.b.bytes(0, 2001), [0; 2001]);
    assert_eq!(host.pieces(), (1, 0));
    // The same with our own memory.
    let (mut pair, host) = in_pieces();
    let gone = pair.a.register(|_| {});
    let sges = [
        pair.a.sge(0, 1500),
        nonic_core::Sge {
            lkey: gone.value(),
            ..pair.a.sge(4000, 1500)
        },
    ];
    let remote = pair.b.remote(0);
    pair.a.fill(0, &pattern(1, 1500));
    assert!(pair.a.keys().revoke(gone.value()));
    pair.a
        .post(1, SendOp::Write(remote), Data::Sges(&sges), SendFlags::SIGNALED)
        .expect("posted");
    pair.exchange();
    completed!(pair.a, [(1, Status::LocalProtection)]);
    assert_eq!(pair.b.bytes(0, 1500), [0; 1500]);
    assert_eq!(host.pieces(), (0, 0));
}

#[test]
fn a_read_into_memory_that_may_not_be_written_fails_as_ever() {
    let (mut pair, _host) = SharedHost::pair(&Setup::rc());
    let key = pair.a.register(|spec| spec.access = Access::empty());
    let sge = nonic_core::Sge {
        lkey: key.value(),
        ..pair.a.sge(0, 64)
    };
    pair.b.fill(0, &pattern(1, 64));
    let remote = pair.b.remote(0);
    pair.a
        .post(1, SendOp::Read(remote), Data::Sges(&[sge]), SendFlags::SIGNALED)
        .expect("posted");
    pair.exchange();
    completed!(pair.a, [(1, Status::LocalProtection)]);
    assert_eq!(pair.a.bytes(0, 64), [0; 64]);
}

#[test]
fn a_large_message_lets_others_have_their_turn() {
    let (mut pair, host) = in_pieces();
    let (second, _) = pair.connect_more();
    let first = pair.a.qpn;
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 5000);
    pair.a.qpn = second;
    post!(pair.a, 2, SendOp::Write(remote), 0, 8);
    post!(pair.a, 3, SendOp::Write(remote), 0, 8);
    sent!(pair.a, []);
    let owners = |host: &SharedHost| -> Vec<_> { host.state().asked.iter().map(|(qpn, ..)| *qpn).collect() };
    assert_eq!(
        owners(&host),
        [first, first, second, second, first],
        "what is short and alone does not wait"
    );
    assert_eq!(pair.a.nic.ready_queue_pairs(), 1, "more is to be done");
    completed!(pair.a, [(2, Status::Success), (3, Status::Success)]);
    for piece in 4..=5 {
        completed!(pair.a, []);
        sent!(pair.a, []);
        assert_eq!(owners(&host).iter().filter(|qpn| **qpn == first).count(), piece);
    }
    assert_eq!(pair.a.nic.ready_queue_pairs(), 0);
    completed!(pair.a, [(1, Status::Success)]);
}

#[test]
fn many_small_requests_are_done_in_one_call_but_not_without_limit() {
    let (mut pair, host) = SharedHost::pair(&Setup {
        capacity: nonic_core::QpCapacity {
            max_send_wr: 256,
            ..Setup::rc().capacity
        },
        ..Setup::rc()
    });
    let remote = pair.b.remote(0);
    // While the queue is drained, they wait.
    pair.a.go_to(QpState::Sqd);
    for id in 0..100 {
        // Neighbours of one kind would be executed together.
        let op = [SendOp::Write(remote), SendOp::Read(remote)][id as usize % 2];
        post!(pair.a, id, op, 0, 64);
    }
    pair.a.go_to(QpState::Rts);
    sent!(pair.a, []);
    assert_eq!(host.pieces(), (64, 64));
    assert_eq!(pair.a.nic.ready_queue_pairs(), 1);
    sent!(pair.a, []);
    assert_eq!(host.pieces(), (100, 100));
    assert_eq!(pair.a.nic.ready_queue_pairs(), 0);
    let done = pair.a.completions();
    assert!(done.iter().map(|completion| completion.wr_id).eq(0..100));
}

#[test]
fn a_draining_queue_ends_what_it_began_and_begins_nothing() {
    for refused in [false, true] {
        let (mut pair, host) = in_pieces();
        pair.a.fill(0, &pattern(1, 4000));
        let remote = pair.b.remote(0);
        post!(pair.a, 1, SendOp::Write(remote), 0, 4000);
        post!(pair.a, 2, SendOp::Write(remote), 0, 8);
        pair.a.go_to(QpState::Sqd);
        assert_eq!(pair.a.events(), [], "a part of it is in the peer's memory");
        host.state().refuses_after = refused.then_some(2);
        pair.exchange();
        completed!(pair.a, [(1, Status::Success)]);
        assert_eq!(pair.a.events(), [Event::SqDrained(pair.a.qpn)]);
        assert_eq!(pair.b.bytes(0, 4000), pattern(1, 4000));
        assert_eq!(host.pieces(), if refused { (3, 2) } else { (4, 4) });
        host.state().refuses_after = None;
        pair.a.go_to(QpState::Rts);
        pair.exchange();
        completed!(pair.a, [(2, Status::Success)]);
        assert_eq!(
            host.state().asked.last().map(|(.., direct)| *direct),
            Some(Direct::Done)
        );
    }
}

#[test]
fn a_fenced_request_waits_for_a_read_that_went_as_a_record() {
    let (mut pair, host) = SharedHost::pair(&Setup::rc());
    host.state().refuses_after = Some(0);
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Read(remote), 0, 64);
    let fenced = SendFlags::SIGNALED | SendFlags::FENCE;
    let sges = [pair.a.sge(0, 64)];
    pair.a
        .post(2, SendOp::Write(remote), Data::Sges(&sges), fenced)
        .expect("posted");
    sent!(pair.a, []);
    assert_eq!(pair.host().waiting(&pair.a), 1, "the READ alone");
    host.state().refuses_after = None;
    sent!(pair.a, []);
    assert_eq!(host.pieces(), (1, 0));
    pair.exchange();
    completed!(pair.a, [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(
        host.pieces(),
        (2, 1),
        "then nothing is under way, and it goes directly"
    );
}

#[test]
fn a_connection_that_is_not_reliable_writes_records() {
    let (mut pair, host) = SharedHost::pair(&Setup::uc());
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 64);
    assert_eq!(pair.host().waiting(&pair.a), 1);
    assert_eq!(host.pieces(), (0, 0));
    assert_eq!(host.published(&pair.b, pair.b.qpn), None);
}

#[test]
fn a_requester_that_sends_packets_does_not_ask() {
    let mut pair = Pair::rc();
    let host = SharedHost::default();
    host.join(&mut pair.a);
    host.join(&mut pair.b);
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 64);
    assert_eq!(pair.exchange(), 2, "a packet and its acknowledgement");
    completed!(pair.a, [(1, Status::Success)]);
    assert_eq!(host.pieces(), (0, 0));
}

#[test]
fn an_unreachable_peer_gets_records() {
    let mut pair = Pair::local();
    let host = SharedHost::default();
    host.join(&mut pair.a);
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 64);
    assert_eq!(deliver(&mut pair), Some(RecordAnswer::Executed));
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
    assert_eq!(pair.a.nic.counters().direct_writes, 0);
}

#[test]
fn writes_are_executed_in_the_peers_memory_only_while_no_record_is_under_way() {
    let (mut pair, shared) = SharedHost::pair(&Setup::local());
    let remote = pair.b.remote(64);
    pair.a.set_word(0, 11);
    post!(pair.a, 1, SendOp::Write(remote), 0, 8);
    completed!(pair.a, [(1, Status::Success)]);
    assert_eq!(pair.b.word(64), 11);
    // A SEND is under way: the WRITE must not overtake it.
    pair.a.set_word(0, 12);
    recv!(pair.b, 9, 0, 64);
    post!(pair.a, 2, SendOp::Send, 0, 8);
    post!(pair.a, 3, SendOp::Write(remote), 0, 8);
    assert_eq!(pair.b.word(64), 11);
    pair.exchange();
    assert_eq!(pair.b.word(64), 12);
    completed!(pair.a, [(2, Status::Success), (3, Status::Success)]);
    // The numbers of records are as if there had been no others.
    pair.a.set_word(0, 13);
    post!(pair.a, 4, SendOp::Write(remote), 0, 8);
    completed!(pair.a, [(4, Status::Success)]);
    assert_eq!((pair.b.word(64), shared.pieces()), (13, (2, 2)));
}

/// Two processes of one host with lanes that reach each other's memory, after a first WRITE.
fn reaching() -> (Pair, SharedHost) {
    let (mut pair, shared) = SharedHost::pair(&Setup::local());
    let remote = pair.b.remote(0);
    post!(pair.a, 0, SendOp::Write(remote), 0, 8);
    completed!(pair.a, [(0, Status::Success)]);
    (pair, shared)
}

#[test]
fn writes_of_one_list_are_executed_together() {
    let (mut pair, shared) = reaching();
    pair.a.fill(0, &pattern(1, 500));
    let there = |index: u64| pair.b.remote(1000 + 100 * index as usize);
    let list: Vec<_> = (0..5)
        .map(|index| (index, SendOp::Write(there(index)), (100 * index as usize, 100)))
        .collect();
    pair.a.post_list(&list);
    completed!(pair.a, []);
    sent!(pair.a, []);
    let all = [0, 1, 2, 3, 4].map(|wr_id| (wr_id, Status::Success));
    assert_eq!(crate::support::outcomes(&pair.a.completions()), all);
    assert_eq!(pair.b.bytes(1000, 500), pattern(1, 500));
    assert_eq!(shared.state().runs, [(5, 5)]);
    assert_eq!(pair.host().waiting(&pair.a), 0);
    let counters = pair.a.nic.counters();
    assert_eq!((counters.direct_writes, counters.direct_bytes), (6, 508));
}

#[test]
fn a_list_of_different_requests_is_executed_in_order() {
    let (mut pair, shared) = reaching();
    let (here, there) = (pair.b.remote(64), pair.b.remote(128));
    pair.a.fill(0, &pattern(2, 24));
    let add = SendOp::FetchAdd { remote: here, add: 1 };
    pair.a.post_list(&[
        (1, SendOp::Write(here), (0, 8)),
        (2, SendOp::Write(there), (8, 8)),
        (3, SendOp::Read(here), (256, 8)),
        (4, SendOp::Read(there), (264, 8)),
        (5, SendOp::Write(here), (16, 0)),
        (6, add, (272, 8)),
        (7, SendOp::Write(here), (16, 8)),
    ]);
    pair.exchange();
    let all = [1, 2, 3, 4, 5, 6, 7].map(|wr_id| (wr_id, Status::Success));
    assert_eq!(crate::support::outcomes(&pair.a.completions()), all);
    assert_eq!(shared.state().runs, [(2, 2), (2, 2)]);
    assert_eq!(pair.a.bytes(256, 16), pattern(2, 16));
    assert_eq!(
        pair.a.bytes(272, 8),
        pattern(2, 8),
        "what the READ saw was there still"
    );
    assert_eq!(pair.b.bytes(64, 8), &pattern(2, 24)[16..]);
}

#[test]
fn what_a_peer_does_not_permit_goes_as_a_record_with_all_behind_it() {
    let (mut pair, shared) = reaching();
    let remote = pair.b.remote(64);
    let executed = shared.pieces().0;
    shared.state().refuses_after = Some(executed + 2);
    let writes = [1, 2, 3, 4].map(|wr_id| (wr_id, SendOp::Write(remote), (8 * wr_id as usize, 8)));
    pair.a.fill(0, &pattern(3, 40));
    pair.a.post_list(&writes);
    sent!(pair.a, []);
    assert_eq!(shared.state().runs[0], (4, 2));
    assert_eq!(pair.host().waiting(&pair.a), 2);
    completed!(pair.a, [(1, Status::Success), (2, Status::Success)]);
    pair.exchange();
    completed!(pair.a, [(3, Status::Success), (4, Status::Success)]);
    assert_eq!(pair.b.bytes(64, 8), &pattern(3, 40)[32..]);
}
