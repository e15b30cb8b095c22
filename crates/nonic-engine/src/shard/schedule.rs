//! When a shard looks at which source of packets.
//!
//! A thread that polls looks mostly at the source that was busy last, and at the quiet ones now and then. While records come through
//! lanes, where a look is no system call, sockets are looked at by the clock. It knows nothing of links; it counts and compares.

use nonic_core::Time;
use std::time::Duration;

/// The sources that were quiet lately are looked at every so many calls.
const QUIET_SOURCE_INTERVAL: u32 = 128;
/// While records come through lanes, sockets are looked at this often, and quiet sources this often.
const SOCKET_PERIOD: Duration = Duration::from_micros(20);
const QUIET_SOURCE_PERIOD: Duration = Duration::from_millis(1);
/// The same for sockets that had nothing the last time, while lanes are busy: each such look delays a message. With the shorter period,
/// one round trip of 64 B in six met a look at one side or the other. The longer a socket has been silent, the less often it is looked
/// at: what comes after a silence waits for a sixteenth of that at most.
const SILENT_SOCKET_PERIOD: Duration = Duration::from_micros(160);
const LONGEST_SOCKET_PERIOD: Duration = Duration::from_micros(640);

/// A source: the link, and its place among the link's.
pub(super) type Source = (usize, usize);

/// Which source was busy, and when the others are due.
#[derive(Debug)]
pub(super) struct SourceSchedule {
    /// The source that had packets last.
    hot: Source,
    /// What came last were records, or their answers: sockets are looked at less often.
    on_lanes: bool,
    /// Whether records came since this was asked last, and packets when sockets were looked at last.
    lanes_were_busy: bool,
    sockets_were_busy: bool,
    /// When sockets were looked at, when they had packets, and when all sources are to be looked at, while that is so.
    sockets_looked: Time,
    sockets_heard: Time,
    quiet_due: Time,
    /// How often the shard looked; wraps.
    looks: u32,
    /// When a link is to be looked at though nothing comes, unless it was used since.
    links_due: Option<Time>,
    links_used: bool,
}

impl SourceSchedule {
    pub(super) fn new() -> Self {
        SourceSchedule {
            hot: (0, 0),
            on_lanes: false,
            lanes_were_busy: false,
            sockets_were_busy: false,
            sockets_looked: Time::ZERO,
            sockets_heard: Time::ZERO,
            quiet_due: Time::ZERO,
            looks: 0,
            links_due: None,
            links_used: true,
        }
    }

    /// The source that had packets last.
    pub(super) fn hot(&self) -> Source {
        self.hot
    }

    /// A socket had packets.
    pub(super) fn came_from(&mut self, source: Source) {
        self.hot = source;
        self.on_lanes = false;
        self.sockets_were_busy = true;
    }

    /// Records, or their answers, came through a lane.
    pub(super) fn used_lanes(&mut self) {
        self.on_lanes = true;
        self.lanes_were_busy = true;
    }

    /// Whether records come through lanes, at present.
    pub(super) fn is_on_lanes(&self) -> bool {
        self.on_lanes
    }

    /// One more look.
    pub(super) fn count(&mut self) {
        self.looks = self.looks.wrapping_add(1);
    }

    /// Whether the next look is one of every so many.
    pub(super) fn is_next_of_every(&self, interval: u32) -> bool {
        self.looks.wrapping_add(1) % interval == 0
    }

    /// Whether so many posts are one of those after which quiet sources are looked at.
    pub(super) fn is_quiet_turn(count: u32) -> bool {
        count % QUIET_SOURCE_INTERVAL == 0
    }

    /// Whether the socket that was busy last is to be looked at. If so, it is taken to be.
    pub(super) fn take_socket_turn(&mut self, now: Time, full: bool) -> bool {
        if self.sockets_were_busy {
            self.sockets_heard = now;
        }
        let period = match std::mem::take(&mut self.lanes_were_busy) && !self.sockets_were_busy {
            true => (now.since(self.sockets_heard) / 16).clamp(SILENT_SOCKET_PERIOD, LONGEST_SOCKET_PERIOD),
            false => SOCKET_PERIOD,
        };
        let due = !self.on_lanes || full || now >= self.sockets_looked + period;
        if due {
            self.sockets_looked = now;
            self.sockets_were_busy = false;
        }
        due
    }

