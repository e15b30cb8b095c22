//! Memory that records what NICs wrote to it, to draw a run.

use nonic_core::{Fault, HeapRegion, Region};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes that a NIC wrote to an arena.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Placement {
    pub(super) arena: usize,
    pub(super) offset: usize,
    pub(super) length: usize,
}

/// What was written and not asked for yet, by all regions of a world.
#[derive(Clone, Debug, Default)]
pub(super) struct PlacementLog(Arc<Mutex<Vec<Placement>>>);

impl PlacementLog {
    /// Takes what was written. Pieces that continue each other are one.
    pub(super) fn take(&self) -> Vec<Placement> {
        let taken = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let mut joined: Vec<Placement> = Vec::new();
        for placement in taken {
            match joined.last_mut() {
                Some(last)
                    if last.arena == placement.arena && last.offset + last.length == placement.offset =>
                {
                    last.length += placement.length;
                }
                _ => joined.push(placement),
            }
        }
        joined
    }

    fn note(&self, arena: usize, offset: usize, length: usize) {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.push(Placement {
            arena,
            offset,
            length,
        });
    }
}

/// A region as its NIC sees it, which notes what is written.
pub(super) struct WatchedRegion {
    pub(super) inner: Arc<HeapRegion>,
    pub(super) arena: usize,
    pub(super) log: PlacementLog,
}

impl Region for WatchedRegion {
    fn len(&self) -> usize {
        self.inner.len()
    }

    fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), Fault> {
        self.inner.read(offset, out)
    }

    fn write(&self, offset: usize, data: &[u8]) -> Result<(), Fault> {
        self.inner.write(offset, data)?;
        if !data.is_empty() {
            self.log.note(self.arena, offset, data.len());
        }
        Ok(())
    }

    fn compare_swap(&self, offset: usize, compare: u64, swap: u64) -> Result<u64, Fault> {
        let found = self.inner.compare_swap(offset, compare, swap)?;
        self.log.note(self.arena, offset, 8);
        Ok(found)
    }

    fn fetch_add(&self, offset: usize, add: u64) -> Result<u64, Fault> {
        let found = self.inner.fetch_add(offset, add)?;
        self.log.note(self.arena, offset, 8);
        Ok(found)
    }

    fn store(&self, offset: usize, value: u64) -> Result<(), Fault> {
        self.inner.store(offset, value)?;
        self.log.note(self.arena, offset, 8);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_that_continue_each_other_are_one() {
        let log = PlacementLog::default();
        let region = WatchedRegion {
            inner: Arc::new(HeapRegion::zeroed(64)),
            arena: 3,
            log: log.clone(),
        };
        for (offset, length) in [(0, 8), (8, 4), (16, 4)] {
            region.write(offset, &[1; 8][..length]).expect("inside");
        }
        assert!(region.write(60, &[0; 8]).is_err());
        let placed = log
            .take()
            .into_iter()
            .map(|placement| (placement.offset, placement.length));
        assert_eq!(placed.collect::<Vec<_>>(), [(0, 12), (16, 4)]);
        assert_eq!(log.take(), []);
    }
}
