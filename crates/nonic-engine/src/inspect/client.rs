//! The client: asks processes what is in them. Nothing a process does, or does not do, delays the client for longer than
//! said, or takes more memory than said.

use super::asking::Asking;
use super::name::{ProcessName, names_in};
use super::outcome::{Answer, InspectError};
use super::request::Request;
use crate::os::poller::timespec;
use rustix::event::{PollFd, PollFlags, poll};
use std::io;
use std::time::{Duration, Instant};

/// Memory for the answer of a process of our user: a third of a million queue pairs.
const OWN_MEMORY: usize = 2 << 30;
/// Memory for the answers of all processes of other users, which need not be what they seem. Each may use its part.
const OTHERS_MEMORY: usize = 64 << 20;
/// The part of each of them at least.
const LEAST_MEMORY: usize = 16 << 10;
/// How long to wait before a process that has too many questions waiting is tried again.
const CROWDED: Duration = Duration::from_millis(5);

/// A process with an open device.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Process {
    name: ProcessName,
}

/// The processes of this network namespace that have a device open, of all users.
pub fn processes() -> io::Result<Vec<Process>> {
    let table = std::fs::read("/proc/net/unix")?;
    let names = names_in(&String::from_utf8_lossy(&table));
    Ok(names.into_iter().map(|name| Process { name }).collect())
}

impl Process {
    /// Its number, as it calls itself.
    pub fn pid(&self) -> u32 {
        self.name.pid
    }

    /// Asks it, and waits no longer than `patience`.
    pub fn ask(&self, request: Request, patience: Duration) -> Result<Answer, InspectError> {
        let mut asked = Vec::from([self.asking(request, OTHERS_MEMORY)]);
        wait(&mut asked, Instant::now() + patience);
        asked
            .pop()
            .map_or(Err(InspectError::Silent { pid: self.pid() }), Asking::outcome)
    }

    fn asking(&self, request: Request, others_memory: usize) -> Asking {
        Asking::new(self.name.clone(), request, OWN_MEMORY, others_memory)
    }
}

/// Asks processes, all at once, and waits for all of them together no longer than `patience`. One answer for each, in order.
pub fn ask_all(
    processes: &[Process],
    request: Request,
    patience: Duration,
) -> Vec<Result<Answer, InspectError>> {
    let each = (OTHERS_MEMORY / processes.len().max(1)).max(LEAST_MEMORY);
    let mut asked: Vec<Asking> = processes
        .iter()
        .map(|process| process.asking(request, each))
        .collect();
    wait(&mut asked, Instant::now() + patience);
    asked.into_iter().map(Asking::outcome).collect()
}

/// Waits until all of them have answered, or the time is over.
fn wait(asked: &mut [Asking], deadline: Instant) {
    let mut buffer = Vec::new();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // A process of our user that is in the middle of an answer may end it: the time limit is for processes that say
        // nothing.
        let is_answering = asked
            .iter_mut()
            .fold(false, |answering, asking| asking.go_on(&mut buffer) | answering);
        let open: Vec<&Asking> = asked.iter().filter(|asking| asking.is_open()).collect();
        if open.is_empty() || (left.is_zero() && !is_answering) {
            return;
        }
        let mut fds: Vec<PollFd<'_>> = open
            .iter()
            .filter_map(|asking| Some(PollFd::from_borrowed_fd(asking.fd()?, PollFlags::IN)))
            .collect();
        let left = match fds.len() == open.len() {
            true => left,
            false => left.min(CROWDED),
        };
        // Whatever it says, all are tried again.
        let _ = poll(&mut fds, Some(&timespec(left)));
    }
}
