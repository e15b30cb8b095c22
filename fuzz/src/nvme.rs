//! Capsules to the controller of an NVMe over Fabrics target.
//!
//! What must hold: no panic, no access outside the disk, nothing fetched from outside the capsule, no more moved than the host
//! described and than the controller takes, and no more controllers than admin queues.

use nonic_nvme::controller::{Limits, Place, Queue, Source, Step, Subsystem, SubsystemConfig};
use nonic_nvme::wire::{
    CmRequest, Command, Configuration, ConnectData, ConnectFields, FabricsType, Nqn, PropertyFields,
    RdmaProvider, Sgl, Status,
};
use std::sync::Arc;
use std::time::Instant;

/// A script: for each capsule the queue, a length of two bytes, and its bytes. What is left over is the data of Connect commands.
pub fn capsules(bytes: &[u8]) {
    let mut host = Host::new();
    let mut rest = bytes;
    while let Some(([queue, low, high], left)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes([*low, *high])) % (Limits::CAPSULE + 1);
        let (capsule, left) = left.split_at(length.min(left.len()));
        host.feed(usize::from(*queue) % 3, capsule, left);
        rest = left;
    }
}

const NQN: &str = "nqn.2026-11.org.example:disk";
const BYTES: u64 = 1 << 20;

/// A host with an admin queue, an I/O queue, and a queue that never was connected.
pub struct Host {
    subsystem: Arc<Subsystem>,
    queues: Vec<Queue>,
    now: Instant,
}

impl Host {
    /// Connects them.
    pub fn new() -> Self {
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
        let enable = PropertyFields {
            is_wide: false,
            offset: 0x14,
            value: Configuration::ENABLED.0.into(),
        };
        let enable = Command::property(FabricsType::PropertySet, &enable);
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
    pub fn feed(&mut self, index: usize, capsule: &[u8], data: &[u8]) {
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
