//! Access checks for requests of peers: looks up keys, checks rights and ranges, and places the bytes.
//!
//! This module does not know the order of requests, how they are cut into packets or how a peer is answered. Each
//! transport translates a [`Refused`]: RoCE's reliable services send a NAK, unreliable ones drop the message silently.
//!
//! A WRITE, READ or atomic of a process on this host may come past it ([`crate::direct`]): the keys of a NIC are published there, and the
//! requester's NIC checks the same rights and ranges before it touches the memory (`direct` in `nonic-engine`).

use crate::record::{KeyExtent, RefusalReason, RefusedRequest, RequestKind};
use crate::verbs::memory::{Access, FENCE_KEY, Fault, Key, KeyError, KeyTable, PdId, Region};
use crate::verbs::work::{FlushRange, Placement};
use nonic_wire::Qpn;
use std::sync::Arc;

/// The longest message there is.
pub(crate) const MAX_MESSAGE: u32 = 1 << 31;

/// The longest READ that is taken for a fence.
const MAX_FENCE: u32 = 8;

/// Why a peer's request is not executed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// The queue pair does not permit requests of this kind.
    Operation,
    /// The length is above that of the longest message, or not what was announced.
    Length,
    /// The address of a word is not a multiple of eight.
    Alignment,
    /// The key does not permit it.
    Key(KeyError),
    /// The memory under the key is gone.
    Memory,
}

impl From<KeyError> for Refused {
    fn from(error: KeyError) -> Self {
        Refused::Key(error)
    }
}

impl From<Refused> for RefusalReason {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Operation => RefusalReason::Operation,
            Refused::Length => RefusalReason::Length,
            Refused::Alignment => RefusalReason::Alignment,
            Refused::Key(error) => RefusalReason::Key(error),
            Refused::Memory => RefusalReason::MemoryGone,
        }
    }
}

impl From<Fault> for Refused {
    fn from(Fault: Fault) -> Self {
        Refused::Memory
    }
}

/// A range of memory as a peer names it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct RemoteRange {
    pub(crate) va: u64,
    pub(crate) length: u32,
    pub(crate) rkey: u32,
}

impl RemoteRange {
    /// Whether a READ of it asks for no memory, but only to be answered after everything before it (UCX).
    fn is_fence(&self) -> bool {
        self.rkey == FENCE_KEY && self.va == 0 && self.length <= MAX_FENCE
    }
}

/// An atomic operation on a word.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum WordOperation {
    CompareSwap {
        compare: u64,
        swap: u64,
    },
    FetchAdd(u64),
    /// Compares and swaps some of the bits.
    MaskedCompareSwap {
        compare: u64,
        compare_mask: u64,
        swap: u64,
        swap_mask: u64,
    },
    /// Adds to fields of which each has its top bit in `boundaries`: no carry leaves one.
    MaskedFetchAdd {
        add: u64,
        boundaries: u64,
    },
}

impl WordOperation {
    /// What a word becomes.
    fn apply(self, word: u64) -> u64 {
        match self {
            WordOperation::CompareSwap { compare, swap } if word == compare => swap,
            WordOperation::MaskedCompareSwap {
                compare,
                compare_mask,
                swap,
                swap_mask,
            } if (word ^ compare) & compare_mask == 0 => (word & !swap_mask) | (swap & swap_mask),
            WordOperation::CompareSwap { .. } | WordOperation::MaskedCompareSwap { .. } => word,
            WordOperation::FetchAdd(add) => word.wrapping_add(add),
            // Without their top bits, fields cannot overflow into each other; the top bits are added without carry.
            WordOperation::MaskedFetchAdd { add, boundaries } => {
                let below = (word & !boundaries).wrapping_add(add & !boundaries);
                below ^ ((word ^ add) & boundaries)
            }
        }
    }
}

/// What the peer of a queue pair may do, and with which keys.
#[derive(Copy, Clone, Debug)]
pub(crate) struct PeerRights<'a> {
    pub(crate) keys: &'a KeyTable,
    /// The domain that keys must belong to.
    pub(crate) pd: PdId,
    /// The queue pair, which keys may be bound to.
    pub(crate) qpn: Qpn,
    /// What the queue pair permits.
    pub(crate) access: Access,
}

