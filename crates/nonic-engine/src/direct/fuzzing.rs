//! Fuzzing of direct access: what a hostile process publishes, and what it claims to have executed.

use super::publication::{self, PublishedView};
use super::responder::Responder;
use super::{IncomingAccess, Publication};
use crate::link::lane::fuzzing::layout;
use crate::link::lane::ring::RingWriter;
use crate::os::hostile_memory::HostileMemory;
use crate::os::shared_memory::{Others, SharedMemory};
use nonic_core::{Access, KeyTable, Progress, Psn, Qpn, Target};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// Where what is in published memory.
pub mod tables {
    use super::publication;

    /// The entries of queue pairs.
    pub const QPS: usize = publication::QPS;
    /// How many there are.
    pub const QP_COUNT: usize = publication::QP_COUNT;
    /// The entries of keys.
    pub const KEYS: usize = publication::KEYS;
    /// How many there are.
    pub const KEY_COUNT: usize = publication::KEY_COUNT;
    /// The length of an entry.
    pub const ENTRY: usize = publication::ENTRY;
}

const US: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The process that reads what a hostile process publishes.
#[derive(Debug)]
pub struct PublishedVictim(PublishedView);

/// What an entry of a queue pair says.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Said {
    /// Its protection domain.
    pub pd: u32,
    /// What it permits.
    pub access: Access,
    /// The packet that it expects.
    pub expected: Psn,
}

impl PublishedVictim {
    /// One that has been given memory, and that.
    pub fn new() -> (Self, HostileMemory) {
        let length = publication::LEN;
        let (memory, fd) =
            SharedMemory::create("nonic-published", length, Others::Read).expect("there is memory");
        let memory = HostileMemory::new(memory, length);
        memory.poke(0, publication::MAGIC);
        let view = PublishedView::open(fd).expect("it is published memory");
        (PublishedVictim(view), memory)
    }

    /// Where a queue pair is, and what is said of it.
    pub fn find_qp(&self, qpn: u32) -> Option<(usize, Said)> {
        let index = self.0.find_qp(Qpn::new(qpn))?;
        let qp = self.0.qp(index);
        // Nothing to hold it to: it compares.
        let _ = (qp.epoch(), qp.is_connected_to(Qpn::new(qpn), US, US));
        let said = Said {
            pd: qp.pd(),
            access: qp.access(),
            expected: qp.expected(),
        };
        Some((index, said))
    }

    /// Where a key is.
    pub fn find_key(&self, key: u32) -> Option<usize> {
        self.0.find_key(key)
    }

    /// The address that the entry of a key gives for an access.
    pub fn check(&self, index: usize, pd: u32, needed: Access, va: u64, length: u32) -> Option<u64> {
        let entry = self.0.key(index);
        entry.address(entry.check(pd, needed, va, u64::from(length))?)
    }
}

/// A process one of whose queue pairs is connected to one of a hostile process, which says how far it has served it.
pub struct NotesVictim {
    responder: Responder,
    publication: Arc<Publication>,
}

impl NotesVictim {
    /// The queue pair.
    pub const QPN: u32 = 0x1007;
    const PEER: u32 = 0x2003;

    /// One that has taken no lane yet.
    pub fn connected() -> Self {
        let publication = Arc::new(Publication::new().expect("there is memory"));
        let mut victim = NotesVictim {
            responder: Responder::new(Arc::clone(&publication)),
            publication,
        };
        victim.reconnect();
        victim
    }

    /// Connects the queue pair anew: another life of it.
    pub fn reconnect(&mut self) {
        self.responder.withdraw(Qpn::new(Self::QPN));
        let target = Target {
            local: US,
            remote: US,
            peer: Qpn::new(Self::PEER),
            pd: KeyTable::new().alloc_pd(),
            access: Access::REMOTE_WRITE,
            expected: Psn::new(0),
        };
        self.responder.publish(Qpn::new(Self::QPN), &target);
    }

    /// Takes a lane of the hostile process, instead of the one before; its memory.
    pub fn take_lane(&mut self) -> HostileMemory {
        let (writer, fd) = RingWriter::create().expect("there is memory");
        let ring = Arc::clone(writer.memory());
        while let Some(old) = self.publication.incoming.find(1, (US, 2)) {
            self.publication.dismiss(&old);
        }
        self.publication.admit(IncomingAccess {
            block: 1,
            sender: (US, 2),
            ring,
            pid: None,
        });
        let memory = SharedMemory::of_another(fd, layout::LEN, Others::Write).expect("it is a lane");
        HostileMemory::new(memory, layout::LEN)
    }

    /// What the hostile process has done since this was last asked, by its own word.
    pub fn executed(&mut self) -> Option<Progress> {
        self.responder.executed(Qpn::new(Self::QPN))
    }
}
