//! The window to a peer: bounded, shared by all connections to it, smaller after loss.

use crate::support::{Fate, Pair, Setup, Side, Solo, Wire, ms, pattern};
use crate::{completed, post, recv, sent};
use nonic_core::{Data, PathMtu, QpState, SendFlags, SendOp, Sge, Status, WindowConfig};
use nonic_wire::{NakCode, Opcode, Syndrome};

const MTU: u32 = 1024;

fn narrow(packets: u32) -> Setup {
    Setup {
        window: WindowConfig {
            initial: packets * MTU,
            max: packets * MTU,
        },
        ..Setup::rc()
    }
}

#[test]
fn bytes_under_way_never_exceed_the_window() {
    for packets in [1, 2, 8, 33] {
        let mut pair = Pair::new(&narrow(packets));
        let remote = pair.b.remote(0);
        for wr_id in 0..4 {
            post!(pair.a, wr_id, SendOp::Write(remote), 0, 50_000);
            post!(pair.a, 10 + wr_id, SendOp::Read(remote), 64 << 10, 50_000);
        }
        let limit = u64::from(packets * MTU);
        loop {
            let requests = pair.a.transmit();
            assert!(pair.a.nic.usage().in_flight_bytes <= limit);
            if requests.is_empty() {
                break;
            }
            pair.b.receive_all(&requests);
            let answers = pair.b.transmit();
            assert!(answers.len() <= packets as usize + 2, "{} answers", answers.len());
            for answer in &answers {
                pair.a.receive(answer);
                assert!(pair.a.nic.usage().in_flight_bytes <= limit);
            }
        }
        assert_eq!(pair.a.completions().len(), 8);
        assert_eq!(pair.a.nic.usage().in_flight_bytes, 0);
    }
}

#[test]
fn one_packet_may_always_be_under_way() {
    let mut pair = Pair::new(&Setup {
        window: WindowConfig { initial: 1, max: 1 },
        ..Setup::rc()
    });
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 5000);
    sent!(pair.a, [RC_RDMA_WRITE_FIRST]);
    pair.advance(ms(70));
    pair.exchange();
    completed!(pair.a, [(1, Status::Success)]);
}

#[test]
fn a_full_window_is_asked_about_unless_an_answer_is_due_anyway() {
    let mut solo = Solo::new(&narrow(20));
    let remote = solo.remote(0);
    post!(solo, 1, SendOp::Write(remote), 0, 60 * MTU);
    let asks = |wires: &[Wire]| wires.iter().map(Wire::asks_for_ack).collect::<Vec<_>>();
    let every_fifth = |index: usize| index % 5 == 4;
    assert_eq!(
        asks(&solo.transmit()),
        (0..20).map(every_fifth).collect::<Vec<_>>()
    );
    // The peer acknowledges a few that it was not asked about. Nor is it about what these made room for.
    solo.answer(2, Syndrome::ack());
    assert_eq!(asks(&solo.transmit()), [false; 3]);
    // Now no answer is due.
    solo.answer(19, Syndrome::ack());
    assert_eq!(
        asks(&solo.transmit()),
        (3..20).map(every_fifth).collect::<Vec<_>>()
    );
    solo.answer(37, Syndrome::ack());
    let rest = asks(&solo.transmit());
    assert!(
        rest.contains(&true),
        "nobody would open the window again: {rest:?}"
    );
}

#[test]
fn connections_to_one_peer_share_its_window() {
    let mut pair = Pair::new(&narrow(10));
    let first = pair.a.qpn;
    let (second, _) = pair.connect_more();
    assert_eq!(pair.a.nic.usage().peers, 1);
    let remote = pair.b.remote(0);
    for qpn in [first, second] {
        pair.a.qpn = qpn;
        post!(pair.a, 1, SendOp::Write(remote), 0, 20 * MTU);
    }
    assert_eq!(pair.a.transmit().len(), 10);
    assert_eq!(pair.a.nic.usage().in_flight_bytes, u64::from(10 * MTU));
}

#[test]
fn connections_that_wait_get_their_turn() {
    let mut pair = Pair::new(&narrow(4));
    let mut qpns = vec![pair.a.qpn];
    for _ in 0..9 {
        qpns.push(pair.connect_more().0);
    }
    let remote = pair.b.remote(0);
    for (index, qpn) in qpns.iter().enumerate() {
        pair.a.qpn = *qpn;
        post!(pair.a, index as u64, SendOp::Write(remote), 0, 9 * MTU);
        post!(pair.a, index as u64, SendOp::Read(remote), 0, 9 * MTU);
    }
    pair.exchange();
    assert_eq!(pair.a.completions().len(), 20);
    assert_eq!(pair.a.nic.usage().in_flight_bytes, 0);
}

