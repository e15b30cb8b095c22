//! Our NIC as the server: the recorded client's packets must get the answers rxe gave.

use super::capture::*;
use super::host::Host;
use super::{IMMEDIATE_SIZES, SIZES, immediate, payload};
use nonic_core::{HeapRegion, QpState, Qpn, Status};
use nonic_wire::{AethKind, NakCode, Opcode, Packet};
use std::sync::Arc;

const WHOLE: u32 = (MEMORY / 2) as u32;

/// One answer, reduced to what the requester acts on.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Answer {
    opcode: Opcode,
    psn: u32,
    syndrome: u8,
    msn: u32,
    original: u64,
    payload: Vec<u8>,
}

impl Answer {
    fn of(cast: &Cast, bytes: &[u8]) -> Answer {
        let packet = Packet::parse(bytes).expect("a packet");
        let headers = packet.headers;
        assert_eq!(headers.bth.dest_qp, cast.client());
        assert!(!headers.bth.ack_request && !headers.bth.solicited);
        Answer {
            opcode: headers.bth.opcode,
            psn: headers.bth.psn.value(),
            syndrome: headers.aeth.syndrome.0,
            msn: headers.aeth.msn,
            original: headers.atomic_original,
            payload: packet.payload.to_vec(),
        }
    }
}

/// Feeds the client's packets one by one, `before` each; returns what we sent and what rxe sent.
fn replay(cast: &Cast, host: &mut Host, before: impl FnMut(&mut Host, usize)) -> [Vec<Answer>; 2] {
    replay_packets(cast, &cast.packets(), host, before)
}

fn replay_packets(
    cast: &Cast,
    packets: &[Recorded],
    host: &mut Host,
    mut before: impl FnMut(&mut Host, usize),
) -> [Vec<Answer>; 2] {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let mut index = 0;
    for recorded in packets {
        if recorded.is_clients() {
            before(host, index);
            index += 1;
            host.feed(recorded);
            ours.extend(host.transmit().iter().map(|bytes| Answer::of(cast, bytes)));
        } else {
            theirs.push(Answer::of(cast, &recorded.bytes));
        }
    }
    [ours, theirs]
}

/// The same, expecting the same answers one for one.
fn replay_exactly(cast: &Cast, host: &mut Host, before: impl FnMut(&mut Host, usize)) {
    let [ours, theirs] = replay(cast, host, before);
    for (index, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        assert!(
            ours == theirs,
            "{}: answer {index}: we {:?} {:#x} {:#x} msn {}, rxe {:?} {:#x} {:#x} msn {}",
            cast.name,
            ours.opcode,
            ours.psn,
            ours.syndrome,
            ours.msn,
            theirs.opcode,
            theirs.psn,
            theirs.syndrome,
            theirs.msn,
        );
    }
    assert_eq!(ours.len(), theirs.len(), "{}", cast.name);
}

#[test]
fn sends_of_all_sizes() {
    for cast in [RC_SEND, RC_SRQ, RC_PSNWRAP, RC_MTU256, RC_MTU4096] {
        let mut host = Host::server(&cast, cast.name == "rc_srq");
        for _ in 0..17 {
            host.recv(WHOLE);
        }
        replay_exactly(&cast, &mut host, |_, _| {});
        assert_received_sends(&mut host);
    }
}

/// Seventeen messages of the known lengths and immediates; the last one's bytes are in memory.
#[track_caller]
fn assert_received_sends(host: &mut Host) {
    let got = host.receptions();
    let lengths: Vec<u32> = got.iter().map(|completion| completion.byte_len).collect();
    let expected: Vec<u32> = SIZES.into_iter().chain(IMMEDIATE_SIZES).chain([16]).collect();
    assert_eq!(lengths, expected);
    assert!(got.iter().all(|completion| completion.status == Status::Success));
    let immediates: Vec<u32> = got.iter().filter_map(|completion| completion.immediate).collect();
    assert_eq!(
        immediates,
        IMMEDIATE_SIZES.map(|length| immediate(0xdead_be00 + length % 256))
    );
    assert_eq!(host.bytes(MEMORY / 2, 16), payload(17, 16));
    // Behind the last message is the rest of the one before it, and of the longest before that.
    assert!(host.bytes(MEMORY / 2 + 16, 2984) == payload(16, 3000)[16..]);
    assert!(host.bytes(MEMORY / 2 + 3000, 5192) == payload(12, 8192)[3000..]);
}

