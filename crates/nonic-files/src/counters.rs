//! Counter files: what the processes of this user have counted, at the moment in which a file is opened.
//!
//! In the tree they say zero. Once one is open, whatever the program called it, its descriptor is made to name a file in
//! memory with the sum of this moment. Programs that keep a counter open read it from the start each time they want to know,
//! and then the sum is made again, as the kernel does. Where that cannot be done, what was there stays.

use crate::redirect::tree;
use libc::{FILE, c_char, c_int, c_void};
use nonic_sysfs::counters::{ALL, Counter};
use nonic_sysfs::paths::{self, PATH_MAX};
use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the engine writes: names of so many bytes, each with its value behind it.
const NAME: usize = 32;
const SLOT: usize = NAME + size_of::<u64>();
/// Room for a file of counters; they have 1,400 bytes.
const FILE_SIZE: usize = 8192;

/// Makes a descriptor that was just opened by `path` fresh, if it names a counter. Answers it.
///
/// # Safety
///
/// `path` is NULL or ends with a zero.
pub(crate) unsafe fn refreshed(path: *const c_char, fd: c_int) -> c_int {
    // SAFETY: the caller's promise.
    if fd >= 0 && unsafe { is_counter_name(path) } {
        // SAFETY: this thread's own.
        let errno = unsafe { *libc::__errno_location() };
        refresh(fd);
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = errno };
    }
    fd
}

/// The same for a stream, of which nothing was read yet.
///
/// # Safety
///
/// As above; and the stream is NULL or open.
pub(crate) unsafe fn refreshed_stream(path: *const c_char, stream: *mut FILE) -> *mut FILE {
    if !stream.is_null() {
        // SAFETY: the caller's promises.
        unsafe { refreshed(path, libc::fileno(stream)) };
    }
    stream
}

/// A glance that hardly any path survives: its last component must be the name of a counter.
unsafe fn is_counter_name(path: *const c_char) -> bool {
    if path.is_null() {
        return false;
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    let name = bytes.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    ALL.iter().any(|counter| counter.name.as_bytes() == name)
}

/// Which counter of which device a path in the tree is.
fn counter_at(seen: &[u8]) -> Option<(&'static Counter, &[u8])> {
    let mut components = seen.rsplit(|byte| *byte == b'/');
    let (name, folder) = (components.next()?, components.next()?);
    let (_port, ports, device) = (components.next()?, components.next()?, components.next()?);
    let counter = find(folder, name)?;
    (ports == b"ports" && !device.is_empty()).then_some((counter, device))
}

fn find(folder: &[u8], name: &[u8]) -> Option<&'static Counter> {
    let mut counters = ALL.iter();
    counters.find(|counter| counter.name.as_bytes() == name && counter.folder.as_bytes() == folder)
}

/// Gives a descriptor that names a counter in the tree a file in memory, with the sum of today.
#[cold]
#[inline(never)]
fn refresh(fd: c_int) -> Option<()> {
    let mut buffer = [0; PATH_MAX];
    let path = path_of(fd, &mut buffer)?;
    let (counter, device) = counter_at(paths::seen(tree()?, path)?)?;
    // SAFETY: the descriptor is a number.
    let keeps = unsafe { libc::fcntl(fd, libc::F_GETFD) } & libc::FD_CLOEXEC == 0;
    let mut name = [0; PATH_MAX];
    let parts = [
        MARK,
        device,
        b"/",
        counter.folder.as_bytes(),
        b"/",
        counter.name.as_bytes(),
    ];
    joined(&parts, &mut name)?;
    // SAFETY: the name ends with a zero; descriptors are numbers. No other thread knows yet the one that the program
    // has just got.
    unsafe {
        let file = libc::syscall(libc::SYS_memfd_create, name.as_ptr(), 1_u32) as c_int;
        if file < 0 {
            return None;
        }
        let written = write_sum(file, counter, device);
        if written.is_some() {
            let flags = if keeps { 0 } else { libc::O_CLOEXEC };
            libc::syscall(libc::SYS_dup3, file, fd, flags);
            remember(fd, true);
        }
        libc::syscall(libc::SYS_close, file);
        written
    }
}

