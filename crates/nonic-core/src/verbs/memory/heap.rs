//! Memory for tests and simulation: a plain vector behind a lock.

use super::{Fault, Region};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Heap memory behind a lock. Safe and slow; the engine has its own kind for real programs.
#[derive(Debug)]
pub struct HeapRegion(Mutex<Vec<u8>>);

impl HeapRegion {
    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> Self {
        Self::new(vec![0; len])
    }

    /// Takes over `bytes`.
    pub fn new(bytes: Vec<u8>) -> Self {
        HeapRegion(Mutex::new(bytes))
    }

    /// A copy of the whole content.
    pub fn snapshot(&self) -> Vec<u8> {
        self.lock().clone()
    }

    /// Runs `f` on the content.
    pub fn with<T>(&self, f: impl FnOnce(&mut [u8]) -> T) -> T {
        f(&mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        // A panic elsewhere cannot leave plain bytes in a broken state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update_word(&self, offset: usize, f: impl FnOnce(u64) -> u64) -> Result<u64, Fault> {
        let mut bytes = self.lock();
        let word = offset
            .checked_add(8)
            .and_then(|end| bytes.get_mut(offset..end))
            .ok_or(Fault)?;
        let old = u64::from_ne_bytes(word.try_into().expect("the range is 8 bytes long"));
        word.copy_from_slice(&f(old).to_ne_bytes());
        Ok(old)
    }
}

impl Region for HeapRegion {
    fn len(&self) -> usize {
        self.lock().len()
    }

    fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), Fault> {
        let bytes = self.lock();
        let end = offset.checked_add(out.len()).ok_or(Fault)?;
        out.copy_from_slice(bytes.get(offset..end).ok_or(Fault)?);
        Ok(())
    }

    fn write(&self, offset: usize, data: &[u8]) -> Result<(), Fault> {
        let mut bytes = self.lock();
        let end = offset.checked_add(data.len()).ok_or(Fault)?;
        bytes.get_mut(offset..end).ok_or(Fault)?.copy_from_slice(data);
        Ok(())
    }

    fn compare_swap(&self, offset: usize, compare: u64, swap: u64) -> Result<u64, Fault> {
        self.update_word(offset, |old| if old == compare { swap } else { old })
    }

    fn fetch_add(&self, offset: usize, add: u64) -> Result<u64, Fault> {
        self.update_word(offset, |old| old.wrapping_add(add))
    }
}
