//! Memory keys: the protection and translation table.
//!
//! A key is a 32-bit number drawn from the caller's [`Entropy`], so that a peer that was not given it
//! cannot guess it. It names a [`Key`]: protection domain, address range, rights and the [`Region`] behind
//! them. One number serves as lkey and as rkey; the rights decide what a peer may do with it.
//!
//! Revocation is immediate for every later access: holders of an `Arc<Key>` ask [`Key::check`] again for each packet,
//! and a revoked key answers [`KeyError::Revoked`]. The engine waits for an access under way on another thread (it
//! takes the NIC's lock once).
//!
//! A memory window's key is a key like any other, with the region's key as its parent: it works while both
//! live. Which windows there are is in `window_table`, how they are bound in `windows`.
//!
//! The keys may be shown to peers on this host ([`KeyTable::publish_to`]). Then revocation also waits for the accesses
//! that they make by themselves.

use super::Region;
use super::hasher::KeyHasher;
use super::rights::{Access, KeyError, PdId};
use super::window_table::WindowTable;
use crate::entropy::Entropy;
use crate::room::has_room;
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use nonic_wire::Qpn;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::BuildHasherDefault;
use std::sync::{Arc, OnceLock, PoisonError};

/// The key that UCX names when it only wants to know that its earlier requests are done: it reads eight bytes at address 0
/// with it, which devices that have no such key refuse. It is never given to memory, and a READ of it is answered with
/// zeros ([`crate::placement`]).
pub(crate) const FENCE_KEY: u32 = 0xff;

/// How many revoked keys are remembered, so that a peer that still uses one can be told from one that made its key up.
const REMEMBERED: usize = 64;

/// What to register.
#[derive(Clone)]
pub struct KeySpec {
    /// The protection domain it belongs to.
    pub pd: PdId,
    /// The memory.
    pub region: Arc<dyn Region>,
    /// Where in the region the key's range begins.
    pub offset: usize,
    /// How many bytes it covers.
    pub length: u64,
    /// The address peers and work requests use for its first byte.
    pub iova: u64,
    /// What is permitted.
    pub access: Access,
    /// If set, only this queue pair may use the key from remote (a type 2 memory window).
    pub bound_qp: Option<Qpn>,
    /// Whether LOCAL_INV and a peer's SEND_WITH_INV may revoke it.
    pub invalidatable: bool,
}

/// A registered key.
pub struct Key {
    value: u32,
    pub(super) spec: KeySpec,
    live: AtomicBool,
    /// For a window: the key of the region it is bound to.
    pub(super) parent: Option<Arc<Key>>,
    /// Windows bound to it.
    pub(super) windows: AtomicU32,
    /// Whether it was published to peers on this host. Locked while it is published, so that a key that is revoked
    /// meanwhile is either not shown to them or withdrawn.
    published: Mutex<bool>,
}

impl Key {
    pub(super) fn new(value: u32, spec: KeySpec, parent: Option<Arc<Key>>) -> Self {
        Key {
            value,
            spec,
            live: AtomicBool::new(true),
            parent,
            windows: AtomicU32::new(0),
            published: Mutex::new(false),
        }
    }

    /// The number that names it: lkey and rkey in one.
    pub fn value(&self) -> u32 {
        self.value
    }

    /// The first address it covers.
    pub fn iova(&self) -> u64 {
        self.spec.iova
    }

    /// How many bytes it covers.
    pub fn length(&self) -> u64 {
        self.spec.length
    }

    /// What it permits.
    pub fn access(&self) -> Access {
        self.spec.access
    }

    /// The protection domain it belongs to.
    pub fn pd(&self) -> PdId {
        self.spec.pd
    }

    /// The memory behind it.
    pub fn region(&self) -> &dyn Region {
        &*self.spec.region
    }

    /// The same, to be kept.
    pub fn share_region(&self) -> Arc<dyn Region> {
        Arc::clone(&self.spec.region)
    }

    /// Where in the region its range begins.
    pub fn offset(&self) -> usize {
        self.spec.offset
    }

    /// How many windows are bound to it at this moment.
    pub fn bound_windows(&self) -> u32 {
        self.windows.load(Ordering::Acquire)
    }

    /// Whether it is a window's. Such a key is for peers; work requests cannot name it as an lkey.
    pub fn is_window(&self) -> bool {
        self.parent.is_some()
    }

    /// Publishes it to peers on this host, unless they cannot use it, or it is already published or revoked.
    fn publish(&self, publisher: &dyn KeyPublisher) {
        if self.is_window() || self.spec.bound_qp.is_some() {
            return;
        }
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        if !*published && self.is_live() {
            publisher.publish(self);
            *published = true;
        }
    }

