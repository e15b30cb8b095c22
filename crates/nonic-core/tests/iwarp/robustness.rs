//! Whatever comes in: no panic, no byte outside what is permitted, one completion per request, bounded memory; and what comes out does
//! not depend on how the stream was cut.

use crate::iwarp::bench::{End, IOVA, Peer, Setup, solo};
use nonic_core::iwarp::StreamClosed;
use nonic_core::iwarp::startup::{Startup, StartupConfig, StartupRequest};
use nonic_core::{Access, RemoteAddress, SendOp, Time};
use nonic_wire::iwarp::{AtomicRequest, Header, ReadRequest, SendKind, Tagged};
use proptest::prelude::*;

/// Bytes at both ends of the memory that no key covers.
const MARGIN: usize = 64;
const MEMORY: usize = 4096;

fn setup(crc: bool) -> Setup {
    Setup {
        crc,
        memory: MEMORY,
        ..Setup::default()
    }
}

/// Segments of a peer that knows the keys, and is more or less out of its mind.
fn segment(stag: u32) -> impl Strategy<Value = (Header, Vec<u8>)> {
    let stag = prop_oneof![8 => Just(stag), 1 => any::<u32>()];
    let to = prop_oneof![
        8 => (0..MEMORY as u64 + 64).prop_map(|offset| IOVA + offset),
        1 => any::<u64>()
    ];
    let msn = prop_oneof![8 => 1..4u32, 1 => any::<u32>()];
    let mo = prop_oneof![4 => Just(0u32), 4 => 0..200u32, 1 => any::<u32>()];
    let payload = proptest::collection::vec(any::<u8>(), 0..200);
    (
        stag,
        to,
        msn,
        mo,
        any::<(bool, bool)>(),
        0..8u8,
        payload,
        any::<u32>(),
    )
        .prop_map(|(stag, to, msn, mo, (last, flag), kind, payload, number)| {
            let tagged = Tagged { last, stag, to };
            let header = match kind {
                0 | 1 => Header::Write(tagged),
                2 => Header::ReadResponse(tagged),
                3 | 4 => Header::Send {
                    kind: SendKind {
                        solicited: flag,
                        invalidate_stag: (number % 8 == 0).then_some(stag),
                    },
                    msn,
                    mo,
                    last,
                },
                5 => Header::Immediate {
                    solicited: flag,
                    msn,
                    data: u64::from(number),
                },
                6 => Header::AtomicRequest {
                    msn,
                    request: AtomicRequest::fetch_add(number, stag, to & !7, 1),
                },
                _ => Header::ReadRequest {
                    msn,
                    request: ReadRequest {
                        sink_stag: number,
                        sink_to: 0,
                        size: number % 5000,
                        source_stag: stag,
                        source_to: to,
                    },
                },
            };
            (header, payload)
        })
}

/// An end with some work under way. Its key covers the middle of the memory only.
fn busy(crc: bool) -> (End, Peer, u32) {
    let (mut end, peer) = solo(&setup(crc));
    let key = end.register(|spec| {
        spec.offset = MARGIN;
        spec.length -= 2 * MARGIN as u64;
        spec.iova = IOVA + MARGIN as u64;
        spec.access =
            Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    });
    // What a peer is not told it cannot use.
    end.nic.keys().revoke(end.key.value());
    end.key = key;
    for id in 0..3 {
        end.recv(id, MARGIN, 150);
    }
    let from = RemoteAddress { va: 64, rkey: 5 };
    end.send(10, SendOp::Read(from), 1000, 100);
    end.send(11, SendOp::Send, 1000, 100);
    end.send(12, SendOp::Write(from), 1000, 3000);
    let stag = end.key.value();
    (end, peer, stag)
}

/// Feeds a stream in chunks; everything that came out, and what became of the work.
fn run(crc: bool, stream: &[u8], cuts: &[usize]) -> (Vec<u8>, Vec<(u64, u8)>, Vec<u8>) {
    let (mut end, ..) = busy(crc);
    let mut out = end.transmit();
    let mut rest = stream;
    for cut in cuts.iter().cycle() {
        let (now, later) = rest.split_at((*cut).clamp(1, rest.len().max(1)).min(rest.len()));
        end.receive(now);
        rest = later;
        if rest.is_empty() {
            break;
        }
    }
    out.extend(end.transmit());
    end.nic.stream_closed(end.now, end.qpn, StreamClosed::Broken);
    end.act();
    out.extend(end.transmit());
    let mut done: Vec<(u64, u8)> = Vec::new();
    done.extend(end.completed().iter().map(|(id, status)| (*id, *status as u8)));
    done.extend(end.received().iter().map(|(id, status)| (*id, *status as u8)));
    let mut ids: Vec<u64> = done.iter().map(|(id, _)| *id).collect();
    ids.sort_unstable();
    assert_eq!(ids, [0, 1, 2, 10, 11, 12], "one completion per request");
    let memory = end.memory.snapshot();
    assert!(memory[..MARGIN].iter().all(|byte| *byte == 0));
    assert!(memory[MEMORY - MARGIN..].iter().all(|byte| *byte == 0));
    (out, done, memory)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_stream_means_the_same_however_it_is_cut(
        segments in proptest::collection::vec(segment(busy(true).2), 0..12),
        crc in any::<bool>(),
        cuts in proptest::collection::vec(1..300usize, 1..10),
    ) {
        let mut peer = Peer::new(&setup(crc));
        let stream: Vec<u8> = segments
            .iter()
            .flat_map(|(header, payload)| {
                let payload = if header.carries_payload() { &payload[..] } else { &[] };
                peer.frame(*header, payload)
            })
            .collect();
        let whole = run(crc, &stream, &[usize::MAX]);
        prop_assert!(whole == run(crc, &stream, &cuts));
        prop_assert!(whole == run(crc, &stream, &[1]));
    }

    #[test]
    fn damaged_streams_do_no_harm(
        segments in proptest::collection::vec(segment(busy(true).2), 1..8),
        crc in any::<bool>(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let mut peer = Peer::new(&setup(crc));
        let mut stream: Vec<u8> = segments
            .iter()
            .flat_map(|(header, payload)| {
                let payload = if header.carries_payload() { &payload[..] } else { &[] };
                peer.frame(*header, payload)
            })
            .collect();
        for (at, value) in damage {
            let at = at.index(stream.len());
            stream[at] = value;
        }
        let whole = run(crc, &stream, &[usize::MAX]);
        prop_assert!(whole == run(crc, &stream, &[1, 7]));
    }

    #[test]
    fn any_bytes_do_no_harm(stream in proptest::collection::vec(any::<u8>(), 0..2000), crc in any::<bool>()) {
        run(crc, &stream, &[usize::MAX]);
    }

    #[test]
    fn any_bytes_do_no_harm_to_start_up(stream in proptest::collection::vec(any::<u8>(), 0..600), frame in any::<bool>()) {
        let mut bytes = if frame { b"MPA ID Rep Frame".to_vec() } else { Vec::new() };
        bytes.extend(stream);
        let config = StartupConfig::default();
        let request = StartupRequest::default();
        let mut whole = Startup::connect(Time::ZERO, &config, &request).expect("it fits");
        let used = whole.handle_bytes(&bytes);
        prop_assert!(used <= bytes.len());
        let mut cut = Startup::connect(Time::ZERO, &config, &request).expect("it fits");
        for byte in &bytes {
            cut.handle_bytes(std::slice::from_ref(byte));
        }
        prop_assert_eq!(whole.poll_event(), cut.poll_event());
        let mut responder = Startup::listen(Time::ZERO, &config);
        responder.handle_bytes(&bytes);
    }
}
