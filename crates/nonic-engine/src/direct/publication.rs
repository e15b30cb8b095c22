//! The publication of a device: its live keys, and its queue pairs as far as peers on this host need to know them.
//!
//! It is two tables of entries of 64 bytes, and a list of files, in one memfd that only this process can write. An entry is
//! found by its number: it is one of the [`PROBED`] entries from where the number hashes to, or it is not there and peers
//! write records. It lives while its first word, which is written last and cleared first, names it. A peer must announce an
//! access before it reads the rest ([`super::revocation`]): an entry is reused only after every access that relied on it
//! has ended.

use super::revocation::{Hazard, Incoming, IncomingAccess, PATIENCE};
use crate::link::lane::memory::LaneMemory;
use crate::memory::{Backing, Pages};
use crate::os::descriptors::InternalFd;
use crate::os::entropy::KernelEntropy;
use crate::os::shared_memory::{Others, SharedMemory};
use nonic_core::{Access, Entropy as _, Key, KeyPublisher, Psn, Qpn, Target};
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// "nonic", direct access and a version.
pub(super) const MAGIC: u64 = 0x6e6f_6e69_6344_0003;
const NONCE: usize = 8;
const NONCE_ADDRESS: usize = 16;
pub(super) const ENTRY: usize = 64;
pub(super) const QPS: usize = 4096;
pub(super) const QP_COUNT: usize = 1 << 14;
pub(super) const KEYS: usize = QPS + QP_COUNT * ENTRY;
pub(super) const KEY_COUNT: usize = 1 << 16;
/// Numbers of files that exist and that peers may have mapped, each in a word that its number says.
const FILES: usize = KEYS + KEY_COUNT * ENTRY;
const FILE_COUNT: usize = 1 << 12;
pub(super) const LEN: usize = FILES + FILE_COUNT * 8;
/// How many entries are looked at for a number.
const PROBED: usize = 8;
/// In the first word of an entry, above the number that it is for.
const LIVE: u64 = 1 << 32;

/// What this device publishes.
#[derive(Debug)]
pub(crate) struct Publication {
    memory: Arc<SharedMemory>,
    fd: InternalFd,
    /// Entries that cannot be used again yet, because a peer may still rely on them; and whether a wait for it was in vain.
    /// Locked while an entry is filled.
    retired: Mutex<HashMap<usize, bool>>,
    /// Keys that were taken back while a peer did not end an access; and where they are.
    busy: Mutex<HashMap<u32, usize>>,
    /// Memory that peers with a key to it may map, by its number.
    mappable: Mutex<HashMap<u64, Weak<Backing>>>,
    /// The lanes whose senders may access our memory.
    pub(super) incoming: Incoming,
}

impl Publication {
    /// Publishes nothing yet.
    pub(crate) fn new() -> io::Result<Self> {
        let (memory, fd) = SharedMemory::create("nonic-published", LEN, Others::Read)?;
        let mut entropy = KernelEntropy::new();
        let nonce = u64::from(entropy.next_u32()) << 32 | u64::from(entropy.next_u32());
        memory.word(NONCE).store(nonce, Ordering::Relaxed);
        let address = memory.word(NONCE).as_ptr().addr() as u64;
        memory.word(NONCE_ADDRESS).store(address, Ordering::Relaxed);
        memory.word(0).store(MAGIC, Ordering::Release);
        Ok(Publication {
            memory: Arc::new(memory),
            fd: fd.into(),
            retired: Mutex::default(),
            busy: Mutex::default(),
            mappable: Mutex::default(),
            incoming: Incoming::default(),
        })
    }

    /// The descriptor that is given to peers.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Publishes a queue pair. Where it is, if there is room.
    pub(super) fn publish_qp(&self, qpn: Qpn, target: &Target) -> Option<usize> {
        let retired = self.retired();
        let index = self.free(&qp_entries(qpn), |index| QPS + index * ENTRY, &retired)?;
        let entry = QpEntry(self.word_at(QPS + index * ENTRY));
        entry.fill(target);
        entry.live().store(live_qp(qpn), Ordering::Release);
        Some(index)
    }

