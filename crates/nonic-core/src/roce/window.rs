//! The window to a peer: how many bytes may be under way, for all queue pairs that talk to it.
//!
//! A UDP socket's receive buffer is what overflows first, and every queue pair of the peer's process shares it. So the
//! window is per address, in bytes of path MTU; `congestion` decides how large it is. READ responses count as soon as
//! they are requested.
//!
//! Sharing it must not mean that one queue pair whose peer is dead, stopped or slow takes it from all others. Four
//! rules see to that:
//! - **A queue pair that stalls loses its part.** Time is cut into epochs of a few round trips. A [`Share`] remembers
//!   the epoch of its last sign of life (an acknowledgement, or the first packet after none was under way). A share
//!   without any in this epoch and the one before is stalled: its packets have been lost or have left the socket buffer
//!   long since, so they count no more, and its queue pair may not send until it hears something. Then it may have one
//!   packet under way beyond the old ones until those are acknowledged. Two sums, one per epoch, make writing off an
//!   assignment, whatever the number of queue pairs.
//! - **While no queue pair at all makes progress, an epoch lasts longer**: then it is rather the whole peer that
//!   pauses, with the packets in its socket buffer. A timer ends epochs when nothing arrives; it runs only while a
//!   queue pair waits.
//! - **A queue pair that has its fair share lets others go first.** If the window was full in this epoch or the one
//!   before, a queue pair may have the window divided by the number of its users. One that has it does not join the
//!   line, but rests until it has less or the window has not been full for a while.
//! - **A loss takes from the window no more than half of what the loser had in it, and a timeout takes anything only if
//!   no other queue pair made progress since.** Otherwise it says something about that queue pair, not about the path.
//!
//! What the window counts never exceeds it, with two exceptions of one packet: one may always be under way, and a queue
//! pair may ask with one for an acknowledgement it would otherwise never get.

use crate::roce::congestion::Congestion;
use crate::time::Time;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

/// An epoch is this many round trips.
const EPOCH_ROUND_TRIPS: u64 = 4;

/// Bounds of an epoch. A peer may withhold an acknowledgement for a millisecond, so a shorter one would call live queue
/// pairs stalled. With a longer one, a slow peer's own round trips would hide that it is slow, unless no queue pair has
/// seen shorter ones: then the path is long, and the upper bound is [`LONG_EPOCH_NS`].
const EPOCH_NS: std::ops::RangeInclusive<u64> = 2_000_000..=100_000_000;
const LONG_EPOCH_NS: u64 = 2_000_000_000;

/// An epoch in which no queue pair made progress lasts this many times as long: a process that is not scheduled for a
/// few milliseconds has not gone.
const SILENT_EPOCH: u64 = 2;

/// A READ is not asked for in smaller parts than this for the sake of the window: each costs a request.
const SMALL_READ: u64 = 64 << 10;

/// Window limits, in bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct WindowConfig {
    /// Where a peer's window starts.
    pub initial: u32,
    /// Beyond this it does not grow.
    pub max: u32,
}

impl Default for WindowConfig {
    fn default() -> Self {
        WindowConfig {
            initial: 256 << 10,
            max: 128 << 20,
        }
    }
}

/// Index of a peer in the table.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct PeerId(usize);

impl PeerId {
    /// As an owner of timers.
    pub(crate) fn slot(self) -> u32 {
        self.0 as u32
    }

    pub(crate) fn from_slot(slot: u32) -> Self {
        PeerId(slot as usize)
    }
}

/// What one queue pair has in the window.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Share {
    bytes: u64,
    /// The epoch of the last sign of life; meaningless without bytes.
    epoch: u64,
    /// Whether it is of one packet, from a queue pair that expects no answer.
    cautious: bool,
}

impl Share {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// A queue pair that would like to send.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Waiting {
    slot: usize,
    /// It needs room for so many.
    bytes: u32,
    /// Whether it had nothing under way.
    newcomer: bool,
}

