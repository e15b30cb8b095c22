//! Mapped memory of a peer: WRITEs, READs and atomics are loads, stores and the processor's own atomics.
//!
//! Only memory that its process allocated for the purpose can be mapped ([`crate::memory::Pages::share`]). A key's entry
//! has the number of the memory in its process. The first request that meets such an entry asks for the memory, over the
//! line that the lane hangs on, and goes another way until the answer has come ([`PeerMemory`]). The published key decides
//! whether an access may be made, under the same announcement as for all other accesses: a mapping alone permits nothing.

use super::publication::PublishedView;
use crate::memory::{self, RawRegion};
use crate::os::shared_memory::{Others, SharedMemory};
use nonic_core::{Direct, DirectOperation, DirectRequest, LocalPart, Region as _};
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most mappings of one peer; the one that was used longest ago makes room for another.
const MOST: usize = 64;
/// So many bytes at the end of a WRITE appear after all others: programs wait for the last one to change.
const LAST: usize = 8;

/// Memory of a peer.
#[derive(Debug)]
pub(crate) struct Mapping {
    region: RawRegion,
    /// What the region lies in.
    _memory: SharedMemory,
    rights: Others,
}

impl Mapping {
    /// Maps what was received as such.
    pub(crate) fn open(fd: impl AsFd) -> io::Result<Self> {
        let (memory, rights) = SharedMemory::of_another_as_it_is(fd)?;
        let start = memory.bytes(0, memory.len());
        // SAFETY: the mapping holds nothing that Rust knows of, and stays as long as the region. The peer's accesses are
        // those of another process. Guarded, because a page that was not touched yet may find no memory.
        let region = unsafe { RawRegion::guarded(start, memory.len()) };
        Ok(Mapping {
            region,
            _memory: memory,
            rights,
        })
    }

    /// Executes a request at a place. `None` if it cannot be, and then an atomic was not.
    #[inline]
    pub(super) fn execute(&self, request: &DirectRequest<'_>, at: u64) -> Option<Direct> {
        let at = usize::try_from(at).ok()?;
        let reads = matches!(request.operation, DirectOperation::Read | DirectOperation::Pull);
        if !reads && self.rights != Others::Write {
            return None;
        }
        match request.operation {
            DirectOperation::Write => self.write(request, at).then_some(Direct::Done),
            DirectOperation::Read | DirectOperation::Pull => self.read(request, at).then_some(Direct::Done),
            // Of a region's words, only those are aligned that are aligned to its beginning, which is that of a page.
            _ if request.va % 8 != 0 || at % 8 != 0 => None,
            DirectOperation::FetchAdd(add) => self.region.fetch_add(at, add).ok().map(Direct::Fetched),
            DirectOperation::CompareSwap { compare, swap } => {
                let original = self.region.compare_swap(at, compare, swap);
                original.ok().map(Direct::Fetched)
            }
        }
    }

    fn write(&self, request: &DirectRequest<'_>, start: usize) -> bool {
        let length = request.bytes.len();
        let (mut last, before) = ([0; LAST], length.saturating_sub(LAST));
        let mut done = 0;
        let moved = visit_parts(request, &mut |part, part_length| {
            let early = part_length.min(before.saturating_sub(done));
            let late = &mut last[(done + early).saturating_sub(before)..][..part_length - early];
            let at = start.checked_add(done)?;
            done += part_length;
            // SAFETY: our own memory, whose key permits it to be read for as long as the turn lasts in which this is called.
            unsafe {
                self.region.write_from(at, part, early).ok()?;
                memory::copy_out(part.wrapping_add(early), late).ok()
            }
        });
        // No reader sees the last bytes before the others.
        fence(Ordering::Release);
        moved
            && start
                .checked_add(before)
                .is_some_and(|at| self.region.write(at, &last[..length - before]).is_ok())
    }

    fn read(&self, request: &DirectRequest<'_>, start: usize) -> bool {
        let mut done = 0;
        visit_parts(request, &mut |part, length| {
            let at = start.checked_add(done)?;
            done += length;
            // SAFETY: our own memory, whose key permits it to be written for as long as the turn lasts.
            unsafe { self.region.read_to(at, part.cast_mut(), length).ok() }
        })
    }
}