    /// Takes a queue pair back. When this returns, no access by it is under way, unless a peer does not end one.
    pub(super) fn withdraw_qp(&self, index: usize) {
        self.withdraw_entry(QPS + index * ENTRY, Hazard::of_qp(index));
    }

    /// Takes a queue pair back before its shard does, and waits for accesses by it without the shard lock: a thread that
    /// ends a queue pair does not delay threads that use another one. The shard then finds that the accesses have ended, or
    /// that the wait was in vain.
    pub(crate) fn recall_qp(&self, qpn: Qpn) {
        let mut retired = self.retired();
        let is_it = |index: &usize| {
            let word = self.memory.word(QPS + index * ENTRY);
            word.load(Ordering::Relaxed) == live_qp(qpn)
        };
        let Some(index) = qp_entries(qpn).into_iter().find(is_it) else {
            return;
        };
        let offset = QPS + index * ENTRY;
        // Until its shard has taken it back, too.
        retired.insert(offset, false);
        self.memory.word(offset).store(0, Ordering::Release);
        drop(retired);
        fence(Ordering::SeqCst);
        if !self.incoming.wait_for(Hazard::of_qp(index), PATIENCE) {
            if let Some(in_vain) = self.retired().get_mut(&offset) {
                *in_vain = true;
            }
        }
    }

    /// Clears an entry and waits for accesses that rely on it. Whether all have ended.
    fn withdraw_entry(&self, offset: usize, hazard: Hazard) -> bool {
        // The entry is not reused before the accesses that use it have ended.
        let in_vain = *self.retired().entry(offset).or_insert(false);
        self.memory.word(offset).store(0, Ordering::Release);
        // The peer announces an access and then looks at the entry. This thread clears the entry and then looks for
        // accesses. One of them sees the other.
        fence(Ordering::SeqCst);
        let patience = if in_vain { Duration::ZERO } else { PATIENCE };
        self.wait_for_entry(offset, hazard, patience)
    }

    /// Waits until no access relies on an entry that was taken back, but not for ever. Whether all have ended.
    fn wait_for_entry(&self, offset: usize, hazard: Hazard, patience: Duration) -> bool {
        let ended = self.incoming.wait_for(hazard, patience);
        if ended {
            self.retired().remove(&offset);
        }
        ended
    }

    /// Waits once more for accesses through a key that was [busy](nonic_core::KeyError::Busy) when it was revoked. Whether
    /// they have ended; `None` if it was not.
    pub(crate) fn wait_for_busy(&self, key: u32) -> Option<bool> {
        let busy = || self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let index = busy().get(&key).copied()?;
        let ended = self.wait_for_entry(KEYS + index * ENTRY, Hazard::of_key(index), PATIENCE);
        if ended {
            busy().remove(&key);
        }
        Some(ended)
    }

