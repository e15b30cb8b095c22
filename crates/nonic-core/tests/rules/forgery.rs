//! A forger sends in the name of a peer, with the right addresses and queue pair numbers, and has to guess sequence
//! numbers.
//!
//! How many of the 2^24 numbers do harm decides how many packets that takes. SECURITY.md has the figures.

use crate::support::{Node, Pair, Setup, Solo, Wire, pattern, us};
use crate::{completed, post, received, recv, sent};
use nonic_core::{Completion, Entropy, QpState, ReorderConfig, SeededEntropy, SendOp, Status, WindowConfig};
use nonic_wire::{Aeth, Bth, Headers, HeldRange, NakCode, Opcode, Psn, Reth, SelectiveAck, Syndrome};
use std::time::Duration;

const MISSING: Syndrome = Syndrome::nak(NakCode::PsnSequenceError);
/// So many packets beyond the last that came are kept.
const REACH: u32 = 64;

/// A SEND of the peer's, `index` packets after the first.
fn send(solo: &mut Solo, index: u32, bytes: &[u8]) {
    solo.request_with(Opcode::RC_SEND_ONLY, index, bytes, |headers| {
        headers.bth.ack_request = false;
    });
}

/// The same from a peer that understands selective acknowledgements.
fn send_selective(solo: &mut Solo, index: u32, bytes: &[u8]) {
    solo.request_with(Opcode::RC_SEND_ONLY, index, bytes, |headers| {
        headers.bth.ack_request = false;
        headers.bth.resv7 = Bth::SELECTIVE;
    });
}

fn receives(solo: &mut Solo, count: u64) {
    for wr_id in 0..count {
        recv!(solo, wr_id, 8 * wr_id as usize, 8);
    }
}

/// The packet that the node says is missing, once.
#[track_caller]
fn missing(solo: &mut Solo) -> u32 {
    solo.advance(ReorderConfig::default().min_allowance + us(10));
    let answers = sent!(solo, [RC_ACKNOWLEDGE]);
    assert_eq!(answers[0].syndrome(), MISSING);
    answers[0].psn().distance_from(solo.peer.psn) as u32
}

/// A packet in the name of `from`, as a forger would write it.
fn forged(from: &Node, to: &Node, opcode: Opcode, psn: Psn, payload: &[u8]) -> Wire {
    let mut headers = Headers::new(Bth::new(opcode, to.qpn, psn));
    headers.aeth = Aeth {
        syndrome: Syndrome::nak(NakCode::RemoteAccessError),
        msn: 0,
    };
    Wire::build(from.flow_to(to.ip), headers, payload)
}

#[test]
fn a_forged_request_is_kept_under_few_numbers() {
    let far = (0..24).map(|exponent| 1 << exponent);
    let numbers = (1..4 * REACH).chain(far.filter(|number| *number >= 4 * REACH));
    let kept = |number: &u32| {
        let mut solo = Solo::rc();
        send(&mut solo, *number, b"forged");
        solo.nic.usage().reordered_bytes > 0
    };
    assert_eq!(
        numbers.filter(kept).collect::<Vec<u32>>(),
        Vec::from_iter(1..=REACH)
    );
}

#[test]
fn whatever_is_kept_the_numbers_beyond_it_are_as_few() {
    let mut solo = Solo::rc();
    let remote = solo.remote(0);
    // A READ takes the numbers of its responses.
    solo.request_with(Opcode::RC_RDMA_READ_REQUEST, 1, &[], |headers| {
        headers.reth = Reth {
            va: remote.va,
            rkey: remote.rkey,
            dma_len: 64 << 10,
        };
    });
    let end = 1 + 64;
    send(&mut solo, end + REACH + 1, b"forged");
    assert_eq!(
        (solo.nic.counters().rx_kept, solo.nic.counters().rx_not_kept),
        (1, 1)
    );
    send(&mut solo, end + REACH, b"early");
    assert_eq!(solo.nic.counters().rx_kept, 2);
}

#[test]
fn a_peer_that_sends_from_too_far_away_is_asked_to_go_back_whatever_it_understands() {
    for sends in [send, send_selective] {
        let mut solo = Solo::rc();
        receives(&mut solo, 1);
        sends(&mut solo, REACH + 1, b"far");
        assert_eq!(missing(&mut solo), 0);
        // Once is enough.
        sends(&mut solo, REACH + 2, b"far");
        solo.advance(us(1000));
        sent!(solo, []);
        sends(&mut solo, 0, b"first");
        received!(solo, [(0, Status::Success)]);
    }
}

