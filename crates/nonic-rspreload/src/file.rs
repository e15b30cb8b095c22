//! `sendfile`: a file's bytes, through a buffer.

use crate::data::send_one;
use crate::next;
use crate::route::route;
use crate::table::Carried;
use libc::{c_int, off_t, size_t, ssize_t};
use nonic_abi::errno;

/// Bytes read at a time.
const PIECE: usize = 64 << 10;

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn sendfile(out: c_int, input: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
    route!(out,
    // SAFETY: the caller's.
    unsafe { next::sendfile(out, input, offset, count) },
    socket => {
        // SAFETY: the caller's: null, or a place for the answer.
        let given = unsafe { offset.as_mut() };
        let start = match &given {
            Some(offset) => **offset,
            // SAFETY: any descriptor may be asked.
            None => unsafe { libc::lseek(input, 0, libc::SEEK_CUR) },
        };
        if start < 0 {
            return -1;
        }
        let sent = copy(out, socket, input, start, count);
        if sent > 0 {
            match given {
                Some(offset) => *offset = start + sent as off_t,
                // SAFETY: the descriptor has a position: it was asked for above.
                None => unsafe {
                    libc::lseek(input, start + sent as off_t, libc::SEEK_SET);
                },
            }
        }
        sent
    })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn sendfile64(out: c_int, input: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
    // SAFETY: the caller's. Offsets have 64 bits on every processor that is supported.
    unsafe { sendfile(out, input, offset, count) }
}

/// Sends from a file, until all is sent, the file ends or no more can be sent.
fn copy(out: c_int, socket: &Carried, input: c_int, start: off_t, count: size_t) -> ssize_t {
    let mut buffer = vec![0_u8; PIECE.min(count)];
    let mut sent = 0;
    while sent < count {
        let wanted = buffer.len().min(count - sent);
        // SAFETY: the buffer has that much room.
        let read = unsafe { libc::pread(input, buffer.as_mut_ptr().cast(), wanted, start + sent as off_t) };
        let answer = match read {
            0 => break,
            // SAFETY: so much was read into it.
            1.. => unsafe { send_one(out, socket, buffer.as_ptr().cast(), read as usize, 0) },
            _ => -1,
        };
        if answer < 0 {
            if sent > 0 {
                break;
            }
            return errno::fail(errno::last());
        }
        sent += answer as usize;
        if answer < read {
            break;
        }
    }
    sent as ssize_t
}
