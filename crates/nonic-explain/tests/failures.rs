//! Explanations of failures: for each way in which a queue pair fails, what is recorded, and that both sides'
//! explanations name the cause and the next step.

use crate::support::{Fate, Node, Pair, Setup, Side, ms};
use crate::{completed, post, recv};
use nonic_core::record::{QpEvent, RefusalReason};
use nonic_core::{Access, KeyError, PathMtu, Psn, QpState, RemoteAddress, SendOp, Status};
use nonic_explain::Explanation;

/// What a node says about a request with this status, or about its queue pair.
#[track_caller]
fn said(node: &Node, status: Option<Status>) -> String {
    let explanation = Explanation::of_queue_pair(&node.nic, node.qpn, status);
    explanation.expect("there is something to explain").to_string()
}

#[track_caller]
fn says(node: &Node, status: Option<Status>, words: &[&str]) {
    let said = said(node, status);
    for word in words {
        assert!(said.contains(word), "{word:?} is missing in: {said}");
    }
}

fn events(node: &Node) -> Vec<QpEvent> {
    let recorded = node.nic.recorded(node.qpn);
    recorded.map(|recorded| recorded.event.clone()).collect()
}

/// A requester whose peer refuses: what both say.
#[track_caller]
fn refused(mut pair: Pair, op: SendOp, length: u32, status: Status, here: &[&str], there: &[&str]) {
    post!(pair.a, 7, op, 0, length);
    pair.exchange();
    completed!(pair.a, [(7, status)]);
    says(&pair.a, Some(status), here);
    says(&pair.a, None, here);
    says(&pair.b, None, there);
}

#[test]
fn a_healthy_queue_pair_has_its_states_written_down_and_nothing_to_explain() {
    let mut pair = Pair::rc();
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 4096);
    pair.exchange();
    let states = [QpState::Init, QpState::Rtr, QpState::Rts].map(QpEvent::Moved);
    assert_eq!(events(&pair.a), states);
    assert_eq!(events(&pair.b), states);
    assert_eq!(Explanation::of_queue_pair(&pair.a.nic, pair.a.qpn, None), None);
    assert_eq!(
        Explanation::of_queue_pair(&pair.a.nic, pair.a.qpn, Some(Status::Success)),
        None
    );
    assert!(pair.a.destroy_qp(pair.a.qpn));
    assert_eq!(pair.a.nic.recorded(pair.a.qpn).count(), 0);
}

#[test]
fn an_unknown_key_is_told_from_a_revoked_one() {
    let status = Status::RemoteAccess;
    let pair = Pair::rc();
    let remote = RemoteAddress {
        rkey: pair.b.key.value() ^ 0x55,
        ..pair.b.remote(0)
    };
    let here = [
        "The peer refused the WRITE of 64 bytes",
        "wr_id 7",
        "rkey",
        "NONIC_LOG",
    ];
    let there = [
        "refused the peer's WRITE of 64 bytes",
        "there is no such key here",
    ];
    refused(pair, SendOp::Write(remote), 64, status, &here, &there);

    let mut pair = Pair::rc();
    let key = pair.b.register(|_| ());
    assert!(pair.b.keys().revoke(key.value()));
    let remote = RemoteAddress {
        rkey: key.value(),
        ..pair.b.remote(0)
    };
    let there = ["has been revoked", "keep the memory registered"];
    refused(pair, SendOp::Write(remote), 64, status, &here, &there);
}

#[test]
fn rights_bounds_and_domain_of_a_key_are_named() {
    let status = Status::RemoteAccess;
    let mut pair = Pair::rc();
    let readable = pair
        .b
        .register(|spec| spec.access = Access::LOCAL_WRITE | Access::REMOTE_READ);
    let remote = RemoteAddress {
        rkey: readable.value(),
        ..pair.b.remote(0)
    };
    let there = [
        "exists but does not allow remote write",
        "it allows LOCAL_WRITE, REMOTE_READ",
        "register the memory with remote write (REMOTE_WRITE) as well",
    ];
    refused(pair, SendOp::Write(remote), 8, status, &["key"], &there);

    let mut pair = Pair::rc();
    let short = pair.b.register(|spec| spec.length = 4096);
    let remote = RemoteAddress {
        va: short.iova() + 4000,
        rkey: short.value(),
    };
    let there = [
        "out of bounds",
        "ends at 0x7f0000011020",
        "covers 4096 bytes, from 0x7f0000010000",
    ];
    refused(pair, SendOp::Read(remote), 128, status, &["READ of 128"], &there);

    let mut pair = Pair::rc();
    let foreign = pair.b.keys().alloc_pd();
    let key = pair.b.register(|spec| spec.pd = foreign);
    let remote = RemoteAddress {
        rkey: key.value(),
        ..pair.b.remote(0)
    };
    let there = ["belongs to another protection domain", "created in"];
    refused(pair, SendOp::Write(remote), 8, status, &["key"], &there);
}

