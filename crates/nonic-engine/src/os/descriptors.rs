//! Descriptors of ours in a process that belongs to the program.
//!
//! A program closes descriptors it did not open: a daemon closes 3 to 1023, a program with a bug closes one number
//! twice (iperf3 3.12 does, at the end of every test), and the second time the number may be ours. In hardware's place
//! the NIC would lose its sockets without a word. So:
//!
//! 1. Descriptors that no program needs to see have numbers that programs seldom touch ([`out_of_the_way`]).
//! 2. Each remembers which file it named ([`Identity`]). A number that names something else is *lost*: it is never closed,
//!    and a caller that suspects a loss (an operation failed as it does on a wrong descriptor) asks
//!    [`InternalFd::is_lost`]. The device decides what follows from a loss.
//! 3. Those with high numbers are listed, so that a library that stands in front of `close` can leave them alone
//!    ([`is_ours`]).
//!
//! What remains: all eventfds and epolls of a host share one inode, so a lost eventfd whose number became another
//! eventfd is taken for ours; and a lost socket whose number became a socket of the program's is used until the next
//! check. Both need the program to close a high number and to get the same number again.
//!
//! Read first: [`InternalFd`].

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};

/// The highest `floor`. Above the 1024 numbers that `select` knows and that daemons close; not much above, since the
/// kernel's table of descriptors grows to the highest number in use: 32 KiB here, 16 MiB at a million.
const HIGHEST_FLOOR: u64 = 2048;

/// A descriptor of the library's own. It is closed with its owner, unless its number names another file by then.
///
/// Made [from](From) an [`OwnedFd`], it gets a high number and is listed; see [`InternalFd::seen_by_the_program`] for
/// the other kind.
#[derive(Debug)]
pub struct InternalFd {
    fd: ManuallyDrop<OwnedFd>,
    identity: Option<Identity>,
    listed: bool,
}

impl InternalFd {
    /// One that the program gets to poll it: it keeps the ordinary number that it has, and the program may close it.
    pub fn seen_by_the_program(fd: OwnedFd) -> Self {
        InternalFd {
            identity: Identity::of(fd.as_raw_fd()),
            fd: ManuallyDrop::new(fd),
            listed: false,
        }
    }

    /// Whether the number no longer names the file that it named: the program has closed it. One system call.
    pub fn is_lost(&self) -> bool {
        self.identity.is_none() || Identity::of(self.fd.as_raw_fd()) != self.identity
    }

    /// Whether it is a copy that a child of `fork` or `vfork` has of its parent's.
    pub(crate) fn is_inherited(&self) -> bool {
        self.listed && !is_ours(self.fd.as_raw_fd())
    }

    /// Gives the descriptor away.
    pub fn into_owned(mut self) -> OwnedFd {
        self.unlist();
        // SAFETY: `self` is forgotten right away, so its field is not used again.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        std::mem::forget(self);
        fd
    }

    fn unlist(&self) {
        if self.listed {
            table::remove(self.fd.as_raw_fd());
        }
    }
}

impl From<OwnedFd> for InternalFd {
    fn from(fd: OwnedFd) -> Self {
        let fd = out_of_the_way(fd);
        let identity = Identity::of(fd.as_raw_fd());
        InternalFd {
            listed: identity.is_some_and(|identity| table::insert(fd.as_raw_fd(), identity)),
            fd: ManuallyDrop::new(fd),
            identity,
        }
    }
}

impl AsFd for InternalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for InternalFd {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl Drop for InternalFd {
    fn drop(&mut self) {
        // First: from here on the kernel may give the number to any other caller, which may close it again.
        self.unlist();
        if !self.is_lost() {
            close(self.fd.as_raw_fd());
        }
    }
}

/// Which file a descriptor names: the device and inode of its file system, or of the kernel's own for sockets.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// That of an open descriptor.
    pub fn of(fd: RawFd) -> Option<Self> {
        let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: any number may be asked about; the answer goes to a variable of ours, and is whole if it is zero.
        let stat = unsafe { (libc::fstat(fd, stat.as_mut_ptr()) == 0).then(|| stat.assume_init()) }?;
        Some(Identity {
            device: stat.st_dev,
            inode: stat.st_ino,
        })
    }
}