impl PeerRights<'_> {
    /// Whether the queue pair permits requests that need these rights.
    pub(crate) fn permit(&self, needed: Access) -> Result<(), Refused> {
        if self.access.contains(needed) {
            Ok(())
        } else {
            Err(Refused::Operation)
        }
    }

    /// The key that a request names, checked for its whole range. A request for zero bytes needs none.
    fn find(&self, range: &RemoteRange, needed: Access) -> Result<Option<Arc<Key>>, Refused> {
        if range.length > MAX_MESSAGE {
            return Err(Refused::Length);
        }
        if range.length == 0 {
            return Ok(None);
        }
        let key = self.keys.find(range.rkey, self.pd, self.qpn)?;
        key.check(range.va, u64::from(range.length), needed)?;
        Ok(Some(key))
    }

    /// Begins a WRITE.
    pub(crate) fn write(&self, range: &RemoteRange) -> Result<InboundWrite, Refused> {
        self.permit(Access::REMOTE_WRITE)?;
        Ok(InboundWrite {
            key: self.find(range, Access::REMOTE_WRITE)?,
            va: range.va,
            left: range.length,
            total: range.length,
        })
    }

    /// Begins a READ. Whether the queue pair permits READs is for the caller to ask: a repeated one is answered if the first
    /// one was.
    pub(crate) fn read(&self, range: &RemoteRange) -> Result<OutboundRead, Refused> {
        let key = match range.is_fence() {
            true => None,
            false => self.find(range, Access::REMOTE_READ)?,
        };
        Ok(OutboundRead {
            key,
            va: range.va,
            left: range.length,
        })
    }

    /// Executes an atomic operation; what the word was before.
    pub(crate) fn word(&self, va: u64, rkey: u32, operation: WordOperation) -> Result<u64, Refused> {
        self.permit(Access::REMOTE_ATOMIC)?;
        let (key, at) = self.find_word(va, rkey, Access::REMOTE_ATOMIC)?;
        let region = key.region();
        Ok(match operation {
            WordOperation::CompareSwap { compare, swap } => region.compare_swap(at, compare, swap)?,
            WordOperation::FetchAdd(add) => region.fetch_add(at, add)?,
            masked => {
                let mut expected = region.fetch_add(at, 0)?;
                loop {
                    // This fails only if another thread or peer changed the word meanwhile.
                    match region.compare_swap(at, expected, masked.apply(expected))? {
                        found if found == expected => break found,
                        found => expected = found,
                    }
                }
            }
        })
    }

    /// Stores a word so that no reader sees half of it.
    pub(crate) fn store(&self, range: &RemoteRange, value: [u8; 8]) -> Result<(), Refused> {
        self.permit(Access::REMOTE_WRITE)?;
        if range.length != 8 {
            return Err(Refused::Length);
        }
        let (key, at) = self.find_word(range.va, range.rkey, Access::REMOTE_WRITE)?;
        Ok(key.region().store(at, u64::from_ne_bytes(value))?)
    }

    fn find_word(&self, va: u64, rkey: u32, needed: Access) -> Result<(Arc<Key>, usize), Refused> {
        if va % 8 != 0 {
            return Err(Refused::Alignment);
        }
        let key = self.keys.find(rkey, self.pd, self.qpn)?;
        let at = key.check(va, 8, needed)?;
        Ok((key, at))
    }

    /// Flushes a range, or all that its key covers. Everything before was executed in order, and the processor's caches are
    /// coherent: only persistence asks for work.
    pub(crate) fn flush(
        &self,
        range: &RemoteRange,
        extent: FlushRange,
        placement: Placement,
    ) -> Result<(), Refused> {
        let needed = flush_rights(placement);
        if needed.is_empty() {
            return Err(Refused::Operation);
        }
        self.permit(needed)?;
        let key = self.keys.find(range.rkey, self.pd, self.qpn)?;
        let (va, length) = match extent {
            FlushRange::Named => (range.va, u64::from(range.length)),
            FlushRange::WholeKey => (key.iova(), key.length()),
        };
        let at = key.check(va, length, needed)?;
        if placement.contains(Placement::PERSISTENT) {
            // A key's length is that of memory, so it fits.
            key.region().persist(at, length as usize)?;
        }
        Ok(())
    }

    /// What to record of a request that was refused.
    #[cold]
    pub(crate) fn describe(
        &self,
        kind: RequestKind,
        range: Option<&RemoteRange>,
        reason: RefusalReason,
    ) -> RefusedRequest {
        let (va, length, rkey) = range.map_or((0, 0, 0), |range| (range.va, range.length, range.rkey));
        let reason = match reason {
            RefusalReason::Key(error) => RefusalReason::Key(self.keys.refine(rkey, error)),
            reason => reason,
        };
        RefusedRequest {
            kind,
            reason,
            va,
            length: u64::from(length),
            rkey,
            key: range.and_then(|_| self.keys.look_up(rkey).as_deref().map(KeyExtent::of)),
            domain: self.pd.value(),
            permitted: self.access,
        }
    }

    /// Revokes a key on the peer's behalf.
    pub(crate) fn invalidate(&self, rkey: u32) -> Result<(), Refused> {
        Ok(self.keys.invalidate(rkey, self.pd, self.qpn)?)
    }
}

