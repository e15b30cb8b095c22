//! Ctrl-C: the first asks a command to come to an end and to say what it has so far, the second ends it at once.

use anyhow::{Context, Result};
use signal_hook::consts::SIGINT;
use signal_hook::iterator::Signals;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// As a shell tells it of a process that was ended by the signal.
pub(crate) const EXIT_CODE: u8 = 128 + SIGINT as u8;

/// Whether the user has pressed Ctrl-C.
#[derive(Debug)]
pub(crate) struct Interrupt(Arc<Told>);

#[derive(Debug, Default)]
struct Told {
    told: Mutex<bool>,
    changed: Condvar,
}

impl Told {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Interrupt {
    /// From now on. Before, Ctrl-C ends the process.
    pub(crate) fn watch() -> Result<Self> {
        let mut signals = Signals::new([SIGINT]).context("cannot wait for signals")?;
        let interrupt = Interrupt(Arc::default());
        let told = Arc::clone(&interrupt.0);
        let wait = move || {
            for _ in signals.forever() {
                if std::mem::replace(&mut *told.lock(), true) {
                    std::process::exit(EXIT_CODE.into());
                }
                told.changed.notify_all();
            }
        };
        std::thread::Builder::new()
            .name("interrupt".to_owned())
            .spawn(wait)
            .context("cannot start a thread")?;
        Ok(interrupt)
    }

    pub(crate) fn is_told(&self) -> bool {
        *self.0.lock()
    }

    /// Sleeps, but no longer than until Ctrl-C. Whether to go on.
    pub(crate) fn sleep(&self, time: Duration) -> bool {
        let told = self.0.lock();
        let waited = self.0.changed.wait_timeout_while(told, time, |told| !*told);
        let (told, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !*told
    }
}
