//! The registration cache: registered buffers that are kept for the next message of their size.
//!
//! Mapping and registering memory costs more than moving a message of medium length; so does touching its pages for the
//! first time. A buffer that is no longer in use stays registered here (lazy deregistration) until the cache holds more
//! bytes than it may; then the least recently used ones are deregistered.
//!
//! A registration cannot outlive its memory: what is cached is the memory, and the registration is a part of it
//! ([`nonic::Lease`]). Buffers in use are not here at all.

use nonic::{Domain, Lease, MemoryError, Recycler};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The smallest buffer that is registered by itself.
const SMALLEST: usize = 4096;

/// Buffers to be used again. Clones are handles to the same cache.
///
/// ```
/// use nonic_message::RegistrationCache;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let cache = RegistrationCache::new(&nonic::Device::open("roce_lo")?.domain(), 1 << 20);
/// drop(cache.lease(100_000)?); // registered, and kept
/// let again = cache.lease(100_000)?; // the same memory
/// assert_eq!(cache.statistics().hits, 1);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct RegistrationCache {
    shared: Arc<Shared>,
}

struct Shared {
    domain: Domain,
    limit: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Free buffers by size, each with the time it came back; those that came back first are in front.
    free: BTreeMap<usize, VecDeque<(u64, Lease)>>,
    clock: u64,
    statistics: CacheStatistics,
}

/// What a cache did so far, and what it holds.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let node = nonic_message::Node::open("roce_lo")?;
/// drop(node.buffer(100_000)?);
/// drop(node.buffer(100_000)?);
/// assert_eq!(node.cache_statistics().hit_ratio(), 0.5);
/// # Ok(()) }
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct CacheStatistics {
    /// Buffers that were there when they were asked for.
    pub hits: u64,
    /// Buffers that had to be registered.
    pub misses: u64,
    /// Buffers that were given back to the system to keep the limit.
    pub evicted: u64,
    /// Bytes that are registered and unused.
    pub cached_bytes: usize,
}

impl CacheStatistics {
    /// How many of all that were asked for were there.
    pub fn hit_ratio(&self) -> f64 {
        match self.hits + self.misses {
            0 => 0.0,
            all => self.hits as f64 / all as f64,
        }
    }
}

impl RegistrationCache {
    /// A cache that keeps at most `limit` unused bytes. With a limit of zero it keeps nothing.
    pub fn new(domain: &Domain, limit: usize) -> Self {
        RegistrationCache {
            shared: Arc::new(Shared {
                domain: domain.clone(),
                limit,
                state: Mutex::default(),
            }),
        }
    }

    /// A buffer of `len` bytes, with whatever this program last had in it.
    pub fn lease(&self, len: usize) -> Result<Lease, MemoryError> {
        let size = size_of_class(len);
        let found = self.shared.lock().take(size);
        let whole = match found {
            Some(whole) => whole,
            None => self.fresh(size)?,
        };
        Ok(whole.recycled_by(Arc::clone(&self.shared) as Arc<dyn Recycler>, len))
    }

    fn fresh(&self, size: usize) -> Result<Lease, MemoryError> {
        let lease = self.shared.domain.lease(size)?;
        // Each message of a channel is exposed with a key of its own. A peer on this host would map the buffer anew each time.
        lease.stay_mapped();
        Ok(lease)
    }

    /// What it did so far.
    pub fn statistics(&self) -> CacheStatistics {
        self.shared.lock().statistics
    }
}

impl Recycler for Shared {
    fn recycle(&self, lease: Lease) {
        let mut state = self.lock();
        state.put(lease);
        // Unregistering takes time, and other threads that want a buffer should not wait for it: it happens after the unlock.
        let mut evicted = Vec::new();
        while state.statistics.cached_bytes > self.limit {
            let Some(oldest) = state.evict() else {
                break;
            };
            evicted.push(oldest);
        }
        drop(state);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The most recently used one: its pages are the most likely to be in the processor's cache.
    fn take(&mut self, size: usize) -> Option<Lease> {
        let found = self.free.get_mut(&size).and_then(VecDeque::pop_back);
        match found {
            Some((_, lease)) => {
                self.statistics.hits += 1;
                self.statistics.cached_bytes -= size;
                Some(lease)
            }
            None => {
                self.statistics.misses += 1;
                None
            }
        }
    }

    fn put(&mut self, lease: Lease) {
        self.clock += 1;
        self.statistics.cached_bytes += lease.len();
        let same = self.free.entry(lease.len()).or_default();
        same.push_back((self.clock, lease));
    }

    fn evict(&mut self) -> Option<Lease> {
        let oldest = self
            .free
            .iter()
            .filter_map(|(size, same)| Some((same.front()?.0, *size)))
            .min();
        let (_, size) = oldest?;
        let same = self.free.get_mut(&size)?;
        let (_, lease) = same.pop_front()?;
        if same.is_empty() {
            self.free.remove(&size);
        }
        self.statistics.cached_bytes -= size;
        self.statistics.evicted += 1;
        Some(lease)
    }
}

/// Sizes are multiples of a quarter of a power of two, so that at most a fifth is unused.
fn size_of_class(len: usize) -> usize {
    let len = len.max(SMALLEST);
    let step = (len.next_power_of_two() / 8).max(SMALLEST);
    len.checked_next_multiple_of(step).unwrap_or(len)
}

impl fmt::Debug for RegistrationCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.statistics().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nonic::Device;

    fn cache(limit: usize) -> RegistrationCache {
        let device = Device::open("roce_lo").expect("loopback is there");
        RegistrationCache::new(&device.domain(), limit)
    }

    #[test]
    fn sizes_waste_little() {
        for len in (1..100_000).step_by(97).chain([1 << 20, (1 << 20) + 1, 1 << 30]) {
            let size = size_of_class(len);
            assert!(
                size >= len && (len < 4 * SMALLEST || size * 4 <= len * 5),
                "{len}: {size}"
            );
        }
    }

    #[test]
    fn what_comes_back_is_given_out_again() {
        let cache = cache(1 << 20);
        let mut first = cache.lease(10_000).expect("memory");
        first[9_999] = 7;
        let keys = |cache: &RegistrationCache| cache.shared.domain.device().usage().memory_keys;
        let before = keys(&cache);
        drop(first);
        let second = cache.lease(9_999 + 1).expect("memory");
        assert_eq!(second[9_999], 7, "the same memory");
        assert_eq!(keys(&cache), before, "nothing was registered");
        let statistics = cache.statistics();
        assert_eq!((statistics.hits, statistics.misses), (1, 1));
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many_bytes() {
        let cache = cache(3 * SMALLEST);
        let keys = || cache.shared.domain.device().usage().memory_keys;
        let none = keys();
        let leases: Vec<_> = (0..5).map(|_| cache.lease(SMALLEST).expect("memory")).collect();
        drop(leases);
        assert_eq!(keys() - none, 3);
        assert_eq!(cache.statistics().evicted, 2);
        // A larger one takes the place of all of them, and one beyond the limit is not kept.
        drop(cache.lease(3 * SMALLEST).expect("memory"));
        assert_eq!(keys() - none, 1);
        drop(cache.lease(4 * SMALLEST).expect("memory"));
        assert_eq!(keys() - none, 0);
    }

    #[test]
    fn a_part_of_a_buffer_keeps_all_of_it() {
        let cache = cache(1 << 20);
        let (left, right) = cache.lease(8192).expect("memory").split_at(100);
        drop(left);
        assert_eq!(cache.statistics().cached_bytes, 0);
        drop(right);
        assert_eq!(cache.statistics().cached_bytes, 8192);
    }
}
