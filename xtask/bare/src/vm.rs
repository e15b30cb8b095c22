//! `process_vm_writev` and `process_vm_readv`: one process reaches into the other, which takes no part.

use super::{BATCH, typical_us};
use anyhow::{Context, Result, ensure};
use std::time::Duration;

/// The server ends after this long if it was not killed: longer than any measurement.
const LIFETIME: Duration = Duration::from_secs(60);

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Write,
    Read,
}

/// One call that moves `size` bytes, in microseconds.
pub(super) fn call_time(server: &str, size: usize, duration: Duration, direction: Direction) -> Result<f64> {
    let (process, address) = server.split_once(' ').context("not a process and an address")?;
    let process: libc::pid_t = process.parse()?;
    let mut buffer = vec![0x5a_u8; size];
    let ours = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: size,
    };
    let theirs = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(address.parse()?),
        iov_len: size,
    };
    let batch = if size <= 1 << 16 { BATCH } else { 1 };
    typical_us(duration, batch, || {
        let call = match direction {
            Direction::Write => libc::process_vm_writev,
            Direction::Read => libc::process_vm_readv,
        };
        // SAFETY: our iovec is a live buffer that nothing else uses; theirs is only looked at by the kernel.
        let moved = unsafe { call(process, &raw const ours, 1, &raw const theirs, 1, 0) };
        ensure!(
            usize::try_from(moved) == Ok(size),
            "{moved} bytes instead of {size}: {}",
            std::io::Error::last_os_error()
        );
        Ok(())
    })
}

/// Has memory, and does nothing.
pub(super) fn serve(size: usize) -> Result<()> {
    let mut buffer = vec![1_u8; size];
    println!("{} {}", std::process::id(), buffer.as_mut_ptr().addr());
    std::thread::sleep(LIFETIME);
    // What another process writes there must not be optimised away with the buffer.
    std::hint::black_box(buffer);
    Ok(())
}
