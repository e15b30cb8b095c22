//! The glance: a cheap poll of the source that was busy last, for a thread that polls in a loop and finds nothing most of
//! the time.
//!
//! An empty glance is one system call and little else. While records come through [lanes](crate::link::lane) it is none at
//! all: sockets are then polled when it is time, whether or not lanes bring something. Above all a glance does not read the
//! clock, which costs a tenth of such a call or, where the clock is paravirtual, as much as the call. The time is needed
//! once a packet has come, and for timers every [`CLOCK_INTERVAL`] glances, or [`LANE_CLOCK_INTERVAL`] while lanes are in use. So a timer may be served that many glances
//! late: microseconds, while a thread polls in a loop. A thread that stops polling leaves its timers to the background
//! thread, which knows when they are due.

use super::receive::{SMALL_RECEIVE, take};
use super::{Effort, Shard};
use crate::driver::machine::Machine;
use crate::os::descriptors;
use nonic_core::Time;

/// The clock is read every so many looks. A divisor of the interval at which quiet sources are looked at.
const CLOCK_INTERVAL: u32 = 8;
/// The same while records come through lanes, where a look is no system call.
const LANE_CLOCK_INTERVAL: u32 = 64;

/// What came of a glance.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Glance {
    /// There was nothing.
    Nothing,
    /// There was work, and it left nothing that the end of the turn sees to.
    Settled,
    /// There was work.
    Work,
}

impl From<bool> for Glance {
    fn from(worked: bool) -> Self {
        match worked {
            true => Glance::Work,
            false => Glance::Nothing,
        }
    }
}

impl Shard {
    /// Shows what records have led to. Whatever else there is to do waits for the next look that reads the clock, unless records led to it.
    fn follow_up_records(&mut self, clock: &impl Fn() -> Time) -> Glance {
        if self.nic.ready_queue_pairs() > 0 {
            self.flush(clock());
            return Glance::Work;
        }
        self.publish(self.clock_read);
        match self.is_settled() && !self.is_behind() {
            true => Glance::Settled,
            false => Glance::Work,
        }
    }

    /// Looks for work where it is likely, and does it.
    pub(crate) fn glance(&mut self, clock: impl Fn() -> Time, effort: Effort) -> Glance {
        let interval = match self.schedule.is_on_lanes() {
            true => LANE_CLOCK_INTERVAL,
            false => CLOCK_INTERVAL,
        };
        if self.schedule.is_next_of_every(interval) || self.has_something_to_do() {
            return self.drive(clock(), effort).into();
        }
        self.schedule.count();
        if let Some((streams, nic)) = self.streams() {
            return match streams.glance(&clock, nic) {
                Some(now) => {
                    self.clock_read = now;
                    self.follow_up(now, effort, true, false).into()
                }
                None => Glance::Nothing,
            };
        }
        if self.exchange_records(&clock) {
            return self.follow_up_records(&clock);
        }
        if self.schedule.is_on_lanes() {
            return Glance::Nothing;
        }
        let (index, source) = self.schedule.hot();
        let Shard { nic, carriers, .. } = self;
        let Some(link) = carriers.links.get_mut(index) else {
            return Glance::Nothing;
        };
        let mut read = None;
        // A link does little with the time, and this one may be as old as the last look.
        let received = link.receive(self.clock_read, source, &mut |datagrams| {
            take(nic, *read.get_or_insert_with(&clock), datagrams);
        });
        match received {
            Ok(bytes) => {
                let now = read.unwrap_or_else(clock);
                self.follow_up_glance(now, effort, bytes).into()
            }
            Err(error) if descriptors::casts_doubt(&error) => {
                self.failure.doubt(true);
                self.flush(clock()).into()
            }
            Err(_) => Glance::Nothing,
        }
    }

    fn follow_up_glance(&mut self, now: Time, effort: Effort, bytes: usize) -> bool {
        self.clock_read = now;
        if bytes >= SMALL_RECEIVE {
            self.receive(now, self.schedule.hot());
        } else if self.nic.has_management() {
            self.exchange_messages(now);
        }
        self.follow_up(now, effort, true, false)
    }

    /// Whether there is more to do than to look for packets.
    fn has_something_to_do(&self) -> bool {
        self.has_deferred() || self.failure.is_in_doubt() || self.carriers.is_behind() || self.needs_flush()
    }
}