/// A WRITE whose bytes are arriving.
#[derive(Debug)]
pub(crate) struct InboundWrite {
    /// `None` only for a WRITE of zero bytes.
    key: Option<Arc<Key>>,
    va: u64,
    left: u32,
    pub(crate) total: u32,
}

impl InboundWrite {
    /// What it is about, as far as it has not been placed; `None` for a WRITE of zero bytes.
    pub(crate) fn range(&self) -> Option<RemoteRange> {
        let key = self.key.as_ref()?;
        Some(RemoteRange {
            va: self.va,
            length: self.left,
            rkey: key.value(),
        })
    }

    /// Where in their region the next bytes go, if the key still permits that. The lengths must add up to what was
    /// announced.
    pub(crate) fn locate(&self, length: usize, ends: bool) -> Result<usize, Refused> {
        let (length, left) = (length as u64, u64::from(self.left));
        let fits = if ends { length == left } else { length < left };
        if !fits {
            return Err(Refused::Length);
        }
        match &self.key {
            Some(key) if length > 0 => Ok(key.check(self.va, length, Access::REMOTE_WRITE)?),
            _ => Ok(0),
        }
    }

    /// Places bytes where [`InboundWrite::locate`] said.
    pub(crate) fn place(&mut self, at: usize, payload: &[u8]) -> Result<(), Refused> {
        if let (Some(key), false) = (&self.key, payload.is_empty()) {
            key.region().write(at, payload)?;
        }
        self.va = self.va.wrapping_add(payload.len() as u64);
        self.left -= payload.len() as u32;
        Ok(())
    }
}

/// A place in a region.
pub(crate) type Place = (Arc<dyn Region>, usize);

/// A READ being answered.
#[derive(Debug)]
pub(crate) struct OutboundRead {
    /// `None` for a READ of zero bytes, which needs no key, and for a fence, which reads zeros.
    key: Option<Arc<Key>>,
    va: u64,
    /// Bytes not yet read.
    pub(crate) left: u32,
}

impl OutboundRead {
    /// Where the next bytes are, if the key still permits to read them; `None` for those that are in no memory.
    pub(crate) fn locate(&self, length: usize) -> Result<Option<Place>, Refused> {
        let Some(key) = &self.key else {
            return Ok(None);
        };
        let at = key.check(self.va, length as u64, Access::REMOTE_READ)?;
        Ok(Some((key.share_region(), at)))
    }

    /// The next bytes are taken care of.
    pub(crate) fn skip(&mut self, length: usize) {
        self.va = self.va.wrapping_add(length as u64);
        self.left -= length as u32;
    }

    /// Fills `out` with the next bytes, if the key still permits that.
    pub(crate) fn take(&mut self, out: &mut [u8]) -> Result<(), Refused> {
        match &self.key {
            Some(key) if !out.is_empty() => {
                let at = key.check(self.va, out.len() as u64, Access::REMOTE_READ)?;
                key.region().read(at, out)?;
            }
            _ => out.fill(0),
        }
        self.skip(out.len());
        Ok(())
    }
}

