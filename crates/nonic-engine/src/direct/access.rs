//! Copies to and from another process by system calls, and whether the kernel permits them.

use nonic_core::{DirectOperation, DirectRequest, LocalPart};
use std::io;

/// The most parts of our own memory that one access may have; requests with more go as packets.
const PARTS: usize = 32;
/// So many bytes at the end of a WRITE appear after all others: programs wait for the last one to change.
const LAST: usize = 8;

/// Why an access failed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Failed {
    /// This one cannot be made.
    Once,
    /// None to this process can be made: the kernel does not let us.
    Forbidden,
    /// None to this process can be made any more: it is gone.
    Gone,
}

/// Executes a WRITE or READ at an address of another process. No system call does atomics.
pub(super) fn execute(pid: i32, request: &DirectRequest<'_>, address: u64) -> Result<(), Failed> {
    let empty = libc::iovec {
        iov_base: std::ptr::null_mut(),
        iov_len: 0,
    };
    // One more, for the end of a WRITE.
    let mut ours = [empty; PARTS + 1];
    let mut parts = 0;
    let mut reachable = true;
    let permitted = request.bytes.parts(request.operation, &mut |part| {
        let iov = match part {
            LocalPart::Memory {
                region,
                offset,
                length,
            } => region.address().map(|start| libc::iovec {
                iov_base: std::ptr::without_provenance_mut(start + offset),
                iov_len: length,
            }),
            LocalPart::Inline(bytes) => Some(libc::iovec {
                iov_base: bytes.as_ptr().cast_mut().cast(),
                iov_len: bytes.len(),
            }),
        };
        match (ours[..PARTS].get_mut(parts), iov) {
            (Some(slot), Some(iov)) => *slot = iov,
            _ => reachable = false,
        }
        parts += 1;
    });
    if !permitted || !reachable {
        return Err(Failed::Once);
    }
    if request.operation == DirectOperation::Write {
        parts = split_end(&mut ours, parts);
    }
    let length = request.bytes.len();
    let theirs = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(address as usize),
        iov_len: length,
    };
    let call = match request.operation {
        DirectOperation::Write => libc::process_vm_writev,
        DirectOperation::Read => libc::process_vm_readv,
        DirectOperation::FetchAdd(_) | DirectOperation::CompareSwap { .. } => return Err(Failed::Once),
    };
    // SAFETY: our parts are memory whose key permits what is done to it, for as long as the turn lasts in which this is
    // called: revocation waits for that. Theirs are addresses in another process, which the kernel checks; that they may be
    // written is for the caller to have found out.
    let moved = unsafe { call(pid, ours.as_ptr(), parts as u64, &theirs, 1, 0) };
    if moved == length as isize {
        return Ok(());
    }
    let errno = (moved < 0)
        .then(|| io::Error::last_os_error().raw_os_error())
        .flatten();
    match errno {
        Some(libc::EPERM | libc::ENOSYS) => Err(Failed::Forbidden),
        Some(libc::ESRCH) => Err(Failed::Gone),
        _ => Err(Failed::Once),
    }
}

/// Makes the last bytes a part of their own: the kernel copies the parts one after the other, each with instructions of its
/// own, and within one of them there is no order. How many parts there are then.
fn split_end(parts: &mut [libc::iovec; PARTS + 1], count: usize) -> usize {
    let Some(last) = count.checked_sub(1).map(|last| parts[last]) else {
        return count;
    };
    if last.iov_len <= LAST {
        return count;
    }
    let before = last.iov_len - LAST;
    parts[count - 1].iov_len = before;
    parts[count] = libc::iovec {
        iov_base: last.iov_base.cast::<u8>().wrapping_add(before).cast(),
        iov_len: LAST,
    };
    count + 1
}

/// Reads a word of another process.
pub(super) fn peek(pid: i32, address: u64) -> io::Result<u64> {
    let mut word = [0; 8];
    let ours = libc::iovec {
        iov_base: word.as_mut_ptr().cast(),
        iov_len: word.len(),
    };
    let theirs = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(address as usize),
        iov_len: word.len(),
    };
    // SAFETY: eight bytes go to a variable of ours; the rest is the kernel's to check.
    match unsafe { libc::process_vm_readv(pid, &ours, 1, &theirs, 1, 0) } {
        8 => Ok(u64::from_ne_bytes(word)),
        moved if moved < 0 => Err(io::Error::last_os_error()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Whether writing to other processes is offered at all, found out without a byte: a filter of system calls may let us read
/// and not write.
pub(super) fn probe_writing(pid: i32) -> io::Result<()> {
    // SAFETY: there are no parts, and so nothing to touch.
    match unsafe { libc::process_vm_writev(pid, std::ptr::null(), 0, std::ptr::null(), 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lets a process of our user access ours, where the kernel (Yama) otherwise lets only parents access their children. It
/// remembers one such process; others then go as packets.
pub(super) fn permit(pid: u32) {
    if ptrace_scope() == Some(1) {
        // SAFETY: a number is given to the kernel. If it refuses, nothing has changed.
        unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::c_ulong::from(pid), 0, 0, 0) };
    }
}

/// What Yama lets processes of one user do to each other, if it is there: 0 everything, 1 to their children and to
/// processes that permit it, 2 nothing without privilege, 3 nothing.
pub(super) fn ptrace_scope() -> Option<u8> {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok()?;
    scope.trim().parse().ok()
}

/// Whether the system calls are there at all.
pub(super) fn is_offered() -> bool {
    let word = 0x6e6f_6e69_6321_u64;
    let address = std::ptr::from_ref(&word).addr() as u64;
    i32::try_from(std::process::id())
        .is_ok_and(|pid| peek(pid, address).is_ok() && probe_writing(pid).is_ok())
}