/// Fills the window with one connection and lets another wait for it.
fn one_fills_one_waits() -> (Pair, nonic_core::Qpn) {
    let mut pair = Pair::new(&narrow(4));
    let first = pair.a.qpn;
    let (second, _) = pair.connect_more();
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 4 * MTU);
    assert_eq!(pair.a.transmit().len(), 4);
    pair.a.qpn = second;
    post!(pair.a, 2, SendOp::Write(remote), 0, 8);
    sent!(pair.a, []);
    (pair, first)
}

#[test]
fn destroying_the_one_that_filled_the_window_lets_the_next_go_on() {
    let (mut pair, first) = one_fills_one_waits();
    assert!(pair.a.destroy_qp(first));
    sent!(pair.a, [RC_RDMA_WRITE_ONLY]);
}

#[test]
fn resetting_the_one_that_filled_the_window_lets_the_next_go_on() {
    let (mut pair, first) = one_fills_one_waits();
    let second = std::mem::replace(&mut pair.a.qpn, first);
    pair.a.go_to(QpState::Reset);
    pair.a.qpn = second;
    sent!(pair.a, [RC_RDMA_WRITE_ONLY]);
}

#[test]
fn an_error_of_the_one_that_filled_the_window_lets_the_next_go_on() {
    let (mut pair, first) = one_fills_one_waits();
    pair.a.qpn = first;
    pair.a.go_to(QpState::Error);
    sent!(pair.a, [RC_RDMA_WRITE_ONLY]);
}

#[test]
fn a_local_fault_of_the_one_that_filled_the_window_lets_the_next_go_on() {
    let mut pair = Pair::new(&narrow(4));
    let first = pair.a.qpn;
    let (second, _) = pair.connect_more();
    let remote = pair.b.remote(0);
    let key = pair.a.register(|_| {});
    let element = Sge {
        lkey: key.value(),
        ..pair.a.sge(0, 8 * MTU)
    };
    pair.a
        .post(
            1,
            SendOp::Write(remote),
            Data::Sges(&[element]),
            SendFlags::SIGNALED,
        )
        .expect("posted");
    let packets = pair.a.transmit();
    assert_eq!(packets.len(), 4);
    pair.a.qpn = second;
    post!(pair.a, 2, SendOp::Write(remote), 0, 8);
    sent!(pair.a, []);
    pair.a.keys().revoke(key.value());
    pair.a.qpn = first;
    pair.b.receive(&packets[0]);
    pair.exchange();
    // The second has less than its share, so it goes first. The rest of the first was lost: it finds the fault
    // when it repeats it.
    completed!(pair.a, [(2, Status::Success)]);
    pair.advance(ms(70));
    pair.exchange();
    completed!(pair.a, [(1, Status::LocalProtection)]);
    assert_eq!(pair.a.nic.usage().in_flight_bytes, 0);
}

#[test]
fn a_gap_halves_the_window() {
    let mut pair = Pair::new(&Setup {
        mtu: PathMtu::Mtu1024,
        ..narrow(32)
    });
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 100 * MTU);
    let packets = pair.a.transmit();
    assert_eq!(packets.len(), 32);
    let psn = pair.a.setup.first_psn;
    let nak = refusal(&pair, psn);
    pair.a.receive(&nak);
    assert_eq!(pair.a.transmit().len(), 16);
    assert_eq!(pair.a.nic.usage().in_flight_bytes, u64::from(16 * MTU));
}

#[test]
fn a_gap_of_one_takes_half_of_what_that_one_had() {
    let mut pair = Pair::new(&narrow(32));
    let first = pair.a.qpn;
    let (second, _) = pair.connect_more();
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 8 * MTU);
    assert_eq!(pair.a.transmit().len(), 8);
    pair.a.qpn = second;
    post!(pair.a, 2, SendOp::Write(remote), 0, 100 * MTU);
    assert_eq!(pair.a.transmit().len(), 24);
    pair.a.qpn = first;
    let nak = refusal(&pair, pair.a.setup.first_psn);
    pair.a.receive(&nak);
    assert_eq!(
        pair.a.transmit().len(),
        4,
        "the window is 28 now, and the other has 24"
    );
    assert_eq!(pair.a.nic.usage().in_flight_bytes, u64::from(28 * MTU));
}