/// A queue pair that may send now.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Turn {
    pub(crate) slot: usize,
    /// Whether it rested; otherwise it stood in line.
    pub(crate) rested: bool,
}

/// The sum of the shares of one epoch.
#[derive(Copy, Clone, Debug, Default)]
struct Held {
    bytes: u64,
    /// How many queue pairs have them, cautious ones excepted: those do not use their part of the window.
    holders: u32,
}

#[derive(Debug)]
pub(crate) struct PeerWindow {
    congestion: Congestion,
    /// Bytes of all shares that are not stalled: the sum of `held`.
    in_flight: u64,
    /// The shares of this epoch and of the one before, by its lowest bit.
    held: [Held; 2],
    epoch: u64,
    epoch_began: Time,
    /// It ends then at the earliest.
    epoch_ends: Time,
    /// The last epoch in which something was acknowledged.
    progress_epoch: u64,
    /// The last epoch in which a timeout shrank the window.
    timeout_epoch: u64,
    /// A recent round trip, as the queue pairs see it whose traffic flows.
    round_trip_ns: u64,
    users: usize,
    ip: IpAddr,
    /// Queue pairs (by slot) that found the window full, and how many bytes each needs room for. None overtakes
    /// another: a large READ would never find room next to a stream of small packets.
    line: VecDeque<Waiting>,
    /// How many of them had nothing under way when they came.
    newcomers: u32,
    /// The last epoch in which a queue pair found no room.
    full_epoch: u64,
    /// Queue pairs that have their fair share of it and would like more. Their own acknowledgements may have brought
    /// them back meanwhile.
    resting: VecDeque<Waiting>,
    /// The queue pair at the head of the line was given its turn and has not used it yet.
    turn_given: bool,
    /// Whether the timer that ends epochs is in the wheel.
    timer_set: bool,
    /// Distinguishes it from earlier users of its slot.
    generation: u32,
}

impl PeerWindow {
    fn new(ip: IpAddr, config: &WindowConfig, generation: u32) -> Self {
        PeerWindow {
            congestion: Congestion::new(config.initial, config.max),
            in_flight: 0,
            held: [Held::default(); 2],
            // Later than the epochs below, which are of something that never happened.
            epoch: 2,
            epoch_began: Time::ZERO,
            epoch_ends: Time::ZERO,
            progress_epoch: 0,
            timeout_epoch: 0,
            round_trip_ns: EPOCH_NS.start() / EPOCH_ROUND_TRIPS,
            users: 0,
            ip,
            line: VecDeque::new(),
            newcomers: 0,
            full_epoch: 0,
            resting: VecDeque::new(),
            turn_given: false,
            timer_set: false,
            generation,
        }
    }

    /// Whether `bytes` more may be sent by a queue pair whose turn it is, or by any if none waits.
    pub(crate) fn admits(&self, share: &Share, bytes: u32, in_turn: bool) -> bool {
        (in_turn || !self.is_contended())
            && self.has_room_for(bytes)
            && !self.is_stalled(share)
            && !self.has_fair_share(share)
    }

    /// Whether after `bytes`, which are admitted, not even a packet more would be.
    pub(crate) fn is_filled_by(&self, share: &Share, bytes: u32, mtu: u32, in_turn: bool) -> bool {
        let after = Share {
            bytes: share.bytes + u64::from(bytes),
            ..*share
        };
        (self.is_contended() && !in_turn)
            || !self.has_room_for(bytes.saturating_add(mtu))
            || self.has_fair_share(&after)
    }

    /// What a queue pair that was not admitted has to wait for.
    pub(crate) fn refusal(&self, share: &Share) -> NoRoom {
        if self.is_stalled(share) {
            NoRoom::Stalled
        } else if self.has_fair_share(share) {
            NoRoom::FairShare
        } else {
            NoRoom::Full
        }
    }

