//! A train: packets of equal size (the last may be shorter) that travel as one datagram batch.
//!
//! It is what the NIC transmits as one GSO batch, and what a receiver may get as one GRO batch. Packet *i* of the batch
//! as sent carries IPv4 Identification *i*; `first_id` keeps that true for a piece cut off a train.

use std::net::{IpAddr, SocketAddr};

/// Packets on their way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Train {
    /// Where they come from.
    pub src: SocketAddr,
    /// The address they go to: a NIC's, or a multicast group.
    pub dst: IpAddr,
    /// Length of every packet but the last.
    pub stride: usize,
    /// The IPv4 Identification of the first one.
    pub first_id: u16,
    /// The packets, back to back.
    pub bytes: Vec<u8>,
}

impl Train {
    /// How many packets it has.
    pub fn len(&self) -> usize {
        self.bytes.len().div_ceil(self.stride.max(1))
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The packets.
    pub fn packets(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks(self.stride.max(1))
    }

    /// A train of `count` of its packets, from the `start`-th on.
    pub fn slice(&self, start: usize, count: usize) -> Train {
        let from = (start * self.stride).min(self.bytes.len());
        let to = ((start + count) * self.stride).min(self.bytes.len());
        Train {
            src: self.src,
            dst: self.dst,
            stride: self.stride,
            first_id: self.first_id.wrapping_add(start as u16),
            bytes: self.bytes[from..to].to_vec(),
        }
    }

    /// Adds the packets of `other`, if that leaves a proper train: all but the last of one size.
    pub fn merge(&mut self, other: &Train) -> bool {
        let ends_full = self.bytes.len() % self.stride.max(1) == 0;
        let first = other.stride.min(other.bytes.len());
        let fits = ends_full
            && (self.src, self.dst) == (other.src, other.dst)
            && (other.stride == self.stride || (other.len() == 1 && first <= self.stride));
        if fits {
            self.bytes.extend_from_slice(&other.bytes);
        }
        fits
    }
}