#[test]
fn what_the_queue_pair_does_not_permit_and_unaligned_words_are_named() {
    let setup = Setup {
        access: Access::REMOTE_READ,
        ..Setup::rc()
    };
    let pair = Pair::new(&setup);
    let remote = pair.b.remote(0);
    let status = Status::RemoteInvalidRequest;
    let there = [
        "does not permit its peer remote write",
        "it permits REMOTE_READ",
        "qp_access_flags",
    ];
    refused(
        pair,
        SendOp::Write(remote),
        8,
        status,
        &["qp_access_flags"],
        &there,
    );

    let pair = Pair::rc();
    let remote = pair.b.remote(4);
    let there = ["multiple of 8", "align"];
    refused(
        pair,
        SendOp::FetchAdd { remote, add: 1 },
        8,
        status,
        &["multiple of 8"],
        &there,
    );
}

#[test]
fn a_receive_that_is_too_short_is_named_with_both_lengths() {
    let status = Status::RemoteInvalidRequest;
    let mut pair = Pair::rc();
    recv!(pair.b, 1, 0, 100);
    let here = ["SEND of 300 bytes", "longer than the receive"];
    let there = [
        "too long for the receive",
        "300 bytes or more came, 100 fit",
        "post receives of the longest",
    ];
    refused(pair, SendOp::Send, 300, status, &here, &there);
}

#[test]
fn the_status_of_a_receive_has_the_same_explanation_as_its_queue_pair() {
    let mut pair = Pair::rc();
    recv!(pair.b, 1, 0, 100);
    recv!(pair.b, 2, 0, 100);
    post!(pair.a, 7, SendOp::Send, 0, 300);
    pair.exchange();
    says(
        &pair.b,
        Some(Status::LocalLength),
        &["300 bytes or more came, 100 fit"],
    );
    says(
        &pair.b,
        Some(Status::Flushed),
        &["was flushed", "What came first", "100 fit"],
    );
}

#[test]
fn a_receive_whose_memory_may_not_be_written_is_named_with_its_key() {
    let status = Status::RemoteOperation;
    let mut pair = Pair::rc();
    let key = pair.b.register(|spec| spec.access = Access::REMOTE_READ);
    let mut sge = pair.b.sge(0, 64);
    sge.lkey = key.value();
    pair.b.post_recv(1, &[sge]).expect("the receive is posted");
    let there = ["its receive could not take it", "does not permit", "LOCAL_WRITE"];
    refused(pair, SendOp::Send, 8, status, &["receive"], &there);
}

#[test]
fn a_peer_that_never_has_a_receive_is_told_from_one_that_never_answers() {
    let setup = Setup {
        rnr_retry: 1,
        ..Setup::rc()
    };
    let mut pair = Pair::new(&setup);
    post!(pair.a, 7, SendOp::Send, 0, 8);
    for _ in 0..8 {
        pair.exchange();
        pair.advance(ms(500));
    }
    completed!(pair.a, [(7, Status::RnrRetryExceeded)]);
    says(&pair.a, None, &["had no receive posted", "post receives before"]);
    assert!(events(&pair.b).contains(&QpEvent::NoReceive));

    let mut pair = Pair::rc();
    post!(pair.a, 7, SendOp::Send, 0, 8);
    lose_everything(&mut pair);
    says(
        &pair.a,
        Some(Status::RetryExceeded),
        &["it has never answered", "firewall", "4791"],
    );
}

/// Carries nothing until the requester gives up.
fn lose_everything(pair: &mut Pair) {
    for _ in 0..10_000 {
        if pair.a.state() == QpState::Error {
            return;
        }
        pair.exchange_with(|_, _| Fate::Drop);
        pair.advance(ms(10));
    }
    panic!("it never gave up");
}

#[test]
fn a_peer_that_fell_silent_is_told_from_one_that_never_answered() {
    let mut pair = Pair::rc();
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 8);
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
    post!(pair.a, 2, SendOp::Write(remote), 0, 8);
    post!(pair.a, 3, SendOp::Write(remote), 0, 8);
    lose_everything(&mut pair);
    completed!(pair.a, [(2, Status::RetryExceeded), (3, Status::Flushed)]);
    let words = [
        "WRITE of 8 bytes, wr_id 2",
        "fell silent",
        "killed",
        "raise the timeout",
    ];
    says(&pair.a, Some(Status::RetryExceeded), &words);
    says(&pair.a, Some(Status::Flushed), &words);
    assert!(events(&pair.a).contains(&QpEvent::TimedOut {
        retries_left: 0,
        answered: true
    }));
}