    /// Whether what the queue pair had under way was written off.
    pub(crate) fn is_stalled(&self, share: &Share) -> bool {
        share.bytes > 0 && !self.counts(share)
    }

    /// Whether others might have less than a fair share if this one had more.
    fn has_fair_share(&self, share: &Share) -> bool {
        self.was_full() && share.bytes > 0 && share.bytes >= self.fair_share()
    }

    /// The window divided by those who use it and those who would like to.
    fn fair_share(&self) -> u64 {
        let users = self.held[0].holders + self.held[1].holders + self.newcomers;
        self.congestion.window() / u64::from(users.max(1))
    }

    /// Whether a queue pair found the window full of late.
    fn was_full(&self) -> bool {
        self.epoch - self.full_epoch < 2
    }

    /// Whether queue pairs have found the window full and have not had their turn.
    fn is_contended(&self) -> bool {
        !self.line.is_empty() || self.turn_given
    }

    /// One packet always has room if nothing is under way.
    fn has_room_for(&self, bytes: u32) -> bool {
        self.in_flight == 0 || self.in_flight + u64::from(bytes) <= self.congestion.window()
    }

    /// How much of the window one queue pair may have as things stand.
    pub(crate) fn part(&self) -> u64 {
        if self.was_full() {
            self.fair_share()
        } else {
            self.congestion.window()
        }
    }

    /// How much a READ may ask for at once, if so many READs may be under way. It is a part of the window, since it is
    /// sent only when the window has room for all of it: with few large parts, much of the window would be empty most
    /// of the time. Half of the window at most, so that it finds room at all; no more than a fair share if other queue
    /// pairs wait, because a repetition that is never answered counts too.
    pub(crate) fn largest_read(&self, at_once: u8) -> u64 {
        let window = self.congestion.window();
        let part = window / u64::from(at_once.max(1));
        part.max(SMALL_READ).min(window / 2).min(self.part())
    }

    /// Whether a share is of this epoch or the one before, so that its bytes are in the sums.
    fn counts(&self, share: &Share) -> bool {
        self.epoch - share.epoch < 2
    }

    /// A queue pair has `bytes` under way now. One that has been `cautious` since it last heard nothing in time is
    /// given less time: its packet counts until this epoch ends, not the next.
    pub(crate) fn account(&mut self, share: &mut Share, bytes: u64, cautious: bool) {
        self.take_out(share);
        if share.bytes == 0 {
            share.epoch = self.epoch - u64::from(cautious);
            share.cautious = cautious;
        }
        share.bytes = bytes;
        if bytes > 0 && self.counts(share) {
            self.in_flight += bytes;
            let held = &mut self.held[(share.epoch & 1) as usize];
            held.bytes += bytes;
            held.holders += u32::from(!share.cautious);
        }
    }

    fn take_out(&mut self, share: &Share) {
        if share.bytes > 0 && self.counts(share) {
            self.in_flight -= share.bytes;
            let held = &mut self.held[(share.epoch & 1) as usize];
            held.bytes -= share.bytes;
            held.holders -= u32::from(!share.cautious);
        }
    }

    /// Ends the epoch if it is over: queue pairs silent for two epochs stop counting against the window.
    pub(crate) fn turn_epoch(&mut self, now: Time) {
        if now >= self.epoch_ends {
            self.end_epoch(now);
        }
    }

    #[cold]
    fn end_epoch(&mut self, now: Time) {
        if now < self.epoch_is_over_at() {
            return;
        }
        self.epoch += 1;
        let stalled = std::mem::take(&mut self.held[(self.epoch & 1) as usize]);
        self.in_flight -= stalled.bytes;
        if !self.line.is_empty() {
            self.full_epoch = self.epoch;
        }
        self.epoch_began = now;
        self.epoch_ends = now + Duration::from_nanos(self.epoch_ns());
    }

    fn epoch_is_over_at(&self) -> Time {
        if self.progress_epoch == self.epoch {
            self.epoch_ends
        } else {
            self.epoch_began + Duration::from_nanos(SILENT_EPOCH * self.epoch_ns())
        }
    }