/// Whether a descriptor that is in use here names another file than it did when it became internal, or none.
///
/// For descriptors whose owners lend nothing but a number. One that is not listed is judged by whether it is open.
pub(crate) fn is_lost(fd: BorrowedFd<'_>) -> bool {
    let found = Identity::of(fd.as_raw_fd());
    match table::find(fd.as_raw_fd()) {
        Some(listed) => found != Some(listed),
        None => found.is_none(),
    }
}

/// Whether an error says that a descriptor is perhaps not the one it was: not open, no socket, none like ours.
#[inline]
pub(crate) fn casts_doubt(error: &std::io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EBADF | libc::ENOTSOCK | libc::EINVAL | libc::ENOTCONN | libc::EPIPE)
    )
}

/// Whether a number is one of our listed descriptors in this process. A child of `fork` has none: what it inherits it
/// may close.
pub fn is_ours(fd: RawFd) -> bool {
    table::find(fd).is_some() && table::is_this_process()
}

/// The lowest listed descriptor of ours that is not below `from`.
pub fn next_of_ours(from: RawFd) -> Option<RawFd> {
    let found = table::next(from)?;
    table::is_this_process().then_some(found)
}

/// Gives a descriptor a number that programs seldom touch; if there is none to be had, it stays where it is.
pub fn out_of_the_way(fd: OwnedFd) -> OwnedFd {
    match floor() {
        Some(floor) if fd.as_raw_fd() < floor => moved_up(fd, floor),
        _ => fd,
    }
}

fn moved_up(fd: OwnedFd, floor: RawFd) -> OwnedFd {
    match rustix::io::fcntl_dupfd_cloexec(&fd, floor) {
        Ok(moved) => {
            close(fd.into_raw_fd());
            moved
        }
        Err(_) => fd,
    }
}

/// From which number on our descriptors are: half of what the process may have, so that neither side runs out early.
fn floor() -> Option<RawFd> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let floor = (limit.unwrap_or(u64::MAX) / 2).min(HIGHEST_FLOOR);
    RawFd::try_from(floor).ok()
}

