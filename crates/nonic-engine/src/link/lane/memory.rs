//! The memory of a lane: what its two processes share. The writer makes it and gives it to the reader.
//!
//! | offset | written by | |
//! |---|---|---|
//! | 0 | writer | what this is, and its version |
//! | 64 | writer | the access to the reader's memory that is under way ([`crate::direct`]) |
//! | 128 | reader | how far it has executed records |
//! | 192 | both | the reader sleeps and wants to be woken: set by the reader, cleared by the first side to act |
//! | 256 | both | the writer sleeps and wants to be woken by an answer: set by the writer, cleared by the first side to act |
//! | [`RECORDS`] | both | the records ([`super::ring`]) |
//!
//! This module says where what is, and knows nothing of what it means. What the other process writes is for its callers to check.

use crate::os::shared_memory::{Others, SharedMemory};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// "nonic" and a version.
pub(super) const MAGIC: u64 = 0x6e6f_6e69_6300_0005;
const HAZARD: usize = 64;
pub(super) const RECORDS_READ: usize = 128;
pub(super) const ASLEEP: usize = 192;
const WRITER_ASLEEP: usize = 256;
/// Where the records are, and how many bytes of them there are room for.
pub(super) const RECORDS: usize = 4096;
pub(super) const RING: u64 = 1 << 20;
pub(super) const LEN: usize = RECORDS + RING as usize;

/// The memory of a lane.
#[derive(Debug)]
pub(crate) struct LaneMemory(SharedMemory);

impl LaneMemory {
    /// New memory, and the descriptor for the reader.
    pub(crate) fn create() -> io::Result<(Arc<Self>, OwnedFd)> {
        let (memory, fd) = SharedMemory::create("nonic-lane", LEN, Others::Write)?;
        // Until the reader says otherwise: a thread of the process that accepts the lane may be asleep already.
        memory.half_word(ASLEEP).store(1, Ordering::Relaxed);
        // The same of ours, which waits for answers to records that another thread writes.
        memory.half_word(WRITER_ASLEEP).store(1, Ordering::Relaxed);
        memory.word(0).store(MAGIC, Ordering::Release);
        Ok((Arc::new(LaneMemory(memory)), fd))
    }

    /// Memory that another process made.
    pub(crate) fn open(fd: impl AsFd) -> io::Result<Arc<Self>> {
        let memory = SharedMemory::of_another(fd, LEN, Others::Write)?;
        match memory.word(0).load(Ordering::Acquire) {
            MAGIC => Ok(Arc::new(LaneMemory(memory))),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// The direct access that is under way, as its requester says.
    pub(crate) fn hazard(&self) -> &AtomicU64 {
        self.0.word(HAZARD)
    }

    /// How far the reader has executed records.
    #[inline]
    pub(super) fn records_read(&self) -> &AtomicU64 {
        self.0.word(RECORDS_READ)
    }

    /// Whether the reader sleeps.
    #[inline]
    pub(super) fn asleep(&self) -> &AtomicU32 {
        self.0.half_word(ASLEEP)
    }

    /// Whether the writer sleeps and waits for answers.
    #[inline]
    pub(super) fn writer_asleep(&self) -> &AtomicU32 {
        self.0.half_word(WRITER_ASLEEP)
    }

    /// A word among the records.
    #[inline]
    pub(super) fn record_word(&self, offset: usize) -> &AtomicU64 {
        self.0.word(RECORDS + offset)
    }

    /// The words that a record begins with.
    #[inline]
    pub(super) fn record_words(&self, offset: usize) -> &[AtomicU64; 4] {
        self.0.words(RECORDS + offset)
    }

    /// The address of bytes among the records.
    #[inline]
    pub(super) fn record_bytes(&self, offset: usize, length: usize) -> NonNull<u8> {
        self.0.bytes(RECORDS + offset, length)
    }
}
