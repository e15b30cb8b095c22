//! A pool of registered buffers. Registering memory costs microseconds and a page; taking a buffer out of a pool costs neither.
//!
//! A pool has size classes. A class grows by a piece of registered memory that holds several buffers, and keeps it,
//! since what was needed once is needed again. The pool returns memory to the system only when it and all of its
//! buffers are dropped.

use crate::device::Domain;
use crate::memory::{Lease, MemoryError, Recycler};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The sizes of buffers; larger ones are not kept.
const CLASSES: [usize; 8] = [64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// Memory by which a class grows, unless its buffers are larger.
const PIECE: usize = 64 << 10;

/// Registered buffers of all sizes, to be used again and again. Clones are handles to the same pool.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = nonic::Device::open("roce_lo")?.domain().pool();
/// let buffer = pool.lease_from(b"hello")?;
/// assert_eq!(buffer.len(), 5);
/// drop(buffer); // back in the pool, when it was sent and its completion has returned it
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    domain: Domain,
    /// Free buffers, by class.
    free: [Mutex<Vec<Lease>>; CLASSES.len()],
}

impl Recycler for Shared {
    fn recycle(&self, lease: Lease) {
        if let Some(class) = CLASSES.iter().position(|size| lease.len() == *size) {
            self.lock(class).push(lease);
        }
    }
}

impl Domain {
    /// A pool of buffers, empty until they are asked for.
    #[doc(alias = "ibv_reg_mr")]
    pub fn pool(&self) -> Pool {
        Pool {
            shared: Arc::new(Shared {
                domain: self.clone(),
                free: Default::default(),
            }),
        }
    }
}

impl Pool {
    /// A buffer of `len` bytes, with whatever it had in it when this program last used it. What is larger than the largest class,
    /// 1 MiB, is registered for this once.
    pub fn lease(&self, len: usize) -> Result<Lease, MemoryError> {
        let Some(class) = CLASSES.iter().position(|size| len <= *size) else {
            return self.shared.domain.lease(len);
        };
        let free = self.shared.lock(class).pop();
        let whole = match free {
            Some(whole) => whole,
            None => self.shared.grow(class)?,
        };
        Ok(whole.recycled_by(Arc::clone(&self.shared) as Arc<dyn Recycler>, len))
    }

    /// A buffer with a copy of `bytes`.
    pub fn lease_from(&self, bytes: &[u8]) -> Result<Lease, MemoryError> {
        let mut lease = self.lease(bytes.len())?;
        lease.copy_from_slice(bytes);
        Ok(lease)
    }

    /// How many free buffers it holds.
    pub fn free(&self) -> usize {
        (0..CLASSES.len())
            .map(|class| self.shared.lock(class).len())
            .sum()
    }
}

impl Shared {
    /// Registers more memory for a class; one buffer of it.
    fn grow(&self, class: usize) -> Result<Lease, MemoryError> {
        let size = CLASSES[class];
        let count = (PIECE / size).max(1);
        let mut rest = self.domain.lease(size * count)?;
        let mut free = self.lock(class);
        for _ in 1..count {
            let (buffer, left) = rest.split_at(size);
            free.push(buffer);
            rest = left;
        }
        Ok(rest)
    }

    fn lock(&self, class: usize) -> MutexGuard<'_, Vec<Lease>> {
        self.free[class].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("free", &self.free())
            .finish_non_exhaustive()
    }
}