/// Closes without passing a library that stands in front of the C library's `close`: that one leaves ours alone.
fn close(fd: RawFd) {
    // SAFETY: the caller owns the descriptor and does not use it again.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

/// The listed descriptors. Asked on every `close` of a program, so it is read without a lock.
mod table {
    use super::*;

    const CHUNK: usize = 1024;
    const CHUNKS: usize = 1024;

    /// An inode of zero is an empty slot.
    struct Slot {
        device: AtomicU64,
        inode: AtomicU64,
    }

    impl Slot {
        #[expect(
            clippy::declare_interior_mutable_const,
            reason = "what new chunks are made of"
        )]
        const EMPTY: Slot = Slot {
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
        };
    }

    type Chunk = [Slot; CHUNK];

    /// By number. Chunks are made when first needed and never freed.
    static TABLE: [AtomicPtr<Chunk>; CHUNKS] = [const { AtomicPtr::new(std::ptr::null_mut()) }; CHUNKS];

    /// The process whose descriptors these are.
    static PROCESS: AtomicI32 = AtomicI32::new(0);

    fn chunk(index: usize) -> Option<&'static Chunk> {
        // SAFETY: null, or a chunk that is never freed.
        unsafe { TABLE.get(index)?.load(Ordering::Acquire).as_ref() }
    }

    fn slot(fd: RawFd) -> Option<&'static Slot> {
        let fd = usize::try_from(fd).ok()?;
        Some(&chunk(fd / CHUNK)?[fd % CHUNK])
    }

    fn make_chunk(fd: RawFd) -> Option<()> {
        let place = TABLE.get(usize::try_from(fd).ok()? / CHUNK)?;
        if place.load(Ordering::Acquire).is_null() {
            let fresh = Box::into_raw(Box::new([const { Slot::EMPTY }; CHUNK]));
            let placed =
                place.compare_exchange(std::ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire);
            if placed.is_err() {
                // SAFETY: another thread was faster, and no thread has seen ours.
                drop(unsafe { Box::from_raw(fresh) });
            }
        }
        Some(())
    }

    /// Whether there was room for it.
    pub(super) fn insert(fd: RawFd, identity: Identity) -> bool {
        static ONCE: Once = Once::new();
        // SAFETY: the handler stores numbers, which is allowed in a child of fork.
        ONCE.call_once(|| unsafe {
            PROCESS.store(libc::getpid(), Ordering::Relaxed);
            libc::pthread_atfork(None, None, Some(in_child));
        });
        let Some(slot) = make_chunk(fd).and_then(|()| slot(fd)) else {
            return false;
        };
        slot.device.store(identity.device, Ordering::Relaxed);
        slot.inode.store(identity.inode, Ordering::Release);
        true
    }

    pub(super) fn remove(fd: RawFd) {
        if let Some(slot) = slot(fd) {
            slot.inode.store(0, Ordering::Release);
        }
    }

    pub(super) fn find(fd: RawFd) -> Option<Identity> {
        let slot = slot(fd)?;
        let inode = slot.inode.load(Ordering::Acquire);
        let device = slot.device.load(Ordering::Relaxed);
        (inode != 0).then_some(Identity { device, inode })
    }

    pub(super) fn next(from: RawFd) -> Option<RawFd> {
        let from = usize::try_from(from).unwrap_or(0);
        let chunks = (from / CHUNK..CHUNKS).filter(|index| chunk(*index).is_some());
        let numbers = chunks.flat_map(|index| index * CHUNK..(index + 1) * CHUNK);
        let mut numbers = numbers.filter_map(|fd| RawFd::try_from(fd.max(from)).ok());
        numbers.find(|fd| find(*fd).is_some())
    }

    /// A child of `vfork` runs in its parent's memory with descriptors of its own.
    pub(super) fn is_this_process() -> bool {
        // SAFETY: cannot fail.
        PROCESS.load(Ordering::Relaxed) == unsafe { libc::getpid() }
    }

    unsafe extern "C" fn in_child() {
        for slot in (0..CHUNKS).filter_map(chunk).flatten() {
            slot.inode.store(0, Ordering::Relaxed);
        }
        // SAFETY: cannot fail.
        PROCESS.store(unsafe { libc::getpid() }, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write as _;
    use std::os::fd::FromRawFd;

    fn eventfd() -> OwnedFd {
        rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("an eventfd")
    }

    fn file() -> OwnedFd {
        File::open("/proc/self/exe").expect("the test's own file").into()
    }

    fn is_open(fd: RawFd) -> bool {
        Identity::of(fd).is_some()
    }

    #[test]
    fn an_internal_descriptor_has_a_high_number_and_is_listed() {
        let low = eventfd();
        let before = low.as_raw_fd();
        let internal = InternalFd::from(low);
        let number = internal.as_raw_fd();
        assert!(number >= floor().expect("a limit"), "{number}");
        assert_ne!(number, before);
        assert!(is_ours(number));
        assert_eq!(next_of_ours(number), Some(number));
        drop(internal);
        assert!(!is_ours(number) && !is_open(number));
    }

    #[test]
    fn one_that_the_program_sees_keeps_its_number() {
        let low = eventfd();
        let before = low.as_raw_fd();
        let seen = InternalFd::seen_by_the_program(low);
        assert_eq!(seen.as_raw_fd(), before);
        assert!(!is_ours(before));
    }

    /// In debug builds, `OwnedFd` would end the process here.
    #[test]
    fn one_that_the_program_closed_is_lost_and_not_closed_again() {
        let internal = InternalFd::from(file());
        assert!(!internal.is_lost() && !is_lost(internal.as_fd()));
        close(internal.as_raw_fd());
        assert!(internal.is_lost() && is_lost(internal.as_fd()));
        drop(internal);
    }

    #[test]
    fn what_the_program_put_in_its_place_stays_open() {
        let internal = InternalFd::from(file());
        let number = internal.as_raw_fd();
        let theirs = std::env::temp_dir().join(format!("nonic-descriptors-{}", std::process::id()));
        let theirs_open = File::create(&theirs).expect("a file");
        // SAFETY: the number is `internal`'s, which does not close what it did not open; the copy is ours.
        let mut copy = unsafe {
            assert_eq!(libc::dup2(theirs_open.as_raw_fd(), number), number);
            File::from_raw_fd(number)
        };
        assert!(internal.is_lost());
        drop(internal);
        copy.write_all(b"still open").expect("it is");
        std::fs::remove_file(theirs).expect("it was made above");
    }

    #[test]
    fn without_room_above_it_stays_where_it_is() {
        let fd = eventfd();
        let before = fd.as_raw_fd();
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let beyond = RawFd::try_from(limit.unwrap_or(1 << 30)).expect("a small limit");
        let kept = moved_up(fd, beyond);
        assert_eq!(kept.as_raw_fd(), before);
        assert!(is_open(before));
    }
}