/// A program reads a file: if it is one of ours, and from the start, it sees the sum of this moment.
pub(crate) fn reread(fd: c_int) {
    if is_remembered(fd) {
        // SAFETY: this thread's own.
        let errno = unsafe { *libc::__errno_location() };
        if renew(fd).is_none() {
            // It was closed meanwhile, and the number names something else.
            remember(fd, false);
        }
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = errno };
    }
}

#[cold]
#[inline(never)]
fn renew(fd: c_int) -> Option<()> {
    let mut buffer = [0; PATH_MAX];
    let name = path_of(fd, &mut buffer)?
        .strip_prefix(b"/memfd:")?
        .strip_prefix(MARK)?;
    let name = name.strip_suffix(b" (deleted)").unwrap_or(name);
    let mut parts = name.rsplitn(3, |byte| *byte == b'/');
    let (name, folder, device) = (parts.next()?, parts.next()?, parts.next()?);
    write_sum(fd, find(folder, name)?, device)
}

/// What the names of our files in memory begin with.
const MARK: &[u8] = b"nonic:";

/// The descriptors that name files of ours, or did: one bit each. Higher ones are not renewed.
static REMEMBERED: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

fn remember(fd: c_int, ours: bool) {
    let Some(word) = REMEMBERED.get(fd as usize / 64) else {
        return;
    };
    let bit = 1 << (fd as usize % 64);
    if ours {
        word.fetch_or(bit, Ordering::Relaxed);
    } else {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
}

fn is_remembered(fd: c_int) -> bool {
    let word = REMEMBERED.get(fd as usize / 64);
    word.is_some_and(|word| word.load(Ordering::Relaxed) >> (fd as usize % 64) & 1 != 0)
}

/// Writes the sum of this moment into a file.
fn write_sum(file: c_int, counter: &Counter, device: &[u8]) -> Option<()> {
    let mut folder = [0; PATH_MAX];
    joined(&[tree()?, b"/counters/", device], &mut folder)?;
    let sum = sum(&folder, counter.sources) / counter.divisor;
    let mut text = [0; 24];
    let text = number(sum, &mut text);
    // SAFETY: what is written has that length.
    let written = unsafe {
        libc::syscall(libc::SYS_ftruncate, file, text.len());
        libc::syscall(
            libc::SYS_pwrite64,
            file,
            text.as_ptr().cast::<c_void>(),
            text.len(),
            0_i64,
        )
    };
    (usize::try_from(written) == Ok(text.len())).then_some(())
}

/// Puts bytes after each other, with a zero behind them.
fn joined(parts: &[&[u8]], to: &mut [u8; PATH_MAX]) -> Option<()> {
    let mut length = 0;
    for part in parts {
        to.get_mut(length..length + part.len())?.copy_from_slice(part);
        length += part.len();
    }
    *to.get_mut(length)? = 0;
    Some(())
}

/// Where an open file is.
fn path_of(fd: c_int, buffer: &mut [u8]) -> Option<&[u8]> {
    let mut link = *b"/proc/self/fd/\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let start = "/proc/self/fd/".len();
    let mut digits = [0; 24];
    let digits = number(u64::try_from(fd).ok()?, &mut digits);
    let digits = &digits[..digits.len() - 1];
    link[start..start + digits.len()].copy_from_slice(digits);
    // SAFETY: the path ends with a zero, and there is that much room.
    let length = unsafe {
        libc::syscall(
            libc::SYS_readlinkat,
            libc::AT_FDCWD,
            link.as_ptr(),
            buffer.as_mut_ptr(),
            buffer.len(),
        )
    };
    buffer.get(..usize::try_from(length).ok()?)
}

/// The sum of the counters of these names, over all files of a folder: one for each version that counts.
fn sum(folder: &[u8], names: &[&str]) -> u64 {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: the path ends with a zero.
    let directory =
        unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, folder.as_ptr(), flags) } as c_int;
    if directory < 0 {
        // No process has counted anything.
        return 0;
    }
    let mut sum = 0_u64;
    let mut entries = Entries([0; 2048]);
    loop {
        let room = entries.0.len();
        // SAFETY: there is that much room.
        let length = unsafe { libc::syscall(libc::SYS_getdents64, directory, entries.0.as_mut_ptr(), room) };
        let Ok(length @ 1..) = usize::try_from(length) else {
            break;
        };
        let mut rest = &entries.0[..length];
        // Number, offset, length, kind, and then the name.
        while let [
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            low,
            high,
            _,
            name @ ..,
        ] = rest
        {
            if name.first() != Some(&b'.') {
                sum = sum.wrapping_add(sum_of_file(directory, name, names));
            }
            rest = rest
                .get(usize::from(u16::from_ne_bytes([*low, *high])).max(1)..)
                .unwrap_or_default();
        }
    }
    // SAFETY: ours.
    unsafe { libc::syscall(libc::SYS_close, directory) };
    sum
}

