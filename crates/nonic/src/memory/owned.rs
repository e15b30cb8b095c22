//! Memory that the program brings: its ownership moves in, and comes out again when nothing uses the memory any more.

use nonic_core::{Region, RegionOwner};
use nonic_engine::memory::RawRegion;
use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

/// Memory that a program owns and can have registered by [`Domain::register`](crate::Domain::register): vectors and boxed slices
/// of bytes or words, and what implements this, such as a mapped file.
///
/// A vector's length counts, not its capacity. For atomics, 8-byte words must be aligned: those of a `Vec<u64>` are.
///
/// # Safety
///
/// From the call of [`span`](OwnedMemory::span) on, until the value is dropped or `span` is called again, and wherever the value is
/// moved:
/// - the span stays where it is, mapped, readable and writable, and every byte of it has a value;
/// - whatever is written to it is a value that its owner takes;
/// - all reads and writes go through what `span` answered: none by the value itself, by a clone of it or by another process.
///
/// ```
/// use nonic::OwnedMemory;
/// use std::ptr::NonNull;
///
/// /// A page of its own, as an `mmap` would be.
/// struct Page(NonNull<[u8; 4096]>);
///
/// // SAFETY: nobody else has the pointer.
/// unsafe impl Send for Page {}
///
/// // SAFETY: the page stays where it is until `drop`, and nobody else knows of it.
/// unsafe impl OwnedMemory for Page {
///     fn span(&mut self) -> NonNull<[u8]> {
///         self.0
///     }
/// }
///
/// impl Drop for Page {
///     fn drop(&mut self) {
///         // SAFETY: it was a box's, and nobody uses it any more.
///         drop(unsafe { Box::from_raw(self.0.as_ptr()) });
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let page = Page(NonNull::from(Box::leak(Box::new([0; 4096]))));
/// let mut lease = nonic::Device::open("roce_lo")?.domain().register(page)?;
/// lease[..5].copy_from_slice(b"hello");
/// let page: Page = lease.into_inner().expect("all of it is here");
/// # Ok(()) }
/// ```
pub unsafe trait OwnedMemory: Send + 'static {
    /// Where it is.
    fn span(&mut self) -> NonNull<[u8]>;
}

macro_rules! plain {
    ($($word:ty),*) => {$(
        // SAFETY: a vector's elements stay where they are when it is moved, and nothing else has access to them; any
        // bytes are a value of the type, and a value has no other bytes.
        unsafe impl OwnedMemory for Vec<$word> {
            fn span(&mut self) -> NonNull<[u8]> {
                bytes(self.as_mut_slice())
            }
        }

        // SAFETY: as for a vector.
        unsafe impl OwnedMemory for Box<[$word]> {
            fn span(&mut self) -> NonNull<[u8]> {
                bytes(self)
            }
        }
    )*};
}

plain!(u8, u16, u32, u64, i8, i16, i32, i64, f32, f64);

/// The bytes of a slice. Its elements are numbers, which consist of nothing else.
fn bytes<T>(slice: &mut [T]) -> NonNull<[u8]> {
    let length = size_of_val(slice);
    NonNull::slice_from_raw_parts(NonNull::from(slice).cast(), length)
}

/// Memory of a program's, as the NIC sees it.
pub(super) struct Owned {
    region: RawRegion,
    /// Taken out only once nothing can access it any more. In a box, so that it is not moved while the region is in use.
    owner: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Owned {
    pub(super) fn new<M: OwnedMemory>(memory: M) -> Self {
        let mut owner = Box::new(memory);
        let span = owner.span();
        // SAFETY: the owner's contract, until it is dropped or taken out; neither happens before the last key to the region was
        // revoked, and with that the last access was over.
        let region = unsafe { RawRegion::new(span.cast(), span.len()) };
        Owned {
            region,
            owner: Mutex::new(Some(owner)),
        }
    }

    /// Address of the first byte.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.region.start()
    }

    /// Whether it is an `M`.
    pub(super) fn is<M: OwnedMemory>(&self) -> bool {
        let owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner);
        owner.as_ref().is_some_and(|owner| owner.is::<M>())
    }

    /// Takes the memory out, if it is an `M`. Its keys must have been revoked.
    pub(super) fn take<M: OwnedMemory>(&self) -> Option<M> {
        let owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        owner.downcast().ok().map(|memory| *memory)
    }
}

impl fmt::Debug for Owned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owned")
            .field("len", &self.region.len())
            .finish_non_exhaustive()
    }
}

impl RegionOwner for Owned {
    type Inner = RawRegion;

    fn inner(&self) -> &RawRegion {
        &self.region
    }
}
