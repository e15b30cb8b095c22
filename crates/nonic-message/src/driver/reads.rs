//! READs of offered messages. A long message is read in pieces, several of them under way at a time, so that no message
//! keeps the NIC busy for long and none is too long for a work request.

use super::READ;
use crate::error::Lost;
use crate::protocol::{ReadId, Remote};
use nonic::{Lease, Rc, RemoteSlice, SendQueue};
use std::collections::VecDeque;

/// The longest READ.
const PIECE: usize = 4 << 20;
/// READs under way.
pub(super) const AT_ONCE: usize = 8;

/// Messages that are being read, in the order in which their READs complete.
#[derive(Default)]
pub(super) struct Reads {
    messages: VecDeque<Reading>,
    under_way: usize,
}

struct Reading {
    id: ReadId,
    remote: RemoteSlice,
    /// What is not asked for yet.
    rest: Option<Lease>,
    under_way: usize,
    /// What is here.
    done: Option<Lease>,
}

impl Reads {
    pub(super) fn begin(&mut self, id: ReadId, remote: Remote, into: Lease) {
        let remote = RemoteSlice {
            va: remote.va,
            rkey: remote.rkey,
            len: into.len() as u64,
        };
        self.messages.push_back(Reading {
            id,
            remote,
            rest: Some(into),
            under_way: 0,
            done: None,
        });
    }

    /// Posts as many READs as may be under way.
    pub(super) fn post(&mut self, sq: &mut SendQueue<Rc>) -> Result<(), Lost> {
        for reading in &mut self.messages {
            while self.under_way < AT_ONCE {
                let Some(rest) = reading.rest.take() else {
                    break;
                };
                let length = rest.len().min(PIECE);
                let (piece, rest) = rest.split_at(length);
                let remote = reading.remote;
                // The peer said where it is; an address that overflows is its mistake, and refused there.
                let from = RemoteSlice {
                    len: length as u64,
                    ..remote
                };
                reading.remote.va = remote.va.wrapping_add(length as u64);
                reading.rest = (!rest.is_empty()).then_some(rest);
                sq.read(READ, piece, from).map_err(|_| Lost::Exhausted)?;
                reading.under_way += 1;
                self.under_way += 1;
            }
        }
        Ok(())
    }

    /// The READ that was posted first has completed. The message, if it is all here.
    pub(super) fn completed(&mut self, piece: Lease) -> Result<Option<(ReadId, Lease)>, Lost> {
        let first = self.messages.front_mut().ok_or(Lost::Exhausted)?;
        self.under_way -= 1;
        first.under_way -= 1;
        let done = match first.done.take() {
            None => piece,
            Some(before) => before.join(piece).map_err(|_| Lost::Exhausted)?,
        };
        if first.rest.is_some() || first.under_way > 0 {
            first.done = Some(done);
            return Ok(None);
        }
        let id = first.id;
        self.messages.pop_front();
        Ok(Some((id, done)))
    }
}