/// What the kernel tells of a folder.
#[repr(align(8))]
struct Entries([u8; 2048]);

/// The sum of one file. `name` has a zero somewhere.
fn sum_of_file(directory: c_int, name: &[u8], names: &[&str]) -> u64 {
    if !name.contains(&0) {
        return 0;
    }
    let mut content = [0; FILE_SIZE];
    // SAFETY: the name ends with a zero; there is that much room; the descriptor is ours.
    let length = unsafe {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        let fd = libc::syscall(libc::SYS_openat, directory, name.as_ptr(), flags) as c_int;
        let length = libc::syscall(libc::SYS_read, fd, content.as_mut_ptr(), content.len());
        if fd >= 0 {
            libc::syscall(libc::SYS_close, fd);
        }
        length
    };
    let content = content
        .get(..usize::try_from(length).unwrap_or(0))
        .unwrap_or_default();
    let value = |slot: &[u8]| {
        let (name, value) = slot.split_at(NAME);
        let end = name.iter().position(|byte| *byte == 0)?;
        let wanted = names.iter().any(|wanted| wanted.as_bytes() == &name[..end]);
        let value: [u8; 8] = value.try_into().ok()?;
        wanted.then_some(u64::from_ne_bytes(value))
    };
    content
        .chunks_exact(SLOT)
        .filter_map(value)
        .fold(0, u64::wrapping_add)
}

/// A number and a line's end, as text.
fn number(mut value: u64, text: &mut [u8; 24]) -> &[u8] {
    let mut start = text.len() - 1;
    text[start] = b'\n';
    loop {
        start -= 1;
        text[start] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            return &text[start..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_lines() {
        let text = |value| String::from_utf8(number(value, &mut [0; 24]).to_vec()).expect("digits");
        assert_eq!(text(0), "0\n");
        assert_eq!(text(1234), "1234\n");
        assert_eq!(text(u64::MAX), format!("{}\n", u64::MAX));
    }

    #[test]
    fn a_counter_is_known_by_its_place() {
        let at = |path: &str| {
            counter_at(path.as_bytes()).map(|(counter, device)| (counter.sources, device.to_vec()))
        };
        let path = "/sys/devices/nonic/f000:00:00.1/infiniband/roce_lo/ports/1/counters/port_xmit_data";
        assert_eq!(at(path), Some((&["tx_bytes"][..], b"roce_lo".to_vec())));
        assert_eq!(at("/x/roce_lo/ports/1/hw_counters/port_xmit_data"), None);
        assert_eq!(at("port_xmit_data"), None);
    }
}