#[test]
fn first_packet_numbers_that_do_not_agree_are_named() {
    let mut pair = Pair::rc();
    // The peer was told another number than the one we begin with. It holds what comes, in vain.
    let remote = crate::support::Remote {
        ip: pair.b.ip,
        qpn: pair.b.qpn,
        psn: Psn::new(pair.a.setup.second_psn),
    };
    let (qpn, a) = (pair.a.qpn, &mut pair.a);
    a.go_to(QpState::Reset);
    let to_init = a.setup.to_init();
    a.modify(qpn, &to_init).expect("RESET to INIT");
    a.connect(qpn, &remote, Psn::new(pair.b.setup.first_psn + 1000));
    post!(pair.a, 7, SendOp::Write(pair.b.remote(0)), 0, 8);
    for _ in 0..10_000 {
        pair.exchange();
        pair.advance(ms(10));
    }
    completed!(pair.a, [(7, Status::RetryExceeded)]);
    says(
        &pair.a,
        Some(Status::RetryExceeded),
        &["PSN mismatch", "`sq_psn`"],
    );
}

#[test]
fn path_mtus_that_differ_are_named() {
    let mut pair = Pair::rc();
    let smaller = Setup {
        mtu: PathMtu::Mtu512,
        ..Setup::rc()
    };
    let (qpn, b) = (pair.b.qpn, &mut pair.b);
    let at_a = crate::support::Remote {
        ip: pair.a.ip,
        qpn: pair.a.qpn,
        psn: Psn::new(smaller.first_psn),
    };
    b.go_to(QpState::Reset);
    b.setup = smaller;
    let to_init = b.setup.to_init();
    b.modify(qpn, &to_init).expect("RESET to INIT");
    b.connect(qpn, &at_a, Psn::new(b.setup.second_psn));
    let remote = pair.b.remote(0);
    let there = ["1024 bytes of payload", "path MTU of 512", "path_mtu"];
    let status = Status::RemoteInvalidRequest;
    refused(
        pair,
        SendOp::Write(remote),
        4096,
        status,
        &["different path MTUs"],
        &there,
    );
}

#[test]
fn local_keys_are_named_with_what_they_cover() {
    let mut pair = Pair::rc();
    let remote = pair.b.remote(0);
    let beyond = pair.a.setup.memory - 4;
    post!(pair.a, 7, SendOp::Write(remote), beyond, 8);
    pair.exchange();
    completed!(pair.a, [(7, Status::LocalProtection)]);
    let words = [
        "8 bytes at",
        "out of bounds of the key",
        "covers 262144 bytes",
        "check address and length",
    ];
    says(&pair.a, Some(Status::LocalProtection), &words);

    let mut pair = Pair::rc();
    let key = pair.a.key.value();
    assert!(pair.a.keys().revoke(key));
    post!(pair.a, 7, SendOp::Write(remote), 0, 8);
    pair.exchange();
    completed!(pair.a, [(7, Status::LocalProtection)]);
    says(&pair.a, None, &["has been revoked", "only after the completions"]);
}

#[test]
fn a_key_that_cannot_be_invalidated_is_named() {
    let mut pair = Pair::rc();
    let key = pair.a.key.value();
    post!(pair.a, 7, SendOp::LocalInvalidate(key), 0, 0);
    pair.exchange();
    completed!(pair.a, [(7, Status::LocalQpOperation)]);
    says(&pair.a, None, &["LOCAL_INV", "cannot be invalidated", "type 2"]);
}

#[test]
fn a_completion_queue_that_overflows_is_named() {
    let setup = Setup {
        cq_capacity: 1,
        ..Setup::rc()
    };
    let mut pair = Pair::new(&setup);
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 8);
    post!(pair.a, 2, SendOp::Write(remote), 0, 8);
    pair.exchange();
    pair.a.nic.publish();
    says(&pair.a, None, &["CQ overrun", "poll more often"]);
}

