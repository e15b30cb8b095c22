//! Scatter/gather lists: from (address, length, lkey) triples to copies.
//!
//! A list is looked up once, when it is posted; every copy checks the keys again, so a revocation between
//! posting and use is seen. A key that is wrong at posting time is an error *completion*, not a refused
//! post: the list remembers it.

use super::{Access, Key, KeyError, KeyTable, PdId};
use nonic_wire::Qpn;
use std::sync::Arc;

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

/// A list whose keys have been looked up. Most have one element, which takes the short way.
#[derive(Clone, Debug, Default)]
pub struct SgList {
    first: Option<Part>,
    rest: Box<[Part]>,
    length: u64,
    /// The last key that was unknown or of another domain when the list was posted.
    broken: Option<Broken>,
}

/// An element whose key was wrong. Small: every queued request has room for one.
#[derive(Copy, Clone, Debug)]
struct Broken {
    lkey: u32,
    error: KeyError,
}

#[derive(Clone, Debug)]
struct Part {
    key: Arc<Key>,
    addr: u64,
    length: u32,
}

/// Why bytes could not be copied.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum SgFault {
    /// A key does not permit it (any more).
    Protection,
    /// The list is too short.
    Length,
}

impl Part {
    /// An element with its key, unless it needs none or the key is wrong.
    #[inline]
    fn resolve(sge: &Sge, keys: &KeyTable, pd: PdId, qpn: Qpn) -> (Option<Part>, Option<Broken>) {
        if sge.length == 0 {
            return (None, None);
        }
        let &Sge { addr, length, lkey } = sge;
        match keys.find(lkey, pd, qpn) {
            // A window's key is for peers.
            Ok(key) if key.is_window() => {
                let error = KeyError::Rights;
                (None, Some(Broken { lkey, error }))
            }
            Ok(key) => (Some(Part { key, addr, length }), None),
            Err(error) => (None, Some(Broken { lkey, error })),
        }
    }

    /// Where in the key's region so many bytes are that begin at an offset, if the part is so long and the key permits the access now.
    #[inline]
    fn check(&self, offset: u64, length: usize, needed: Access) -> Result<usize, SgFault> {
        let end = offset.checked_add(length as u64);
        if end.is_none_or(|end| end > u64::from(self.length)) {
            return Err(SgFault::Length);
        }
        self.key
            .check(self.addr.wrapping_add(offset), length as u64, needed)
            .map_err(|_| SgFault::Protection)
    }
}

impl SgList {
    /// Looks up the keys of `sges`. Elements of length zero need no key.
    #[inline]
    pub fn resolve(sges: &[Sge], keys: &KeyTable, pd: PdId, qpn: Qpn) -> Self {
        match sges {
            [only] => {
                let (first, broken) = Part::resolve(only, keys, pd, qpn);
                SgList {
                    first,
                    rest: Box::default(),
                    length: u64::from(only.length),
                    broken,
                }
            }
            _ => SgList::resolve_several(sges, keys, pd, qpn),
        }
    }

    fn resolve_several(sges: &[Sge], keys: &KeyTable, pd: PdId, qpn: Qpn) -> Self {
        let mut list = SgList::default();
        let mut parts = sges.iter().filter_map(|sge| {
            list.length += u64::from(sge.length);
            let (part, broken) = Part::resolve(sge, keys, pd, qpn);
            list.broken = broken.or(list.broken);
            part
        });
        let first = parts.next();
        let rest = parts.collect();
        SgList { first, rest, ..list }
    }

    fn parts(&self) -> impl Iterator<Item = &Part> {
        self.first.iter().chain(self.rest.iter())
    }

    /// The part that is all of the list, if there is one and its key was right.
    #[inline]
    fn only_part(&self) -> Option<&Part> {
        self.first
            .as_ref()
            .filter(|_| self.rest.is_empty() && self.broken.is_none())
    }