    /// Whether all sources are to be looked at. If so, they are taken to be.
    pub(super) fn take_full_turn(&mut self, now: Time, full: bool) -> bool {
        let quiet_is_due = match self.on_lanes {
            true => now >= self.quiet_due,
            false => Self::is_quiet_turn(self.looks),
        };
        if full || quiet_is_due {
            self.quiet_due = now + QUIET_SOURCE_PERIOD;
        }
        full || quiet_is_due
    }

    /// A link was used: when it is due may have changed.
    pub(super) fn use_links(&mut self) {
        self.links_used = true;
    }

    /// When a link is to be looked at though nothing comes; `links` says it if one was used since it was last known.
    pub(super) fn links_due(&self, links: impl FnOnce() -> Option<Time>) -> Option<Time> {
        match self.links_used {
            true => links(),
            false => self.links_due,
        }
    }

    /// Whether it has to be asked again when links are due.
    pub(super) fn is_stale(&self) -> bool {
        self.links_used
    }

    /// Links are due then.
    pub(super) fn set_links_due(&mut self, due: Option<Time>) {
        self.links_due = due;
        self.links_used = false;
    }

    /// There are no links any more.
    pub(super) fn forget_links(&mut self) {
        self.links_due = None;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SOURCE: Source = (0, 0);

    /// A schedule on lanes whose sockets had packets a moment ago, and nothing when they were looked at since.
    fn on_lanes() -> (SourceSchedule, Time) {
        let mut schedule = SourceSchedule::new();
        let now = Time::ZERO + Duration::from_secs(1);
        schedule.came_from(SOURCE);
        schedule.used_lanes();
        assert!(schedule.take_socket_turn(now, true));
        (schedule, now)
    }

    #[test]
    fn silent_sockets_are_looked_at_less_often_while_lanes_are_busy() {
        let (mut schedule, now) = on_lanes();
        for at in [20, 100, 159] {
            schedule.used_lanes();
            assert!(
                !schedule.take_socket_turn(now + Duration::from_micros(at), false),
                "{at}"
            );
        }
        schedule.used_lanes();
        assert!(schedule.take_socket_turn(now + SILENT_SOCKET_PERIOD, false));
    }

    #[test]
    fn what_comes_after_a_silence_waits_for_a_sixteenth_of_it() {
        let (mut schedule, heard) = on_lanes();
        let mut looks = Vec::new();
        for at in (0..100_000).step_by(10) {
            schedule.used_lanes();
            if schedule.take_socket_turn(heard + Duration::from_micros(at), false) {
                looks.push(at);
            }
        }
        assert!(
            looks
                .windows(2)
                .all(|two| two[1] - two[0] <= (two[1] / 16).clamp(160, 640) + 10)
        );
        assert!(looks.len() < 250, "{}", looks.len());
    }

    #[test]
    fn a_program_that_waits_on_silent_lanes_looks_at_sockets_soon() {
        let (mut schedule, now) = on_lanes();
        schedule.used_lanes();
        assert!(
            !schedule.take_socket_turn(now + SOCKET_PERIOD, false),
            "lanes were busy"
        );
        assert!(
            schedule.take_socket_turn(now + SOCKET_PERIOD, false),
            "they are not any more"
        );
    }

    #[test]
    fn sockets_that_had_packets_are_looked_at_soon_though_lanes_are_busy() {
        let (mut schedule, now) = on_lanes();
        schedule.came_from(SOURCE);
        schedule.used_lanes();
        assert!(!schedule.take_socket_turn(now + SOCKET_PERIOD / 2, false));
        schedule.used_lanes();
        assert!(schedule.take_socket_turn(now + SOCKET_PERIOD, false));
    }
}