#[test]
fn unreliable_sends_of_all_sizes() {
    let mut host = Host::server(&UC_SEND, false);
    for _ in 0..17 {
        host.recv(WHOLE);
    }
    replay_exactly(&UC_SEND, &mut host, |_, _| {});
    assert_received_sends(&mut host);
}

#[test]
fn writes_of_all_sizes() {
    for cast in [RC_WRITE, UC_WRITE] {
        let mut host = Host::server(&cast, false);
        for _ in 0..4 {
            host.recv(WHOLE);
        }
        replay_exactly(&cast, &mut host, |_, _| {});
        let got = host.receptions();
        let seen: Vec<_> = got
            .iter()
            .map(|completion| (completion.byte_len, completion.immediate))
            .collect();
        assert_eq!(
            seen,
            IMMEDIATE_SIZES.map(|length| (length, Some(immediate(0xcafe_0000 + length))))
        );
        assert!(host.bytes(4096, 3000) == payload(16, 3000));
        assert!(host.bytes(4096 + 3000, 5192) == payload(12, 8192)[3000..]);
        assert!(host.bytes(4096 + 8192, 64) == [0; 64]);
    }
}

#[test]
fn reads_of_all_sizes_and_three_at_once() {
    let mut host = Host::server(&RC_READ, false);
    host.fill(0, &payload(3, 65_536));
    replay_exactly(&RC_READ, &mut host, |_, _| {});
}

#[test]
fn atomics() {
    let mut host = Host::server(&RC_ATOMIC, false);
    host.fill(8, &0x1122_3344_5566_7788u64.to_ne_bytes());
    replay_exactly(&RC_ATOMIC, &mut host, |_, _| {});
    assert_eq!(host.bytes(8, 8), 0xa5a5_a5a5_a5a5_a5a5u64.to_ne_bytes());
}

#[test]
fn a_window_is_used_invalidated_and_gone() {
    let mut host = Host::server(&RC_INV, false);
    let memory = Arc::new(HeapRegion::zeroed(4096));
    let qpn = host.qpn;
    host.register(0x0800_0238, 0x1878_c000, memory.clone(), Some(qpn));
    host.recv(WHOLE);
    replay_exactly(&RC_INV, &mut host, |_, _| {});
    assert_eq!(memory.snapshot()[..100], payload(0, 100));
    let got = host.receptions();
    assert_eq!(got.len(), 1);
    assert_eq!(got[0].invalidated_rkey, Some(0x0800_0238));
    assert_eq!(host.nic.qp_state(host.qpn), Some(QpState::Error));
}

#[test]
fn receiver_not_ready_six_times() {
    let mut host = Host::server(&RC_RNR, false);
    replay_exactly(&RC_RNR, &mut host, |host, index| {
        if index == 6 {
            host.recv(WHOLE);
        }
    });
    let got = host.receptions();
    assert_eq!((got.len(), got[0].byte_len), (1, 64));
}

#[test]
fn nobody_home() {
    let mut host = Host::server(&RC_TIMEOUT, false);
    assert!(host.nic.destroy_qp(host.now, host.qpn));
    replay_exactly(&RC_TIMEOUT, &mut host, |_, _| {});
    assert_eq!(host.nic.counters().rx_unclaimed, 3);
}

#[test]
fn refusals() {
    for cast in [NAK_BADRKEY, NAK_READBADRKEY, NAK_NOACCESS, NAK_OOB] {
        let mut host = Host::server(&cast, false);
        replay_exactly(&cast, &mut host, |_, _| {});
        assert_eq!(host.nic.qp_state(host.qpn), Some(QpState::Error));
        assert!(host.memory.snapshot() == vec![0; MEMORY], "nothing was written");
    }
}