    /// Total number of bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Whether every element may be accessed with `needed` rights at this moment.
    pub(crate) fn check(&self, needed: Access) -> Result<(), SgFault> {
        if self.broken.is_some() {
            return Err(SgFault::Protection);
        }
        for part in self.parts() {
            part.key
                .check(part.addr, u64::from(part.length), needed)
                .map_err(|_| SgFault::Protection)?;
        }
        Ok(())
    }

    /// The first key that does not permit an access with `needed` rights at this moment: it, the address and the bytes it was named with,
    /// and what is wrong with it.
    #[cold]
    pub(crate) fn fault(&self, needed: Access) -> Option<((u32, u64, u64), KeyError)> {
        if let Some(Broken { lkey, error }) = self.broken {
            return Some(((lkey, 0, 0), error));
        }
        self.parts().find_map(|part| {
            let length = u64::from(part.length);
            let error = part.key.check(part.addr, length, needed).err()?;
            Some(((part.key.value(), part.addr, length), error))
        })
    }

    /// Where so many bytes are that begin at an offset: an address and the key for it. `None` if they are in several places.
    pub(crate) fn named(&self, offset: u64, length: u32) -> Option<(u64, u32)> {
        let part = self.only_part()?;
        part.check(offset, length as usize, Access::empty()).ok()?;
        Some((part.addr.wrapping_add(offset), part.key.value()))
    }

    /// Copies `out.len()` bytes that begin `offset` bytes into the list.
    #[inline]
    pub(crate) fn gather(&self, offset: u64, out: &mut [u8]) -> Result<(), SgFault> {
        let mut done = 0;
        self.walk(offset, out.len(), Access::empty(), |key, at, length| {
            let result = key.region().read(at, &mut out[done..done + length]);
            done += length;
            result.map_err(|_| SgFault::Protection)
        })
    }

    /// Copies `data` to the list, beginning `offset` bytes into it.
    #[inline]
    pub(crate) fn scatter(&self, offset: u64, data: &[u8]) -> Result<(), SgFault> {
        let mut done = 0;
        self.walk(offset, data.len(), Access::LOCAL_WRITE, |key, at, length| {
            let result = key.region().write(at, &data[done..done + length]);
            done += length;
            result.map_err(|_| SgFault::Protection)
        })
    }

    /// Copies `data` to the beginning of the list, or nothing of it unless it fits and all of the list may be written.
    #[inline]
    pub(crate) fn fill(&self, data: &[u8]) -> Result<(), SgFault> {
        let fits = data.len() as u64 <= self.length;
        if let Some(part) = self.only_part() {
            let at = part.check(0, part.length as usize, Access::LOCAL_WRITE)?;
            return match fits {
                true => part.key.region().write(at, data).map_err(|_| SgFault::Protection),
                false => Err(SgFault::Length),
            };
        }
        self.check(Access::LOCAL_WRITE)?;
        match fits {
            true => self.scatter(0, data),
            false => Err(SgFault::Length),
        }
    }

    /// Visits the parts of a range, each with its key and its place in the key's region, if the keys permit the access now.
    #[inline]
    pub(crate) fn walk<'a>(
        &'a self,
        offset: u64,
        length: usize,
        needed: Access,
        mut visit: impl FnMut(&'a Key, usize, usize) -> Result<(), SgFault>,
    ) -> Result<(), SgFault> {
        if let (Some(part), false) = (self.only_part(), length == 0) {
            let at = part.check(offset, length, needed)?;
            return visit(&part.key, at, length);
        }
        if self.broken.is_some() {
            return Err(SgFault::Protection);
        }
        let mut skip = offset;
        let mut left = length;
        for part in self.parts() {
            if left == 0 {
                break;
            }
            if skip >= u64::from(part.length) {
                skip -= u64::from(part.length);
                continue;
            }
            let here = left.min(part.length as usize - skip as usize);
            let at = part
                .key
                .check(part.addr.wrapping_add(skip), here as u64, needed)
                .map_err(|_| SgFault::Protection)?;
            visit(&part.key, at, here)?;
            left -= here;
            skip = 0;
        }
        if left == 0 { Ok(()) } else { Err(SgFault::Length) }
    }
}
