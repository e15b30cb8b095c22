//! The program's buffers: vectors of them, walked from front to back.

use libc::{c_void, iovec};

/// A walk over buffers the program passed.
pub(crate) struct Vector<'a> {
    buffers: &'a [iovec],
    /// Bytes of the first buffer that are behind us.
    done: usize,
    left: usize,
}

impl<'a> Vector<'a> {
    /// # Safety
    ///
    /// Each buffer is memory of the program's that it does not touch meanwhile.
    pub(crate) unsafe fn new(buffers: &'a [iovec]) -> Self {
        let left = buffers
            .iter()
            .fold(0_usize, |sum, buffer| sum.saturating_add(buffer.iov_len));
        Vector {
            buffers,
            done: 0,
            left,
        }
    }

    /// Bytes not walked over yet.
    pub(crate) fn left(&self) -> usize {
        self.left
    }

    /// The next `length` bytes, if they are in one piece.
    pub(crate) fn contiguous(&self, length: usize) -> Option<*const u8> {
        let buffer = self.buffers.first()?;
        if buffer.iov_len - self.done < length {
            return None;
        }
        // SAFETY: within the buffer, as just seen.
        Some(unsafe { buffer.iov_base.cast::<u8>().add(self.done).cast_const() })
    }

    /// Walks over the next `length` bytes.
    pub(crate) fn skip(&mut self, length: usize) {
        self.walk(length, |_, _, _| {});
    }

    /// Copies the next `length` bytes to `to`.
    ///
    /// # Safety
    ///
    /// There is that much room.
    pub(crate) unsafe fn copy_to(&mut self, to: *mut u8, length: usize) {
        // SAFETY: the caller's promise, and that of `new`.
        self.walk(length, |buffer, at, n| unsafe {
            std::ptr::copy_nonoverlapping(buffer.cast_const(), to.add(at), n);
        });
    }

    /// Fills the next `length` bytes from `from`.
    ///
    /// # Safety
    ///
    /// There are that many.
    pub(crate) unsafe fn copy_from(&mut self, from: *const u8, length: usize) {
        // SAFETY: the caller's promise, and that of `new`.
        self.walk(length, |buffer, at, n| unsafe {
            std::ptr::copy_nonoverlapping(from.add(at), buffer, n);
        });
    }

    /// Calls `each` with a place, the bytes walked before it and its length.
    fn walk(&mut self, length: usize, mut each: impl FnMut(*mut u8, usize, usize)) {
        let mut walked = 0;
        let length = length.min(self.left);
        while walked < length {
            let Some(buffer) = self.buffers.first() else {
                break;
            };
            let n = (buffer.iov_len - self.done).min(length - walked);
            if n > 0 {
                // SAFETY: within the buffer.
                each(unsafe { buffer.iov_base.cast::<u8>().add(self.done) }, walked, n);
            }
            walked += n;
            self.done += n;
            if self.done == buffer.iov_len {
                self.buffers = &self.buffers[1..];
                self.done = 0;
            }
        }
        self.left -= walked;
    }
}

/// One buffer as a vector of one.
pub(crate) fn one(buffer: *const c_void, len: usize) -> [iovec; 1] {
    [iovec {
        iov_base: buffer.cast_mut(),
        iov_len: len,
    }]
}