/// rxe says "operational error", as for a malformed receive; its own intent and the specification are "invalid request".
#[test]
fn too_long_is_refused_with_another_word_than_rxes() {
    let mut host = Host::server(&NAK_TOOLONG, false);
    host.recv(16);
    let [mut ours, theirs] = replay(&NAK_TOOLONG, &mut host, |_, _| {});
    let syndromes = |answers: &[Answer]| answers.iter().map(|answer| answer.syndrome).collect::<Vec<_>>();
    assert_eq!((syndromes(&ours), syndromes(&theirs)), (vec![0x61], vec![0x63]));
    ours[0].syndrome = theirs[0].syndrome;
    assert_eq!(ours, theirs);
    let got = host.receptions();
    assert_eq!((got.len(), got[0].status), (1, Status::LocalLength));
}

#[test]
fn datagrams() {
    let mut host = Host::server(&UD_ALL, false);
    for _ in 0..8 {
        host.recv(WHOLE);
    }
    replay_exactly(&UD_ALL, &mut host, |_, _| {});
    let got = host.receptions();
    let lengths: Vec<u32> = got.iter().map(|completion| completion.byte_len - 40).collect();
    assert_eq!(lengths, [0, 1, 2, 3, 4, 64, 1024, 64]);
    assert!(got.iter().all(|completion| completion.src_qp == Qpn::new(44)));
    assert_eq!(got[7].immediate, Some(immediate(0x1234_5678)));
    assert_eq!(host.bytes(MEMORY / 2 + 40, 64), payload(8, 64));
}

/// What both sides said about sequence and progress, repetitions of the last statement aside.
fn statements(answers: &[Answer]) -> Vec<(Opcode, u32, u8, u32)> {
    let mut said: Vec<_> = answers
        .iter()
        .map(|answer| (answer.opcode, answer.psn, answer.syndrome, answer.msn))
        .collect();
    said.dedup();
    said
}

/// Compares without printing hundreds of equal statements.
#[track_caller]
fn assert_same<T: PartialEq + std::fmt::Debug>(ours: &[T], theirs: &[T]) {
    let differing = ours.iter().zip(theirs).position(|(ours, theirs)| ours != theirs);
    if let Some(index) = differing {
        let last = index + 3;
        panic!(
            "statement {index}: we {:x?}, rxe {:x?}",
            &ours[index..last.min(ours.len())],
            &theirs[index..last.min(theirs.len())]
        );
    }
    assert_eq!(ours.len(), theirs.len());
}

/// The memory after the forty WRITEs of the burst, of which later ones overlap earlier ones.
fn after_burst() -> Vec<u8> {
    let source = payload(5, 65_536);
    let mut memory = vec![0; MEMORY];
    for i in 0..40 {
        let (from, to) = (1024 * i % 65_536, 4096 + 1024 * (i % 32));
        memory[to..to + 4096].copy_from_slice(&source[from..from + 4096]);
    }
    memory
}

#[test]
fn a_burst_through_loss() {
    let mut host = Host::go_back_n_server(&BURST_LOSS5);
    let [ours, theirs] = replay(&BURST_LOSS5, &mut host, |_, _| {});
    assert_same(&statements(&ours), &statements(&theirs));
    assert_same_reads(&ours, &theirs);
    assert!(host.memory.snapshot() == after_burst());
    let naks = ours.iter().filter(|answer| is_sequence_nak(answer)).count();
    assert!(naks >= 4, "the capture shows losses: {naks}");
}