    fn epoch_ns(&self) -> u64 {
        let usual = (EPOCH_ROUND_TRIPS * self.round_trip_ns).clamp(*EPOCH_NS.start(), *EPOCH_NS.end());
        let shortest = EPOCH_ROUND_TRIPS.saturating_mul(self.congestion.shortest_round_trip_ns());
        usual.max(shortest.min(LONG_EPOCH_NS))
    }

    /// An answer that takes no longer than this is as prompt as the path allows.
    pub(crate) fn prompt(&self) -> Duration {
        Duration::from_nanos(self.epoch_ns() / 2)
    }

    /// When the timer that ends epochs must be set for, if it must. Returns it once, until it has fired.
    pub(crate) fn set_timer(&mut self) -> Option<(Time, u32)> {
        if self.timer_set || (self.line.is_empty() && self.resting.is_empty()) {
            return None;
        }
        self.timer_set = true;
        Some((self.epoch_is_over_at(), self.generation))
    }

    /// The timer fired.
    pub(crate) fn handle_timer(&mut self, now: Time) {
        self.timer_set = false;
        self.turn_epoch(now);
    }

    /// Queue pair `slot` found no room for `bytes`; a `newcomer` has nothing under way. It must not stand in
    /// line already.
    pub(crate) fn wait(&mut self, slot: usize, bytes: u32, newcomer: bool) {
        self.full_epoch = self.epoch;
        self.congestion.on_full();
        self.newcomers += u32::from(newcomer);
        self.line.push_back(Waiting {
            slot,
            bytes,
            newcomer,
        });
    }

    /// A queue pair has its share and would like `bytes` more.
    pub(crate) fn on_fair_share(&mut self, bytes: u32) {
        if !self.has_room_for(bytes) {
            self.full_epoch = self.epoch;
            self.congestion.on_full();
        }
    }

    /// Queue pair `slot` has its share and lets others go first. It must not rest already.
    pub(crate) fn rest(&mut self, slot: usize, bytes: u32) {
        self.resting.push_back(Waiting {
            slot,
            bytes,
            newcomer: false,
        });
    }

    /// Queue pair `slot` waits no more.
    pub(crate) fn stop_waiting(&mut self, slot: usize) {
        let left = self
            .line
            .iter()
            .filter(|waiting| waiting.slot == slot && waiting.newcomer);
        self.newcomers -= left.count() as u32;
        self.line.retain(|waiting| waiting.slot != slot);
        self.resting.retain(|waiting| waiting.slot != slot);
    }

    /// Whose turn it is, if there is room for what it needs. One at a time, until its turn ends.
    pub(crate) fn give_turn(&mut self) -> Option<Turn> {
        let rested = self.line.is_empty() && !self.was_full();
        let queue = if rested { &self.resting } else { &self.line };
        let first = *queue.front()?;
        if self.turn_given || !self.has_room_for(first.bytes) {
            return None;
        }
        self.turn_given = true;
        let queue = if rested { &mut self.resting } else { &mut self.line };
        queue.pop_front();
        self.newcomers -= u32::from(first.newcomer);
        Some(Turn {
            slot: first.slot,
            rested,
        })
    }

    /// The queue pair whose turn it was has used it, or has no use for it.
    pub(crate) fn end_turn(&mut self) {
        self.turn_given = false;
    }

    /// `bytes` of a queue pair arrived. Its share is empty until it is accounted anew, as of this epoch.
    pub(crate) fn on_progress(&mut self, now: Time, share: &mut Share, bytes: u32, mtu: u32) {
        self.account(share, 0, false);
        self.turn_epoch(now);
        self.progress_epoch = self.epoch;
        self.congestion.on_delivered(now, u64::from(bytes), mtu);
    }

