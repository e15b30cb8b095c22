//! Mapped buffers: memory of a program that its peer writes to directly, at offsets both know.
//!
//! A mapping is told to the peer before the next data, by a record written into a list of the peer's. The peer keeps
//! the list; the program there writes to an offset, and the bytes go where the record says, unannounced.

use super::link::Link;
use super::memory::Memory;
use super::protocol::{Iomapping, Segment, Stream, TARGETS};
use super::stream::StreamSocket;
use super::vector::{Vector, one};
use super::wait::Waitable;
use libc::{c_int, c_void, off_t};
use nonic_abi::errno::{self, Errno};
use nonic_abi::libibverbs::{ibv_dereg_mr, ibv_reg_mr};
use nonic_abi::verbs::*;

/// Both lists.
pub(crate) struct Iomaps {
    /// The peer's buffers, as it has told.
    theirs: Vec<Iomapping>,
    /// Ours.
    ours: Vec<Mapping>,
}

// SAFETY: objects of libibverbs may be used from any thread.
unsafe impl Send for Iomaps {}

/// A buffer of ours.
struct Mapping {
    offset: u64,
    mr: *mut ibv_mr,
    /// Its place in the peer's list; `None` if it is not for the peer.
    index: Option<u16>,
    is_told: bool,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the region is ours.
        unsafe { ibv_dereg_mr(self.mr) };
    }
}

impl Iomaps {
    pub(super) fn new(size: u16) -> Self {
        Iomaps {
            theirs: vec![Iomapping::default(); size.into()],
            ours: Vec::new(),
        }
    }

    pub(super) fn size(&self) -> u16 {
        self.theirs.len() as u16
    }

    /// Where the record of a mapping is in the memory of the lists.
    pub(super) fn offset(index: u16) -> u32 {
        (TARGETS * Segment::LEN + usize::from(index) * Iomapping::LEN) as u32
    }

    /// The peer has written a record.
    pub(super) fn noticed(&mut self, lists: &Memory, index: u16) {
        if let Some(mapping) = self.theirs.get_mut(usize::from(index)) {
            let record = lists.read(Self::offset(index));
            *mapping = Iomapping::parse(&record, cfg!(target_endian = "big"));
        }
    }

    /// Where the peer's buffer has an offset, and how much is there from that on.
    fn find(&self, offset: u64) -> Option<Segment> {
        self.theirs.iter().find_map(|mapping| {
            let into = offset.checked_sub(mapping.offset)?;
            let length = u64::from(mapping.buffer.length).checked_sub(into)?;
            (length > 0).then(|| Segment {
                address: mapping.buffer.address.wrapping_add(into),
                length: length as u32,
                ..mapping.buffer
            })
        })
    }

    fn free_index(&self, size: u16) -> Option<u16> {
        (0..size).find(|index| self.ours.iter().all(|mapping| mapping.index != Some(*index)))
    }
}

impl Link {
    fn map(&mut self, buffer: *mut c_void, len: usize, prot: c_int, offset: off_t) -> Result<off_t, Errno> {
        let (peer, _) = self.connected.as_ref().ok_or(libc::ENOTCONN)?;
        if prot & !libc::PROT_WRITE != 0 || u32::try_from(len).is_err() {
            return Err(libc::EINVAL);
        }
        let mut access = IBV_ACCESS_LOCAL_WRITE;
        let index = match prot & libc::PROT_WRITE != 0 {
            true => {
                access |= IBV_ACCESS_REMOTE_WRITE;
                Some(self.iomaps.free_index(peer.iomap_size).ok_or(libc::ENOMEM)?)
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
            offset: offset.cast_unsigned(),
            mr,
            index,
            is_told: index.is_none(),
        });
        Ok(offset)
    }

    fn unmap(&mut self, buffer: *mut c_void, len: usize) -> Result<(), Errno> {
        // SAFETY: a mapping's region is alive.
        let is_it =
            |mapping: &Mapping| unsafe { (*mapping.mr).addr == buffer && (*mapping.mr).length == len };
        let place = self.iomaps.ours.iter().position(is_it).ok_or(libc::EINVAL)?;
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
    fn send_directly(&mut self, vector: &mut Vector<'_>, offset: u64) -> (usize, bool) {
        if !self.send_iomappings() {
            return (0, false);
        }
        let before = vector.left();
        while vector.left() > 0 {
            let sent = (before - vector.left()) as u64;
            let Some(mut to) = self.iomaps.find(offset + sent) else {
                return (before - vector.left(), true);
            };
            to.length = to
                .length
                .min(vector.left().min(super::link::MAX_WRITE as usize) as u32);
            let Some(write) = self.stream_mut().and_then(|stream| stream.send_directly(to)) else {
                break;
            };
            self.fill_and_post(&write, vector);
        }
        (before - vector.left(), vector.left() == 0)
    }
}

impl StreamSocket {
    pub(crate) fn map(
        &self,
        buffer: *mut c_void,
        len: usize,
        prot: c_int,
        offset: off_t,
    ) -> Result<off_t, Errno> {
        self.lock().open()?.map(buffer, len, prot, offset)
    }

    pub(crate) fn unmap(&self, buffer: *mut c_void, len: usize) -> Result<(), Errno> {
        self.lock().open()?.unmap(buffer, len)
    }

    pub(crate) fn write_at(
        &self,
        vector: &mut Vector<'_>,
        offset: off_t,
        flags: c_int,
    ) -> Result<usize, Errno> {
        let mut offset = offset.cast_unsigned();
        self.write(flags, Stream::can_send_directly, |link| {
            let (sent, done) = link.send_directly(vector, offset);
            offset += sent as u64;
            (sent, done)
        })
    }
}
