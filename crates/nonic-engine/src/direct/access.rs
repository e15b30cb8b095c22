//! Copies to and from another process by system calls, and whether the kernel permits them.

use nonic_core::{DirectOperation, DirectRequest, LocalPart};
use smallvec::SmallVec;
use std::io;

/// The most parts of our own memory that one access may have; requests with more go as packets.
const PARTS: usize = 32;
/// Requests are executed together as long as they have no more parts than this; the kernel takes 1,024.
const PARTS_TOGETHER: usize = 64;
/// So many bytes at the end of a WRITE appear after all others: programs wait for the last one to change.
const LAST: usize = 8;

/// Stretches of memory.
type Parts = SmallVec<[libc::iovec; PARTS_TOGETHER]>;

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

/// A WRITE or READ, and its address in another process.
pub(super) type Placed<'a> = (&'a DirectRequest<'a>, u64);

/// Executes WRITEs, or READs, at addresses of another process with one system call. How many of them, from the first on: one at least.
/// No system call does atomics.
pub(super) fn execute<'a>(
    pid: i32,
    operation: DirectOperation,
    requests: impl Iterator<Item = Placed<'a>> + Clone,
) -> Result<usize, Failed> {
    let call = match operation {
        DirectOperation::Write => libc::process_vm_writev,
        DirectOperation::Read | DirectOperation::Pull => libc::process_vm_readv,
        DirectOperation::FetchAdd(_) | DirectOperation::CompareSwap { .. } => return Err(Failed::Once),
    };
    let (mut ours, mut theirs) = (Parts::new(), Parts::new());
    let mut length = 0;
    for (request, address) in requests.clone() {
        let before = ours.len();
        if !add_ours(&mut ours, request, before > 0) {
            ours.truncate(before);
            break;
        }
        add_theirs(&mut theirs, request, address);
        length += request.bytes.len();
    }
    if ours.is_empty() {
        return Err(Failed::Once);
    }
    // SAFETY: our parts are memory whose key permits what is done to it, for as long as the turn lasts in which this is
    // called: revocation waits for that. Theirs are addresses in another process, which the kernel checks; that they may be
    // written is for the caller to have found out.
    let moved = unsafe {
        call(
            pid,
            ours.as_ptr(),
            ours.len() as u64,
            theirs.as_ptr(),
            theirs.len() as u64,
            0,
        )
    };
    if moved > 0 {
        // All of them, unless the memory of one is gone.
        debug_assert!(moved as usize <= length);
        let mut left = moved as usize;
        let whole = |(request, _): &Placed<'_>| {
            let rest = left.checked_sub(request.bytes.len());
            left = rest.unwrap_or(0);
            rest.is_some()
        };
        return match requests.take_while(whole).count() {
            0 => Err(Failed::Once),
            count => Ok(count),
        };
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

/// Adds the parts of our own memory that a request is about. Whether that is possible; `joins` says that there are others before it.
#[inline]
fn add_ours(ours: &mut Parts, request: &DirectRequest<'_>, joins: bool) -> bool {
    let (before, mut reachable) = (ours.len(), true);
    let permitted = request.bytes.parts(request.operation, |part| {
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
        match iov {
            Some(iov) if ours.len() - before < PARTS => ours.push(iov),
            _ => reachable = false,
        }
    });
    if !permitted || !reachable {
        return false;
    }
    if request.operation == DirectOperation::Write {
        split_end(ours);
    }
    !joins || ours.len() <= PARTS_TOGETHER
}

/// Adds where it is about there, to the part before if that ends there.
#[inline]
fn add_theirs(theirs: &mut Parts, request: &DirectRequest<'_>, address: u64) {
    let (address, length) = (address as usize, request.bytes.len());
    match theirs.last_mut() {
        Some(last) if last.iov_base.addr() + last.iov_len == address => last.iov_len += length,
        _ => theirs.push(libc::iovec {
            iov_base: std::ptr::without_provenance_mut(address),
            iov_len: length,
        }),
    }
}

/// Makes the last bytes a part of their own: the kernel copies the parts one after the other, each with instructions of its
/// own, and within one of them there is no order.
#[inline]
fn split_end(parts: &mut Parts) {
    let Some(last) = parts.last_mut().filter(|last| last.iov_len > LAST) else {
        return;
    };
    let before = last.iov_len - LAST;
    last.iov_len = before;
    let end = libc::iovec {
        iov_base: last.iov_base.cast::<u8>().wrapping_add(before).cast(),
        iov_len: LAST,
    };
    parts.push(end);
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
