//! The end of a device: it disconnects from its peers when it is closed, or when the process ends without closing it.
//!
//! Programs leave by `exit` with connections open and completions just seen. A hardware NIC outlives its program: it
//! acknowledges and, with the kernel's help, disconnects. This NIC ends with the process, so an `atexit` handler does both
//! ([`take_leave`]): it sends the acknowledgements that still wait, and a DREQ for every connection. A DREQ may get lost,
//! and a peer that receives none waits for ever. So the handler waits a moment for DREPs and retransmits unanswered DREQs.
//! Then it closes the sockets at port 4791, so that the kernel gives their packets to the processes that stay.
//!
//! It cannot help a process that is killed. It does nothing in a child of `fork`: the devices there belong to the parent.

use super::{Driver, Turn};
use crate::driver::machine::Machine;
use crate::shard::Effort;
use crate::shard::connections::ConnectionManager;
use std::sync::{Arc, Mutex, Once, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

/// How long a thread that holds the lock may delay the end of the process: it may never release it.
const PATIENCE: Duration = Duration::from_millis(100);

/// How long answers to DREQs are waited for, the first time and after each repetition.
const PAUSES: [Duration; 3] = [
    Duration::from_millis(2),
    Duration::from_millis(8),
    Duration::from_millis(32),
];
/// If more peers than this have not answered, no DREQ is retransmitted: it would take longer than a user expects of an
/// exit.
const FEW: usize = 64;
/// How often answers are looked for.
const GLANCE: Duration = Duration::from_micros(100);

/// What is to be done for a device when the process ends; `deadline` is until when to wait for turns.
pub(crate) trait Leave: Send + Sync {
    /// Disconnects from the peers, and does whatever else there is to do.
    fn leave(&self, deadline: Instant);
}

/// The open devices, and the process that opened each.
static OPEN: Mutex<Vec<(u32, Weak<dyn Leave>)>> = Mutex::new(Vec::new());

/// From now on the device disconnects from its peers if the process ends before it is closed.
pub(crate) fn expect_end(device: Weak<dyn Leave>) {
    static HANDLER: Once = Once::new();
    HANDLER.call_once(|| {
        // SAFETY: the handler is a function without captures. Refused only for want of memory; then nothing is said.
        unsafe { libc::atexit(leave_all) };
    });
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|(_, device)| device.strong_count() > 0);
    open.push((std::process::id(), device));
}

extern "C" fn leave_all() {
    let deadline = Instant::now() + PATIENCE;
    let Some(open) = lock_until(deadline, &OPEN) else {
        return;
    };
    let ours = open.iter().filter(|(process, _)| *process == std::process::id());
    for device in ours.filter_map(|(_, device)| device.upgrade()) {
        device.leave(deadline);
    }
}

/// Ends the connections of a device that is about to go, through its first shard, and leaves the ports to the processes
/// that stay.
pub(crate) fn take_leave(connections: &ConnectionManager, drivers: &[Arc<Driver>], deadline: Instant) {
    let mut turns: Vec<Turn<'_>> = Vec::with_capacity(drivers.len());
    for driver in drivers {
        // A shard whose lock is never released must not delay the others.
        turns.extend(driver.turn_until(deadline));
    }
    end_connections(connections, &mut turns);
    for turn in &mut turns {
        leave_ports(turn);
    }
}

fn end_connections(connections: &ConnectionManager, turns: &mut [Turn<'_>]) {
    let Some(now) = turns.first().map(|turn| turn.now()) else {
        return;
    };
    connections.with(|cm| cm.abandon_all(now));
    drive_all(turns);
    // With very many connections, one call does not send it all.
    let deadline = Instant::now() + PATIENCE;
    while turns.iter().any(|turn| turn.is_behind()) && Instant::now() < deadline {
        drive_all(turns);
    }
    for pause in PAUSES {
        let waiting = wait_for_answers(connections, turns, pause);
        if waiting == 0 || waiting > FEW {
            return;
        }
        let now = turns[0].now();
        connections.with(|cm| cm.repeat_goodbyes(now));
        drive_all(turns);
    }
}

/// Answers may come to any shard.
fn drive_all(turns: &mut [Turn<'_>]) -> bool {
    turns.iter_mut().fold(false, |worked, turn| drive(turn) | worked)
}

fn drive(turn: &mut Turn<'_>) -> bool {
    let now = turn.now();
    turn.flush_deferred(|| now);
    turn.drive(now, Effort::Full)
}

/// Passes on what has come to port 4791 for other processes, and closes our sockets there. Until a process has ended, which
/// takes it a few milliseconds more, the kernel would go on to give us packets, and they would end with us: a message of the
/// connection manager is repeated after more than four seconds.
fn leave_ports(turn: &mut Turn<'_>) {
    drive(turn);
    turn.presences_mut().for_each(|presence| presence.retire());
    turn.sync_links();
}

/// Hears answers for so long; how many have not come.
fn wait_for_answers(connections: &ConnectionManager, turns: &mut [Turn<'_>], pause: Duration) -> usize {
    let deadline = Instant::now() + pause;
    loop {
        let waiting = connections.with(|cm| cm.unanswered_goodbyes());
        if waiting == 0 || waiting > FEW || Instant::now() >= deadline {
            return waiting;
        }
        if !drive_all(turns) {
            std::thread::sleep(GLANCE);
        }
    }
}

/// Takes a lock, or gives up at the deadline.
fn lock_until<T>(deadline: Instant, mutex: &Mutex<T>) -> Option<std::sync::MutexGuard<'_, T>> {
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => std::thread::yield_now(),
            Err(TryLockError::WouldBlock) => return None,
        }
    }
}