fn refusal(pair: &Pair, psn: u32) -> crate::support::Wire {
    let bth = nonic_wire::Bth::new(Opcode::RC_ACKNOWLEDGE, pair.a.qpn, nonic_core::Psn::new(psn));
    let mut headers = nonic_wire::Headers::new(bth);
    headers.aeth.syndrome = Syndrome::nak(NakCode::PsnSequenceError);
    crate::support::Wire::build(pair.b.flow_to(pair.a.ip), headers, &[])
}

#[test]
fn a_timeout_shrinks_it_to_a_few_packets() {
    let mut pair = Pair::new(&narrow(32));
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 100 * MTU);
    assert_eq!(pair.a.transmit().len(), 32);
    pair.advance(ms(70));
    let probe = sent!(pair.a, [RC_RDMA_WRITE_FIRST]);
    pair.b.receive_all(&probe);
    let answer = sent!(pair.b, [RC_ACKNOWLEDGE]);
    pair.a.receive_all(&answer);
    assert_eq!(pair.a.transmit().len(), 5, "four, and one more for the answer");
}

/// A request of one packet is acknowledged within a millisecond, in which nothing reaches the queue pair `silent`.
#[track_caller]
fn progress_beside(pair: &mut Pair, silent: nonic_core::Qpn) {
    let remote = pair.b.remote(0);
    post!(pair.a, 900, SendOp::Write(remote), 0, 8);
    pair.exchange_with(|_, wire| match wire.headers().bth.dest_qp == silent {
        true => Fate::Drop,
        false => Fate::Deliver,
    });
    completed!(pair.a, [(900, Status::Success)]);
    pair.advance(ms(1));
}

#[test]
fn a_timeout_of_one_does_not_shrink_it_while_others_make_progress() {
    let mut pair = Pair::new(&narrow(32));
    let (silent, live) = (pair.b.qpn, pair.connect_more().0);
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 8);
    pair.a.qpn = live;
    // Acknowledgements of one packet each: a burst of them would open the window again at once.
    for _ in 0..100 {
        if pair.a.nic.counters().timeouts > 0 {
            break;
        }
        progress_beside(&mut pair, silent);
    }
    assert_eq!(pair.a.nic.counters().timeouts, 1);
    post!(pair.a, 3, SendOp::Write(remote), 0, 100 * MTU);
    let sent = pair.a.transmit();
    let of_the_live = sent.iter().filter(|wire| wire.headers().bth.dest_qp != silent);
    assert!(of_the_live.count() >= 30, "the window is as large as before");
}

#[test]
fn what_a_stalled_one_had_under_way_does_not_count_again_when_it_is_answered_at_last() {
    let mut pair = Pair::new(&narrow(8));
    let (silent, live) = (pair.b.qpn, pair.connect_more().0);
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 3 * MTU);
    post!(pair.a, 2, SendOp::Write(remote), 0, 3 * MTU);
    let packets = pair.a.transmit();
    pair.b.receive_all(&packets[..3]);
    let late = pair.b.transmit();
    pair.a.qpn = live;
    for _ in 0..50 {
        progress_beside(&mut pair, silent);
    }
    post!(pair.a, 4, SendOp::Write(remote), 0, 100 * MTU);
    pair.a.transmit();
    let full = u64::from(8 * MTU);
    assert_eq!(
        pair.a.nic.usage().in_flight_bytes,
        full,
        "all of it is the other's"
    );
    pair.a.receive_all(&late);
    completed!(pair.a, [(1, Status::Success)]);
    assert_eq!(pair.a.nic.usage().in_flight_bytes, full);
}

#[test]
fn acknowledgements_make_it_grow_again_up_to_its_maximum() {
    let mut pair = Pair::new(&Setup {
        window: WindowConfig {
            initial: 4 * MTU,
            max: 20 * MTU,
        },
        ..Setup::rc()
    });
    let remote = pair.b.remote(0);
    let mut largest = 0;
    for _ in 0..20 {
        post!(pair.a, 1, SendOp::Write(remote), 0, 100 * MTU);
        loop {
            let packets = pair.a.transmit();
            largest = largest.max(pair.a.nic.usage().in_flight_bytes);
            if packets.is_empty() {
                break;
            }
            pair.b.receive_all(&packets);
            let answers = pair.b.transmit();
            pair.a.receive_all(&answers);
        }
        completed!(pair.a, [(1, Status::Success)]);
    }
    assert_eq!(largest, u64::from(20 * MTU));
}

