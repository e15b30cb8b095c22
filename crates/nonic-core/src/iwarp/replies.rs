//! Answers owed to the peer: the bytes of its READs and the results of its atomics, in the order of its requests.

use super::fault::{self, StreamFault};
use super::frame::Frame;
use super::requester::Written;
use crate::placement::OutboundRead;
use nonic_wire::iwarp::{DdpHeader, Header, ReadRequest, Tagged, Terminate};
use std::collections::VecDeque;

/// Answers that are due.
#[derive(Debug, Default)]
pub(super) struct Replies {
    queue: VecDeque<Reply>,
    /// Message number of the latest answer to an atomic.
    atomic_msn: u32,
}

#[derive(Debug)]
enum Reply {
    Read {
        msn: u32,
        request: ReadRequest,
        memory: OutboundRead,
    },
    Atomic {
        request_id: u32,
        original: u64,
    },
}

impl Replies {
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn read(&mut self, msn: u32, request: ReadRequest, memory: OutboundRead) {
        self.queue.push_back(Reply::Read { msn, request, memory });
    }

    pub(super) fn atomic(&mut self, request_id: u32, original: u64) {
        self.queue.push_back(Reply::Atomic { request_id, original });
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
    }

    /// Writes the next segment.
    pub(super) fn write(&mut self, frame: &mut impl Frame) -> Result<Written, StreamFault> {
        let written = match self.queue.front_mut() {
            None => Written::Idle,
            Some(Reply::Atomic { request_id, original }) => {
                let header = Header::AtomicResponse {
                    msn: self.atomic_msn.wrapping_add(1),
                    request_id: *request_id,
                    original: *original,
                };
                if frame.begin(&header, 0) {
                    self.atomic_msn = self.atomic_msn.wrapping_add(1);
                    Written::Last
                } else {
                    Written::NoRoom
                }
            }
            Some(Reply::Read { msn, request, memory }) => write_read(*msn, request, memory, frame)?,
        };
        if written == Written::Last {
            self.queue.pop_front();
        }
        Ok(written)
    }
}

/// Writes the next bytes of a READ. `request` is what is left of it.
fn write_read(
    msn: u32,
    request: &mut ReadRequest,
    memory: &mut OutboundRead,
    frame: &mut impl Frame,
) -> Result<Written, StreamFault> {
    let room = frame.max_ulpdu().saturating_sub(DdpHeader::TAGGED_LEN).max(1);
    let length = (request.size as usize).min(room);
    let last = length == request.size as usize;
    let header = Header::ReadResponse(Tagged {
        last,
        stag: request.sink_stag,
        to: request.sink_to,
    });
    if !frame.begin(&header, length) {
        return Ok(Written::NoRoom);
    }
    if let Err(refused) = frame.read(memory, length) {
        return Err(StreamFault {
            terminate: refused_read(fault::protection(refused), msn, *request),
            failed: None,
            reported: false,
        });
    }
    // A Terminate shows what is left: RFC 5040 §4.8.
    request.size -= length as u32;
    request.sink_to = request.sink_to.wrapping_add(length as u64);
    request.source_to = request.source_to.wrapping_add(length as u64);
    Ok(if last { Written::Last } else { Written::Segment })
}

/// The memory of a READ went away while it was being answered.
fn refused_read(code: nonic_wire::iwarp::TerminateCode, msn: u32, request: ReadRequest) -> Terminate {
    let header = Header::ReadRequest { msn, request };
    let mut ulpdu = [0; DdpHeader::UNTAGGED_LEN + ReadRequest::LEN];
    header.emit(&mut ulpdu);
    Terminate::about(code, &ulpdu)
}
