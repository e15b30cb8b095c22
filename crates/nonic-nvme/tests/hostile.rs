//! Random and mutated capsules, and the corpus of the fuzzer: no panic, no access outside the disk, no transfer beyond what the
//! host described.

use crate::fuzz::corpus;
use crate::fuzz::nvme;
use crate::fuzz::nvme::Host;
use nonic_nvme::controller::Limits;
use nonic_nvme::wire::{Command, KeyedSgl, Sgl};
use proptest::prelude::*;

#[test]
fn the_corpus() {
    corpus::replay("nvme", nvme::capsules);
}

/// A sensible command of any kind, of which some bytes were changed. The disk has 2048 blocks: numbers near its end and lengths
/// near that of the capsule are frequent.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let opcode = prop_oneof![
        proptest::sample::select(&[0x00_u8, 0x01, 0x02, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x18, 0x7f][..]),
        any::<u8>(),
    ];
    let sgl = prop_oneof![
        (any::<u64>(), any::<u32>(), any::<u32>(), any::<bool>()).prop_map(
            |(address, length, key, invalidate)| {
                Sgl::Keyed(KeyedSgl {
                    address,
                    length: length & 0xff_ffff,
                    key,
                    invalidate,
                })
                .emit()
            }
        ),
        (prop_oneof![Just(0_u64), 0..100_u64, any::<u64>()], 0..10_000_u32)
            .prop_map(|(offset, length)| Sgl::InCapsule { offset, length }.emit()),
        any::<[u8; 16]>(),
    ];
    let words = proptest::array::uniform6(
        prop_oneof![4 => Just(0), 4 => 0..0x80_u32, 4 => 2030..2050_u32, 1 => any::<u32>()],
    );
    let nsid = prop_oneof![0..6_u32, any::<u32>()];
    let changes = proptest::collection::vec((0..64_usize, any::<u8>()), 0..3);
    let behind = proptest::sample::select(&[0_usize, 512, 600, 1024, 8192][..]);
    (opcode, nsid, sgl, words, changes, behind).prop_map(|(opcode, nsid, sgl, words, changes, behind)| {
        let command = Command {
            opcode,
            flags: 0x40,
            cid: 1,
            nsid,
            sgl,
            words,
        };
        let mut bytes = command.emit().to_vec();
        for (at, value) in changes {
            bytes[at] = value;
        }
        bytes.resize(64 + behind.min(Limits::IN_CAPSULE), 0);
        bytes
    })
}

/// Reads and writes at the end of the disk, with data at the end of the capsule.
fn at_the_ends() -> impl Strategy<Value = Vec<u8>> {
    let behind = 0..60_u64;
    (1..=2_u8, 2040..2056_u64, 1..12_u16, behind, any::<bool>()).prop_map(
        |(opcode, first, blocks, offset, keyed)| {
            let length = u32::from(blocks) * 512;
            let mut command = Command::transfer(opcode, 1, first, blocks);
            command.sgl = match keyed {
                true => Sgl::Keyed(KeyedSgl {
                    address: 0,
                    length,
                    key: 1,
                    invalidate: false,
                }),
                false => Sgl::InCapsule { offset, length },
            }
            .emit();
            let mut bytes = command.emit().to_vec();
            bytes.resize(64 + length as usize + 30, 0);
            bytes
        },
    )
}

fn capsule() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => mutated(),
        2 => at_the_ends(),
        1 => proptest::collection::vec(any::<u8>(), 0..200),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn capsules_of_any_kind_do_no_harm(
        script in proptest::collection::vec((0..3_usize, capsule()), 1..30),
        data in proptest::collection::vec(any::<u8>(), 0..1100),
    ) {
        let mut host = Host::new();
        for (index, bytes) in &script {
            host.feed(*index, bytes, &data);
        }
    }
}