    /// Withdraws a revoked key from the peers it was published to. Returns whether no access of theirs is under way.
    fn withdraw(&self, publisher: &dyn KeyPublisher) -> bool {
        let published = std::mem::take(&mut *self.published.lock().unwrap_or_else(PoisonError::into_inner));
        !published || publisher.withdraw(self)
    }

    /// Whether it, and the region's key if it is a window's, have not been revoked.
    #[inline]
    pub(super) fn is_live(&self) -> bool {
        let live = |key: &Key| key.live.load(Ordering::Acquire);
        live(self) && self.parent.as_deref().is_none_or(live)
    }

    /// Whether `length` bytes at `va` may be accessed with `needed` rights now; the offset in the region.
    pub fn check(&self, va: u64, length: u64, needed: Access) -> Result<usize, KeyError> {
        if !self.is_live() {
            return Err(KeyError::Revoked);
        }
        if !self.spec.access.contains(needed) {
            return Err(KeyError::Rights);
        }
        let start = va.checked_sub(self.spec.iova).ok_or(KeyError::Bounds)?;
        let end = start.checked_add(length).ok_or(KeyError::Bounds)?;
        if end > self.spec.length {
            return Err(KeyError::Bounds);
        }
        // `register` made sure that offset + length lies within the region.
        usize::try_from(start)
            .map(|start| self.spec.offset + start)
            .map_err(|_| KeyError::Bounds)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The value is a secret shared with chosen peers; it stays out of logs.
        f.debug_struct("Key")
            .field("pd", &self.spec.pd)
            .field("iova", &self.spec.iova)
            .field("length", &self.spec.length)
            .field("access", &self.spec.access)
            .finish_non_exhaustive()
    }
}

/// Publishes memory keys to peers on this host.
pub trait KeyPublisher: Send + Sync {
    /// A region's key is valid from now on. Not called for keys of memory windows, or keys bound to a queue pair. Must
    /// not call the key table.
    fn publish(&self, key: &Key);

    /// It has been revoked. Called before revocation returns, with no lock of the table held (though a work request
    /// that invalidates it has its NIC in use). Returns whether no direct access through it is under way any more: a
    /// peer that has been stopped in the middle of one may not end it.
    fn withdraw(&self, key: &Key) -> bool;
}

/// All keys of a device. Shared by its shards; reading does not block reading.
#[derive(Debug, Default)]
pub struct KeyTable {
    tables: RwLock<Tables>,
    next_pd: AtomicU32,
    publisher: OnceLock<Publisher>,
}

/// The publisher of the table's keys.
struct Publisher(Arc<dyn KeyPublisher>);

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Publisher")
    }
}

#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) keys: HashMap<u32, Arc<Key>, BuildHasherDefault<KeyHasher>>,
    pub(super) windows: WindowTable,
    /// The last keys that were revoked, the oldest first.
    revoked: VecDeque<u32>,
}

impl Tables {
    /// Finds a key for use by a queue pair of domain `pd`.
    pub(super) fn find(&self, value: u32, pd: PdId, qpn: Qpn) -> Result<&Arc<Key>, KeyError> {
        let key = self.keys.get(&value).ok_or(KeyError::Unknown)?;
        if key.spec.pd != pd || key.spec.bound_qp.is_some_and(|bound| bound != qpn) {
            return Err(KeyError::Domain);
        }
        Ok(key)
    }

    /// Ends a key, whatever it is of, and takes it out.
    pub(super) fn remove(&mut self, value: u32) -> Option<Arc<Key>> {
        let key = self.keys.remove(&value)?;
        key.live.store(false, Ordering::Release);
        if self.revoked.len() == REMEMBERED {
            self.revoked.pop_front();
        }
        self.revoked.push_back(value);
        if let Some(parent) = &key.parent {
            parent.windows.fetch_sub(1, Ordering::AcqRel);
            self.windows.set_bound(value >> 8, None);
        }
        Some(key)
    }
}

impl KeyTable {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// A fresh protection domain.
    pub fn alloc_pd(&self) -> PdId {
        PdId(self.next_pd.fetch_add(1, Ordering::Relaxed))
    }

    /// Publishes every region's key to `publisher`, existing ones included. Returns whether there was no publisher
    /// before: there is one for good.
    pub fn publish_to(&self, publisher: Arc<dyn KeyPublisher>) -> bool {
        if self.publisher.set(Publisher(Arc::clone(&publisher))).is_err() {
            return false;
        }
        // A key that is registered from now on finds the publisher by itself.
        let existing: Vec<Arc<Key>> = self.read().keys.values().map(Arc::clone).collect();
        existing.iter().for_each(|key| key.publish(&*publisher));
        true
    }