#[test]
fn what_comes_behind_a_loss_is_executed_when_that_comes_again() {
    for cast in [&BURST_LOSS5, &BURST_CORRUPT] {
        let mut host = Host::server(cast, false);
        let [ours, theirs] = replay(cast, &mut host, |_, _| {});
        assert!(host.memory.snapshot() == after_burst());
        let last = |answers: &[Answer]| answers.last().map(|answer| (answer.psn, answer.msn));
        assert_eq!(last(&ours), last(&theirs));
        assert!(host.nic.counters().rx_kept > 4);
        assert_eq!(host.nic.usage().reordered_bytes, 0);
    }
}

#[test]
fn a_burst_through_duplication() {
    let mut host = Host::server(&BURST_DUP, false);
    let [ours, theirs] = replay(&BURST_DUP, &mut host, |_, _| {});
    assert_eq!(progress(&ours), progress(&theirs));
    assert_same_reads(&ours, &theirs);
    assert!(host.memory.snapshot() == after_burst());
    assert!(host.nic.counters().rx_duplicates > 10);
}

#[test]
fn a_burst_through_corruption() {
    let mut host = Host::go_back_n_server(&BURST_CORRUPT);
    // One undamaged packet is on the wire and yet reported missing: rxe lost it on its way up.
    let lost_inside = 347;
    let mut recorded = BURST_CORRUPT.packets();
    assert_eq!(recorded[lost_inside].packet().headers.bth.psn.value(), 0x10_0090);
    recorded.remove(lost_inside);
    let [ours, theirs] = replay_packets(&BURST_CORRUPT, &recorded, &mut host, |_, _| {});
    assert_same(&statements(&ours), &statements(&theirs));
    assert_same_reads(&ours, &theirs);
    assert!(host.memory.snapshot() == after_burst());
    let counters = host.nic.counters();
    let dropped = counters.rx_icrc_errors + counters.rx_malformed + counters.rx_unclaimed;
    assert_eq!(dropped, 17, "{counters:?}");
}

#[test]
fn a_burst_whose_answers_get_lost() {
    let mut host = Host::server(&BURST_LOSS10_ACKS, false);
    let [ours, theirs] = replay(&BURST_LOSS10_ACKS, &mut host, |_, _| {});
    // What was lost before the recording point is missing there: theirs is part of ours, in order. In
    // answers to repeated READs the opcodes differ, see the table.
    let essence = |answer: &Answer| {
        let is_ack = answer.opcode == Opcode::RC_ACKNOWLEDGE;
        (is_ack, answer.psn, answer.payload.clone())
    };
    let mut rest = ours.iter();
    for answer in &theirs {
        let said = rest.any(|ours| essence(ours) == essence(answer));
        assert!(said, "we never said {:?} {:#x}", answer.opcode, answer.psn);
    }
    assert!(ours.len() > theirs.len());
    assert!(host.memory.snapshot() == after_burst());
}

fn is_sequence_nak(answer: &Answer) -> bool {
    nonic_wire::Syndrome(answer.syndrome).kind() == AethKind::Nak(NakCode::PsnSequenceError)
        && answer.opcode == Opcode::RC_ACKNOWLEDGE
}

/// The acknowledgements that tell something new.
fn progress(answers: &[Answer]) -> Vec<(u32, u32)> {
    let mut furthest = 0;
    let mut told = Vec::new();
    for answer in answers {
        if answer.opcode == Opcode::RC_ACKNOWLEDGE && answer.msn > furthest {
            furthest = answer.msn;
            told.push((answer.psn, answer.msn));
        }
    }
    told
}

/// Each READ response packet has the bytes that rxe's had, whenever it was sent.
fn assert_same_reads(ours: &[Answer], theirs: &[Answer]) {
    let reads = |answers: &[Answer]| -> Vec<(u32, Vec<u8>)> {
        let mut reads: Vec<_> = answers
            .iter()
            .filter(|answer| answer.opcode != Opcode::RC_ACKNOWLEDGE)
            .map(|answer| (answer.psn, answer.payload.clone()))
            .collect();
        reads.sort();
        reads.dedup();
        reads
    };
    let (ours, theirs) = (reads(ours), reads(theirs));
    assert_eq!(theirs.len(), 16, "four READs of four packets");
    assert!(ours == theirs);
}