#[test]
fn a_peer_that_loses_many_packets_at_a_time_has_the_rest_kept_the_second_time() {
    let mut solo = Solo::rc();
    let burst = 3 * REACH;
    let write = |solo: &mut Solo, index: u32| {
        let remote = solo.remote(8 * (index as usize % 1000));
        solo.request_with(
            Opcode::RC_RDMA_WRITE_ONLY,
            index,
            &u64::from(index).to_be_bytes(),
            |headers| {
                headers.bth.ack_request = index % 3 == 0;
                headers.reth = Reth {
                    va: remote.va,
                    rkey: remote.rkey,
                    dma_len: 8,
                };
            },
        );
    };
    write(&mut solo, burst);
    assert_eq!(missing(&mut solo), 0);
    for index in 0..=burst {
        write(&mut solo, index);
    }
    assert_eq!(solo.nic.counters().rx_kept, 0);
    solo.transmit();
    // The same happens again, and after a while once more.
    let next = burst + 1;
    write(&mut solo, next + burst);
    assert_eq!(solo.nic.counters().rx_kept, 1);
    for index in next..next + burst {
        write(&mut solo, index);
    }
    let answers = sent!(solo, [RC_ACKNOWLEDGE]);
    assert_eq!(answers[0].psn(), solo.peer.psn.add(next + burst));
    solo.advance(Duration::from_secs(11));
    let next = next + burst + 1;
    write(&mut solo, next + burst);
    assert_eq!(solo.nic.counters().rx_kept, 1, "it is forgotten");
}

#[test]
fn of_two_packets_under_one_number_neither_is_executed_out_of_turn() {
    for sends in [send, send_selective] {
        let mut solo = Solo::rc();
        receives(&mut solo, 3);
        sends(&mut solo, 2, b"forged!!");
        solo.transmit();
        sends(&mut solo, 1, b"second..");
        solo.transmit();
        sends(&mut solo, 2, b"third...");
        let answers = sent!(solo, [RC_ACKNOWLEDGE]);
        assert_eq!(
            (answers[0].syndrome(), answers[0].psn()),
            (MISSING, solo.peer.psn)
        );
        assert_eq!(solo.nic.usage().reordered_bytes, 0);
        for (index, bytes) in [b"first...", b"second..", b"third..."].into_iter().enumerate() {
            sends(&mut solo, index as u32, bytes);
        }
        received!(
            solo,
            [(0, Status::Success), (1, Status::Success), (2, Status::Success)]
        );
        assert_eq!(solo.bytes(0, 24), b"first...second..third...");
    }
}

#[test]
fn a_forged_read_does_not_swallow_what_comes_under_its_numbers() {
    let mut solo = Solo::rc();
    receives(&mut solo, 3);
    let remote = solo.remote(0);
    solo.request_with(Opcode::RC_RDMA_READ_REQUEST, 1, &[], |headers| {
        headers.reth = Reth {
            va: remote.va,
            rkey: remote.rkey ^ 1,
            dma_len: 1 << 30,
        };
    });
    send(&mut solo, 2, b"third...");
    assert_eq!(solo.nic.usage().reordered_bytes, 0);
    for (index, bytes) in [b"first...", b"second..", b"third..."].into_iter().enumerate() {
        send(&mut solo, index as u32, bytes);
    }
    received!(
        solo,
        [(0, Status::Success), (1, Status::Success), (2, Status::Success)]
    );
    assert_eq!(solo.state(), QpState::Rts);
}

#[test]
fn a_copy_may_ask_for_an_acknowledgement_and_its_original_not() {
    let mut solo = Solo::rc();
    receives(&mut solo, 2);
    send(&mut solo, 1, b"second..");
    solo.request(Opcode::RC_SEND_ONLY, 1, b"second..");
    send(&mut solo, 0, b"first...");
    received!(solo, [(0, Status::Success), (1, Status::Success)]);
}

/// What a forger that knows nothing but addresses and queue pair numbers does beside a stream of SENDs. The stream is
/// as if there were no forger.
fn stream_beside(forge: impl Fn(&Pair, &mut SeededEntropy) -> Vec<(bool, Wire)>, rounds: u32) {
    let mut pair = Pair::rc();
    let mut entropy = SeededEntropy::new(7);
    for round in 0..rounds {
        let text = pattern(round as u8, 512);
        pair.a.fill(0, &text);
        recv!(pair.b, round.into(), 4096, 512);
        post!(pair.a, round.into(), SendOp::Send, 0, 512);
        for (to_b, wire) in forge(&pair, &mut entropy) {
            let node = if to_b { &mut pair.b } else { &mut pair.a };
            node.receive(&wire);
        }
        pair.exchange();
        completed!(pair.a, [(round.into(), Status::Success)]);
        received!(pair.b, [(round.into(), Status::Success)]);
        assert_eq!(pair.b.bytes(4096, 512), text);
        pair.advance(us(1));
    }
}