    /// Registers memory under a new key.
    pub fn register(&self, spec: KeySpec, entropy: &mut dyn Entropy) -> Result<Arc<Key>, KeyError> {
        loop {
            let value = entropy.next_u32();
            // Zero is what programs put in fields they do not use; keep it meaningless.
            if value == 0 {
                continue;
            }
            if let Some(key) = self.register_as(value, spec.clone())? {
                return Ok(key);
            }
        }
    }

    /// Registers memory under a key the caller chose; `None` if that key is in use.
    pub fn register_as(&self, value: u32, spec: KeySpec) -> Result<Option<Arc<Key>>, KeyError> {
        if value == FENCE_KEY {
            return Ok(None);
        }
        let writes_remotely = spec
            .access
            .intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        if writes_remotely && !spec.access.contains(Access::LOCAL_WRITE) {
            return Err(KeyError::InvalidRights);
        }
        let in_region = usize::try_from(spec.length)
            .ok()
            .and_then(|length| spec.offset.checked_add(length))
            .is_some_and(|end| end <= spec.region.len());
        if !in_region || spec.iova.checked_add(spec.length).is_none() {
            return Err(KeyError::Bounds);
        }
        let registered = self.insert(value, spec)?;
        if let (Some(key), Some(Publisher(publisher))) = (&registered, self.publisher.get()) {
            key.publish(&**publisher);
        }
        Ok(registered)
    }

    /// Under this key, if it is free.
    fn insert(&self, value: u32, spec: KeySpec) -> Result<Option<Arc<Key>>, KeyError> {
        let mut tables = self.write();
        if tables.windows.contains(value >> 8) {
            return Ok(None);
        }
        if tables.keys.try_reserve(1).is_err() || !has_room(0) {
            return Err(KeyError::Exhausted);
        }
        match tables.keys.entry(value) {
            Entry::Occupied(_) => Ok(None),
            Entry::Vacant(slot) => {
                let key = Arc::new(Key::new(value, spec, None));
                Ok(Some(Arc::clone(slot.insert(key))))
            }
        }
    }

    /// Finds a key for use by a queue pair of domain `pd`.
    pub fn find(&self, value: u32, pd: PdId, qpn: Qpn) -> Result<Arc<Key>, KeyError> {
        self.read().find(value, pd, qpn).map(Arc::clone)
    }

    /// What is registered under a key, whatever domain or queue pair may use it.
    pub(crate) fn look_up(&self, value: u32) -> Option<Arc<Key>> {
        self.read().keys.get(&value).map(Arc::clone)
    }

    /// The same error, or that an unknown key was revoked lately: then the peer did not make it up.
    pub(crate) fn refine(&self, value: u32, error: KeyError) -> KeyError {
        match error {
            KeyError::Unknown if self.read().revoked.contains(&value) => KeyError::Revoked,
            error => error,
        }
    }

    /// Revokes a key. Returns whether it was there. Windows bound to it die with it. For callers that publish their
    /// keys to no peer: others ask [`KeyTable::try_revoke`], which also tells whether peers have let go of it.
    pub fn revoke(&self, value: u32) -> bool {
        self.try_revoke(value) != Err(KeyError::Unknown)
    }

    /// Revokes a key. It is dead in any case, but a peer on this host that was stopped in the middle of an access may end
    /// it later: [`KeyError::Busy`]. Windows bound to it die with it.
    pub fn try_revoke(&self, value: u32) -> Result<(), KeyError> {
        // The region may be freed with the key, so not under the lock.
        let removed = self.write().remove(value);
        self.withdraw(removed)
    }

    /// Revokes a key as [`KeyTable::try_revoke`] does, unless windows are bound to it, as a polite deregistration does.
    pub fn revoke_unbound(&self, value: u32) -> Result<(), KeyError> {
        let removed = {
            let mut tables = self.write();
            let key = tables.keys.get(&value).ok_or(KeyError::Unknown)?;
            // Binding counts under the same lock, so the answer cannot age before the key is gone.
            if key.bound_windows() > 0 {
                return Err(KeyError::Bound);
            }
            tables.remove(value)
        };
        self.withdraw(removed)
    }

    /// Revokes a key on behalf of a work request (LOCAL_INV) or a peer (SEND_WITH_INV).
    pub fn invalidate(&self, value: u32, pd: PdId, qpn: Qpn) -> Result<(), KeyError> {
        let removed = {
            let mut tables = self.write();
            if !tables.find(value, pd, qpn)?.spec.invalidatable {
                return Err(KeyError::NotInvalidatable);
            }
            tables.remove(value)
        };
        self.withdraw(removed)
    }