/// The rights a FLUSH needs.
fn flush_rights(placement: Placement) -> Access {
    let mut needed = Access::empty();
    needed.set(Access::FLUSH_GLOBAL, placement.contains(Placement::GLOBAL));
    needed.set(
        Access::FLUSH_PERSISTENT,
        placement.contains(Placement::PERSISTENT),
    );
    needed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::memory::{HeapRegion, KeySpec};

    const IOVA: u64 = 0x1000;
    const RKEY: u32 = 77;

    /// A table with 64 bytes under one key, which permits everything but FLUSHes.
    fn table() -> (KeyTable, PdId) {
        let keys = KeyTable::new();
        let pd = keys.alloc_pd();
        let spec = KeySpec {
            pd,
            region: Arc::new(HeapRegion::zeroed(64)),
            offset: 0,
            length: 64,
            iova: IOVA,
            access: all(),
            bound_qp: None,
            invalidatable: false,
        };
        keys.register_as(RKEY, spec).expect("valid").expect("free");
        (keys, pd)
    }

    fn all() -> Access {
        Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC
    }

    fn rights(keys: &KeyTable, pd: PdId, access: Access) -> PeerRights<'_> {
        PeerRights {
            keys,
            pd,
            qpn: Qpn::new(5),
            access,
        }
    }

    fn range(va: u64, length: u32, rkey: u32) -> RemoteRange {
        RemoteRange { va, length, rkey }
    }

    #[test]
    fn what_the_queue_pair_does_not_permit_is_refused_before_its_key_is_looked_at() {
        let (keys, pd) = table();
        let none = rights(&keys, pd, Access::empty());
        let wrong = range(0, 8, 1);
        assert_eq!(none.write(&wrong).err(), Some(Refused::Operation));
        assert_eq!(none.store(&wrong, [0; 8]), Err(Refused::Operation));
        assert_eq!(
            none.word(0, 1, WordOperation::FetchAdd(1)),
            Err(Refused::Operation)
        );
        let flushed = none.flush(&wrong, FlushRange::Named, Placement::GLOBAL);
        assert_eq!(flushed, Err(Refused::Operation));
    }

    #[test]
    fn a_refusal_says_what_is_wrong_with_the_key() {
        let (keys, pd) = table();
        let ours = rights(&keys, pd, all());
        let theirs = rights(&keys, keys.alloc_pd(), all());
        let refused = |error| Some(Refused::Key(error));
        assert_eq!(ours.read(&range(IOVA, 8, 1)).err(), refused(KeyError::Unknown));
        assert_eq!(
            theirs.read(&range(IOVA, 8, RKEY)).err(),
            refused(KeyError::Domain)
        );
        assert_eq!(
            ours.write(&range(IOVA + 60, 8, RKEY)).err(),
            refused(KeyError::Bounds)
        );
        let flushes = rights(&keys, pd, all() | Access::FLUSH_GLOBAL);
        let flushed = flushes.flush(&range(IOVA, 8, RKEY), FlushRange::Named, Placement::GLOBAL);
        assert_eq!(flushed.err(), refused(KeyError::Rights));
        assert_eq!(ours.invalidate(RKEY).err(), refused(KeyError::NotInvalidatable));
    }

    #[test]
    fn no_bytes_need_no_key_and_too_many_are_refused() {
        let (keys, pd) = table();
        let rights = rights(&keys, pd, all());
        assert!(rights.write(&range(0, 0, 1)).is_ok());
        assert!(rights.read(&range(0, 0, 1)).is_ok());
        let longer = range(IOVA, MAX_MESSAGE + 1, RKEY);
        assert_eq!(rights.write(&longer).err(), Some(Refused::Length));
        assert_eq!(rights.read(&longer).err(), Some(Refused::Length));
    }

    #[test]
    fn words_lie_at_multiples_of_eight() {
        let (keys, pd) = table();
        let rights = rights(&keys, pd, all());
        let add = WordOperation::FetchAdd(3);
        assert_eq!(rights.word(IOVA + 4, RKEY, add), Err(Refused::Alignment));
        assert_eq!(
            rights.store(&range(IOVA + 4, 8, RKEY), [0; 8]),
            Err(Refused::Alignment)
        );
        assert_eq!(rights.store(&range(IOVA, 4, RKEY), [0; 8]), Err(Refused::Length));
        assert_eq!(rights.word(IOVA, RKEY, add), Ok(0));
        assert_eq!(rights.word(IOVA, RKEY, add), Ok(3));
    }

    #[test]
    fn masked_atomics_touch_what_their_masks_say() {
        let (keys, pd) = table();
        let rights = rights(&keys, pd, all());
        let set = |value| {
            rights
                .word(IOVA, RKEY, WordOperation::FetchAdd(value))
                .map(|_| ())
        };
        set(0x00ff_00ff).expect("permitted");
        // Two fields of 16 bits: the carry out of the lower one is lost.
        let add = WordOperation::MaskedFetchAdd {
            add: 0x0001_ff01,
            boundaries: 0x8000_8000,
        };
        assert_eq!(rights.word(IOVA, RKEY, add), Ok(0x00ff_00ff));
        let swap = WordOperation::MaskedCompareSwap {
            compare: 0x0100_9999,
            compare_mask: 0xffff_0000,
            swap: 0x7777_7777,
            swap_mask: 0x00ff_00ff,
        };
        assert_eq!(rights.word(IOVA, RKEY, swap), Ok(0x0100_0000));
        assert_eq!(
            rights.word(IOVA, RKEY, swap),
            Ok(0x0177_0077),
            "now it is not equal"
        );
        assert_eq!(
            rights.word(IOVA, RKEY, WordOperation::FetchAdd(0)),
            Ok(0x0177_0077)
        );
    }

    #[test]
    fn the_pieces_of_a_write_add_up_and_a_revoked_key_ends_it() {
        let (keys, pd) = table();
        let mut write = rights(&keys, pd, all())
            .write(&range(IOVA, 12, RKEY))
            .expect("permitted");
        assert_eq!(
            write.locate(12, false),
            Err(Refused::Length),
            "nothing is left for the last"
        );
        assert_eq!(
            write.locate(8, true),
            Err(Refused::Length),
            "four bytes are missing"
        );
        let at = write.locate(8, false).expect("permitted");
        write.place(at, &[1; 8]).expect("there is memory");
        assert_eq!(write.locate(4, true), Ok(at + 8));
        assert!(keys.revoke(RKEY));
        assert_eq!(write.locate(4, true), Err(Refused::Key(KeyError::Revoked)));
    }
}
