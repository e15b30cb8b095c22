//! A span of a peer's memory, as requests name it.

use std::fmt;
use std::ops::{Add, Bound, RangeBounds};
use std::str::FromStr;

/// A span of a peer's memory, as the peer described it.
///
/// Its text form is `va,rkey,len`.
///
/// ```
/// use nonic::RemoteSlice;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let table = RemoteSlice { va: 0, rkey: 0x1234_5678, len: 4096 };
/// let told: RemoteSlice = table.to_string().parse()?;
/// assert_eq!(told.slice(64..128).va, 64);
/// # Ok(()) }
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RemoteSlice {
    /// The first byte's address in the key's address space.
    pub va: u64,
    /// The key.
    pub rkey: u32,
    /// Its length in bytes.
    pub len: u64,
}

impl RemoteSlice {
    /// A part of it.
    ///
    /// # Panics
    ///
    /// If the range is not inside.
    #[must_use]
    pub fn slice(&self, range: impl RangeBounds<u64>) -> RemoteSlice {
        let (start, end) = bounds(range, self.len);
        RemoteSlice {
            va: self.va + start,
            rkey: self.rkey,
            len: end - start,
        }
    }

    pub(crate) fn address(&self) -> nonic_core::RemoteAddress {
        nonic_core::RemoteAddress {
            va: self.va,
            rkey: self.rkey,
        }
    }
}

impl fmt::Display for RemoteSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x},{:#010x},{}", self.va, self.rkey, self.len)
    }
}

/// From where to where a range leads in something of `len` bytes.
///
/// # Panics
///
/// If it is not inside.
pub(super) fn bounds<N>(range: impl RangeBounds<N>, len: N) -> (N, N)
where
    N: Copy + Ord + From<u8> + Add<Output = N> + fmt::Display,
{
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(before) => *before + N::from(1),
        Bound::Unbounded => N::from(0),
    };
    let end = match range.end_bound() {
        Bound::Included(last) => *last + N::from(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => len,
    };
    assert!(start <= end && end <= len, "{start}..{end} of {len} bytes");
    (start, end)
}

/// The text is not a remote slice.
///
/// ```
/// use nonic::{ParseRemoteSliceError, RemoteSlice};
///
/// let wrong: Result<RemoteSlice, ParseRemoteSliceError> = "0x0,0x12345678".parse();
/// println!("{}", wrong.unwrap_err()); // not a remote slice (`va,rkey,len`): 0x0,0x12345678
/// ```
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a remote slice (`va,rkey,len`): {0}")]
pub struct ParseRemoteSliceError(String);

impl FromStr for RemoteSlice {
    type Err = ParseRemoteSliceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let mut fields = text.trim().split(',');
            let va = u64::from_str_radix(fields.next()?.strip_prefix("0x")?, 16).ok()?;
            let rkey = crate::endpoint::number(fields.next()?, u32::MAX)?;
            let len = fields.next()?.parse().ok()?;
            fields.next().is_none().then_some(RemoteSlice { va, rkey, len })
        };
        parse().ok_or_else(|| ParseRemoteSliceError(text.chars().take(80).collect()))
    }
}