#[test]
fn datagrams_that_are_dropped_are_written_down_with_the_reason() {
    let mut pair = Pair::ud();
    let mut to_b = pair.to_b();
    to_b.qkey ^= 1;
    pair.a
        .post_to(1, SendOp::Send, (0, 8), to_b)
        .expect("the datagram is posted");
    pair.exchange();
    let dropped = |reason| QpEvent::Dropped(nonic_core::record::RequestKind::Send, reason);
    assert_eq!(events(&pair.b).last(), Some(&dropped(RefusalReason::Qkey)));
    says(&pair.b, None, &["Q_Key", "INIT"]);
    let to_b = pair.to_b();
    pair.a
        .post_to(2, SendOp::Send, (0, 8), to_b)
        .expect("the datagram is posted");
    pair.exchange();
    assert_eq!(events(&pair.b).last(), Some(&dropped(RefusalReason::NoReceive)));
    says(&pair.b, None, &["no receive was posted"]);
}

#[test]
fn an_unreliable_write_that_is_dropped_is_written_down() {
    let mut pair = Pair::uc();
    let remote = RemoteAddress {
        rkey: 3,
        ..pair.b.remote(0)
    };
    post!(pair.a, 1, SendOp::Write(remote), 0, 8);
    pair.exchange();
    let unknown = RefusalReason::Key(KeyError::Unknown);
    let kind = nonic_core::record::RequestKind::Write;
    assert_eq!(events(&pair.b).last(), Some(&QpEvent::Dropped(kind, unknown)));
}

#[test]
fn a_queue_pair_that_the_program_ends_has_nothing_to_blame() {
    let mut pair = Pair::rc();
    recv!(pair.a, 1, 0, 8);
    pair.a.go_to(QpState::Error);
    says(
        &pair.a,
        Some(Status::Flushed),
        &["was flushed", "moved the queue pair to the error state"],
    );
    assert_eq!(Explanation::of_queue_pair(&pair.a.nic, pair.a.qpn, None), None);
}

#[test]
fn a_queue_pair_that_was_reset_begins_anew() {
    let mut pair = Pair::rc();
    recv!(pair.b, 1, 0, 100);
    post!(pair.a, 7, SendOp::Send, 0, 300);
    pair.exchange();
    says(&pair.b, None, &["100 fit"]);
    pair.b.go_to(QpState::Reset);
    assert_eq!(Explanation::of_queue_pair(&pair.b.nic, pair.b.qpn, None), None);
    assert_eq!(events(&pair.b).last(), Some(&QpEvent::Moved(QpState::Reset)));
}

#[test]
fn losses_are_written_down_and_are_no_failure() {
    let mut pair = Pair::rc();
    let remote = pair.b.remote(0);
    for wr_id in 1..=4 {
        post!(pair.a, wr_id, SendOp::Write(remote), 0, 8);
    }
    let mut lost = 0;
    for _ in 0..100 {
        pair.exchange_with(|side, _| match side {
            Side::A if lost < 4 => {
                lost += 1;
                Fate::Drop
            }
            _ => Fate::Deliver,
        });
        pair.advance(ms(10));
    }
    assert_eq!(pair.a.completions().len(), 4);
    assert!(events(&pair.a).contains(&QpEvent::Silence));
    assert_eq!(Explanation::of_queue_pair(&pair.a.nic, pair.a.qpn, None), None);
}

#[test]
fn the_long_form_lists_the_events() {
    let mut pair = Pair::rc();
    let remote = pair.b.remote(4);
    post!(pair.a, 7, SendOp::FetchAdd { remote, add: 1 }, 0, 8);
    pair.exchange();
    let explanation = Explanation::of_queue_pair(&pair.b.nic, pair.b.qpn, None).expect("it refused");
    let long = format!("{explanation:#}");
    for line in [
        "\ntry:\n  - align",
        "last events of the queue pair:",
        "went to RTS",
        "went to ERR",
    ] {
        assert!(long.contains(line), "{line:?} is missing in: {long}");
    }
}

/// A requester whose peer's queue pair is destroyed: what it says of the request after that.
fn says_that_the_peer_is_gone(farewell: bool) {
    let mut pair = Pair::rc();
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 8);
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
    let qpn = pair.b.qpn;
    assert!(pair.b.destroy_qp(qpn));
    if farewell {
        assert!(pair.b.nic.departed_peer(qpn).is_some());
        pair.b.nic.bid_farewell(qpn);
        pair.exchange();
    }
    post!(pair.a, 2, SendOp::Write(remote), 0, 0);
    pair.exchange();
    pair.advance(ms(1000));
    completed!(pair.a, [(2, Status::RetryExceeded)]);
    says(
        &pair.a,
        None,
        &["destroyed its queue pair", "Try: have both sides agree"],
    );
}

#[test]
fn a_peer_that_was_destroyed_is_named_whether_it_said_so_or_was_asked() {
    says_that_the_peer_is_gone(false);
    says_that_the_peer_is_gone(true);
}
