//! Shared memory as a hostile process sees it, for fuzzers: it writes any word at any time.

use super::shared_memory::SharedMemory;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Memory as the hostile process sees it.
#[derive(Clone, Debug)]
pub struct HostileMemory {
    memory: Arc<SharedMemory>,
    words: usize,
}

impl HostileMemory {
    pub(crate) fn new(memory: SharedMemory, len: usize) -> Self {
        HostileMemory {
            memory: Arc::new(memory),
            words: len / 8,
        }
    }

    /// Writes the word at an offset, or at what is left of it where the memory ends before that.
    pub fn poke(&self, offset: usize, word: u64) {
        let at = offset / 8 % self.words * 8;
        self.memory.word(at).store(word, Ordering::Release);
    }

    /// The word there.
    pub fn peek(&self, offset: usize) -> u64 {
        let at = offset / 8 % self.words * 8;
        self.memory.word(at).load(Ordering::Acquire)
    }
}