/// Before there was a limit, every second of these was kept and the first dozen ended the stream.
#[test]
fn a_forger_who_guesses_numbers_of_requests_changes_nothing() {
    let forge = |pair: &Pair, entropy: &mut SeededEntropy| {
        let random = |_| Psn::new(entropy.next_u32() & 0xff_ffff);
        let psns = (0..20).map(random).collect::<Vec<Psn>>();
        let forged = |psn| forged(&pair.a, &pair.b, Opcode::RC_SEND_ONLY, psn, &[0xee; 512]);
        psns.into_iter().map(|psn| (true, forged(psn))).collect()
    };
    stream_beside(forge, 1000);
}

#[test]
fn a_forger_who_guesses_numbers_of_refusals_changes_nothing() {
    let forge = |pair: &Pair, entropy: &mut SeededEntropy| {
        let random = |_| Psn::new(entropy.next_u32() & 0xff_ffff);
        let psns = (0..20).map(random).collect::<Vec<Psn>>();
        let forged = |psn| forged(&pair.b, &pair.a, Opcode::RC_ACKNOWLEDGE, psn, &[]);
        psns.into_iter().map(|psn| (false, forged(psn))).collect()
    };
    stream_beside(forge, 1000);
}

#[test]
fn a_refusal_that_does_not_know_how_many_messages_there_were_is_not_believed() {
    for syndrome in [
        Syndrome::nak(NakCode::RemoteAccessError),
        Syndrome::nak(NakCode::InvalidRequest),
        Syndrome::rnr(31),
    ] {
        let mut pair = Pair::rc();
        for wr_id in 0..3 {
            recv!(pair.b, wr_id, 0, 512);
            post!(pair.a, wr_id, SendOp::Send, 0, 512);
            pair.exchange();
        }
        completed!(
            pair.a,
            [(0, Status::Success), (1, Status::Success), (2, Status::Success)]
        );
        for wr_id in 3..6 {
            recv!(pair.b, wr_id, 0, 512);
            post!(pair.a, wr_id, SendOp::Send, 0, 512);
        }
        let requests = pair.a.transmit();
        for request in &requests {
            for msn in [0, 2, 7, 1 << 23] {
                let mut wire = forged(&pair.b, &pair.a, Opcode::RC_ACKNOWLEDGE, request.psn(), &[]);
                wire.alter(|headers| headers.aeth = Aeth { syndrome, msn });
                pair.a.receive(&wire);
            }
        }
        assert_eq!(pair.a.state(), QpState::Rts);
        pair.b.receive_all(&requests);
        pair.exchange();
        completed!(
            pair.a,
            [(3, Status::Success), (4, Status::Success), (5, Status::Success)]
        );
    }
}

/// The peer itself is believed, wherever it stands: behind messages that were acknowledged and such that were not.
#[test]
fn the_peers_own_refusal_is_believed() {
    let mut pair = Pair::rc();
    let remote = pair.b.remote(0);
    for wr_id in 0..2 {
        post!(pair.a, wr_id, SendOp::Write(remote), 0, 3000);
    }
    pair.exchange();
    post!(pair.a, 2, SendOp::Write(remote), 0, 3000);
    post!(pair.a, 3, SendOp::Read(remote), 0, 3000);
    let mut wrong = remote;
    wrong.rkey ^= 1;
    post!(pair.a, 4, SendOp::Write(wrong), 0, 3000);
    pair.exchange();
    let done = pair.a.completions();
    assert_eq!(done.len(), 5);
    assert_eq!(done[4].status, Status::RemoteAccess);
}

/// A peer may count otherwise (rxe of older kernels leaves WRITEs out). Then it is believed as it is.
#[test]
fn a_peer_that_counts_otherwise_is_believed() {
    let mut solo = Solo::rc();
    let remote = solo.remote(0);
    for wr_id in 1..=4 {
        post!(solo, wr_id, SendOp::Write(remote), 0, 8);
    }
    solo.transmit();
    solo.answer(1, Syndrome::ack());
    completed!(solo, [(1, Status::Success), (2, Status::Success)]);
    solo.answer(2, Syndrome::nak(NakCode::RemoteAccessError));
    completed!(solo, [(3, Status::RemoteAccess), (4, Status::Flushed)]);
}

