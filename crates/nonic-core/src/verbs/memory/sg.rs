//! Scatter/gather lists: from (address, length, lkey) triples to copies.
//!
//! A list is kept as it was posted. Every copy looks its keys up and checks them, so a revocation between posting and use is seen. A key
//! that is wrong is an error *completion*, not a refused post.

use super::at_hand::Keys;
use super::{Access, Key, KeyError, PdId};
use smallvec::SmallVec;

/// One element of a scatter/gather list. In memory it is what `ibv_sge` is, so that lists of a C program need not be converted.
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Sge {
    /// Address of the first byte, in the key's address space.
    pub addr: u64,
    /// Number of bytes.
    pub length: u32,
    /// The key that covers them.
    pub lkey: u32,
}

impl Sge {
    /// Its key, checked for `length` bytes that begin at an offset, and where in the key's region they are. The caller has made sure that it
    /// is so long.
    #[inline]
    fn access<T>(
        &self,
        (keys, pd): (&Keys, PdId),
        (offset, length): (u64, usize),
        needed: Access,
        access: impl FnOnce(&Key, usize) -> Result<T, SgFault>,
    ) -> Result<T, SgFault> {
        let accessed = keys.with_local(self.lkey, pd, |key| {
            let at = key.check(self.addr.wrapping_add(offset), length as u64, needed);
            access(key, at.map_err(|_| SgFault::Protection)?)
        });
        accessed.unwrap_or(Err(SgFault::Protection))
    }
}

/// A list that was posted in a domain. Most have one element, which takes the short way.
#[derive(Clone, Debug)]
pub(crate) struct SgList {
    sges: SmallVec<[Sge; 1]>,
    pd: PdId,
}

/// Why bytes could not be copied.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum SgFault {
    /// A key does not permit it (any more).
    Protection,
    /// The list is too short.
    Length,
}

impl SgList {
    /// Keeps `sges`. Elements of length zero need no key.
    #[inline]
    pub(crate) fn new(sges: &[Sge], pd: PdId) -> Self {
        SgList {
            sges: SmallVec::from_slice(sges),
            pd,
        }
    }

    /// The element that is all of the list, if it has one.
    #[inline]
    fn only(&self) -> Option<&Sge> {
        match &*self.sges {
            [only] if only.length > 0 => Some(only),
            _ => None,
        }
    }

    /// Those that need a key.
    fn filled(&self) -> impl Iterator<Item = &Sge> {
        self.sges.iter().filter(|sge| sge.length > 0)
    }

    /// Total number of bytes.
    #[inline]
    pub(crate) fn length(&self) -> u64 {
        self.sges.iter().map(|sge| u64::from(sge.length)).sum()
    }

    /// Whether every element may be accessed with `needed` rights at this moment.
    pub(crate) fn check(&self, keys: &Keys, needed: Access) -> Result<(), SgFault> {
        self.filled().try_for_each(|sge| {
            let whole = (0, sge.length as usize);
            sge.access((keys, self.pd), whole, needed, |_, _| Ok(()))
        })
    }

    /// The first key that does not permit an access with `needed` rights at this moment: it, the address and the bytes it was named with,
    /// and what is wrong with it.
    #[cold]
    pub(crate) fn fault(&self, keys: &Keys, needed: Access) -> Option<((u32, u64, u64), KeyError)> {
        self.filled().find_map(|sge| {
            let length = u64::from(sge.length);
            let checked = keys.with_local(sge.lkey, self.pd, |key| key.check(sge.addr, length, needed));
            match checked {
                Ok(Ok(_)) => None,
                Ok(Err(error)) => Some(((sge.lkey, sge.addr, length), error)),
                // There is no key that an address would mean something to.
                Err(error) => Some(((sge.lkey, 0, 0), error)),
            }
        })
    }

    /// Where so many bytes are that begin at an offset: an address and the key for it. `None` if they are in several places.
    pub(crate) fn named(&self, keys: &Keys, offset: u64, length: u32) -> Option<(u64, u32)> {
        let only = self.only()?;
        self.within(only, offset, length as usize).ok()?;
        let range = (offset, length as usize);
        only.access((keys, self.pd), range, Access::empty(), |_, _| Ok(()))
            .ok()?;
        Some((only.addr.wrapping_add(offset), only.lkey))
    }

    /// Whether so many bytes that begin at an offset are in the only element.
    #[inline]
    fn within(&self, only: &Sge, offset: u64, length: usize) -> Result<(), SgFault> {
        match offset.checked_add(length as u64) {
            Some(end) if end <= u64::from(only.length) => Ok(()),
            _ => Err(SgFault::Length),
        }
    }

    /// Copies `out.len()` bytes that begin `offset` bytes into the list.
    #[inline]
    pub(crate) fn gather(&self, keys: &Keys, offset: u64, out: &mut [u8]) -> Result<(), SgFault> {
        let mut done = 0;
        self.walk(keys, (offset, out.len()), Access::empty(), |key, at, length| {
            let result = key.region().read(at, &mut out[done..done + length]);
            done += length;
            result.map_err(|_| SgFault::Protection)
        })
    }

    /// Copies `data` to the list, beginning `offset` bytes into it.
    #[inline]
    pub(crate) fn scatter(&self, keys: &Keys, offset: u64, data: &[u8]) -> Result<(), SgFault> {
        let mut done = 0;
        let range = (offset, data.len());
        self.walk(keys, range, Access::LOCAL_WRITE, |key, at, length| {
            let result = key.region().write(at, &data[done..done + length]);
            done += length;
            result.map_err(|_| SgFault::Protection)
        })
    }

    /// Copies `data` to the beginning of the list, or nothing of it unless it fits and all of the list may be written.
    #[inline]
    pub(crate) fn fill(&self, keys: &Keys, data: &[u8]) -> Result<(), SgFault> {
        if let Some(only) = self.only() {
            let whole = (0, only.length as usize);
            return only.access((keys, self.pd), whole, Access::LOCAL_WRITE, |key, at| {
                match data.len() <= only.length as usize {
                    true => key.region().write(at, data).map_err(|_| SgFault::Protection),
                    false => Err(SgFault::Length),
                }
            });
        }
        self.check(keys, Access::LOCAL_WRITE)?;
        match data.len() as u64 <= self.length() {
            true => self.scatter(keys, 0, data),
            false => Err(SgFault::Length),
        }
    }

    /// Visits the parts of a range, each with its key and its place in the key's region, if the keys permit the access now.
    #[inline]
    pub(crate) fn walk(
        &self,
        keys: &Keys,
        (offset, length): (u64, usize),
        needed: Access,
        mut visit: impl FnMut(&Key, usize, usize) -> Result<(), SgFault>,
    ) -> Result<(), SgFault> {
        if let (Some(only), false) = (self.only(), length == 0) {
            self.within(only, offset, length)?;
            return only.access((keys, self.pd), (offset, length), needed, |key, at| {
                visit(key, at, length)
            });
        }
        let mut skip = offset;
        let mut left = length;
        for sge in self.filled() {
            if left == 0 {
                break;
            }
            if skip >= u64::from(sge.length) {
                skip -= u64::from(sge.length);
                continue;
            }
            let here = left.min(sge.length as usize - skip as usize);
            sge.access((keys, self.pd), (skip, here), needed, |key, at| {
                visit(key, at, here)
            })?;
            left -= here;
            skip = 0;
        }
        if left == 0 { Ok(()) } else { Err(SgFault::Length) }
    }
}
