//! Copies without assembly: relaxed atomic words where they are aligned, and bytes at the edges.
//!
//! They serve processors that [`super::guarded`] has no routines for. Memory that is gone when they touch it ends
//! the process.

use nonic_core::Fault;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Copies from shared memory.
///
/// # Safety
///
/// `from` is valid for `out.len()` bytes and every racing access to them is atomic.
pub(super) unsafe fn read(from: *const u8, out: &mut [u8]) -> Result<(), Fault> {
    // SAFETY: the caller's promise.
    unsafe { load(from.cast_mut(), out) };
    Ok(())
}

/// Copies to shared memory.
///
/// # Safety
///
/// `to` is valid for writes of `data.len()` bytes and every racing access to them is atomic.
pub(super) unsafe fn write(to: *mut u8, data: &[u8]) -> Result<(), Fault> {
    // SAFETY: the caller's promise.
    unsafe { store(to, data) };
    Ok(())
}

/// Copies between two places in shared memory.
///
/// # Safety
///
/// As for [`read`] and [`write`], of which this is both.
#[cfg_attr(
    target_arch = "x86_64",
    expect(dead_code, reason = "only its tests use this module")
)]
pub(super) unsafe fn copy(to: *mut u8, from: *const u8, length: usize, _shared: usize) -> Result<(), Fault> {
    let mut piece = [0; 512];
    let mut done = 0;
    while done < length {
        let piece = &mut piece[..(length - done).min(512)];
        // SAFETY: the caller's promise.
        unsafe {
            load(from.cast_mut().add(done), piece);
            store(to.add(done), piece);
        }
        done += piece.len();
    }
    Ok(())
}

/// Stores `swap` if there is `compare`. Answers what there was.
///
/// # Safety
///
/// `word` is aligned and valid, and every racing access to it is atomic.
pub(super) unsafe fn compare_swap(word: *mut u64, compare: u64, swap: u64) -> Result<u64, Fault> {
    // SAFETY: the caller's promise.
    let word = unsafe { AtomicU64::from_ptr(word) };
    match word.compare_exchange(compare, swap, Ordering::AcqRel, Ordering::Acquire) {
        Ok(old) | Err(old) => Ok(old),
    }
}

/// Adds. Answers what there was.
///
/// # Safety
///
/// As for [`compare_swap`].
pub(super) unsafe fn fetch_add(word: *mut u64, add: u64) -> Result<u64, Fault> {
    // SAFETY: the caller's promise.
    Ok(unsafe { AtomicU64::from_ptr(word) }.fetch_add(add, Ordering::AcqRel))
}

/// Stores after everything that was stored before.
///
/// # Safety
///
/// As for [`compare_swap`].
pub(super) unsafe fn store_word(word: *mut u64, value: u64) -> Result<(), Fault> {
    // SAFETY: the caller's promise.
    unsafe { AtomicU64::from_ptr(word) }.store(value, Ordering::Release);
    Ok(())
}

/// Copies from shared memory.
///
/// # Safety
///
/// `from` is valid for `out.len()` bytes and every racing access to them is atomic.
unsafe fn load(from: *mut u8, out: &mut [u8]) {
    let head = from.align_offset(8).min(out.len());
    let (first, rest) = out.split_at_mut(head);
    for (index, byte) in first.iter_mut().enumerate() {
        // SAFETY: index < out.len().
        *byte = unsafe { AtomicU8::from_ptr(from.add(index)) }.load(Ordering::Relaxed);
    }
    // SAFETY: head <= out.len(), so this is at most one past the end.
    let body = unsafe { from.add(head) };
    let mut words = rest.chunks_exact_mut(8);
    let mut done = 0;
    for word in &mut words {
        // SAFETY: within the range; aligned because `body` is and `done` is a multiple of 8.
        let value = unsafe { AtomicU64::from_ptr(body.add(done).cast()) }.load(Ordering::Relaxed);
        word.copy_from_slice(&value.to_ne_bytes());
        done += 8;
    }
    for (index, byte) in words.into_remainder().iter_mut().enumerate() {
        // SAFETY: within the range.
        *byte = unsafe { AtomicU8::from_ptr(body.add(done + index)) }.load(Ordering::Relaxed);
    }
}

/// Copies to shared memory.
///
/// # Safety
///
/// `to` is valid for writes of `data.len()` bytes and every racing access to them is atomic.
unsafe fn store(to: *mut u8, data: &[u8]) {
    let head = to.align_offset(8).min(data.len());
    let (first, rest) = data.split_at(head);
    for (index, byte) in first.iter().enumerate() {
        // SAFETY: index < data.len().
        unsafe { AtomicU8::from_ptr(to.add(index)) }.store(*byte, Ordering::Relaxed);
    }
    // SAFETY: head <= data.len(), so this is at most one past the end.
    let body = unsafe { to.add(head) };
    let words = rest.chunks_exact(8);
    let tail = words.remainder();
    let mut done = 0;
    for word in words {
        let value = u64::from_ne_bytes(word.try_into().expect("chunks of eight"));
        // SAFETY: within the range; aligned because `body` is and `done` is a multiple of 8.
        unsafe { AtomicU64::from_ptr(body.add(done).cast()) }.store(value, Ordering::Relaxed);
        done += 8;
    }
    for (index, byte) in tail.iter().enumerate() {
        // SAFETY: within the range.
        unsafe { AtomicU8::from_ptr(body.add(done + index)) }.store(*byte, Ordering::Relaxed);
    }
}
