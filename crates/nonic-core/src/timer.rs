//! Timers: a hierarchical wheel, O(1) amortised whatever the number of queue pairs.
//!
//! Each queue pair has at most one entry per [`Timer`] of its own. Moving a deadline later costs nothing: the entry
//! fires at its old time, the owner sees that it is early and schedules it anew. So the packet path only
//! ever writes a field.

use crate::time::Time;

/// The timers there are.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Timer {
    /// The peer owes an acknowledgement or a response.
    Retransmit,
    /// The peer asked to be left alone because it had no receive ready.
    ReceiverNotReady,
    /// A queue pair with a rate may send its next packet.
    Pace,
    /// Packets came from behind one that is missing.
    Gap,
    /// The peer usually answers sooner, or a packet that was overtaken has stayed away.
    Recovery,
    /// The stream of an iWARP queue pair waits for something.
    Stream,
    /// A queue pair waits for the window to a peer. The peer's, not the queue pair's.
    Window,
}

impl Timer {
    /// Those of a queue pair.
    pub(crate) const ALL: [Timer; 6] = [
        Timer::Retransmit,
        Timer::ReceiverNotReady,
        Timer::Pace,
        Timer::Gap,
        Timer::Recovery,
        Timer::Stream,
    ];
}

/// Identifies the owner of an entry.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Token {
    pub(crate) slot: u32,
    /// Distinguishes successive owners of one slot.
    pub(crate) generation: u32,
    pub(crate) timer: Timer,
}

/// One tick is 8.192 µs: finer than the shortest RNR timer (10 µs).
const TICK_SHIFT: u32 = 13;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
/// Six levels span 2^36 ticks, about six days; later deadlines wait in the last slot and are re-sorted.
const LEVELS: usize = 6;

/// The wheel.
#[derive(Debug)]
pub(crate) struct TimerWheel {
    levels: Vec<Level>,
    /// Every entry due at or before this tick has fired.
    elapsed: u64,
    entries: usize,
    /// No entry is due before this tick. Kept, because it is asked for with every packet.
    earliest: Option<u64>,
    /// Since this was asked for last, an entry came that is due before all others.
    sooner: bool,
}

#[derive(Debug)]
struct Level {
    occupied: u64,
    slots: [Vec<Entry>; SLOTS],
}

#[derive(Copy, Clone, Debug)]
struct Entry {
    tick: u64,
    token: Token,
}

impl TimerWheel {
    pub(crate) fn new() -> Self {
        let levels = (0..LEVELS)
            .map(|_| Level {
                occupied: 0,
                slots: std::array::from_fn(|_| Vec::new()),
            })
            .collect();
        TimerWheel {
            levels,
            elapsed: 0,
            entries: 0,
            earliest: None,
            sooner: false,
        }
    }

    /// How many entries are scheduled.
    pub(crate) fn len(&self) -> usize {
        self.entries
    }

    /// Fires `token` not before `at` and at most one tick after it.
    pub(crate) fn schedule(&mut self, at: Time, token: Token) {
        let tick = at.as_ns().div_ceil(1 << TICK_SHIFT).max(self.elapsed + 1);
        self.insert(Entry { tick, token });
        self.entries += 1;
    }

    /// When [`TimerWheel::expire`] should next be called. May be early, never late.
    pub(crate) fn next(&self) -> Option<Time> {
        self.earliest.map(|tick| Time::from_ns(tick << TICK_SHIFT))
    }

    /// Whether [`TimerWheel::next`] may be sooner than it was when this was asked last.
    #[inline]
    pub(crate) fn take_sooner(&mut self) -> bool {
        std::mem::take(&mut self.sooner)
    }

    /// Moves time to `now` and reports every entry that is due.
    pub(crate) fn expire(&mut self, now: Time, mut fire: impl FnMut(Token)) {
        let target = now.as_ns() >> TICK_SHIFT;
        while let Some((level, slot, tick)) = self.next_slot() {
            if tick > target {
                break;
            }
            self.elapsed = self.elapsed.max(tick);
            self.levels[level].occupied &= !(1 << slot);
            let mut due = std::mem::take(&mut self.levels[level].slots[slot]);
            for entry in due.drain(..) {
                if entry.tick <= self.elapsed {
                    self.entries -= 1;
                    fire(entry.token);
                } else {
                    self.insert(entry);
                }
            }
            // Hand the allocation back unless the slot was filled again meanwhile.
            if self.levels[level].slots[slot].is_empty() {
                self.levels[level].slots[slot] = due;
            }
        }
        self.elapsed = self.elapsed.max(target);
        self.earliest = self.next_slot().map(|(_, _, tick)| tick);
    }

    /// Drops the entries for which `keep` does not hold.
    pub(crate) fn retain(&mut self, keep: impl Fn(&Token) -> bool) {
        for level in &mut self.levels {
            for (slot, entries) in level.slots.iter_mut().enumerate() {
                let before = entries.len();
                entries.retain(|entry| keep(&entry.token));
                self.entries -= before - entries.len();
                if entries.is_empty() {
                    level.occupied &= !(1 << slot);
                }
            }
        }
        self.earliest = self.next_slot().map(|(_, _, tick)| tick);
    }

