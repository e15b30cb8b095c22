//! The send buffer, where batches of packets are written.

use nonic_core::MAX_BATCH_LEN;

/// Room for the longest batch. It begins so that the payload behind a base transport header, in every packet of
/// a batch of full ones, lies at the start of a cache line: copies are fastest there.
pub(super) struct SendBuffer {
    storage: Box<[u8]>,
    start: usize,
}

impl SendBuffer {
    pub(super) fn new() -> Self {
        const LINE: usize = 64;
        let storage = vec![0; MAX_BATCH_LEN + LINE].into_boxed_slice();
        let payload = storage.as_ptr().addr() + nonic_wire::Bth::LEN;
        SendBuffer {
            start: payload.next_multiple_of(LINE) - payload,
            storage,
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.storage[self.start..]
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.storage[self.start..]
    }
}
