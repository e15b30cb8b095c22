//! A progress bar for runs long enough to wonder about; nothing where no person watches.

use crate::output;
use indicatif::{ProgressBar, ProgressStyle};
use std::time::{Duration, Instant};

/// Drawing more often than this shows nothing more and costs the measurement.
const REDRAW: Duration = Duration::from_millis(200);
/// Shorter runs are over before a person could look.
const WORTH_WATCHING: Duration = Duration::from_secs(1);

/// What is shown while a run goes on.
#[derive(Debug)]
pub(crate) struct Meter {
    bar: ProgressBar,
    drawn: Instant,
}

impl Meter {
    /// A bar from 0 to `total`.
    pub(crate) fn new(label: String, total: u64, expected: Duration, quiet: bool) -> Self {
        let bar = match output::progress_is_welcome() && !quiet && expected > WORTH_WATCHING {
            true => ProgressBar::new(total),
            false => ProgressBar::hidden(),
        };
        let style = ProgressStyle::with_template("{prefix} {bar:30} {percent:>3}% {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_prefix(label);
        Meter {
            bar,
            drawn: Instant::now(),
        }
    }

    /// Shows how far it is, now and then. `message` is only made when it is shown.
    pub(crate) fn at(&mut self, now: Instant, position: u64, message: impl FnOnce() -> String) {
        if now.duration_since(self.drawn) < REDRAW {
            return;
        }
        self.drawn = now;
        self.bar.set_position(position);
        self.bar.set_message(message());
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
