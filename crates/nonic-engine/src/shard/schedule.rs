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
const QUIET_SOURCE_PERIOD: Duration = Duration::from_micros(500);

/// A source: the link, and its place among the link's.
pub(super) type Source = (usize, usize);

/// Which source was busy, and when the others are due.
#[derive(Debug)]
pub(super) struct SourceSchedule {
    /// The source that had packets last.
    hot: Source,
    /// What came last were records, or their answers: sockets are looked at less often.
    on_lanes: bool,
    /// When sockets, and when all sources, are to be looked at while that is so.
    sockets_due: Time,
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
            sockets_due: Time::ZERO,
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
    }

    /// Records, or their answers, came through a lane.
    pub(super) fn used_lanes(&mut self) {
        self.on_lanes = true;
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
        let due = !self.on_lanes || full || now >= self.sockets_due;
        if due {
            self.sockets_due = now + SOCKET_PERIOD;
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
