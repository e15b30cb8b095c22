//! Redirection of a path on its way to the C library.

use libc::{c_char, c_int};
use nonic_sysfs::paths::{self, PATH_MAX, Room, Verdict};
use std::ffi::CStr;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// Where the files are. Read once: a program that clears its environment keeps them.
static TREE: Tree = Tree {
    state: AtomicU8::new(UNREAD),
    length: AtomicUsize::new(0),
    bytes: std::cell::UnsafeCell::new([0; PATH_MAX]),
};

const UNREAD: u8 = 0;
const BEING_READ: u8 = 1;
const READ: u8 = 2;

struct Tree {
    state: AtomicU8,
    length: AtomicUsize,
    bytes: std::cell::UnsafeCell<[u8; PATH_MAX]>,
}

// SAFETY: the bytes are written once, by the thread that takes the state from UNREAD to BEING_READ, and read once it is READ.
unsafe impl Sync for Tree {}

/// The folder, if there is one.
pub(crate) fn tree() -> Option<&'static [u8]> {
    if TREE.state.load(Ordering::Acquire) != READ {
        read_environment();
    }
    if TREE.state.load(Ordering::Acquire) != READ {
        // This is a signal handler, or another thread, in the moment of the first call. To wait could be for ever.
        return None;
    }
    let length = TREE.length.load(Ordering::Relaxed);
    // SAFETY: READ: no thread writes to them any more.
    let bytes = unsafe { &(&*TREE.bytes.get())[..length] };
    (!bytes.is_empty()).then_some(bytes)
}

fn read_environment() {
    let taken = TREE
        .state
        .compare_exchange(UNREAD, BEING_READ, Ordering::Acquire, Ordering::Relaxed);
    if taken.is_err() {
        return;
    }
    // SAFETY: the name ends with a zero. This happens before the program has threads that could change its environment.
    let value = unsafe { libc::getenv(c"NONIC_FILES".as_ptr()) };
    if !value.is_null() {
        // SAFETY: a variable's value ends with a zero.
        let value = unsafe { CStr::from_ptr(value) }.to_bytes();
        if value.first() == Some(&b'/') && value.len() < PATH_MAX / 2 {
            // SAFETY: BEING_READ, by us.
            unsafe { (&mut *TREE.bytes.get())[..value.len()].copy_from_slice(value) };
            TREE.length.store(value.len(), Ordering::Relaxed);
        }
    }
    TREE.state.store(READ, Ordering::Release);
}

/// Runs before `main`, so that later calls have nothing to look up.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static PREPARE: extern "C" fn() = {
    extern "C" fn prepare() {
        tree();
        crate::next::find_all();
    }
    prepare
};

/// A path after it was looked at.
pub(crate) enum Path<'a> {
    /// To be used in place of what the program said, or just that.
    Use(*const c_char),
    /// In the tree.
    Ours(&'a Room),
    /// Longer than paths may be.
    TooLong,
}

/// Calls `call` with the path to use. What is not ours costs a glance and no room on the stack.
///
/// # Safety
///
/// `path` is NULL or ends with a zero.
pub(crate) unsafe fn redirect<T: Copy>(
    path: *const c_char,
    refused: T,
    call: impl Fn(*const c_char) -> T,
) -> T {
    // SAFETY: the caller's promise.
    unsafe {
        looked_at(path, |path| match path {
            Path::Use(path) => call(path),
            Path::Ours(room) => call(room.path_with_zero().as_ptr().cast()),
            Path::TooLong => {
                *libc::__errno_location() = libc::ENAMETOOLONG;
                refused
            }
        })
    }
}

/// Calls `call` with what is to be used for the path.
///
/// # Safety
///
/// `path` is NULL or ends with a zero.
pub(crate) unsafe fn looked_at<T>(path: *const c_char, call: impl Fn(Path<'_>) -> T) -> T {
    if path.is_null() {
        return call(Path::Use(path));
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    if !paths::is_candidate(bytes) {
        return call(Path::Use(path));
    }
    candidate(path, bytes, call)
}

#[cold]
#[inline(never)]
fn candidate<T>(path: *const c_char, bytes: &[u8], call: impl Fn(Path<'_>) -> T) -> T {
    let Some(tree) = tree() else {
        return call(Path::Use(path));
    };
    // SAFETY: this thread's own.
    let errno = unsafe { *libc::__errno_location() };
    let mut room = Room::default();
    let verdict = paths::rewrite(tree, bytes, &mut room, read_link);
    // SAFETY: as above. Looking at links may have changed it.
    unsafe { *libc::__errno_location() = errno };
    match verdict {
        Verdict::Untouched => call(Path::Use(path)),
        Verdict::Ours => call(Path::Ours(&room)),
        Verdict::Elsewhere => call(Path::Use(room.path_with_zero().as_ptr().cast())),
        Verdict::TooLong => call(Path::TooLong),
    }
}

/// What a link says, from the kernel itself.
fn read_link(path: &[u8], to: &mut [u8]) -> Option<usize> {
    // SAFETY: the path ends with a zero, and there is that much room.
    let length = unsafe {
        libc::syscall(
            libc::SYS_readlinkat,
            libc::AT_FDCWD,
            path.as_ptr(),
            to.as_mut_ptr(),
            to.len(),
        )
    };
    usize::try_from(length).ok()
}

/// Whether a path in the tree stands for a character device. There it is a link to one; programs must not see that.
pub(crate) fn is_character_device(room: &Room) -> bool {
    let seen = room.seen();
    seen.starts_with(b"/dev/infiniband/") && seen.len() > b"/dev/infiniband/".len()
}

/// The answer of a function that fails.
pub(crate) fn fail(errno: c_int) -> c_int {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() = errno };
    -1
}
