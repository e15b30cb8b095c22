//! What waits for the program's next call, or for more to travel with.
//!
//! A request leaves inside the call that posts it, with two exceptions. While the program polls, a plain acknowledgement may wait for its
//! next call: a program that answers what it received then sends both with one system call. And a short request that is posted while the
//! peer owes an answer to an earlier one of the same queue pair may wait for others, up to a batch; the answer, a timer or any poll of the
//! program sends it. With `NONIC_PROMPT_ACKS=on` neither waits. docs/decisions/11-batching.md has the price of both.
//!
//! This module counts what waits. The shard sends it.

use nonic_core::MAX_BATCH_PACKETS;

/// After so many posts, or bytes, requests are held back no longer: they fill a batch.
const HELD_POSTS: u32 = MAX_BATCH_PACKETS as u32;
const HELD_BYTES: u64 = 60 * 1024;

/// Acknowledgements and requests that are held back.
#[derive(Debug)]
pub(super) struct Batching {
    /// Whether anything may wait at all.
    allowed: bool,
    /// Acknowledgements wait.
    acknowledgements: bool,
    /// Requests that wait, and how many bytes they have.
    posts: u32,
    bytes: u64,
}

impl Batching {
    /// With `prompt`, nothing waits.
    pub(super) fn new(prompt: bool) -> Self {
        Batching {
            allowed: !prompt,
            acknowledgements: false,
            posts: 0,
            bytes: 0,
        }
    }

    pub(super) fn is_allowed(&self) -> bool {
        self.allowed
    }

    /// Whether acknowledgements wait.
    pub(super) fn holds_acknowledgements(&self) -> bool {
        self.acknowledgements
    }

    /// Whether requests wait.
    pub(super) fn holds_posts(&self) -> bool {
        self.posts > 0
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.acknowledgements && self.posts == 0
    }

    /// Acknowledgements wait for the program's next call.
    pub(super) fn hold_acknowledgements(&mut self) {
        self.acknowledgements = true;
    }

    /// A request of so many bytes was posted. Whether it may wait for more to travel with.
    pub(super) fn hold_post(&mut self, bytes: u64) -> bool {
        self.posts += 1;
        self.bytes += bytes;
        self.allowed && self.posts < HELD_POSTS && self.bytes < HELD_BYTES
    }

    /// Everything is sent.
    pub(super) fn release(&mut self) {
        self.acknowledgements = false;
        (self.posts, self.bytes) = (0, 0);
    }
}