    /// Gives the memory that a key covers to a peer that asks for it by its number. It counts as given before it is, so
    /// this process does not take it back without knowing. `None` if there is no such memory.
    pub(crate) fn give_memory(&self, key: u32, number: u64, give: impl FnOnce(BorrowedFd<'_>)) -> Option<()> {
        let memory = self.mappable().get(&number).and_then(Weak::upgrade)?;
        give(memory.give(key)?);
        Some(())
    }

    /// Enters memory that peers with the key may map; its number, or zero.
    fn offer_memory(&self, key: &Key) -> u64 {
        let Some(memory) = mappable(key) else {
            return 0;
        };
        let number = memory.number();
        let mut mappable = self.mappable();
        if !mappable.contains_key(&number) {
            // Entries of memory that is gone are taken out whenever there may be as many of them as others: that costs each
            // new entry the same, however many there are.
            if mappable.len() == mappable.capacity() {
                mappable.retain(|_, memory| memory.strong_count() > 0);
                let left = mappable.len();
                mappable.reserve(left + 1);
            }
            mappable.insert(number, Arc::downgrade(&memory));
        }
        memory.list(&self.memory, file_word(number));
        number
    }

    /// A key was revoked. Peers give the memory back that they mapped by it, unless that may stay.
    fn withdraw_memory(&self, key: &Key) {
        let pages = key
            .region()
            .as_any()
            .and_then(|region| region.downcast_ref::<Pages>());
        if let Some(memory) = pages.and_then(Pages::backing) {
            if memory.withdraw(key.value()) {
                let word = self.memory.word(file_word(memory.number()));
                let _ = word.compare_exchange(memory.number(), 0, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }

    fn mappable(&self) -> MutexGuard<'_, HashMap<u64, Weak<Backing>>> {
        self.mappable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn retired(&self) -> MutexGuard<'_, HashMap<usize, bool>> {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An entry that is not in use, among these.
    fn free(
        &self,
        among: &[usize; PROBED],
        offset: impl Fn(usize) -> usize,
        retired: &HashMap<usize, bool>,
    ) -> Option<usize> {
        let is_free = |index: &usize| {
            let offset = offset(*index);
            self.memory.word(offset).load(Ordering::Relaxed) == 0 && !retired.contains_key(&offset)
        };
        among.iter().copied().find(is_free)
    }

    fn word_at(&self, offset: usize) -> &[AtomicU64; ENTRY / 8] {
        words(&self.memory, offset)
    }
}

impl Publication {
    /// A lane was taken whose sender may access our memory.
    pub(crate) fn admit(&self, access: IncomingAccess) {
        if let Some(pid) = access.pid {
            super::access::permit(pid);
        }
        self.incoming.add(access);
    }

    /// A lane has ended, with its sender or without.
    pub(crate) fn dismiss(&self, ring: &Arc<LaneMemory>) {
        self.incoming.remove(ring);
    }
}

impl KeyPublisher for Publication {
    fn publish(&self, key: &Key) {
        // What is not ordinary memory of this process cannot be accessed by others.
        let Some(start) = key.region().address() else {
            return;
        };
        let retired = self.retired();
        let entries = key_entries(key.value());
        let Some(index) = self.free(&entries, |index| KEYS + index * ENTRY, &retired) else {
            return;
        };
        let number = self.offer_memory(key);
        let entry = KeyEntry(self.word_at(KEYS + index * ENTRY));
        entry.fill(key, start + key.offset(), number);
        entry.live().store(live_key(key.value()), Ordering::Release);
    }

    fn withdraw(&self, key: &Key) -> bool {
        self.withdraw_memory(key);
        let published = key_entries(key.value()).into_iter().find(|index| {
            let word = self.memory.word(KEYS + index * ENTRY);
            word.load(Ordering::Relaxed) == live_key(key.value())
        });
        let Some(index) = published else { return true };
        let ended = self.withdraw_entry(KEYS + index * ENTRY, Hazard::of_key(index));
        if !ended {
            let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
            busy.insert(key.value(), index);
        }
        ended
    }
}

/// The memory that a key covers, if peers with the key may map it: memory of ours that became a file, and with rights that
/// it was not published without before. The key must cover all of it, unless peers may see the rest as well, at other
/// times.
fn mappable(key: &Key) -> Option<Arc<Backing>> {
    let pages = key.region().as_any()?.downcast_ref::<Pages>()?;
    let backing = pages.backing()?;
    let whole = key.length() == key.region().len() as u64 || pages.do_stay_mapped();
    if key.offset() != 0 || !whole {
        return None;
    }
    let published = backing.publish(key.value(), key.access());
    published.map(|_| Arc::clone(backing))
}

/// What another process publishes.
#[derive(Debug)]
pub(crate) struct PublishedView {
    memory: SharedMemory,
}

impl PublishedView {
    /// What was received as such.
    pub(crate) fn open(fd: impl AsFd) -> io::Result<Self> {
        let memory = SharedMemory::of_another(fd, LEN, Others::Read)?;
        match memory.word(0).load(Ordering::Acquire) {
            MAGIC => Ok(PublishedView { memory }),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// A number, and where it is in the memory of its process.
    pub(super) fn nonce(&self) -> (u64, u64) {
        let [nonce, address] = [NONCE, NONCE_ADDRESS].map(|at| self.memory.word(at).load(Ordering::Relaxed));
        (nonce, address)
    }

    /// Where a queue pair is, if it is published.
    pub(super) fn find_qp(&self, qpn: Qpn) -> Option<usize> {
        qp_entries(qpn).into_iter().find(|index| self.is_qp(*index, qpn))
    }

    /// Whether an entry is that of a queue pair. Ask again after the access was announced.
    #[inline]
    pub(super) fn is_qp(&self, index: usize, qpn: Qpn) -> bool {
        self.qp(index).live().load(Ordering::Acquire) == live_qp(qpn)
    }

    /// The entry of a queue pair.
    #[inline]
    pub(super) fn qp(&self, index: usize) -> QpEntry<'_> {
        QpEntry(words(&self.memory, QPS + (index % QP_COUNT) * ENTRY))
    }

    /// Whether a file exists that is asked for by this number, and peers that had a key to it need not give it back.
    pub(super) fn has_file(&self, number: u64) -> bool {
        self.memory.word(file_word(number)).load(Ordering::Acquire) == number
    }

    /// Where a key is, if it is published.
    pub(super) fn find_key(&self, key: u32) -> Option<usize> {
        key_entries(key)
            .into_iter()
            .find(|index| self.is_key(*index, key))
    }

    /// Whether an entry is that of a key. Ask again after the access was announced.
    #[inline]
    pub(super) fn is_key(&self, index: usize, key: u32) -> bool {
        self.key(index).live().load(Ordering::Acquire) == live_key(key)
    }

    /// The entry of a key.
    #[inline]
    pub(super) fn key(&self, index: usize) -> KeyEntry<'_> {
        KeyEntry(words(&self.memory, KEYS + (index % KEY_COUNT) * ENTRY))
    }
}

#[inline]
fn words(memory: &SharedMemory, offset: usize) -> &[AtomicU64; ENTRY / 8] {
    let start = memory.bytes(offset, ENTRY).cast::<[AtomicU64; ENTRY / 8]>();
    assert!(start.is_aligned());
    // SAFETY: inside the mapping and aligned, as just checked; atomics may be shared with other processes.
    unsafe { start.as_ref() }
}

/// Where the number of a file is, while it exists. Another one may take the place: then it is mapped anew.
fn file_word(number: u64) -> usize {
    FILES + number as usize % FILE_COUNT * 8
}

fn live_qp(qpn: Qpn) -> u64 {
    LIVE | u64::from(qpn.value())
}

fn live_key(key: u32) -> u64 {
    LIVE | u64::from(key)
}

/// Numbers of one block are next to each other, so they do not collide.
fn qp_entries(qpn: Qpn) -> [usize; PROBED] {
    std::array::from_fn(|probe| (qpn.value() as usize).wrapping_add(probe) % QP_COUNT)
}

/// Keys are random.
fn key_entries(key: u32) -> [usize; PROBED] {
    std::array::from_fn(|probe| (key as usize).wrapping_add(probe) % KEY_COUNT)
}

/// A queue pair, as peers see it.
#[derive(Copy, Clone)]
pub(super) struct QpEntry<'a>(&'a [AtomicU64; ENTRY / 8]);

impl QpEntry<'_> {
    const PEER: usize = 1;
    const PD_AND_ACCESS: usize = 2;
    const FIRST: usize = 3;
    const REMOTE: usize = 4;
    const LOCAL: usize = 6;

    fn live(&self) -> &AtomicU64 {
        &self.0[0]
    }

    fn load(&self, at: usize) -> u64 {
        self.0[at].load(Ordering::Acquire)
    }

    fn fill(&self, target: &Target) {
        let put = |at: usize, value: u64| self.0[at].store(value, Ordering::Relaxed);
        put(Self::PEER, u64::from(target.peer.value()));
        put(
            Self::PD_AND_ACCESS,
            u64::from(target.pd.value()) << 32 | u64::from(target.access.bits()),
        );
        put(Self::FIRST, u64::from(target.first.value()));
        for (at, ip) in [(Self::REMOTE, target.remote), (Self::LOCAL, target.local)] {
            let [high, low] = halves(ip);
            put(at, high);
            put(at + 1, low);
        }
    }

    /// Whether it is connected to a queue pair of ours, between these addresses.
    #[inline]
    pub(super) fn is_connected_to(&self, own: Qpn, ours: IpAddr, theirs: IpAddr) -> bool {
        let address = |at| [self.load(at), self.load(at + 1)];
        self.load(Self::PEER) as u32 == own.value()
            && address(Self::REMOTE) == halves(ours)
            && address(Self::LOCAL) == halves(theirs)
    }

    /// Its protection domain.
    #[inline]
    pub(super) fn pd(&self) -> u32 {
        (self.load(Self::PD_AND_ACCESS) >> 32) as u32
    }

    /// What it permits.
    #[inline]
    pub(super) fn access(&self) -> Access {
        Access::from_bits_retain(self.load(Self::PD_AND_ACCESS) as u32)
    }

    /// The number that its peer's requests began with.
    #[inline]
    pub(super) fn first(&self) -> Psn {
        Psn::new(self.load(Self::FIRST) as u32)
    }
}

/// A key, as peers see it.
#[derive(Copy, Clone)]
pub(super) struct KeyEntry<'a>(&'a [AtomicU64; ENTRY / 8]);

impl KeyEntry<'_> {
    const PD_AND_ACCESS: usize = 1;
    const IOVA: usize = 2;
    const LENGTH: usize = 3;
    const ADDRESS: usize = 4;
    const MEMORY: usize = 5;