#[test]
fn a_shrunken_window_does_not_wait_for_an_acknowledgement_nobody_asked_for() {
    // The first connection never times out and has packets under way that did not ask. A timeout of the
    // second shrinks the window below them, so that neither may go on.
    let mut pair = Pair::new(&Setup {
        timeout_exponent: 0,
        max_segments: 1,
        ..narrow(64)
    });
    pair.a.setup.timeout_exponent = 10;
    let (second, _) = pair.connect_more();
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 100 * MTU);
    let mut buffer = vec![0; nonic_core::MAX_BATCH_LEN];
    let now = pair.a.now;
    let mut next_packet = |pair: &mut Pair| {
        let batch = pair.a.nic.poll_transmit(now, 1, &mut buffer).expect("a packet");
        crate::support::Wire {
            flow: batch.flow,
            identification: 0,
            bytes: buffer[..batch.len].to_vec(),
        }
    };
    let mut quiet: Vec<_> = (0..14).map(|_| next_packet(&mut pair)).collect();
    pair.a.qpn = second;
    post!(pair.a, 2, SendOp::Write(remote), 0, 8);
    quiet.push(next_packet(&mut pair));
    assert!(quiet.iter().all(|wire| !wire.asks_for_ack()));
    let lost = next_packet(&mut pair);
    assert_eq!(lost.opcode(), Opcode::RC_RDMA_WRITE_ONLY);
    pair.a.advance(ms(5));
    assert_eq!(pair.a.nic.counters().timeouts, 1);
    pair.b.receive_all(&quiet);
    pair.exchange();
    let mut ids: Vec<u64> = pair.a.completions().iter().map(|c| c.wr_id).collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 2]);
}

#[test]
fn read_requests_are_no_larger_than_the_window_allows() {
    let mut pair = Pair::new(&narrow(8));
    pair.b.fill(0, &pattern(1, 60_000));
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Read(remote), 64 << 10, 60_000);
    let mut requests = 0;
    pair.exchange_with(|from, wire| {
        if from == Side::A {
            requests += 1;
            assert!(wire.headers().reth.dma_len <= 8 * MTU);
        }
        Fate::Deliver
    });
    assert!(requests > 7, "{requests} requests");
    completed!(pair.a, [(1, Status::Success)]);
    assert_eq!(pair.a.bytes(64 << 10, 60_000), pattern(1, 60_000));
}

/// All but the part that is just being asked for is under way, not half of the window.
#[test]
fn a_long_read_is_asked_for_in_as_many_parts_as_may_be_under_way() {
    const WINDOW: u32 = 1 << 20;
    for (at_once, part) in [(1, WINDOW / 2), (4, WINDOW / 4), (16, 64 << 10)] {
        let mut solo = Solo::new(&Setup {
            window: WindowConfig {
                initial: WINDOW,
                max: WINDOW,
            },
            max_rd_atomic: at_once,
            memory: 1 << 20,
            ..Setup::rc()
        });
        let remote = solo.remote(0);
        for id in 0..4 {
            post!(solo, id, SendOp::Read(remote), 0, 512 << 10);
        }
        let requests = solo.transmit();
        let lengths: Vec<u32> = requests.iter().map(|wire| wire.headers().reth.dma_len).collect();
        assert_eq!(
            lengths,
            vec![part; usize::from(at_once).min((WINDOW / part) as usize)]
        );
    }
}

#[test]
fn a_change_of_path_takes_the_bytes_under_way_along() {
    let mut pair = Pair::new(&narrow(4));
    let (second, _) = pair.connect_more();
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 4 * MTU);
    assert_eq!(pair.a.transmit().len(), 4);
    pair.a.go_to(QpState::Sqd);
    let elsewhere = nonic_core::QpAttributes {
        path: Some(nonic_core::Path {
            gid_index: 0,
            remote: std::net::IpAddr::from([10, 0, 0, 77]),
        }),
        ..nonic_core::QpAttributes::default()
    };
    let qpn = pair.a.qpn;
    pair.a.modify(qpn, &elsewhere).expect("SQD to SQD");
    assert_eq!(pair.a.nic.usage().peers, 2);
    assert_eq!(pair.a.nic.usage().in_flight_bytes, u64::from(4 * MTU));
    // The old peer's window is free for the other connection.
    pair.a.qpn = second;
    recv!(pair.b, 9, 0, 8);
    post!(pair.a, 2, SendOp::Write(remote), 0, 4 * MTU);
    assert_eq!(pair.a.transmit().len(), 4);
    assert!(pair.a.destroy_qp(qpn));
    assert_eq!(pair.a.nic.usage().peers, 1);
    assert_eq!(pair.a.nic.usage().in_flight_bytes, u64::from(4 * MTU));
}