    /// A key was revoked: takes it back from those it was shown to. They may be waited for, so no lock is held.
    fn withdraw(&self, removed: Option<Arc<Key>>) -> Result<(), KeyError> {
        let key = removed.ok_or(KeyError::Unknown)?;
        match self.publisher.get() {
            Some(Publisher(publisher)) if !key.withdraw(&**publisher) => Err(KeyError::Busy),
            _ => Ok(()),
        }
    }

    /// The numbers of all keys, in no order. Tools that show the keys of a running process go through them a few at a
    /// time ([`KeyTable::view`]): no thread can register memory meanwhile.
    pub fn values(&self) -> Vec<u32> {
        self.read().keys.keys().copied().collect()
    }

    /// Shows those of these keys that are there.
    pub fn view(&self, values: &[u32], show: &mut dyn FnMut(&Key)) {
        let tables = self.read();
        values
            .iter()
            .filter_map(|value| tables.keys.get(value))
            .for_each(|key| show(key));
    }

    /// How many keys are registered, those of bound windows among them.
    pub fn len(&self) -> usize {
        self.read().keys.len()
    }

    /// Whether no key is registered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, Tables> {
        self.tables.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Tables> {
        self.tables.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::verbs::memory::HeapRegion;
    use loom::sync::Arc as LoomArc;
    use loom::sync::Mutex;
    use loom::thread;

    /// Registers the one key there is.
    fn register(table: &KeyTable) -> Arc<Key> {
        let spec = KeySpec {
            pd: table.alloc_pd(),
            region: Arc::new(HeapRegion::zeroed(8)),
            offset: 0,
            length: 8,
            iova: 0,
            access: Access::LOCAL_WRITE,
            bound_qp: None,
            invalidatable: false,
        };
        table.register_as(9, spec).unwrap().unwrap()
    }

    /// Whether peers see the key.
    struct Shown(AtomicBool);

    impl KeyPublisher for Shown {
        fn publish(&self, _key: &Key) {
            assert!(!self.0.swap(true, Ordering::SeqCst), "published twice");
        }

        fn withdraw(&self, _key: &Key) -> bool {
            assert!(self.0.swap(false, Ordering::SeqCst), "withdrawn twice");
            true
        }
    }

    /// A key that is revoked while it is being shown to peers is not seen by them any more once revocation returned.
    #[test]
    fn a_key_revoked_while_it_is_published_does_not_stay_published() {
        loom::model(|| {
            let table = LoomArc::new(KeyTable::new());
            let shown = Arc::new(Shown(AtomicBool::new(false)));
            assert!(table.publish_to(shown.clone()));
            let registering = {
                let table = table.clone();
                thread::spawn(move || drop(register(&table)))
            };
            let revoked = table.try_revoke(9).is_ok();
            assert!(!revoked || !shown.0.load(Ordering::SeqCst));
            registering.join().unwrap();
            assert_eq!(shown.0.load(Ordering::SeqCst), !revoked);
        });
    }

    /// A key that is registered while the publisher arrives is published once, and withdrawn.
    #[test]
    fn a_key_registered_while_the_publisher_arrives_is_published_once() {
        loom::model(|| {
            let table = LoomArc::new(KeyTable::new());
            let shown = Arc::new(Shown(AtomicBool::new(false)));
            let registering = {
                let table = table.clone();
                thread::spawn(move || drop(register(&table)))
            };
            assert!(table.publish_to(shown.clone()));
            registering.join().unwrap();
            assert!(shown.0.load(Ordering::SeqCst));
            assert!(table.revoke(9));
            assert!(!shown.0.load(Ordering::SeqCst));
        });
    }

    /// The engine's revocation: mark, then take and release the lock under which accesses are made. Once it
    /// returned, no access succeeds, not even by a holder of the key that checked it before.
    #[test]
    fn after_revocation_returned_no_access_succeeds() {
        loom::model(|| {
            let table = LoomArc::new(KeyTable::new());
            let key = register(&table);
            // Whether an access is under way: written only while the shard's lock is held.
            let shard = LoomArc::new(Mutex::new(false));
            let revoked = LoomArc::new(AtomicBool::new(false));
            let nic = {
                let (shard, revoked) = (shard.clone(), revoked.clone());
                thread::spawn(move || {
                    let mut accessing = shard.lock().unwrap();
                    if key.check(0, 8, Access::LOCAL_WRITE).is_ok() {
                        *accessing = true;
                        assert!(
                            !revoked.load(Ordering::SeqCst),
                            "an access began after revocation returned"
                        );
                        *accessing = false;
                    }
                })
            };
            assert!(table.revoke(9));
            drop(shard.lock().unwrap());
            revoked.store(true, Ordering::SeqCst);
            nic.join().unwrap();
        });
    }
}
