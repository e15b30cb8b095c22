//! The subsystem, which the queues of all hosts share: its name and size, and the controllers that hosts have made.

use crate::wire::{Configuration, ControllerKind, IdentifyNamespace, Nqn, RdmaProvider, Status};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The limits of a host. Every host learns them before it could use more.
#[derive(Debug)]
pub struct Limits;

impl Limits {
    /// Entries of an admin queue.
    pub const ADMIN_ENTRIES: u16 = 32;
    /// Entries of an I/O queue.
    pub const QUEUE_ENTRIES: u16 = 128;
    /// I/O queues of a controller.
    pub const IO_QUEUES: u16 = 16;
    /// Bytes of data in a capsule.
    pub const IN_CAPSULE: usize = 8192;
    /// Bytes of a capsule.
    pub const CAPSULE: usize = crate::wire::COMMAND_LENGTH + Self::IN_CAPSULE;
    /// The longest transfer, as a power of two of 4 KiB.
    pub const MDTS: u8 = 8;
    /// The longest transfer, in bytes.
    pub const TRANSFER: usize = 4096 << Self::MDTS;
    /// Controllers of a subsystem, its discovery service included.
    pub const CONTROLLERS: usize = 64;
    /// Requests for events that a controller keeps.
    pub const EVENTS: u8 = 4;
}

/// What a subsystem is.
#[derive(Clone, Debug)]
pub struct SubsystemConfig {
    /// Its name.
    pub nqn: Nqn,
    /// Bytes of its disk. What is left over behind the last whole block is not used.
    pub bytes: u64,
    /// The length of a block, as a power of two; 9 or 12.
    pub block_shift: u8,
}

/// Where a connection was accepted, which is where the subsystem is, as far as its host can tell.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The address.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
    /// What carries RDMA there.
    pub provider: RdmaProvider,
}

/// A subsystem: one namespace, and the controllers through which hosts use it.
#[derive(Debug)]
pub struct Subsystem {
    nqn: Nqn,
    namespace: IdentifyNamespace,
    controllers: Mutex<Controllers>,
}

#[derive(Debug, Default)]
struct Controllers {
    by_number: BTreeMap<u16, Arc<Controller>>,
    latest: u16,
}

impl Subsystem {
    /// One without hosts.
    pub fn new(config: SubsystemConfig) -> Self {
        let mut uuid = fingerprint(config.nqn.as_str().as_bytes()).to_be_bytes();
        // Version 8 (made by the vendor's own rule), variant 1.
        uuid[6] = uuid[6] & 0x0f | 0x80;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        Subsystem {
            namespace: IdentifyNamespace {
                blocks: config.bytes >> config.block_shift,
                block_shift: config.block_shift,
                uuid,
            },
            nqn: config.nqn,
            controllers: Mutex::default(),
        }
    }

    /// Its name.
    pub fn nqn(&self) -> &Nqn {
        &self.nqn
    }

    /// Its namespace. The UUID is made of the name, so that a host knows it again after the target was started anew.
    pub fn namespace(&self) -> &IdentifyNamespace {
        &self.namespace
    }

    /// Its serial number, made of the name as well.
    pub(super) fn serial(&self) -> String {
        let number = fingerprint(self.nqn.as_str().as_bytes()) as u64;
        format!("{number:016x}")
    }

    /// Controllers that hosts have.
    pub fn controllers(&self) -> usize {
        self.lock().by_number.len()
    }

    /// A new controller for a host.
    pub(super) fn create(
        &self,
        kind: ControllerKind,
        host_nqn: &str,
        kato: Duration,
        now: Instant,
    ) -> Result<Arc<Controller>, Status> {
        let mut controllers = self.lock();
        if controllers.by_number.len() >= Limits::CONTROLLERS {
            return Err(Status::CONNECT_BUSY);
        }
        // The numbers from 0xfff0 on have a meaning of their own.
        let mut cntlid = controllers.latest;
        loop {
            cntlid = cntlid % 0xffef + 1;
            if !controllers.by_number.contains_key(&cntlid) {
                break;
            }
        }
        controllers.latest = cntlid;
        let controller = Arc::new(Controller {
            cntlid,
            kind,
            host_nqn: host_nqn.to_owned(),
            configuration: AtomicU32::new(0),
            state: Mutex::new(State {
                kato,
                heard: now,
                queues: BTreeSet::new(),
            }),
        });
        controllers.by_number.insert(cntlid, Arc::clone(&controller));
        Ok(controller)
    }

    pub(super) fn find(&self, cntlid: u16) -> Option<Arc<Controller>> {
        self.lock().by_number.get(&cntlid).cloned()
    }

    pub(super) fn remove(&self, cntlid: u16) {
        self.lock().by_number.remove(&cntlid);
    }

    fn lock(&self) -> MutexGuard<'_, Controllers> {
        self.controllers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A controller: what a host has of the subsystem, from the Connect of its admin queue until that ends.
#[derive(Debug)]
pub struct Controller {
    /// Its number.
    pub cntlid: u16,
    /// What it is for.
    pub kind: ControllerKind,
    /// The host's name, as it was written.
    pub host_nqn: String,
    /// Read for every command of an I/O queue, so without a lock.
    configuration: AtomicU32,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Zero is for ever.
    kato: Duration,
    /// When the admin queue last said something.
    heard: Instant,
    /// The I/O queues that are connected.
    queues: BTreeSet<u16>,
}

impl Controller {
    pub(super) fn configuration(&self) -> Configuration {
        Configuration(self.configuration.load(Ordering::Acquire))
    }

    pub(super) fn configure(&self, configuration: Configuration) {
        self.configuration.store(configuration.0, Ordering::Release);
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.configuration().is_enabled()
    }

    /// The host is alive.
    pub(super) fn touch(&self, now: Instant) {
        self.lock().heard = now;
    }

    pub(super) fn set_kato(&self, kato: Duration) {
        self.lock().kato = kato;
    }

    pub(super) fn kato(&self) -> Duration {
        self.lock().kato
    }

    /// When the host is taken for dead.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let state = self.lock();
        (!state.kato.is_zero()).then(|| state.heard + state.kato)
    }

    /// Takes the number of a queue that is being connected. Whether it was free.
    pub(super) fn claim(&self, qid: u16) -> bool {
        self.lock().queues.insert(qid)
    }

    pub(super) fn release(&self, qid: u16) {
        self.lock().queues.remove(&qid);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// 128 bits that depend on all of a name (FNV-1a). Not secret, and need not be.
fn fingerprint(bytes: &[u8]) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(OFFSET, |hash, byte| {
        (hash ^ u128::from(*byte)).wrapping_mul(PRIME)
    })
}
