//! The outlet of a shard, which says where its packets are written: straight to a lane if one leads to the peer, else to
//! the send buffer.

use super::send_buffer::SendBuffer;
use crate::link::Link;
use crate::link::lane::LaneRoom;
use nonic_core::{Hop, Outlet, Room, Time};

/// Where a batch was written.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// To the send buffer.
    Buffer,
    /// To a lane of this link.
    Lane(usize),
    /// To the send buffer, for a lane whose reader does not read: it is dropped.
    Nowhere,
}

/// Finds room for batches, and remembers where it was.
pub(super) struct ShardOutlet<'a> {
    now: Time,
    links: &'a mut [Box<dyn Link>],
    out: &'a mut SendBuffer,
    place: Place,
}

impl<'a> ShardOutlet<'a> {
    pub(super) fn new(now: Time, links: &'a mut [Box<dyn Link>], out: &'a mut SendBuffer) -> Self {
        ShardOutlet {
            now,
            links,
            out,
            place: Place::Buffer,
        }
    }

    /// Where the room was that was given last.
    pub(super) fn place(&self) -> Place {
        self.place
    }
}

impl Outlet for ShardOutlet<'_> {
    fn room(&mut self, to: Option<&Hop>) -> Option<Room<'_>> {
        self.place = Place::Buffer;
        let mut sealed = true;
        if let Some(to) = to {
            let index = usize::from(to.gid_index);
            let link = self.links.get_mut(index);
            match link.map_or(LaneRoom::NoLane, |link| link.room(self.now, to)) {
                LaneRoom::NoLane => {}
                LaneRoom::Room(bytes) => {
                    self.place = Place::Lane(index);
                    return Some(Room { bytes, sealed: false });
                }
                LaneRoom::Full => return None,
                LaneRoom::Lost => {
                    self.place = Place::Nowhere;
                    sealed = false;
                }
            }
        }
        Some(Room {
            bytes: self.out.bytes_mut(),
            sealed,
        })
    }
}
