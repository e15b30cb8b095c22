//! Memory windows: keys to a part of exposed memory that requests hand out and take back, without registering anything.

use super::{MemoryError, RemoteSlice};
use crate::device::Domain;
use nonic_core::{Qpn, WindowKind};
use std::fmt;
use std::sync::Arc;

/// A memory window that is bound to nothing (type 2: only the queue pair that binds it serves it).
///
/// A peer that gets the key of exposed memory has it until that is taken back, all of it and for all queue pairs. A window gives one
/// peer a part, by [`QueuePair::bind`](crate::QueuePair::bind), and takes it back by
/// [`QueuePair::invalidate`](crate::QueuePair::invalidate); each time with another key. It costs a request, not a registration.
///
/// ```
/// use nonic::{Access, Device, Rc};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let domain = Device::open("roce_lo")?.domain();
/// # let (left, right) = (domain.pair::<Rc>()?, domain.pair::<Rc>()?);
/// # let (here, there) = (left.endpoint(), right.endpoint());
/// # let (left, right) = (left.connect(&there)?, right.connect(&here)?);
/// // Peers have no key to it, but windows may be bound to it.
/// let table = domain.lease(4096)?.expose(Access::MW_BIND)?;
/// let window = left.bind(domain.window()?, &table, 1024..2048, Access::REMOTE_WRITE)?.wait()?;
/// right.write(domain.lease_from(b"hello")?, window.remote().slice(..5)).wait()?;
/// let window = left.invalidate(window).wait()?; // to be bound again
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Window {
    pub(crate) handle: Arc<WindowHandle>,
    /// The key that was good last, or is good while it is bound.
    pub(crate) key: u32,
}

impl Domain {
    /// A memory window, bound to nothing yet.
    #[doc(alias = "ibv_alloc_mw")]
    pub fn window(&self) -> Result<Window, MemoryError> {
        let key = self.device.engine.alloc_window(self.pd, WindowKind::Type2)?;
        Ok(Window {
            handle: Arc::new(WindowHandle {
                domain: self.clone(),
                key,
            }),
            key,
        })
    }
}

impl Window {
    /// The key for the next time it is bound: that of last time must not work by accident.
    pub(crate) fn next_key(&self) -> u32 {
        self.key & !0xff | self.key.wrapping_add(1) & 0xff
    }
}

/// A memory window that is bound: a peer may use it. Dropped, it ends; so it does with the memory that it is bound to, and when the
/// peer revokes it with a message ([`Received::invalidated`](crate::Received::invalidated)).
///
/// ```
/// use nonic::Access;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let domain = nonic::Device::open("roce_lo")?.domain();
/// # let (left, right) = (domain.pair::<nonic::Rc>()?, domain.pair::<nonic::Rc>()?);
/// # let (here, there) = (left.endpoint(), right.endpoint());
/// # let (left, right) = (left.connect(&there)?, right.connect(&here)?);
/// let table = domain.lease(4096)?.expose(Access::MW_BIND)?;
/// let bound = left.bind(domain.window()?, &table, ..64, Access::REMOTE_WRITE)?.wait()?;
/// let told = bound.remote().to_string(); // for the peer
/// # let receive = right.write(domain.lease_from(b"hello")?, told.parse::<nonic::RemoteSlice>()?.slice(..5)).wait()?;
/// left.invalidate(bound).wait()?; // the peer cannot use it any more
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct BoundWindow {
    pub(crate) window: Window,
    /// The queue pair that serves it.
    pub(crate) qpn: Qpn,
    pub(crate) len: u64,
}

impl BoundWindow {
    /// What the peer needs to use it.
    pub fn remote(&self) -> RemoteSlice {
        RemoteSlice {
            va: 0,
            rkey: self.window.key,
            len: self.len,
        }
    }
}

/// The window itself. A request that binds it has a share: without it the request would fail, and with it the queue pair.
pub(crate) struct WindowHandle {
    pub(crate) domain: Domain,
    key: u32,
}

impl Drop for WindowHandle {
    fn drop(&mut self) {
        self.domain.device.engine.free_window(self.key);
    }
}

impl fmt::Debug for WindowHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Its keys are secrets shared with chosen peers.
        f.debug_struct("WindowHandle").finish_non_exhaustive()
    }
}