    fn insert(&mut self, entry: Entry) {
        // The level is the highest digit in which the deadline differs from now.
        // Half the span at most: a full circle would land in the slot time stands in, for ever.
        let span = 1u64 << (SLOT_BITS * LEVELS as u32 - 1);
        let tick = entry.tick.min(self.elapsed + span);
        if self.earliest.is_none_or(|earliest| tick < earliest) {
            self.earliest = Some(tick);
            self.sooner = true;
        }
        let differing = (tick ^ self.elapsed) | 1;
        let level = ((63 - differing.leading_zeros()) / SLOT_BITS).min(LEVELS as u32 - 1);
        let slot = (tick >> (level * SLOT_BITS)) as usize % SLOTS;
        let level = &mut self.levels[level as usize];
        level.occupied |= 1 << slot;
        level.slots[slot].push(entry);
    }

    /// The earliest occupied slot: level, slot, first tick it covers.
    fn next_slot(&self) -> Option<(usize, usize, u64)> {
        self.levels
            .iter()
            .enumerate()
            .filter_map(|(index, level)| self.next_in_level(index, level))
            .min_by_key(
                // On a tie the coarser level goes first, so that its entries are sorted down before firing.
                |(level, _, tick)| (*tick, LEVELS - level),
            )
    }

    fn next_in_level(&self, index: usize, level: &Level) -> Option<(usize, usize, u64)> {
        if level.occupied == 0 {
            return None;
        }
        let shift = index as u32 * SLOT_BITS;
        let position = self.elapsed >> shift;
        let here = (position as usize % SLOTS) as u32;
        let ahead = level.occupied.rotate_right(here).trailing_zeros();
        let slot = (here + ahead) as usize % SLOTS;
        let start = (position + u64::from(ahead)) << shift;
        Some((index, slot, start.max(self.elapsed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(slot: u32) -> Token {
        Token {
            slot,
            generation: 0,
            timer: Timer::Retransmit,
        }
    }

    fn fired(wheel: &mut TimerWheel, now: Time) -> Vec<u32> {
        let mut slots = Vec::new();
        wheel.expire(now, |token| slots.push(token.slot));
        slots.sort_unstable();
        slots
    }

    #[test]
    fn never_early_and_at_most_one_tick_late() {
        let mut wheel = TimerWheel::new();
        let tick = 1 << TICK_SHIFT;
        let deadlines: Vec<u64> = (0..400u64)
            .map(|i| (i * i * 7919 * 131) % 40_000_000_000 + i * 10_000 + 1)
            .collect();
        for (index, at) in deadlines.iter().enumerate() {
            wheel.schedule(Time::from_ns(*at), token(index as u32));
        }
        let mut fired_at = vec![None; deadlines.len()];
        while let Some(next) = wheel.next() {
            wheel.expire(next, |token| fired_at[token.slot as usize] = Some(next.as_ns()));
        }
        for (at, fired) in deadlines.iter().zip(&fired_at) {
            let fired = fired.expect("every entry fires");
            assert!(fired >= *at && fired <= at + tick, "due {at}, fired {fired}");
        }
        assert_eq!(wheel.len(), 0);
    }

    #[test]
    fn a_long_jump_fires_everything_due() {
        let mut wheel = TimerWheel::new();
        for slot in 0..10 {
            wheel.schedule(Time::from_ns(1_000_000 * u64::from(slot + 1)), token(slot));
        }
        assert_eq!(fired(&mut wheel, Time::from_ns(5_100_000)), [0, 1, 2, 3, 4]);
        assert_eq!(
            fired(&mut wheel, Time::from_ns(3_600_000_000_000)),
            [5, 6, 7, 8, 9]
        );
        assert_eq!(wheel.next(), None);
    }

    #[test]
    fn what_is_dropped_does_not_fire_and_what_is_kept_does() {
        let mut wheel = TimerWheel::new();
        for slot in 0..400 {
            wheel.schedule(Time::from_ns(7_919_000 * u64::from(slot + 1)), token(slot));
        }
        wheel.retain(|token| token.slot % 100 == 99);
        assert_eq!(wheel.len(), 4);
        let first = wheel.next().expect("four are left");
        assert!(first > Time::from_ns(400_000_000), "{first:?}");
        assert_eq!(
            fired(&mut wheel, Time::from_ns(10_000_000_000)),
            [99, 199, 299, 399]
        );
        wheel.schedule(Time::from_ns(20_000_000_000), token(1));
        wheel.retain(|_| false);
        assert_eq!((wheel.len(), wheel.next()), (0, None));
    }

    #[test]
    fn a_deadline_in_the_past_fires_at_the_next_tick() {
        let mut wheel = TimerWheel::new();
        assert!(fired(&mut wheel, Time::from_ns(1_000_000_000)).is_empty());
        wheel.schedule(Time::from_ns(5), token(1));
        let next = wheel.next().expect("one entry is scheduled");
        assert!(next > Time::from_ns(999_000_000));
        assert_eq!(fired(&mut wheel, next), [1]);
    }
}
