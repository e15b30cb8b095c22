//! The fuzzers' access to the inside of this crate: memory that a hostile process shares with us, and what reads it.
//!
//! No other code should use it. The scripts that use it, and what must hold, are in the folder `fuzz`: `lane.rs` for the
//! rings, `direct.rs` for what is published. The tests below run the corpus of both.

pub use crate::direct::fuzzing::{NotesVictim, PublishedVictim, Said, tables};
pub use crate::link::lane::fuzzing::{ReaderVictim, WriterVictim, layout};

use crate::os::shared_memory::SharedMemory;
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

#[cfg(test)]
#[path = "../../../fuzz/src/corpus.rs"]
#[expect(unreachable_pub, reason = "shared by several crates")]
mod corpus;
#[cfg(test)]
#[path = "../../../fuzz/src/direct.rs"]
#[expect(unreachable_pub, reason = "shared with the fuzz crate")]
mod direct;
#[cfg(test)]
#[path = "../../../fuzz/src/lane.rs"]
#[expect(unreachable_pub, reason = "shared with the fuzz crate")]
mod lane;

#[cfg(test)]
mod tests {
    use super::corpus::replay;
    use super::{direct, lane};

    #[test]
    fn rings_of_hostile_processes() {
        replay("lane", lane::rings);
    }

    #[test]
    fn tables_of_hostile_processes() {
        replay("direct", direct::tables);
    }
}
