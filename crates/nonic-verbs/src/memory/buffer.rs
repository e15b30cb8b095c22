//! Buffers that a device allocates for a program (`ibv_alloc_buf`). Where hardware needs memory of a special kind, such as
//! what an encrypted guest shares with its host, this is how to get it; any memory serves us.

use super::mr::ibv_reg_mr;
use crate::object::{argument, argument_mut, object};
use crate::pd::Pd;
use crate::refusal::ANSWER;
use libc::{c_int, c_void, size_t};
use nonic_abi::errno::{Errno, of_system, refused};
use nonic_abi::verbs::{ibv_mr, ibv_pd};

/// What an `ibv_buf` pointer leads to. Programs only hand it back.
pub(crate) struct Buffer {
    /// The domain it was allocated from, which no other may register it in.
    pd: *mut ibv_pd,
    start: *mut c_void,
    length: size_t,
}

impl Buffer {
    /// Whole pages of zeros.
    fn new(pd: *mut ibv_pd, length: size_t) -> Result<Self, Errno> {
        let (read_write, private) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: new memory, wherever the kernel has room.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), length, read_write, private, -1, 0) };
        match start {
            libc::MAP_FAILED => Err(of_system("mmap")),
            start => Ok(Buffer { pd, start, length }),
        }
    }

    fn contains(&self, addr: *mut c_void, length: size_t) -> bool {
        let offset = addr.addr().checked_sub(self.start.addr());
        offset
            .and_then(|offset| offset.checked_add(length))
            .is_some_and(|end| end <= self.length)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the program gives the memory back.
        unsafe { libc::munmap(self.start, self.length) };
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_alloc_buf(c_pd: *mut ibv_pd, size: size_t, buffer: *mut *mut Buffer) -> *mut c_void {
    // SAFETY: the program passes a live domain and where to put the answer.
    let (pd, place) = unsafe { (object::<Pd>(c_pd), argument_mut(buffer)) };
    ANSWER.pointer(
        "ibv_alloc_buf",
        pd.and_then(|_| {
            let place = place?;
            let new = Buffer::new(c_pd, size)?;
            let start = new.start;
            *place = Box::into_raw(Box::new(new));
            Ok(start)
        }),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_free_buf(buffer: *mut Buffer) {
    if !buffer.is_null() {
        // SAFETY: the program passes what `ibv_alloc_buf` gave it, once.
        drop(unsafe { Box::from_raw(buffer) });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_buf_mr(
    pd: *mut ibv_pd,
    buffer: *mut Buffer,
    addr: *mut c_void,
    length: size_t,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the program passes a live buffer.
    match unsafe { argument(buffer) } {
        // SAFETY: the program passes a live domain.
        Ok(buffer) if buffer.pd == pd && buffer.contains(addr, length) => unsafe {
            ibv_reg_mr(pd, addr, length, access)
        },
        _ => {
            let what = "buf is NULL or of another protection domain, or addr and length are not within it";
            let errno = refused(
                libc::EINVAL,
                what,
                "pass a part of what ibv_alloc_buf returned for this domain",
            );
            ANSWER.pointer("ibv_reg_buf_mr", Err(errno))
        }
    }
}

/// No buffer of ours is a dma-buf: those are made by kernel drivers.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_export_buf_dmabuf_fd(buffer: *mut Buffer) -> c_int {
    // SAFETY: the program passes a live buffer.
    let buffer = unsafe { argument(buffer) };
    let what = "the buffer is ordinary memory, which has no dma-buf";
    let refusal = refused(
        libc::ENODATA,
        what,
        "register it with ibv_reg_buf_mr or ibv_reg_mr",
    );
    ANSWER.minus_one("ibv_export_buf_dmabuf_fd", buffer.and(Err(refusal)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null_mut;

    #[test]
    fn a_buffer_is_pages_of_zeros_and_knows_its_end() {
        let buffer = Buffer::new(null_mut(), 5000).expect("memory");
        assert!(buffer.start.addr() % 4096 == 0);
        // SAFETY: just allocated, with at least so many bytes.
        let bytes = unsafe { std::slice::from_raw_parts(buffer.start.cast::<u8>(), 5000) };
        assert!(bytes.iter().all(|byte| *byte == 0));
        let at = |offset: usize| buffer.start.wrapping_byte_add(offset);
        assert!(buffer.contains(at(0), 5000) && buffer.contains(at(4999), 1) && buffer.contains(at(5000), 0));
        assert!(!buffer.contains(at(1), 5000) && !buffer.contains(at(1), usize::MAX));
        assert!(!buffer.contains(buffer.start.wrapping_byte_sub(1), 1));
        assert!(Buffer::new(null_mut(), 0).is_err());
    }

    #[test]
    fn a_buffer_belongs_to_its_domain_and_is_no_dma_buf() {
        let mut buffer = Buffer::new(std::ptr::dangling_mut(), 4096).expect("memory");
        let (start, access) = (buffer.start, 0);
        // SAFETY: the buffer is alive, and no domain is looked at before it is found to be another.
        let region = unsafe { ibv_reg_buf_mr(null_mut(), &raw mut buffer, start, 4096, access) };
        assert!(region.is_null());
        assert_eq!(nonic_abi::errno::last(), libc::EINVAL);
        // SAFETY: the buffer is alive.
        assert_eq!(unsafe { ibv_export_buf_dmabuf_fd(&raw mut buffer) }, -1);
        assert_eq!(nonic_abi::errno::last(), libc::ENODATA);
    }
}
