//! What a request is posted with: one lease or several.

use super::Lease;
use smallvec::SmallVec;

/// The buffers of one request: one lease, or several that are gathered or scattered in order.
#[derive(Debug, Default)]
pub struct Buffers(pub(crate) SmallVec<[Lease; 1]>);

impl From<Lease> for Buffers {
    fn from(lease: Lease) -> Self {
        Buffers(SmallVec::from_buf([lease]))
    }
}

impl From<Vec<Lease>> for Buffers {
    fn from(leases: Vec<Lease>) -> Self {
        Buffers(SmallVec::from_vec(leases))
    }
}

impl From<SmallVec<[Lease; 1]>> for Buffers {
    fn from(leases: SmallVec<[Lease; 1]>) -> Self {
        Buffers(leases)
    }
}

/// What a request can be posted with, and what comes back in the same form when it is done: one [`Lease`], or several.
pub trait BufferSet: Into<Buffers> + Send + 'static {
    /// The same again.
    fn from_buffers(buffers: Buffers) -> Self;
}

impl BufferSet for Buffers {
    fn from_buffers(buffers: Buffers) -> Self {
        buffers
    }
}

/// No buffers: what is sent inline needs none.
impl BufferSet for () {
    fn from_buffers(_none: Buffers) -> Self {}
}

impl From<()> for Buffers {
    fn from((): ()) -> Self {
        Buffers::default()
    }
}

impl BufferSet for Lease {
    fn from_buffers(buffers: Buffers) -> Self {
        let only = buffers.into_iter().next();
        only.expect("a request returns the buffers it was posted with")
    }
}

impl BufferSet for Vec<Lease> {
    fn from_buffers(buffers: Buffers) -> Self {
        buffers.0.into_vec()
    }
}

impl IntoIterator for Buffers {
    type Item = Lease;
    type IntoIter = smallvec::IntoIter<[Lease; 1]>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl Buffers {
    /// How many bytes they have together.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.iter().map(|lease| lease.len() as u64).sum()
    }

    pub(crate) fn sges(&self) -> SmallVec<[nonic_core::Sge; 4]> {
        self.0.iter().map(Lease::sge).collect()
    }
}