/// Visits the parts of our own memory, if all of them are permitted and can be reached. Whether all visits succeeded.
#[inline]
fn visit_parts(request: &DirectRequest<'_>, visit: &mut dyn FnMut(*const u8, usize) -> Option<()>) -> bool {
    // As with packets: nothing is moved if a part of the request cannot be.
    if !request.bytes.parts(request.operation, |_| {}) {
        return false;
    }
    let mut moved = true;
    let permitted = request.bytes.parts(request.operation, |part| {
        let part = match part {
            LocalPart::Memory {
                region,
                offset,
                length,
            } => region
                .address()
                .map(|start| (std::ptr::with_exposed_provenance(start + offset), length)),
            LocalPart::Inline(bytes) => Some((bytes.as_ptr(), bytes.len())),
        };
        moved = moved && part.is_some_and(|(start, length)| visit(start, length).is_some());
    });
    permitted && moved
}

/// What we have mapped of a peer's memory, and what we would like to. The requester's thread uses it and says what it
/// misses; the thread that reads the line asks for that, and brings it. Both hold the shard lock meanwhile, one after the
/// other.
#[derive(Debug, Default)]
pub(crate) struct PeerMemory {
    state: Mutex<State>,
    /// Whether a question waits to be sent.
    wanted: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    mapped: Vec<Mapped>,
    /// Counts uses, so that it is known what was used longest ago.
    uses: u64,
    /// What is asked for: one thing at a time, so that the peer is not flooded.
    question: Option<Question>,
    /// It is under way.
    sent: bool,
    /// The lane has ended, and with it all of this.
    ended: bool,
}

/// A key of the peer's, and the number of the memory that it covers.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Question {
    pub(crate) key: u32,
    pub(crate) number: u64,
}

#[derive(Debug)]
struct Mapped {
    /// What was asked.
    question: Question,
    /// `None`: it cannot be had.
    mapping: Option<Mapping>,
    used: u64,
}

impl PeerMemory {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Executes a request by a mapping, if there is one; `place` is where it was the last time, and will be. `None` if there is
    /// none; then it is asked for.
    #[inline]
    pub(super) fn execute(
        &self,
        place: &mut usize,
        memory: Question,
        execute: impl FnOnce(&Mapping) -> Option<Direct>,
    ) -> Option<Option<Direct>> {
        let mut state = self.state();
        let is_it = |mapped: &Mapped| mapped.question.number == memory.number;
        if !state.mapped.get(*place).is_some_and(is_it) {
            match state.mapped.iter().position(is_it) {
                Some(known) => *place = known,
                None => {
                    self.want(&mut state, memory);
                    return None;
                }
            }
        }
        state.uses += 1;
        let used = state.uses;
        let mapped = &mut state.mapped[*place];
        mapped.used = used;
        mapped.mapping.as_ref().map(execute)
    }

    #[cold]
    fn want(&self, state: &mut State, memory: Question) {
        if state.question.is_none() && !state.ended {
            state.question = Some(memory);
            self.wanted.store(true, Ordering::Release);
        }
    }

    /// A question to be sent now, if there is one.
    pub(crate) fn question(&self) -> Option<Question> {
        if !self.wanted.load(Ordering::Acquire) {
            return None;
        }
        let state = self.state();
        state.question.filter(|_| !state.sent)
    }

    /// It was sent. If it is lost, or the answer is, nothing more of this peer is mapped, and requests go as they did.
    pub(crate) fn sent(&self) {
        self.wanted.store(false, Ordering::Release);
        self.state().sent = true;
    }

    /// Gives back memory that is gone, or whose keys are.
    pub(super) fn tidy(&self, view: &PublishedView) {
        self.state().tidy(view);
    }

    /// The peer has answered; with `None` if it does not give the memory, or it cannot be mapped. What was mapped before is
    /// given back if it is not published any more.
    pub(super) fn answered(&self, number: u64, mapping: Option<Mapping>, view: &PublishedView) {
        let mut state = self.state();
        let Some(question) = state.question.filter(|asked| asked.number == number) else {
            return;
        };
        (state.question, state.sent) = (None, false);
        state.tidy(view);
        // It was refused because the key was gone by then: with another it may be had.
        if mapping.is_none() && view.find_key(question.key).is_none() {
            return;
        }
        if state.mapped.len() >= MOST {
            let oldest = state
                .mapped
                .iter()
                .enumerate()
                .min_by_key(|(_, mapped)| mapped.used);
            let oldest = oldest.map_or(0, |(at, _)| at);
            state.mapped.swap_remove(oldest);
        }
        let used = state.uses;
        state.mapped.push(Mapped {
            question,
            mapping,
            used,
        });
    }

    /// The lane has ended: gives back everything.
    pub(super) fn end(&self) {
        let mut state = self.state();
        state.ended = true;
        state.mapped = Vec::new();
    }
}

impl State {
    /// Gives back what was mapped and is of no use any more.
    fn tidy(&mut self, view: &PublishedView) {
        self.mapped.retain(|mapped| view.has_file(mapped.question.number));
    }
}
