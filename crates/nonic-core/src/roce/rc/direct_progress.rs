//! Progress of a request that the requester executes without packets.

use crate::placement::MAX_MESSAGE;

/// How far the request at the front of the send queue was executed without packets. Small, because every queue pair has one:
/// the bytes done, and a bit above them.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct DirectProgress(u32);

impl DirectProgress {
    /// A message has at most so many bytes, and the last of them end it.
    const REFUSED: u32 = MAX_MESSAGE;

    /// So many bytes have been moved.
    pub(super) fn done(self) -> u32 {
        self.0 & !Self::REFUSED
    }

    pub(super) fn add(&mut self, bytes: u32) {
        self.0 += bytes;
    }

    /// Whether the peer's memory, or ours, may show a part of it.
    pub(super) fn is_begun(self) -> bool {
        self.done() > 0
    }

    /// Whether it goes as packets, from its beginning.
    pub(super) fn is_refused(self) -> bool {
        self.0 & Self::REFUSED != 0
    }

    pub(super) fn refuse(&mut self) {
        self.0 |= Self::REFUSED;
    }
}

/// What a requester knows of executing requests without packets.
#[derive(Debug, Default)]
pub(super) struct DirectState {
    /// How far the front request was executed.
    pub(super) front: DirectProgress,
    /// Whether the latest attempt went well.
    pub(super) works: bool,
    /// Bytes that were moved, ever.
    pub(super) bytes: u64,
}
