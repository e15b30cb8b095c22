//! What a process says when it ends without closing its devices.
//!
//! Programs leave by `exit` with connections open and completions just seen. A NIC outlives its program: it
//! acknowledges and, with the kernel's help, disconnects. We do not, so a handler of `atexit` says it: acknowledgements
//! that still wait, and goodbye to every peer of the connection manager. A goodbye
//! may get lost and a peer without one waits for ever, so we stay a moment for the answers and ask again who does not
//! answer ([`take_leave`]).
//!
//! It cannot help a process that is killed. It does nothing in a child of `fork`, whose devices are its parent's.

use crate::progress::Progress;
use crate::settings::Settings;
use crate::shard::{Effort, Shard};
use std::sync::{Arc, Mutex, Once, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

/// How long the end of the process may be held up by a thread that has the lock: it may never give it back.
const PATIENCE: Duration = Duration::from_millis(100);

/// How long answers to a goodbye are waited for, the first time and after each repetition.
const PAUSES: [Duration; 3] = [
    Duration::from_millis(2),
    Duration::from_millis(8),
    Duration::from_millis(32),
];
/// More peers than this are not asked again: it would take longer than anybody expects an exit to take.
const FEW: usize = 64;
/// How often answers are looked for.
const GLANCE: Duration = Duration::from_micros(100);

/// The open devices, and the process that opened each.
static OPEN: Mutex<Vec<(u32, Weak<Progress>)>> = Mutex::new(Vec::new());

/// From now on the device says goodbye if the process ends before it is closed.
pub(crate) fn expect_end(device: &Arc<Progress>) {
    static HANDLER: Once = Once::new();
    HANDLER.call_once(|| {
        // SAFETY: the handler is a function without captures. Refused only for want of memory; then there is no
        // farewell.
        unsafe { libc::atexit(say_farewell) };
    });
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|(_, device)| device.strong_count() > 0);
    open.push((std::process::id(), Arc::downgrade(device)));
}

extern "C" fn say_farewell() {
    let deadline = Instant::now() + PATIENCE;
    let Some(open) = lock_until(deadline, &OPEN) else {
        return;
    };
    let settings = Settings::from_environment().ok();
    let ours = open.iter().filter(|(process, _)| *process == std::process::id());
    for device in ours.filter_map(|(_, device)| device.upgrade()) {
        let Some(mut shard) = device.turn_until(deadline) else {
            continue;
        };
        take_leave(&mut shard);
        if let Some(capture) = &mut shard.capture {
            capture.flush();
        }
        if let Some(settings) = &settings {
            settings.report(shard.nic.counters(), &shard.counters);
        }
    }
}

/// Ends the connections of a NIC that is about to go, and leaves the port to those who stay.
pub(crate) fn take_leave(shard: &mut Shard) {
    end_connections(shard);
    leave_ports(shard);
}

fn end_connections(shard: &mut Shard) {
    let now = shard.clock.now();
    shard.gsi.cm.abandon_all(now);
    shard.drive(Effort::Full);
    // With very many connections, one call does not send it all.
    let deadline = Instant::now() + PATIENCE;
    while shard.is_behind() && Instant::now() < deadline {
        shard.drive(Effort::Full);
    }
    for pause in PAUSES {
        let waiting = wait_for_answers(shard, pause);
        if waiting == 0 || waiting > FEW {
            return;
        }
        let now = shard.clock.now();
        shard.gsi.cm.repeat_goodbyes(now);
        shard.drive(Effort::Full);
    }
}

/// Passes on what has come to port 4791 for other processes, and closes our sockets there. Until a process has ended, which
/// takes it a few milliseconds more, the kernel would go on to give us packets, and they would end with us: a message of the
/// connection manager is repeated after more than four seconds.
fn leave_ports(shard: &mut Shard) {
    shard.drive(Effort::Full);
    for attachment in &mut shard.attachments {
        attachment.port.leave();
    }
}

/// Hears answers for so long; how many have not come.
fn wait_for_answers(shard: &mut Shard, pause: Duration) -> usize {
    let deadline = Instant::now() + pause;
    loop {
        let waiting = shard.gsi.cm.unanswered_goodbyes();
        if waiting == 0 || waiting > FEW || Instant::now() >= deadline {
            return waiting;
        }
        if !shard.drive(Effort::Full) {
            std::thread::sleep(GLANCE);
        }
    }
}

/// A lock, unless somebody keeps it.
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
