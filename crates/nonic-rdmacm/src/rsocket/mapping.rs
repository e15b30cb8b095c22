//! The buffers that each end of a stream has mapped for the other.

use super::memory::Memory;
use super::protocol::{Iomapping, Segment, TARGETS};
use nonic_abi::libibverbs::ibv_dereg_mr;
use nonic_abi::verbs::ibv_mr;

/// The lists of both ends.
pub(crate) struct Iomaps {
    /// The peer's buffers, as it has told.
    pub(super) theirs: Vec<Iomapping>,
    /// Our buffers.
    pub(super) ours: Vec<Mapping>,
}

// SAFETY: objects of libibverbs may be used from any thread.
unsafe impl Send for Iomaps {}

/// A buffer of ours.
pub(super) struct Mapping {
    pub(super) offset: u64,
    pub(super) mr: *mut ibv_mr,
    /// Its place in the peer's list; `None` if it is not for the peer.
    pub(super) index: Option<u16>,
    pub(super) is_told: bool,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the region is ours.
        unsafe { ibv_dereg_mr(self.mr) };
    }
}

impl Iomaps {
    pub(super) fn new(size: u16) -> Self {
        Iomaps {
            theirs: vec![Iomapping::default(); size.into()],
            ours: Vec::new(),
        }
    }

    pub(super) fn size(&self) -> u16 {
        self.theirs.len() as u16
    }

    /// Where the record of a mapping is in the memory of the lists.
    pub(super) fn offset(index: u16) -> u32 {
        (TARGETS * Segment::LEN + usize::from(index) * Iomapping::LEN) as u32
    }

    /// The peer has written a record.
    pub(super) fn noticed(&mut self, lists: &Memory, index: u16) {
        if let Some(mapping) = self.theirs.get_mut(usize::from(index)) {
            let record = lists.read(Self::offset(index));
            *mapping = Iomapping::parse(&record, cfg!(target_endian = "big"));
        }
    }

    /// Where the peer's buffer has an offset, and how much is there from that on.
    pub(super) fn find(&self, offset: u64) -> Option<Segment> {
        self.theirs.iter().find_map(|mapping| {
            let into = offset.checked_sub(mapping.offset)?;
            let length = u64::from(mapping.buffer.length).checked_sub(into)?;
            (length > 0).then(|| Segment {
                address: mapping.buffer.address.wrapping_add(into),
                length: length as u32,
                ..mapping.buffer
            })
        })
    }

    /// A place in the peer's list, which has `size` of them, that none of our buffers has.
    pub(super) fn free_index(&self, size: u16) -> Option<u16> {
        (0..size).find(|index| self.ours.iter().all(|mapping| mapping.index != Some(*index)))
    }
}
