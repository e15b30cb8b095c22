//! Where received datagrams land: buffers allocated once, handed out by reference.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr};

use quinn_udp::{BATCH_SIZE, RecvMeta};

use super::{WireSocket, single};
use crate::link::datagrams::Datagrams;

/// Room for the largest thing the kernel delivers at once: coalesced datagrams end below 64 KiB.
const ENTRY_BYTES: usize = 64 * 1024;

/// Buffers for one [`recv`](super::WireSocket::recv), reused for every call.
///
/// Each entry takes one datagram, or many coalesced ones of the same size from the same sender. With one
/// entry a receive is as cheap as it gets; with several, a burst from many senders costs one system call
/// instead of many.
pub struct RecvBatch {
    storage: Box<[u8]>,
    meta: Box<[RecvMeta]>,
    filled: usize,
    /// The address of the socket that filled this batch: the destination of whatever is in it.
    local_ip: IpAddr,
}

impl RecvBatch {
    /// Allocates `entries` buffers; at least one, at most 32 (what one system call can fill).
    pub fn new(entries: usize) -> Self {
        let entries = entries.clamp(1, BATCH_SIZE);
        RecvBatch {
            storage: vec![0; entries * ENTRY_BYTES].into_boxed_slice(),
            meta: vec![RecvMeta::default(); entries].into_boxed_slice(),
            filled: 0,
            local_ip: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        }
    }

    /// What the last receive brought, in order of arrival.
    pub fn iter(&self) -> impl Iterator<Item = Datagrams<'_>> {
        let entries = self.storage.chunks_exact(ENTRY_BYTES).zip(&self.meta);
        entries.take(self.filled).map(|(bytes, meta)| Datagrams {
            src: meta.addr,
            dst_ip: meta.dst_ip.unwrap_or(self.local_ip),
            ecn: meta.ecn.map_or(0, |codepoint| codepoint as u8),
            stride: meta.stride.max(1),
            bytes: &bytes[..meta.len],
            sealed: true,
        })
    }

    pub(super) fn fill(&mut self, socket: &WireSocket) -> io::Result<usize> {
        self.filled = 0;
        self.local_ip = socket.local_address.ip();
        // A socket bound to the wildcard learns the destination from a note that the single receive
        // does not read.
        if self.meta.len() == 1 && !self.local_ip.is_unspecified() {
            self.meta[0] = single::recv(&socket.socket, &mut self.storage)?;
            self.filled = 1;
        } else {
            self.filled = self.fill_many(socket)?;
        }
        Ok(self.filled)
    }

    fn fill_many(&mut self, socket: &WireSocket) -> io::Result<usize> {
        let mut slices: [IoSliceMut<'_>; BATCH_SIZE] = std::array::from_fn(|_| IoSliceMut::new(&mut []));
        for (slice, entry) in slices.iter_mut().zip(self.storage.chunks_exact_mut(ENTRY_BYTES)) {
            *slice = IoSliceMut::new(entry);
        }
        let slices = &mut slices[..self.meta.len()];
        socket.state.recv((&socket.socket).into(), slices, &mut self.meta)
    }
}

impl std::fmt::Debug for RecvBatch {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("RecvBatch")
            .field("meta", &&self.meta[..self.filled])
            .finish_non_exhaustive()
    }
}
