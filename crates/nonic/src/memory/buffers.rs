//! The buffers of a request: leases, and ranges of exposed memory.

use super::{ExposedRange, Lease, Window, WindowHandle};
use nonic_core::Sge;
use smallvec::SmallVec;
use std::ops::Index;
use std::sync::Arc;

/// The buffers of one request: one [`Lease`] or [`ExposedRange`], or several that are gathered or scattered in order.
///
/// It can be indexed and iterated over as the leases in it: they are yours again when it comes back. Ranges of exposed memory never
/// were yours alone.
///
/// ```
/// use nonic::{Access, Buffers, Device};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let domain = Device::open("roce_lo")?.domain();
/// let table = domain.lease(4096)?.expose(Access::REMOTE_WRITE)?;
/// let message = Buffers::from(domain.lease_from(b"header")?).and(table.range(..1024));
/// assert_eq!(&message[0][..], b"header");
/// # Ok(()) }
/// ```
#[derive(Debug, Default)]
pub struct Buffers(SmallVec<[Buffer; 1]>);

#[derive(Debug)]
enum Buffer {
    Lease(Lease),
    Exposed(ExposedRange),
    /// No memory, but what the request must not outlive.
    Window {
        _handle: Arc<WindowHandle>,
    },
}

impl Buffers {
    /// These and then more.
    #[must_use]
    pub fn and(mut self, more: impl Into<Buffers>) -> Self {
        self.0.extend(more.into().0);
        self
    }

    /// The leases in it.
    pub fn iter(&self) -> impl Iterator<Item = &Lease> {
        self.0.iter().filter_map(Buffer::as_lease)
    }

    /// The first lease.
    pub fn first(&self) -> Option<&Lease> {
        self.iter().next()
    }

    /// How many leases there are.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether there is no lease.
    pub fn is_empty(&self) -> bool {
        self.first().is_none()
    }

    /// None, but a window that must be there until the request is done.
    pub(crate) fn keeping(window: &Window) -> Self {
        let _handle = Arc::clone(&window.handle);
        Buffers(SmallVec::from_buf([Buffer::Window { _handle }]))
    }

    /// How many bytes they have together.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.iter().map(|buffer| buffer.len() as u64).sum()
    }

    pub(crate) fn sges(&self) -> SmallVec<[Sge; 4]> {
        self.0.iter().filter_map(Buffer::sge).collect()
    }
}

impl Index<usize> for Buffers {
    type Output = Lease;

    fn index(&self, index: usize) -> &Lease {
        let found = self.iter().nth(index);
        found.unwrap_or_else(|| panic!("lease {index} of {}", self.len()))
    }
}

impl IntoIterator for Buffers {
    type Item = Lease;
    type IntoIter = IntoIter;

    fn into_iter(self) -> IntoIter {
        IntoIter(self.0.into_iter())
    }
}

/// The leases of [`Buffers`].
#[derive(Debug)]
pub struct IntoIter(smallvec::IntoIter<[Buffer; 1]>);

impl Iterator for IntoIter {
    type Item = Lease;

    fn next(&mut self) -> Option<Lease> {
        self.0.find_map(Buffer::into_lease)
    }
}

impl Buffer {
    fn len(&self) -> usize {
        match self {
            Buffer::Lease(lease) => lease.len(),
            Buffer::Exposed(range) => range.len(),
            Buffer::Window { .. } => 0,
        }
    }

    fn sge(&self) -> Option<Sge> {
        match self {
            Buffer::Lease(lease) => Some(lease.sge()),
            Buffer::Exposed(range) => Some(range.sge()),
            Buffer::Window { .. } => None,
        }
    }

    fn as_lease(&self) -> Option<&Lease> {
        match self {
            Buffer::Lease(lease) => Some(lease),
            Buffer::Exposed(_) | Buffer::Window { .. } => None,
        }
    }

    fn into_lease(self) -> Option<Lease> {
        match self {
            Buffer::Lease(lease) => Some(lease),
            Buffer::Exposed(_) | Buffer::Window { .. } => None,
        }
    }
}

impl From<Lease> for Buffers {
    fn from(lease: Lease) -> Self {
        Buffers(SmallVec::from_buf([Buffer::Lease(lease)]))
    }
}

impl From<ExposedRange> for Buffers {
    fn from(range: ExposedRange) -> Self {
        Buffers(SmallVec::from_buf([Buffer::Exposed(range)]))
    }
}

impl From<Vec<Lease>> for Buffers {
    fn from(leases: Vec<Lease>) -> Self {
        leases.into_iter().collect()
    }
}

impl FromIterator<Lease> for Buffers {
    fn from_iter<I: IntoIterator<Item = Lease>>(leases: I) -> Self {
        Buffers(leases.into_iter().map(Buffer::Lease).collect())
    }
}

impl From<()> for Buffers {
    fn from((): ()) -> Self {
        Buffers::default()
    }
}

/// What a request can be posted with, and what comes back in the same form when it is done: one [`Lease`] or [`ExposedRange`], or
/// several.
///
/// ```
/// use nonic::{BufferSet, QueuePair, Rc, RequestFailed};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let domain = nonic::Device::open("roce_lo")?.domain();
/// # let (left, right) = (domain.pair::<nonic::Rc>()?, domain.pair::<nonic::Rc>()?);
/// # let (here, there) = (left.endpoint(), right.endpoint());
/// # let (left, right) = (left.connect(&there)?, right.connect(&here)?);
/// fn send_twice<B: BufferSet>(pair: &QueuePair<Rc>, message: B) -> Result<B, RequestFailed> {
///     let message = pair.send(message).wait()?;
///     pair.send(message).wait()
/// }
/// # let receives = [right.recv(domain.lease(64)?), right.recv(domain.lease(64)?), right.recv(domain.lease(64)?),
/// #     right.recv(domain.lease(64)?)];
/// let one = send_twice(&left, domain.lease_from(b"whole")?)?;
/// let two = send_twice(&left, vec![domain.lease_from(b"in two ")?, domain.lease_from(b"parts")?])?;
/// assert_eq!((one.len(), two.len()), (5, 2));
/// # for (receive, text) in receives.into_iter().zip(["whole", "whole", "in two parts", "in two parts"]) {
/// #     assert_eq!(receive.wait()?.bytes(), text.as_bytes());
/// # }
/// # Ok(()) }
/// ```
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

impl BufferSet for Lease {
    fn from_buffers(buffers: Buffers) -> Self {
        let only = buffers.into_iter().next();
        only.expect("a request returns the buffers it was posted with")
    }
}

impl BufferSet for ExposedRange {
    fn from_buffers(buffers: Buffers) -> Self {
        let mut all = buffers.0.into_iter();
        let only = all.find_map(|buffer| match buffer {
            Buffer::Exposed(range) => Some(range),
            Buffer::Lease(_) | Buffer::Window { .. } => None,
        });
        only.expect("a request returns the buffers it was posted with")
    }
}

impl BufferSet for Vec<Lease> {
    fn from_buffers(buffers: Buffers) -> Self {
        buffers.into_iter().collect()
    }
}
