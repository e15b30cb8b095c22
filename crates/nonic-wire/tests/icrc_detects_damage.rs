//! What the ICRC catches, bit by bit, when the Identification is known and when it is not.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::common::{Capture, Random, flow_v4, flow_v6, sample_packet};
use nonic_wire::{Flow, Opcode, Verdict, icrc};

/// Offset of the BTH byte that routers may change (FECN, BECN), which the ICRC leaves out.
const CONGESTION_BYTE: usize = 4;

#[test]
fn every_single_bit_flip_is_caught_when_the_identification_is_known() {
    for sample in samples() {
        let mut packet = sample.packet.clone();
        for bit in 0..packet.len() * 8 {
            flip(&mut packet, bit);
            let expected = if bit / 8 == CONGESTION_BYTE {
                Verdict::Verified
            } else {
                Verdict::Bad
            };
            let verdict = icrc::verify(&sample.flow, sample.identification, false, &packet);
            assert_eq!(verdict, expected, "{} bit {bit}", sample.name);
            flip(&mut packet, bit);
        }
        assert_eq!(packet, sample.packet, "all flips were undone");
    }
}

#[test]
fn every_single_bit_flip_in_addresses_ports_and_identification_is_caught() {
    for sample in samples() {
        for flow in neighbours(&sample.flow) {
            let verdict = icrc::verify(&flow, sample.identification, false, &sample.packet);
            assert_eq!(verdict, Verdict::Bad, "{} {flow:?}", sample.name);
        }
        if sample.flow.src.is_ipv6() {
            continue;
        }
        for bit in 0..16 {
            let wrong = sample.identification ^ 1 << bit;
            let strict = icrc::verify(&sample.flow, wrong, false, &sample.packet);
            let lenient = icrc::verify(&sample.flow, wrong, true, &sample.packet);
            assert_eq!(strict, Verdict::Bad, "{}", sample.name);
            assert_eq!(
                lenient,
                Verdict::VerifiedWithId(sample.identification),
                "{}",
                sample.name
            );
        }
    }
}

#[test]
fn a_packet_cut_short_or_made_longer_is_caught() {
    for sample in samples() {
        for len in 0..sample.packet.len() {
            let verdict = icrc::verify(&sample.flow, sample.identification, false, &sample.packet[..len]);
            assert_eq!(verdict, Verdict::Bad, "{} cut to {len}", sample.name);
        }
        let mut longer = sample.packet.clone();
        longer.push(0);
        assert_eq!(
            icrc::verify(&sample.flow, sample.identification, false, &longer),
            Verdict::Bad
        );
    }
}

/// Whether a single flip is mistaken for another Identification depends only on how far it is from that
/// field. The longest sample has 4096 bytes of payload, so this holds for every packet up to that size.
#[test]
fn every_single_bit_flip_is_caught_even_when_the_identification_is_not_known() {
    assert!(
        samples()
            .iter()
            .any(|sample| sample.flow.src.is_ipv4() && sample.packet.len() > 4096)
    );
    let (mut flips, mut missed) = (0u32, 0u32);
    for sample in samples().into_iter().filter(|sample| sample.flow.src.is_ipv4()) {
        let mut packet = sample.packet.clone();
        for bit in (0..packet.len() * 8).filter(|bit| bit / 8 != CONGESTION_BYTE) {
            flip(&mut packet, bit);
            flips += 1;
            missed +=
                u32::from(icrc::verify(&sample.flow, !sample.identification, true, &packet) != Verdict::Bad);
            flip(&mut packet, bit);
        }
    }
    assert_eq!(missed, 0, "of {flips}");
    assert!(flips > 500_000, "{flips}");
}

#[test]
fn random_damage_with_unknown_identification_passes_once_in_65536() {
    const TRIALS: u32 = 1_000_000;
    let flow = flow_v4();
    let original = sample_packet(Opcode::RC_RDMA_WRITE_ONLY, &flow, 0x1234);
    let mut random = Random(1);
    let mut missed = 0u32;
    for _ in 0..TRIALS {
        let mut packet = original.clone();
        for _ in 0..2 + random.below(30) {
            let bit = random.below(packet.len() * 8);
            flip(&mut packet, bit);
        }
        packet[CONGESTION_BYTE] = original[CONGESTION_BYTE];
        if packet == original {
            continue;
        }
        assert_eq!(
            icrc::verify(&flow, 0x1234, false, &packet),
            Verdict::Bad,
            "known Identification"
        );
        missed += u32::from(icrc::verify(&flow, 0, true, &packet) != Verdict::Bad);
    }
    println!(
        "{missed} of {TRIALS} damaged packets missed, {:.1} expected",
        f64::from(TRIALS) / 65536.0
    );
    // Fifteen expected, standard deviation four; the seed is fixed, so this does not flicker.
    assert!((4..=28).contains(&missed), "{missed}");
}

struct Sample {
    name: String,
    flow: Flow,
    identification: u16,
    packet: Vec<u8>,
}

/// The shortest and longest captured packet of each opcode, and a made-up one of every opcode in both
/// families.
fn samples() -> Vec<Sample> {
    let mut captured: BTreeMap<(u8, bool), Sample> = BTreeMap::new();
    for capture in Capture::all()
        .iter()
        .filter(|capture| !capture.name.contains("corrupt"))
    {
        for datagram in capture.datagrams() {
            let opcode = datagram.payload[0];
            for longest in [false, true] {
                let len = datagram.payload.len();
                let better = captured.get(&(opcode, longest)).is_none_or(|best| {
                    if longest {
                        len > best.packet.len()
                    } else {
                        len < best.packet.len()
                    }
                });
                if better {
                    let sample = Sample {
                        name: format!("{} {opcode:#04x}", capture.name),
                        flow: datagram.flow,
                        identification: datagram.fragmentation.map_or(0, |fields| fields.identification),
                        packet: datagram.payload.to_vec(),
                    };
                    captured.insert((opcode, longest), sample);
                }
            }
        }
    }
    let mut samples: Vec<Sample> = captured.into_values().collect();
    for flow in [flow_v4(), flow_v6()] {
        samples.extend(Opcode::ALL.iter().map(|&opcode| Sample {
            name: format!("made-up {opcode}"),
            flow,
            identification: 0xbeef,
            packet: sample_packet(opcode, &flow, 0xbeef),
        }));
    }
    samples
}

/// All flows that differ from `flow` in one bit.
fn neighbours(flow: &Flow) -> Vec<Flow> {
    let mut all = Vec::new();
    for bit in 0..16 {
        all.push(Flow {
            src_port: flow.src_port ^ 1 << bit,
            ..*flow
        });
        all.push(Flow {
            dst_port: flow.dst_port ^ 1 << bit,
            ..*flow
        });
    }
    let (src, dst) = (neighbour_addresses(flow.src), neighbour_addresses(flow.dst));
    all.extend(src.into_iter().map(|src| Flow { src, ..*flow }));
    all.extend(dst.into_iter().map(|dst| Flow { dst, ..*flow }));
    all
}

fn neighbour_addresses(address: IpAddr) -> Vec<IpAddr> {
    match address {
        IpAddr::V4(v4) => (0..32)
            .map(|bit| IpAddr::V4((v4.to_bits() ^ 1 << bit).into()))
            .collect(),
        IpAddr::V6(v6) => (0..128)
            .map(|bit| IpAddr::V6((v6.to_bits() ^ 1 << bit).into()))
            .collect(),
    }
}

fn flip(packet: &mut [u8], bit: usize) {
    packet[bit / 8] ^= 1 << (bit % 8);
}