    /// An answer took this long. Answers that took longer than usual count little: one slow queue pair must not make
    /// the others' round trips look long.
    pub(crate) fn on_round_trip(&mut self, now: Time, duration: Duration) {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.congestion.on_round_trip(now, ns);
        let sample = ns.min(EPOCH_NS.end() / EPOCH_ROUND_TRIPS);
        let known = &mut self.round_trip_ns;
        if sample < *known {
            *known -= (*known - sample) / 8;
        } else {
            *known += (sample - *known) / 64;
        }
    }

    /// A queue pair was told of a gap, and begins again there.
    pub(crate) fn on_loss(&mut self, share: &Share, mtu: u32) {
        self.congestion.on_gone_back(share.bytes, mtu);
    }

    /// So many bytes of a queue pair are to be sent again, and nothing else.
    pub(crate) fn on_lost(&mut self, bytes: u64) {
        self.congestion.on_lost(bytes);
    }

    /// The path says that it is congested.
    pub(crate) fn on_notified(&mut self, now: Time, mtu: u32) {
        self.congestion.on_notified(now, mtu);
    }

    /// A queue pair heard nothing in time. That says nothing about the path if others have heard something
    /// since, and nothing new if the window shrank since for the same reason.
    pub(crate) fn on_timeout(&mut self, share: &Share, mtu: u32) {
        if self.progress_epoch > share.epoch || self.timeout_epoch >= share.epoch {
            return;
        }
        self.timeout_epoch = self.epoch;
        self.congestion.on_timeout(mtu);
    }
}

/// Why a queue pair may not send more to a peer at the moment.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum NoRoom {
    /// What it had under way was written off: it waits until it hears something.
    Stalled,
    /// Other queue pairs wait, and it has its fair share.
    FairShare,
    /// There is too much under way.
    Full,
}

/// Every peer some queue pair is connected to.
#[derive(Debug, Default)]
pub(crate) struct PeerTable {
    peers: slab::Slab<PeerWindow>,
    by_ip: HashMap<IpAddr, usize>,
    generation: u32,
}

impl PeerTable {
    /// Finds or makes the entry for `ip` and counts one more user.
    pub(crate) fn join(&mut self, ip: IpAddr, config: &WindowConfig) -> PeerId {
        let (peers, generation) = (&mut self.peers, &mut self.generation);
        let index = *self.by_ip.entry(ip).or_insert_with(|| {
            *generation = generation.wrapping_add(1);
            peers.insert(PeerWindow::new(ip, config, *generation))
        });
        self.peers[index].users += 1;
        PeerId(index)
    }

    /// Counts one user less, which has nothing under way.
    pub(crate) fn leave(&mut self, id: PeerId) {
        let peer = &mut self.peers[id.0];
        peer.users -= 1;
        if peer.users == 0 {
            let ip = peer.ip;
            self.peers.remove(id.0);
            self.by_ip.remove(&ip);
        }
    }

    pub(crate) fn peer(&mut self, id: PeerId) -> &mut PeerWindow {
        &mut self.peers[id.0]
    }

    /// The same for a peer that may have lost its last user.
    pub(crate) fn find(&mut self, id: PeerId) -> Option<&mut PeerWindow> {
        self.peers.get_mut(id.0)
    }

    /// The owner of a timer, unless it is gone.
    pub(crate) fn owner(&mut self, id: PeerId, generation: u32) -> Option<&mut PeerWindow> {
        self.find(id).filter(|peer| peer.generation == generation)
    }

    /// How large the window to a peer is.
    pub(crate) fn window_of(&self, id: PeerId) -> Option<u64> {
        self.peers.get(id.0).map(|peer| peer.congestion.window())
    }

    /// How many peers there are.
    pub(crate) fn len(&self) -> usize {
        self.peers.len()
    }

    /// Bytes under way to all of them.
    pub(crate) fn in_flight(&self) -> u64 {
        self.peers.iter().map(|(_, peer)| peer.in_flight).sum()
    }
}
