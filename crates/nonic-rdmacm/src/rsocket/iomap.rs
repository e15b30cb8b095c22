//! Mapped buffers: memory of a program that its peer writes to directly, at offsets both know.
//!
//! A mapping is told to the peer before the next data, by a record written into a list of the peer's. The peer keeps
//! the list; the program there writes to an offset, and the bytes go where the record says, unannounced.

use super::mapping::Mapping;
use super::protocol::{Iomapping, Segment};
use super::stream_queue_pair::{MAX_WRITE, StreamQueuePair};
use super::vector::{Vector, one};
use crate::refusal;
use libc::{c_int, c_void, off_t};
use nonic_abi::errno::{self, Errno, refused};
use nonic_abi::libibverbs::ibv_reg_mr;
use nonic_abi::verbs::*;

impl StreamQueuePair {
    pub(super) fn map(
        &mut self,
        buffer: *mut c_void,
        len: usize,
        prot: c_int,
        offset: off_t,
    ) -> Result<off_t, Errno> {
        let (peer, _) = self
            .connected
            .as_ref()
            .ok_or_else(refusal::socket_not_connected)?;
        if prot & !libc::PROT_WRITE != 0 || u32::try_from(len).is_err() {
            return Err(refused(
                libc::EINVAL,
                format!("prot is {prot} and len {len}"),
                "use PROT_WRITE or PROT_NONE, and less than 4 GiB",
            ));
        }
        let mut access = IBV_ACCESS_LOCAL_WRITE;
        let index = match prot & libc::PROT_WRITE != 0 {
            true => {
                access |= IBV_ACCESS_REMOTE_WRITE;
                Some(self.iomaps.free_index(peer.iomap_size).ok_or_else(|| {
                    refused(
                        libc::ENOMEM,
                        "the peer has no room for another mapping",
                        "set RDMA_IOMAPSIZE before the connection is made, or unmap what is not used",
                    )
                })?)
            }
            false => None,
        };
        let pd = self.identifier.id().device()?.pd;
        // SAFETY: the program promises the memory until it unmaps it.
        let mr = errno::check_pointer(unsafe { ibv_reg_mr(pd, buffer, len, access as c_int) })?;
        let offset = match offset {
            -1 => buffer as off_t,
            offset => offset,
        };
        self.iomaps.ours.push(Mapping {
            offset: offset as u64,
            mr,
            index,
            is_told: index.is_none(),
        });
        Ok(offset)
    }

    pub(super) fn unmap(&mut self, buffer: *mut c_void, len: usize) -> Result<(), Errno> {
        // SAFETY: a mapping's region is alive.
        let is_it =
            |mapping: &Mapping| unsafe { (*mapping.mr).addr == buffer && (*mapping.mr).length == len };
        let place = self.iomaps.ours.iter().position(is_it).ok_or_else(|| {
            refused(
                libc::EINVAL,
                "buf and len are not what was mapped",
                "pass what riomap was given",
            )
        })?;
        self.iomaps.ours.remove(place);
        Ok(())
    }

    /// Tells the peer of new mappings; whether it knows of all of them now.
    pub(super) fn send_iomappings(&mut self) -> bool {
        while let Some(place) = self.iomaps.ours.iter().position(|mapping| !mapping.is_told) {
            let mapping = &mut self.iomaps.ours[place];
            let (Some(index), Some((peer, stream))) = (mapping.index, self.connected.as_mut()) else {
                return true;
            };
            let to = Segment {
                address: peer.iomap_entry(index),
                key: peer.targets.key,
                length: Iomapping::LEN as u32,
            };
            let Some(write) = stream.send_iomapping(to, index) else {
                return false;
            };
            mapping.is_told = true;
            // SAFETY: the region is alive.
            let record = unsafe {
                Iomapping {
                    offset: mapping.offset,
                    buffer: Segment {
                        address: (*mapping.mr).addr as u64,
                        key: (*mapping.mr).rkey,
                        length: (*mapping.mr).length as u32,
                    },
                }
            };
            let record = record.emit(peer.big_endian);
            let buffers = one(record.as_ptr().cast(), record.len());
            // SAFETY: our own bytes.
            self.fill_and_post(&write, &mut unsafe { Vector::new(&buffers) });
        }
        true
    }

    /// Writes to the peer's buffer at `offset`; tells how much. Nothing is there: it is done.
    pub(super) fn send_directly(&mut self, vector: &mut Vector<'_>, offset: u64) -> (usize, bool) {
        if !self.send_iomappings() {
            return (0, false);
        }
        let before = vector.left();
        while vector.left() > 0 {
            let sent = (before - vector.left()) as u64;
            let Some(mut to) = self.iomaps.find(offset + sent) else {
                return (before - vector.left(), true);
            };
            to.length = to.length.min(vector.left().min(MAX_WRITE as usize) as u32);
            let Some(write) = self.stream_mut().and_then(|stream| stream.send_directly(to)) else {
                break;
            };
            self.fill_and_post(&write, vector);
        }
        (before - vector.left(), vector.left() == 0)
    }
}
