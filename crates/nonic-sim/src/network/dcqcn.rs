//! DCQCN's reaction point (Zhu et al., SIGCOMM 2015), with the constants of the paper: an oracle, not a part of nonic.
//!
//! Notifications cut the rate by α/2; α decays by timer. Rate comes back in three stages, each driven by a timer and by a
//! byte counter: halfway to the rate before the cut, five times; then by steps; then by large steps.

const GAIN: f64 = 1.0 / 256.0;
const ALPHA_TIMER_NS: u64 = 55_000;
const RATE_TIMER_NS: u64 = 55_000;
const BYTE_COUNTER: u64 = 10_000_000;
const FAST_STEPS: u32 = 5;
const STEP: f64 = 40e6;
const LARGE_STEP: f64 = 400e6;
const LEAST: f64 = 10e6;

/// The state of a flow. Rates are in bits per second.
#[derive(Clone, Debug)]
pub(super) struct Dcqcn {
    line: f64,
    current: f64,
    target: f64,
    alpha: f64,
    alpha_due_ns: u64,
    rate_due_ns: u64,
    timer_steps: u32,
    byte_steps: u32,
    bytes: u64,
    cut_yet: bool,
}

impl Dcqcn {
    /// A flow starts at line rate.
    pub(super) fn new(line: u64) -> Dcqcn {
        let line = line as f64;
        Dcqcn {
            line,
            current: line,
            target: line,
            alpha: 1.0,
            alpha_due_ns: 0,
            rate_due_ns: 0,
            timer_steps: 0,
            byte_steps: 0,
            bytes: 0,
            cut_yet: false,
        }
    }

    /// Starts at another rate.
    pub(super) fn starting_at(mut self, rate: u64) -> Dcqcn {
        self.current = rate as f64;
        self.target = rate as f64;
        self
    }

    /// The rate now.
    pub(super) fn rate(&mut self, now_ns: u64) -> f64 {
        self.catch_up(now_ns);
        self.current
    }

    /// Lets the timers fire that are due.
    fn catch_up(&mut self, now_ns: u64) {
        if !self.cut_yet {
            return;
        }
        while self.alpha_due_ns <= now_ns || self.rate_due_ns <= now_ns {
            if self.alpha_due_ns <= self.rate_due_ns {
                self.alpha *= 1.0 - GAIN;
                self.alpha_due_ns += ALPHA_TIMER_NS;
            } else {
                self.timer_steps += 1;
                self.rate_due_ns += RATE_TIMER_NS;
                self.increase();
            }
        }
    }

    pub(super) fn on_sent(&mut self, now_ns: u64, bytes: u32) {
        self.catch_up(now_ns);
        self.bytes += u64::from(bytes);
        if self.cut_yet && self.bytes >= BYTE_COUNTER {
            self.bytes = 0;
            self.byte_steps += 1;
            self.increase();
        }
    }

    pub(super) fn on_notified(&mut self, now_ns: u64) {
        self.catch_up(now_ns);
        self.cut_yet = true;
        self.target = self.current;
        self.current = (self.current * (1.0 - self.alpha / 2.0)).max(LEAST);
        self.alpha = (1.0 - GAIN) * self.alpha + GAIN;
        (self.timer_steps, self.byte_steps, self.bytes) = (0, 0, 0);
        self.alpha_due_ns = now_ns + ALPHA_TIMER_NS;
        self.rate_due_ns = now_ns + RATE_TIMER_NS;
    }

    fn increase(&mut self) {
        if self.timer_steps.min(self.byte_steps) > FAST_STEPS {
            self.target += LARGE_STEP;
        } else if self.timer_steps.max(self.byte_steps) > FAST_STEPS {
            self.target += STEP;
        }
        self.target = self.target.min(self.line);
        self.current = f64::midpoint(self.current, self.target).min(self.line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_notification_halves_the_rate_and_recovery_is_by_halves() {
        let mut flow = Dcqcn::new(40_000_000_000);
        flow.on_notified(1_000);
        assert_eq!(flow.rate(1_000), 20e9);
        assert_eq!(flow.rate(1_000 + RATE_TIMER_NS), 30e9);
        assert_eq!(flow.rate(1_000 + 2 * RATE_TIMER_NS), 35e9);
        assert!(flow.rate(1_000 + 5 * RATE_TIMER_NS) < 40e9);
    }

    #[test]
    fn alpha_decays_so_that_rare_notifications_cut_little() {
        let mut flow = Dcqcn::new(40_000_000_000);
        flow.on_notified(0);
        // 256 timers later α has decayed to 1/e.
        let later = 256 * ALPHA_TIMER_NS;
        let before = flow.rate(later);
        flow.on_notified(later);
        let cut = 1.0 - flow.current / before;
        assert!((0.17..0.20).contains(&cut), "{cut}");
    }
}
