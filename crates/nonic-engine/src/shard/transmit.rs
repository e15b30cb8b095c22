//! Transmission: packets from the NIC to links, a batch at a time.
//!
//! This module queues nothing but the one batch that a link had no room for. The caller of [`Shard::flush`] decides when to
//! send.

use super::Shard;
use crate::os::descriptors;
use nonic_core::{MAX_BATCH_PACKETS, Time, Transmit};
use std::io;

/// Batches sent per call beyond one for each queue pair with something to send.
const BATCHES_PER_FLUSH: usize = 64;
/// So often per call the shard receives, and answers, what its queue pairs sent each other. A short message is done after
/// two.
const ROUNDS_PER_FLUSH: usize = 8;

impl Shard {
    /// Sends what there is to send, within bounds, and has executed what needs no packets. Whether there was anything.
    pub(super) fn transmit(&mut self, now: Time) -> bool {
        if let Some((streams, nic)) = self.streams() {
            return streams.attend(now, nic);
        }
        let mut worked = false;
        let ready = self.nic.ready_queue_pairs();
        if let Some(transmit) = self.carriers.stalled.take() {
            self.send(now, &transmit);
            worked = true;
        }
        // Every queue pair gets its turn, so every acknowledgement leaves; a flood of READ responses or
        // datagrams goes on in the next call.
        let budget = ready + BATCHES_PER_FLUSH;
        self.carriers.unsent = true;
        for _ in 0..budget {
            if self.carriers.stalled.is_some() {
                break;
            }
            let Some(transmit) = self.next_batch(now) else {
                // A queue pair that is still ready has more to do without packets.
                self.carriers.unsent = self.nic.ready_queue_pairs() > 0;
                break;
            };
            self.send(now, &transmit);
            worked = true;
            if self.nic.ready_queue_pairs() == 0 && !self.common.connections.has_output() {
                self.carriers.unsent = false;
                break;
            }
        }
        worked || self.nic.ready_queue_pairs() < ready
    }

    /// Executes the records that this shard wrote to itself, and sends what follows from it: where both ends are ours, no other thread
    /// is needed. What is left after a while keeps the shard behind, so that it goes on soon.
    pub(super) fn deliver_to_itself(&mut self, now: Time) {
        for _ in 0..ROUNDS_PER_FLUSH {
            if !self.carriers.has_records_for_itself() {
                return;
            }
            self.exchange_records(&|| now);
            self.transmit(now);
        }
        self.carriers.unsent |= self.carriers.has_records_for_itself();
    }

    /// Writes the next batch to the send buffer.
    fn next_batch(&mut self, now: Time) -> Option<Transmit> {
        let batch = self.write_batch(now);
        if batch.is_some() || !self.common.connections.has_output() {
            return batch;
        }
        // What the program asked of the connection manager, and what the NIC had no room for.
        self.exchange_messages(now);
        self.write_batch(now)
    }

    fn write_batch(&mut self, now: Time) -> Option<Transmit> {
        let Shard { nic, carriers, .. } = self;
        nic.poll_transmit(now, MAX_BATCH_PACKETS, carriers.out.bytes_mut())
    }

    fn send(&mut self, now: Time, transmit: &Transmit) {
        let index = usize::from(transmit.gid_index);
        let bytes = &self.carriers.out.bytes()[..transmit.len];
        let Some(link) = self.carriers.links.get_mut(index) else {
            self.carriers.past.send_errors += 1;
            return;
        };
        match link.send(now, transmit, bytes) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.carriers.stalled = Some(*transmit)
            }
            // Unreachable, refused, too long for the interface: to the transport it is a lost packet.
            Err(error) => {
                self.failure.doubt(descriptors::casts_doubt(&error));
                self.limit_batches(index);
            }
        }
    }
}
