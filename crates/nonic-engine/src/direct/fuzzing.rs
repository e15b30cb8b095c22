//! Fuzzing of direct access: what a hostile process publishes.

use super::publication::{self, PublishedView};
use crate::os::hostile_memory::HostileMemory;
use crate::os::shared_memory::{Others, SharedMemory};
use nonic_core::{Access, Psn, Qpn};
use std::net::{IpAddr, Ipv4Addr};

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
    /// The number that its peer's requests began with.
    pub first: Psn,
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
        let _ = qp.is_connected_to(Qpn::new(qpn), US, US);
        let said = Said {
            pd: qp.pd(),
            access: qp.access(),
            first: qp.first(),
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
