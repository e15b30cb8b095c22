//! A batch that is sent from where its payload is: headers are copied here, registered memory is only named, and the kernel
//! collects both with one `sendmsg`.
//!
//! Memory may be named only while the NIC cannot let go of it, that is in the turn in which the batch was made. What the kernel
//! had no room for is copied before that ends ([`Gather::rest`]).

use super::socket::StreamSocket;
use nonic_core::Region;
use nonic_core::iwarp::StreamGather;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

/// Bytes of a batch, at most.
const MOST_BYTES: usize = 512 * 1024;
/// Pieces of a batch: fewer than the kernel takes.
const MOST_PIECES: usize = 512;

/// A batch.
#[derive(Default)]
pub(super) struct Gather {
    /// What was copied.
    copied: Vec<u8>,
    pieces: Vec<Piece>,
    length: usize,
    iovecs: Vec<libc::iovec>,
}

// SAFETY: the addresses in it are made and used within one call; between calls they mean nothing.
unsafe impl Send for Gather {}

/// A piece of it.
enum Piece {
    /// What was copied, from one place to another.
    Copied(usize, usize),
    /// Registered memory.
    Memory {
        region: Arc<dyn Region>,
        offset: usize,
        length: usize,
    },
}

impl Piece {
    fn length(&self) -> usize {
        match self {
            Piece::Copied(from, to) => to - from,
            Piece::Memory { length, .. } => *length,
        }
    }
}

impl std::fmt::Debug for Gather {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gather")
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

impl StreamGather for Gather {
    fn room(&self) -> usize {
        MOST_BYTES - self.length.min(MOST_BYTES)
    }

    fn pieces(&self) -> usize {
        MOST_PIECES - self.pieces.len().min(MOST_PIECES)
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let from = self.copied.len();
        self.copied.extend_from_slice(bytes);
        self.length += bytes.len();
        match self.pieces.last_mut() {
            Some(Piece::Copied(_, to)) => *to = self.copied.len(),
            _ => self.pieces.push(Piece::Copied(from, self.copied.len())),
        }
    }

    fn memory(&mut self, region: &Arc<dyn Region>, offset: usize, length: usize) {
        self.length += length;
        self.pieces.push(Piece::Memory {
            region: Arc::clone(region),
            offset,
            length,
        });
    }
}

impl Gather {
    /// Forgets the batch.
    pub(super) fn clear(&mut self) {
        self.copied.clear();
        self.pieces.clear();
        self.iovecs.clear();
        self.length = 0;
    }

    /// Sends what there is room for; how much that was.
    pub(super) fn send(&mut self, socket: &StreamSocket) -> io::Result<usize> {
        self.iovecs.clear();
        for piece in &self.pieces {
            let base = match piece {
                Piece::Copied(from, _) => self.copied[*from..].as_ptr() as usize,
                Piece::Memory { region, offset, .. } => match region.address() {
                    Some(address) => address + offset,
                    // Not ordinary memory: all of the batch is copied.
                    None => return Ok(0),
                },
            };
            self.iovecs.push(libc::iovec {
                iov_base: base as *mut libc::c_void,
                iov_len: piece.length(),
            });
        }
        // SAFETY: all zeros is a message without anything.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = self.iovecs.as_mut_ptr();
        message.msg_iovlen = self.iovecs.len() as _;
        // SAFETY: the kernel only reads, from our buffer, which lives, and from memory that is registered; where the program has
        // taken that away, the kernel says so.
        let sent =
            unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
        if sent >= 0 {
            return Ok(sent.unsigned_abs());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR) => Ok(0),
            // Copying tells which request is to blame.
            Some(libc::EFAULT) => Ok(0),
            _ => Err(error),
        }
    }

    /// Copies what follows the first `sent` bytes to the end of `to`. Fails if memory is gone.
    pub(super) fn rest(&self, sent: usize, to: &mut Vec<u8>) -> Result<(), MemoryGone> {
        let mut skip = sent;
        for piece in &self.pieces {
            let skipped = skip.min(piece.length());
            skip -= skipped;
            let left = piece.length() - skipped;
            if left == 0 {
                continue;
            }
            match piece {
                Piece::Copied(_, end) => to.extend_from_slice(&self.copied[end - left..*end]),
                Piece::Memory { region, offset, .. } => {
                    let start = to.len();
                    to.resize(start + left, 0);
                    region
                        .read(offset + skipped, &mut to[start..])
                        .map_err(|_| MemoryGone)?;
                }
            }
        }
        Ok(())
    }
}

/// Registered memory is not there any more.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct MemoryGone;
