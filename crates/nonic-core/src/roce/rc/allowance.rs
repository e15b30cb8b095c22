//! The allowance for reordering: how long a responder waits for a missing packet before it reports a loss.
//!
//! A peer that goes back on a NAK repeats everything from the gap on. So a needless NAK costs a window, and a late NAK
//! costs the time it was late. The right wait depends on the path, and the path shows it: a gap that is filled before
//! it was reported was no loss. Neither was one that is filled twice after it was reported, by the late packet and by
//! its retransmission. From then on the responder waits twice as long as would have been needed. While no gap needs that, the allowance
//! is halved again and again.

use super::reorder::ReorderConfig;
use crate::time::Time;
use nonic_wire::Psn;
use std::time::Duration;

/// In this time without packets that come late, the allowance is halved.
const HALF_LIFE: Duration = Duration::from_secs(1);

/// The allowance of one responder.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Allowance {
    /// What was learned, in nanoseconds; no more than 32 bits can hold.
    learned_ns: u32,
    /// How long the packet took that was reported missing and came.
    doubtful_ns: u32,
    learned_at: Time,
    /// That packet. If it comes again, it was not lost.
    doubtful: Option<Psn>,
}

impl Allowance {
    /// How long to wait for a packet that is found missing now.
    pub(super) fn at(&self, now: Time, config: &ReorderConfig) -> Duration {
        let halves = now.since(self.learned_at).as_nanos() / HALF_LIFE.as_nanos();
        let halves = u32::try_from(halves).unwrap_or(u32::MAX);
        let learned = self.learned_ns.checked_shr(halves).unwrap_or(0);
        Duration::from_nanos(learned.into())
            .max(config.min_allowance)
            .min(config.max_allowance)
    }

    /// A packet came that was missing for so long, and was not lost.
    pub(super) fn came_late(&mut self, now: Time, late: Duration, config: &ReorderConfig) {
        let needed = late.saturating_mul(2);
        let allowed = self.at(now, config);
        // Half as much confirms what was learned; less lets it be forgotten.
        if needed * 2 >= allowed {
            let kept = needed.max(allowed).min(config.max_allowance);
            self.learned_ns = u32::try_from(kept.as_nanos()).unwrap_or(u32::MAX);
            self.learned_at = now;
        }
    }

    /// A packet that was reported missing came, so long after the first from behind it: late, or for the second time.
    pub(super) fn came_after_report(&mut self, missing: Psn, late: Duration) {
        self.doubtful = Some(missing);
        self.doubtful_ns = u32::try_from(late.as_nanos()).unwrap_or(u32::MAX);
    }

    /// A packet came that was executed before. Whether it shows that reporting it was not needed.
    pub(super) fn came_again(&mut self, now: Time, psn: Psn, config: &ReorderConfig) -> bool {
        if self.doubtful != Some(psn) {
            return false;
        }
        self.doubtful = None;
        self.came_late(now, Duration::from_nanos(self.doubtful_ns.into()), config);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn after(time: Duration) -> Time {
        Time::ZERO + time
    }

    #[test]
    fn it_starts_small_and_grows_with_what_comes_late_up_to_a_bound() {
        let config = ReorderConfig::default();
        let mut allowance = Allowance::default();
        assert_eq!(allowance.at(Time::ZERO, &config), config.min_allowance);
        allowance.came_late(Time::ZERO, 3 * MS, &config);
        assert_eq!(allowance.at(Time::ZERO, &config), 6 * MS);
        allowance.came_late(Time::ZERO, 2 * MS, &config);
        assert_eq!(
            allowance.at(Time::ZERO, &config),
            6 * MS,
            "less does not take it back at once"
        );
        allowance.came_late(Time::ZERO, 100 * MS, &config);
        assert_eq!(allowance.at(Time::ZERO, &config), config.max_allowance);
    }

    #[test]
    fn it_is_forgotten_by_halves_unless_confirmed() {
        let config = ReorderConfig::default();
        let mut allowance = Allowance::default();
        allowance.came_late(after(MS), 4 * MS, &config);
        assert_eq!(allowance.at(after(999 * MS), &config), 8 * MS);
        assert_eq!(allowance.at(after(1001 * MS), &config), 4 * MS);
        allowance.came_late(after(1001 * MS), Duration::from_micros(10), &config);
        assert_eq!(
            allowance.at(after(2001 * MS), &config),
            2 * MS,
            "shorter ones do not confirm it"
        );
        allowance.came_late(after(2001 * MS), MS, &config);
        assert_eq!(
            allowance.at(after(3000 * MS), &config),
            2 * MS,
            "one that needed it does"
        );
        assert_eq!(allowance.at(after(3_600_000 * MS), &config), config.min_allowance);
    }

    #[test]
    fn a_packet_that_comes_twice_was_not_lost() {
        let config = ReorderConfig::default();
        let mut allowance = Allowance::default();
        allowance.came_after_report(Psn::new(5), 2 * MS);
        assert!(!allowance.came_again(Time::ZERO, Psn::new(6), &config));
        assert_eq!(allowance.at(Time::ZERO, &config), config.min_allowance);
        assert!(allowance.came_again(Time::ZERO, Psn::new(5), &config));
        assert_eq!(allowance.at(Time::ZERO, &config), 4 * MS);
        assert!(
            !allowance.came_again(Time::ZERO, Psn::new(5), &config),
            "that is known"
        );
    }
}
