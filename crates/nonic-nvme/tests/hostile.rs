//! Random and mutated capsules: no panic, no access outside the disk, no transfer beyond what the host described.

use nonic_nvme::controller::{Limits, Place, Queue, Source, Step, Subsystem, SubsystemConfig};
use nonic_nvme::wire::{
    CmRequest, Command, Configuration, ConnectData, ConnectFields, Nqn, RdmaProvider, Sgl, Status,
};
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Instant;

const NQN: &str = "nqn.2026-11.org.example:disk";
const BYTES: u64 = 1 << 20;

struct Host {
    subsystem: Arc<Subsystem>,
    queues: Vec<Queue>,
    now: Instant,
}

impl Host {
    fn new() -> Self {
        let subsystem = Arc::new(Subsystem::new(SubsystemConfig {
            nqn: Nqn::new(NQN).expect("a name"),
            bytes: BYTES,
            block_shift: 9,
        }));
        let mut host = Host {
            subsystem,
            queues: Vec::new(),
            now: Instant::now(),
        };
        for qid in 0..3 {
            host.open(qid);
        }
        host.connect(0, ConnectData::ANY_CONTROLLER);
        let controller = host.queues[0].controller().expect("connected").cntlid;
        let enable = nonic_nvme::wire::PropertyFields {
            is_wide: false,
            offset: 0x14,
            value: Configuration::ENABLED.0.into(),
        };
        let enable = Command::property(nonic_nvme::wire::FabricsType::PropertySet, &enable);
        host.queues[0].handle(&enable.emit(), host.now);
        // The third stays unconnected.
        host.connect(1, controller);
        host
    }

    fn open(&mut self, qid: u16) {
        let place = Place {
            address: [127, 0, 0, 1].into(),
            port: 4420,
            provider: RdmaProvider::RoceV2,
        };
        let request = CmRequest {
            qid,
            hrqsize: 32,
            hsqsize: 31,
            cntlid: 0,
        };
        let queue = Queue::open(&self.subsystem, place, request, self.now).expect("accepted");
        self.queues.push(queue);
    }

    fn connect(&mut self, index: usize, cntlid: u16) {
        let mut command = Command::connect(&ConnectFields {
            record_format: 0,
            qid: index as u16,
            sqsize: 31,
            attributes: 0,
            kato_ms: 0,
        });
        command.sgl = Sgl::InCapsule {
            offset: 0,
            length: 1024,
        }
        .emit();
        let data = ConnectData {
            host_id: [0; 16],
            cntlid,
            subsystem_nqn: NQN.to_owned(),
            host_nqn: "nqn.host".to_owned(),
        };
        let capsule = [&command.emit()[..], &data.emit()].concat();
        let Step::Fetch { pending, .. } = self.queues[index].handle(&capsule, self.now) else {
            panic!("the data is fetched");
        };
        let response = self.queues[index].handle_connect_data(pending, &data.emit(), self.now);
        assert_eq!(response.completion.status, Status::SUCCESS);
    }

    /// Feeds a capsule and checks what comes of it.
    fn feed(&mut self, index: usize, capsule: &[u8], data: &[u8]) {
        let queue = &mut self.queues[index];
        match queue.handle(capsule, self.now) {
            Step::Respond(_) | Step::Hold => {}
            Step::End(_) => assert!(capsule.len() < 64),
            Step::Transfer { data, to, .. } => {
                assert!(data.len() <= to.length as usize && data.len() <= Limits::TRANSFER);
            }
            Step::Fetch {
                from,
                length,
                pending,
            } => {
                assert_eq!(length, 1024);
                check_source(&from, length, capsule);
                queue.handle_connect_data(pending, data, self.now);
            }
            Step::DiskRead {
                at,
                length,
                to,
                pending,
            } => {
                check_extent(at, length);
                assert!(length <= to.length as usize);
                queue.finish(pending, Ok(()));
            }
            Step::DiskWrite {
                at,
                length,
                from,
                pending,
                ..
            } => {
                check_extent(at, length);
                check_source(&from, length, capsule);
                queue.finish(pending, Err(Status::WRITE_FAULT));
            }
            Step::DiskFlush { pending } => {
                queue.finish(pending, Ok(()));
            }
        }
        assert!(self.subsystem.controllers() <= self.queues.len());
    }
}

fn check_extent(at: u64, length: usize) {
    assert!(length > 0 && length <= Limits::TRANSFER);
    assert!(at.checked_add(length as u64).is_some_and(|end| end <= BYTES));
}

fn check_source(from: &Source, length: usize, capsule: &[u8]) {
    match from {
        Source::Capsule(range) => {
            assert!(range.start >= 64 && range.end <= capsule.len() && range.len() == length);
        }
        Source::Host(keyed) => assert!(keyed.length as usize >= length),
    }
}

/// A sensible command of any kind, of which some bytes were changed.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let opcode = prop_oneof![
        proptest::sample::select(&[0x00_u8, 0x01, 0x02, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x18, 0x7f][..]),
        any::<u8>(),
    ];
    let sgl = prop_oneof![
        (any::<u64>(), any::<u32>(), any::<u32>(), any::<bool>()).prop_map(
            |(address, length, key, invalidate)| {
                Sgl::Keyed(nonic_nvme::wire::KeyedSgl {
                    address,
                    length: length & 0xff_ffff,
                    key,
                    invalidate,
                })
                .emit()
            }
        ),
        (0..10_000_u64, 0..10_000_u32).prop_map(|(offset, length)| Sgl::InCapsule { offset, length }.emit()),
        any::<[u8; 16]>(),
    ];
    let words = proptest::array::uniform6(prop_oneof![0..0x80_u32, any::<u32>()]);
    let nsid = prop_oneof![0..6_u32, any::<u32>()];
    let changes = proptest::collection::vec((0..64_usize, any::<u8>()), 0..3);
    let behind = 0..9000_usize;
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

fn capsule() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => mutated(),
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