#[test]
fn a_large_read_is_not_starved_by_a_stream_of_writes_next_to_it() {
    let mut pair = Pair::new(&narrow(64));
    let writer = pair.a.qpn;
    let (reader, _) = pair.connect_more();
    let remote = pair.b.remote(0);
    for wr_id in 0..8 {
        post!(pair.a, wr_id, SendOp::Write(remote), 0, 64 * MTU);
    }
    let mut wire = std::collections::VecDeque::from(pair.a.transmit());
    pair.a.qpn = reader;
    post!(pair.a, 100, SendOp::Read(remote), 0, 100 * MTU);
    let mut written = 0;
    // Answers arrive one by one, and the writer uses every gap at once.
    while let Some(packet) = wire.pop_front() {
        pair.b.receive(&packet);
        for answer in pair.b.transmit() {
            pair.a.receive(&answer);
            wire.extend(pair.a.transmit());
        }
        for completion in pair.a.completions() {
            if completion.wr_id == 100 {
                return;
            }
            written += 1;
            assert!(written < 100, "the READ gets no turn");
            pair.a.qpn = writer;
            post!(pair.a, completion.wr_id, SendOp::Write(remote), 0, 64 * MTU);
            wire.extend(pair.a.transmit());
        }
    }
    panic!("everything stopped");
}

#[test]
fn an_overflow_of_the_completion_queue_lets_others_go_on() {
    let mut pair = Pair::new(&narrow(4));
    let (second, _) = pair.connect_more();
    let remote = pair.b.remote(0);
    // Only receives go to the small queue, and only the first connection is told of its overflow.
    let small = std::sync::Arc::new(nonic_core::CompletionQueue::new(nonic_core::CqId(9), 1));
    let mut init = pair.a.qp_init();
    init.recv_cq = small;
    let failing = pair.a.nic.create_qp(init).expect("created");
    let to_init = pair.a.setup.to_init();
    pair.a.modify(failing, &to_init).expect("RESET to INIT");
    let at_b = pair.b.add_qp();
    pair.connect(failing, at_b);
    pair.a.qpn = failing;
    recv!(pair.a, 1, 0, 8);
    recv!(pair.a, 2, 0, 8);
    post!(pair.a, 3, SendOp::Write(remote), 0, 4 * MTU);
    assert_eq!(pair.a.transmit().len(), 4);
    pair.a.qpn = second;
    post!(pair.a, 4, SendOp::Write(remote), 0, 8);
    sent!(pair.a, []);
    pair.b.qpn = at_b;
    for wr_id in 1..=2 {
        post!(pair.b, wr_id, SendOp::Send, 0, 8);
    }
    let sends = pair.b.transmit();
    pair.a.receive_all(&sends);
    pair.a.transmit();
    pair.a.nic.publish();
    assert_eq!(pair.a.nic.qp_state(failing), Some(QpState::Error));
    sent!(pair.a, [RC_RDMA_WRITE_ONLY]);
}

/// Three connections: the first has the whole window, the other two stand in line with ten packets each.
fn two_in_line() -> (Pair, [nonic_core::Qpn; 3]) {
    let mut pair = Pair::new(&Setup {
        max_segments: 1,
        ..narrow(4)
    });
    let first = pair.a.qpn;
    let (second, _) = pair.connect_more();
    let (third, _) = pair.connect_more();
    let remote = pair.b.remote(0);
    post!(pair.a, 1, SendOp::Write(remote), 0, 4 * MTU);
    let packets = pair.a.transmit();
    assert_eq!(packets.len(), 4);
    for qpn in [second, third] {
        pair.a.qpn = qpn;
        post!(pair.a, 2, SendOp::Write(remote), 0, 10 * MTU);
        sent!(pair.a, []);
    }
    pair.b.receive_all(&packets);
    (pair, [first, second, third])
}

#[test]
fn those_in_line_take_turns() {
    let (mut pair, _) = two_in_line();
    let answers = pair.b.transmit();
    pair.a.receive_all(&answers);
    let packets = pair.a.transmit();
    let to: Vec<_> = packets.iter().map(|wire| wire.headers().bth.dest_qp).collect();
    assert_eq!(to.len(), 4);
    assert_ne!(to[0], to[1]);
    assert_eq!(to[..2], to[2..]);
}

#[test]
fn one_destroyed_in_its_turn_passes_it_on() {
    for destroy in [true, false] {
        let (mut pair, [first, second, third]) = two_in_line();
        assert!(pair.a.destroy_qp(first));
        if destroy {
            assert!(pair.a.destroy_qp(second));
        } else {
            pair.a.qpn = second;
            pair.a.go_to(QpState::Reset);
        }
        assert_eq!(pair.a.transmit().len(), 4, "the third has the window");
        pair.a.qpn = third;
        assert_eq!(pair.a.nic.usage().send_requests, 1);
    }
}