/// Requests to read that were forged with any number, and no key, or copied from the wire thousands of times: neither answers nor
/// memory pile up.
#[test]
fn repeated_reads_do_not_pile_up() {
    let mut solo = Solo::rc();
    let remote = solo.remote(0);
    let mut entropy = SeededEntropy::new(3);
    let mut reth = Reth {
        va: remote.va,
        rkey: remote.rkey,
        dma_len: 64 << 10,
    };
    solo.request_with(Opcode::RC_RDMA_READ_REQUEST, 0, &[], |headers| {
        headers.reth = reth
    });
    assert_eq!(solo.transmit().len(), 64);
    for _ in 0..50_000 {
        solo.request_with(Opcode::RC_RDMA_READ_REQUEST, 0, &[], |headers| {
            headers.reth = reth
        });
    }
    assert_eq!(
        solo.transmit().len(),
        64,
        "one answer, however often it is asked for before it leaves"
    );
    reth.rkey ^= 1;
    let far = 1 << 20;
    for _ in 0..50_000 {
        // Not the next, and none that is kept.
        let into = entropy.next_u32() % 64;
        let behind = 0xff_ffff - entropy.next_u32() % far;
        for index in [into, behind] {
            solo.request_with(Opcode::RC_RDMA_READ_REQUEST, index, &[], |headers| {
                headers.reth = reth;
                headers.reth.va += u64::from(into) << 10;
            });
        }
    }
    sent!(solo, []);
    assert_eq!(solo.nic.usage().reordered_bytes, 0);
    assert_eq!(solo.state(), QpState::Rts);
}

/// Answers to a READ under numbers far behind those that came are not kept. The peer's own come when they are asked for again.
#[test]
fn answers_from_far_away_are_not_kept() {
    let mut solo = Solo::new(&Setup {
        memory: 1 << 20,
        window: WindowConfig {
            initial: 64 << 20,
            ..WindowConfig::default()
        },
        ..Setup::rc()
    });
    let remote = solo.remote(0);
    post!(solo, 1, SendOp::Read(remote), 0, 600 << 10);
    let requests = sent!(solo, [RC_RDMA_READ_REQUEST]);
    assert_eq!(requests[0].headers().reth.dma_len, 600 << 10);
    let middle = |solo: &mut Solo, index| {
        solo.respond(
            Opcode::RC_RDMA_READ_RESPONSE_MIDDLE,
            index,
            Syndrome::ack(),
            &[0xee; 1024],
        );
    };
    // What is kept is placed as soon as everything before it is there.
    middle(&mut solo, 257);
    middle(&mut solo, 1);
    solo.respond(
        Opcode::RC_RDMA_READ_RESPONSE_FIRST,
        0,
        Syndrome::ack(),
        &[1; 1024],
    );
    for index in 2..257 {
        middle(&mut solo, index);
    }
    assert_eq!(solo.bytes(256 << 10, 1024), [0xee; 1024]);
    assert_eq!(solo.bytes(257 << 10, 1024), [0; 1024], "it was not kept");
}

/// A peer whose answers are of the wrong kinds for their places: LAST, MIDDLE, FIRST, MIDDLE. However often it is asked again, the
/// first can only be a FIRST or an ONLY.
#[test]
fn answers_of_the_wrong_kind_do_not_end_a_read() {
    let mut solo = Solo::rc();
    let remote = solo.remote(0);
    post!(solo, 1, SendOp::Read(remote), 8192, 4096);
    let kinds = [
        Opcode::RC_RDMA_READ_RESPONSE_LAST,
        Opcode::RC_RDMA_READ_RESPONSE_MIDDLE,
        Opcode::RC_RDMA_READ_RESPONSE_FIRST,
        Opcode::RC_RDMA_READ_RESPONSE_MIDDLE,
    ];
    let (mut asked, begun) = (0, solo.now);
    while solo.now.since(begun) < Duration::from_secs(1) {
        for request in solo.transmit() {
            assert_eq!(request.opcode(), Opcode::RC_RDMA_READ_REQUEST);
            asked += 1;
            let first = request.psn().distance_from(Psn::new(solo.setup.first_psn)) as u32;
            for (index, kind) in (first..4).zip(kinds) {
                solo.respond(kind, index, Syndrome::ack(), &[0xee; 1024]);
            }
        }
        let succeeded = |done: &Completion| done.status == Status::Success;
        assert!(!solo.completions().iter().any(succeeded), "asked {asked} times");
        solo.advance(us(1000));
    }
    assert!(asked > 2, "it was asked again");
    assert_eq!(solo.bytes(8192, 4096), [0; 4096]);
}

/// A selective acknowledgement of what was never sent means nothing, whether the peer or a forger wrote it.
#[test]
fn what_was_never_sent_cannot_be_held() {
    let mut solo = Solo::rc();
    let remote = solo.remote(0);
    post!(solo, 1, SendOp::Write(remote), 0, 4096);
    solo.transmit();
    let psn = Psn::new(solo.setup.first_psn);
    let mut headers = Headers::new(Bth::new(Opcode::RC_ACKNOWLEDGE, solo.qpn, psn.prev()));
    headers.bth.resv7 = Bth::SELECTIVE;
    headers.aeth.syndrome = Syndrome::ack();
    let mut payload = [0; HeldRange::LEN];
    let range = HeldRange {
        first: psn.add(2),
        packets: 3,
    };
    SelectiveAck::emit([range], &mut payload);
    solo.feed(headers, &payload);
    solo.answer(3, Syndrome::ack());
    completed!(solo, [(1, Status::Success)]);
}