    fn live(&self) -> &AtomicU64 {
        &self.0[0]
    }

    fn load(&self, at: usize) -> u64 {
        self.0[at].load(Ordering::Acquire)
    }

    fn fill(&self, key: &Key, address: usize, memory: u64) {
        let put = |at: usize, value: u64| self.0[at].store(value, Ordering::Relaxed);
        put(
            Self::PD_AND_ACCESS,
            u64::from(key.pd().value()) << 32 | u64::from(key.access().bits()),
        );
        put(Self::IOVA, key.iova());
        put(Self::LENGTH, key.length());
        put(Self::ADDRESS, address as u64);
        put(Self::MEMORY, memory);
    }

    /// The number of the memory that it covers, by which it can be asked for; zero if it cannot.
    #[inline]
    pub(super) fn memory(&self) -> u64 {
        self.load(Self::MEMORY)
    }

    /// Where the access begins behind the first byte that the key covers, if it permits it.
    #[inline]
    pub(super) fn check(&self, pd: u32, needed: Access, va: u64, length: u64) -> Option<u64> {
        let rights = self.load(Self::PD_AND_ACCESS);
        let permitted =
            Access::from_bits_retain(rights as u32).contains(needed) && (rights >> 32) as u32 == pd;
        let start = va.checked_sub(self.load(Self::IOVA))?;
        let end = start.checked_add(length)?;
        (permitted && end <= self.load(Self::LENGTH)).then_some(start)
    }

    /// A place behind the first byte that it covers, as an address of its process.
    #[inline]
    pub(super) fn address(&self, start: u64) -> Option<u64> {
        self.load(Self::ADDRESS).checked_add(start)
    }
}

fn halves(ip: IpAddr) -> [u64; 2] {
    let bits = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
        IpAddr::V6(ip) => ip.to_bits(),
    };
    [(bits >> 64) as u64, bits as u64]
}
