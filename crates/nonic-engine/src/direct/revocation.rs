//! Revocation: takes back what peers may do, and waits until no access of theirs is under way.
//!
//! A requester announces an access before it looks whether it may make it, and takes the announcement back when it has
//! ended. The target first takes back what it published, then looks at the announcements. So either the requester sees that
//! it may not make the access, or the target sees the announcement, and waits.
//!
//! A requester that was killed has ended its accesses when the kernel says that its process has ended. For one that was
//! stopped in the middle of an access the target waits up to [`PATIENCE`]; then the program learns that its memory is busy.
//! A thread that revokes a key or ends a queue pair waits without the shard lock. Only for a queue pair that fails by
//! itself does a thread wait with the lock held.

use crate::link::lane::memory::LaneMemory;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a peer may take to end an access.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);
/// An access of ordinary length ends within so many looks.
const SPINS: u32 = 1000;

/// What an access relies on: an entry of a queue pair and one of a key. None is zero.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Hazard(u64);

impl Hazard {
    /// No access is under way.
    pub(super) const NONE: Hazard = Hazard(0);

    /// An access by a queue pair through a key.
    #[inline]
    pub(super) fn new(qp: usize, key: usize) -> Self {
        Hazard((qp as u64 + 1) << 32 | (key as u64 + 1))
    }

    /// All accesses by a queue pair.
    pub(super) fn of_qp(index: usize) -> Self {
        Hazard((index as u64 + 1) << 32)
    }

    /// All accesses through a key.
    pub(super) fn of_key(index: usize) -> Self {
        Hazard(index as u64 + 1)
    }

    /// As it stands in a ring.
    #[inline]
    pub(super) fn to_word(self) -> u64 {
        self.0
    }

    /// Whether an access that was announced like this is one of these.
    fn covers(self, announced: u64) -> bool {
        let (qp, key) = (self.0 >> 32, self.0 & u64::from(u32::MAX));
        let (announced_qp, announced_key) = (announced >> 32, announced & u64::from(u32::MAX));
        (qp != 0 && qp == announced_qp) || (key != 0 && key == announced_key)
    }
}

/// A lane whose sender may access our memory.
#[derive(Debug)]
pub(crate) struct IncomingAccess {
    /// The lane's ring.
    pub(crate) ring: Arc<LaneMemory>,
    /// The sender's process, if we see it.
    pub(crate) pid: Option<u32>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    lanes: Mutex<Vec<IncomingAccess>>,
}

impl Incoming {
    /// A lane was taken whose sender may access our memory.
    pub(super) fn add(&self, access: IncomingAccess) {
        self.lanes().push(access);
    }

    /// A lane has ended.
    pub(super) fn remove(&self, ring: &Arc<LaneMemory>) {
        self.lanes().retain(|lane| !Arc::ptr_eq(&lane.ring, ring));
    }

    fn lanes(&self) -> MutexGuard<'_, Vec<IncomingAccess>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no access is under way that relies on something, for so long. Whether that is so.
    pub(super) fn wait_for(&self, hazard: Hazard, patience: Duration) -> bool {
        let busy: Vec<(Arc<LaneMemory>, Option<u32>)> = self
            .lanes()
            .iter()
            .filter(|lane| hazard.covers(lane.ring.hazard().load(Ordering::Acquire)))
            .map(|lane| (Arc::clone(&lane.ring), lane.pid))
            .collect();
        // All of them, though one does not end.
        busy.iter().fold(true, |ended, (ring, pid)| {
            wait_for(ring, hazard, *pid, patience) & ended
        })
    }
}

fn wait_for(ring: &LaneMemory, hazard: Hazard, pid: Option<u32>, patience: Duration) -> bool {
    let has_ended = || !hazard.covers(ring.hazard().load(Ordering::Acquire));
    for _ in 0..SPINS {
        if has_ended() {
            return true;
        }
        std::hint::spin_loop();
    }
    let process = match pid.map(open) {
        Some(Err(Errno::SRCH)) => return true,
        Some(Ok(process)) => Some(process),
        // It may be there though we cannot see it, or have no descriptor left to look with.
        Some(Err(_)) | None => None,
    };
    let deadline = Instant::now() + patience;
    loop {
        if has_ended() || process.as_ref().is_some_and(has_died) {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::yield_now();
    }
}

/// `ESRCH` if there is no such process any more.
fn open(pid: u32) -> rustix::io::Result<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pidfd_open(pid.ok_or(Errno::INVAL)?, PidfdFlags::empty())
}

/// Whether all threads of a process have ended.
fn has_died(process: &OwnedFd) -> bool {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
}
