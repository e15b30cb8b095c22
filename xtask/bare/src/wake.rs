//! Waking a process that sleeps: by futex, and by eventfd as completion channels do.
//!
//! The next request follows at once, as in a latency test: whether the other side sleeps already by then is up to the
//! machine, and that is part of what is measured.

use super::shared::Shared;
use super::{PATIENCE, spin, typical_us};
use anyhow::{Context, Result, bail, ensure};
use std::fs::File;
use std::io::{Error, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Two words, each on a cache line of its own.
const BYTES: usize = 4096;
const THERE: usize = 0;
const BACK: usize = 128;

/// There and back: we poll for the answer of one that sleeps.
pub(super) fn futex_there(server: &str, duration: Duration) -> Result<f64> {
    let memory = Shared::open(server, BYTES)?;
    let (there, back) = (memory.word(THERE), memory.word::<AtomicU32>(BACK));
    let mut turn = 0_u32;
    typical_us(duration, 1, || {
        turn += 1;
        announce(there, turn);
        spin(|| Ok((back.load(Ordering::Acquire) == turn).then_some(())))
    })
}

/// Half a round trip of two that sleep.
pub(super) fn futex_both(server: &str, duration: Duration) -> Result<f64> {
    let memory = Shared::open(server, BYTES)?;
    let (there, back) = (memory.word(THERE), memory.word(BACK));
    let mut turn = 0;
    let round_trip = typical_us(duration, 1, || {
        turn += 1;
        announce(there, turn);
        await_turn(back, turn)
    })?;
    Ok(round_trip / 2.0)
}

/// Sleeps until the other side has taken its turn, and takes ours.
pub(super) fn serve_futex() -> Result<()> {
    let memory = Shared::create(BYTES)?;
    println!("{}", memory.line());
    let (there, back) = (memory.word(THERE), memory.word(BACK));
    for turn in 1.. {
        await_turn(there, turn)?;
        announce(back, turn);
    }
    Ok(())
}

fn announce(word: &AtomicU32, turn: u32) {
    word.store(turn, Ordering::Release);
    // SAFETY: FUTEX_WAKE uses the address as a name only, and it is that of a live word.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
}

/// Sleeps until a word has this value, but not for ever.
fn await_turn(word: &AtomicU32, turn: u32) -> Result<()> {
    let patience = libc::timespec {
        tv_sec: PATIENCE.as_secs() as libc::time_t,
        tv_nsec: 0,
    };
    loop {
        let seen = word.load(Ordering::Acquire);
        if seen == turn {
            return Ok(());
        }
        let wait = libc::FUTEX_WAIT;
        // SAFETY: the word is live and aligned, and so is the time.
        let result =
            unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), wait, seen, &raw const patience) };
        if result != 0 && Error::last_os_error().raw_os_error() == Some(libc::ETIMEDOUT) {
            bail!("nobody woke us for {PATIENCE:?}");
        }
    }
}

/// Half a round trip of two that sleep in `poll`.
pub(super) fn eventfd(server: &str, duration: Duration) -> Result<f64> {
    let words: Vec<&str> = server.split(' ').collect();
    let &[process, there, back] = words.as_slice() else {
        bail!("not a process and two descriptors: {server}");
    };
    let process = Process::open(process.parse()?)?;
    let (mut there, mut back) = (process.file(there.parse()?)?, process.file(back.parse()?)?);
    let round_trip = typical_us(duration, 1, || {
        there.write_all(&1_u64.to_ne_bytes())?;
        await_event(&mut back)
    })?;
    Ok(round_trip / 2.0)
}

/// Answers every event with another.
pub(super) fn serve_eventfd() -> Result<()> {
    let (mut there, mut back) = (new_eventfd()?, new_eventfd()?);
    println!(
        "{} {} {}",
        std::process::id(),
        there.as_raw_fd(),
        back.as_raw_fd()
    );
    loop {
        await_event(&mut there)?;
        back.write_all(&1_u64.to_ne_bytes())?;
    }
}

fn new_eventfd() -> Result<File> {
    // SAFETY: the call touches no memory.
    let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    ensure!(descriptor >= 0, "eventfd: {}", Error::last_os_error());
    // SAFETY: the descriptor is new, and nothing else owns it.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

fn await_event(event: &mut File) -> Result<()> {
    let mut poll = libc::pollfd {
        fd: event.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one live structure.
    let ready = unsafe { libc::poll(&raw mut poll, 1, PATIENCE.as_millis() as libc::c_int) };
    ensure!(ready == 1, "nobody woke us for {PATIENCE:?}");
    event.read_exact(&mut [0; 8]).context("reading an eventfd")
}

/// Another process, whose descriptors we may have: an eventfd has no name by which it could be opened.
struct Process(OwnedFd);

impl Process {
    fn open(process: libc::pid_t) -> Result<Self> {
        // SAFETY: the call touches no memory.
        let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) };
        Ok(Self(owned(descriptor, "pidfd_open")?))
    }

    fn file(&self, descriptor: RawFd) -> Result<File> {
        // SAFETY: the call touches no memory.
        let copy = unsafe { libc::syscall(libc::SYS_pidfd_getfd, self.0.as_raw_fd(), descriptor, 0) };
        Ok(owned(copy, "pidfd_getfd")?.into())
    }
}

fn owned(descriptor: libc::c_long, call: &str) -> Result<OwnedFd> {
    ensure!(descriptor >= 0, "{call}: {}", Error::last_os_error());
    // SAFETY: the kernel has just given it to us.
    Ok(unsafe { OwnedFd::from_raw_fd(RawFd::try_from(descriptor)?) })
}
