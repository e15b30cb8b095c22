//! The shard: the pipeline of packets from links to the NIC and from the NIC to links, and of completions to the program.
//!
//! The thread that holds a [`Shard`]'s lock runs its I/O loop: the program's own thread while it posts and polls, the
//! background thread otherwise. Every call does a bounded amount of work. The caller passes the time: a shard has no clock.
//! The order within one call is always the same: receive, timers, transmit, publish, notify — so an acknowledgement is on
//! the wire before the completion it belongs to can be seen.
//!
//! Two exceptions. While the program polls, a plain acknowledgement may wait for its next call ([`Effort::Light`]). A
//! program that answers what it received then sends answer and acknowledgement in one system call, and system calls are
//! half the time of a short message. And a short request that is posted while the peer owes an answer to an earlier one may
//! wait for that answer ([`Shard::posted`]): the requests posted until then travel as one batch ([`batching`]).
//!
//! A device may have several shards. Each has its own links, queue pairs and timers. Above them are the device's memory
//! keys, its connection manager ([`connections`]) and the map of queue pairs to shards ([`map`]).

mod batching;
mod blocks;
mod carriers;
pub(crate) mod connections;
mod failure;
mod glance;
pub(crate) mod map;
pub(crate) mod published;
mod receive;
mod schedule;
mod send_buffer;
#[cfg(all(test, not(loom)))]
pub(crate) mod tests;
mod transmit;

pub use connections::ConnectionSink;
pub(crate) use glance::Glance;

use crate::driver::machine::Machine;
use crate::host::demultiplex;
use crate::link::{Link, LinkCounters, Presence};
use crate::log;
use crate::notify::{Channel, Notify};
use crate::os::poller::Poller;
use crate::stream::Streams;
use batching::Batching;
use carriers::Carriers;
use connections::ConnectionManager;
use failure::Failure;
use map::ShardMap;
use nonic_core::{CqId, Endpoint, Event, Nic, QpAttributes, QpState, Qpn, Time};
use published::Published;
use schedule::SourceSchedule;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// The listeners that are notified of completion queues.
pub(crate) type Listeners = RwLock<HashMap<CqId, Arc<dyn Notify>>>;

/// What the shards of a device have in common.
#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) connections: Arc<ConnectionManager>,
    pub(crate) map: Arc<ShardMap>,
    pub(crate) listeners: Arc<Listeners>,
    pub(crate) events: Arc<Channel<Event>>,
    /// One of the shards has failed, and so the device has.
    pub(crate) failed: Arc<AtomicBool>,
}

/// A NIC and what carries its bytes.
pub(crate) struct Shard {
    pub(crate) nic: Nic,
    /// Which of the device's shards it is.
    index: usize,
    common: Common,
    carriers: Carriers,
    schedule: SourceSchedule,
    batching: Batching,
    failure: Failure,
    /// Where other processes see what was counted.
    published: Option<Published>,
    /// Posts after which there was nothing to send; wraps.
    direct_posts: u32,
    /// How many threads sleep on the descriptors, or are about to.
    sleepers: u32,
    /// The time when the clock was last read for it.
    clock_read: Time,
}

/// How thoroughly to look for work.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Effort {
    /// Mostly the source that was busy last: what a polling program's thread does.
    Light {
        /// Whether the background thread is sure to look soon, should the program not call again.
        backed: bool,
    },
    /// The same for the background thread, which looks again and again before it sleeps.
    Watch,
    /// Every source.
    Full,
}

impl Machine for Shard {
    /// Whether something is to be sent or shown that does not wait for the program's next call on purpose.
    fn needs_flush(&self) -> bool {
        let waits = self.batching.holds_posts()
            || (self.batching.holds_acknowledgements() && self.nic.only_acknowledges());
        let to_send = self.nic.ready_queue_pairs() > 0 && !waits;
        to_send
            || self.nic.has_management_to_send()
            || self.nic.has_unpublished()
            || self.nic.has_stream_events()
            || self.carriers.has_events()
            || self.failure.is_untold()
            || self.must_fail()
            || self.common.connections.has_output()
            || self.common.connections.has_failing(self.index)
    }

    fn flush(&mut self, now: Time) {
        self.flush(now);
    }

    fn is_behind(&self) -> bool {
        self.carriers.is_behind() || self.carriers.unread
    }

    fn has_deferred(&self) -> bool {
        !self.batching.is_empty()
    }

    fn next_timeout(&self) -> Option<Time> {
        let links = self.schedule.links_due(|| self.carriers.next_link_timeout());
        let timeouts = [
            self.nic.poll_timeout(),
            self.common.connections.next_timeout(),
            self.carriers.next_stream_timeout(),
            self.batching.due(),
            links,
            self.failure.due(),
        ];
        timeouts.into_iter().flatten().min()
    }

    fn fall_asleep(&mut self) -> bool {
        self.sleepers += 1;
        self.carriers.fall_asleep()
    }
}

impl Shard {
    /// The `index`-th shard of a device, without links. With `prompt`, nothing waits for more to travel with.
    pub(crate) fn new(nic: Nic, index: usize, common: Common, prompt: bool) -> Self {
        Shard {
            nic,
            index,
            common,
            carriers: Carriers::new(),
            schedule: SourceSchedule::new(),
            batching: Batching::new(prompt),
            failure: Failure::default(),
            published: None,
            direct_posts: 0,
            sleepers: 0,
            clock_read: Time::ZERO,
        }
    }

    /// Takes up a link: packets go to and from its address from now on. Its place is the GID index.
    pub(crate) fn attach(&mut self, link: Box<dyn Link>) {
        self.nic.add_endpoint(Endpoint {
            ip: link.presence().address().ip,
            port: link.presence().port(),
        });
        self.carriers.links.push(link);
        self.schedule.use_links();
        self.limit_batches(self.carriers.links.len() - 1);
    }

    /// This watches the descriptors of its links and streams.
    pub(crate) fn watched_by(&mut self, poller: &Arc<Poller>) {
        self.carriers.poller = Some(Arc::clone(poller));
    }

    /// Makes it fail at a time.
    pub(crate) fn fail_at(&mut self, at: Time) {
        self.failure.plan(at);
    }

    /// Takes up the TCP connections of an iWARP device, in place of links.
    pub(crate) fn attach_streams(&mut self, streams: Streams) {
        self.carriers.streams = Some(Box::new(streams));
    }

    /// The TCP connections, with the NIC whose queue pairs they are for; none if the device speaks RoCE.
    pub(crate) fn streams(&mut self) -> Option<(&mut Streams, &mut Nic)> {
        let Shard { nic, carriers, .. } = self;
        carriers.streams.as_deref_mut().map(|streams| (streams, nic))
    }

    /// The TCP connections, to look at them; none if the device speaks RoCE.
    pub(crate) fn inspect_streams(&self) -> Option<&Streams> {
        self.carriers.streams.as_deref()
    }

    /// The places of its links on the host, by GID index.
    pub(crate) fn presences(&self) -> impl Iterator<Item = &dyn Presence> {
        self.carriers.links.iter().map(|link| link.presence())
    }

    /// The same, to change them.
    pub(crate) fn presences_mut(&mut self) -> impl Iterator<Item = &mut dyn Presence> {
        self.schedule.use_links();
        self.carriers.links.iter_mut().map(|link| link.presence_mut())
    }

    /// The place of one of them.
    pub(crate) fn presence_mut(&mut self, gid_index: u8) -> Option<&mut dyn Presence> {
        self.schedule.use_links();
        let link = self.carriers.links.get_mut(usize::from(gid_index))?;
        Some(link.presence_mut())
    }

    /// Flushes what the links have recorded, so that other processes see it.
    pub(crate) fn sync_links(&mut self) {
        self.carriers.sync();
    }

    /// What the links counted.
    pub(crate) fn link_counters(&self) -> LinkCounters {
        self.carriers.counters()
    }

    /// Other processes will see what is counted, there.
    pub(crate) fn publish_to(&mut self, published: Published) {
        self.published = Some(published);
    }

    /// Shows other processes what was counted, if it is time again.
    pub(crate) fn publish_counters_when_due(&mut self, now: Time) {
        if self
            .published
            .as_ref()
            .is_some_and(|published| published.is_due(now))
        {
            self.add_to_published(Some(now));
        }
    }

    /// Shows other processes what was counted.
    pub(crate) fn publish_counters(&mut self) {
        if self.published.is_some() {
            self.add_to_published(None);
        }
    }

    fn add_to_published(&mut self, now: Option<Time>) {
        let link = self.link_counters();
        if let Some(published) = &mut self.published {
            published.publish(self.nic.counters(), &link, now);
        }
    }

    /// Asks a link how many packets it takes at once. The answer may change after a send has failed.
    fn limit_batches(&mut self, index: usize) {
        self.nic
            .limit_batches(index as u8, self.carriers.links[index].max_segments());
    }

    /// Looks for work and does it. Whether there was any.
    pub(crate) fn drive(&mut self, now: Time, effort: Effort) -> bool {
        self.schedule.count();
        self.clock_read = now;
        self.batching.look(now);
        let mut worked = self.exchange_records(&|| now);
        if self.schedule.take_socket_turn(now, effort == Effort::Full) {
            worked |= self.receive(now, self.schedule.hot());
        }
        worked |= self.carriers.receive_from_streams(now, &mut self.nic);
        let full = self.schedule.take_full_turn(now, effort == Effort::Full);
        if full {
            // While lanes are in use, looking at each of the others would take longer than all else that is done meanwhile.
            let asks = effort != Effort::Full && self.schedule.is_on_lanes();
            if !asks || self.carriers.may_be_readable() {
                worked |= self.receive_elsewhere(now);
            }
            for link in &mut self.carriers.links {
                link.presence_mut().attend(now);
            }
        }
        self.follow_up(now, effort, worked, full)
    }

    /// Does what follows from what was received, and what is due.
    fn follow_up(&mut self, now: Time, effort: Effort, worked: bool, full: bool) -> bool {
        if full || worked || self.schedule.is_stale() {
            self.schedule.set_links_due(self.carriers.next_link_timeout());
        }
        if self.failure.take_due(now) {
            self.fail(now);
        }
        self.hear_notices(now);
        self.nic.handle_timeout(now);
        self.common.connections.handle_timeout(now);
        self.carriers.handle_timeout(now, &mut self.nic);
        let may_defer = self.batching.is_allowed() && effort == (Effort::Light { backed: true });
        let deferred = self.batching.holds_acknowledgements();
        if may_defer && worked && !deferred && self.carriers.stalled.is_none() && self.nic.only_acknowledges()
        {
            self.batching.hold_acknowledgements();
            self.publish(now);
            return true;
        }
        let by_program = matches!(effort, Effort::Light { .. });
        if !by_program && !worked && self.batching.gathers(now) && !self.needs_flush() {
            return false;
        }
        worked | self.flush(now)
    }

    /// Sends what there is to send, then publishes completions. Whether anything was sent.
    pub(crate) fn flush(&mut self, now: Time) -> bool {
        if self.must_fail() {
            self.fail(now);
        }
        let worked = self.transmit(now);
        self.deliver_to_itself(now);
        self.batching.release();
        if self.failure.take_doubt() {
            self.check_descriptors(now);
        }
        if self.carriers.stalled.is_none() {
            self.publish(now);
        }
        worked
    }

    /// The program posted so many bytes to a queue pair: they leave now, or wait for more to travel with.
    ///
    /// They wait only while the peer owes an answer to an earlier request of the same queue pair, or if they are `gathered`. So a lone
    /// request never waits, and no thread has to be woken for those that do: the answer, the timer that is set for it, or any poll of
    /// the program sends them. What is gathered has a timer of its own.
    ///
    /// Whether the end of the turn has nothing to see to.
    #[must_use]
    pub(crate) fn posted(
        &mut self,
        now: impl FnOnce() -> Time,
        qpn: Qpn,
        bytes: u64,
        gathered: bool,
    ) -> bool {
        if self.carriers.streams.is_some() {
            self.flush(now());
            return false;
        }
        if self.nic.ready_queue_pairs() == 0 && self.carriers.stalled.is_none() && !self.must_fail() {
            // It was executed in the peer's memory, or written as a record: there is nothing to send.
            if self.nic.wrote_to_itself() {
                self.deliver_to_itself(self.clock_read);
            }
            if self.nic.has_news() {
                self.publish(self.clock_read);
            }
            self.direct_posts = self.direct_posts.wrapping_add(1);
            if SourceSchedule::is_quiet_turn(self.direct_posts) {
                // A program whose requests all end like this finds their completions without driving us.
                let links = self.carriers.links.iter_mut();
                links.for_each(|link| link.presence_mut().ask_for_memory());
                return false;
            }
            return self.is_settled();
        }
        let full = !self.batching.hold_post(bytes);
        if full || self.carriers.stalled.is_some() {
            self.flush(now());
            return false;
        }
        if gathered && (self.batching.gathers_for(qpn) || self.nic.executes_by_itself(qpn)) {
            let first = self.batching.gather(now, qpn);
            return !first && !self.nic.has_news();
        }
        if !self.nic.awaits_answer(qpn) {
            self.flush(now());
        }
        false
    }

    /// The program is about to post, and has polled so often. Whether WRITEs and READs may wait to be executed together.
    #[inline]
    pub(crate) fn may_gather(&mut self, polls: u32) -> bool {
        self.batching.may_gather(polls)
    }

    /// After something of records alone: whether it led to nothing that the end of a turn sees to. What there was before, the turn in
    /// which it came has seen to.
    #[inline]
    fn is_settled(&mut self) -> bool {
        let sooner = self.nic.take_sooner_timeout();
        !sooner && self.nic.ready_queue_pairs() == 0 && !self.nic.has_news()
    }

    /// Whether records come through lanes, at present.
    pub(crate) fn is_on_lanes(&self) -> bool {
        self.schedule.is_on_lanes()
    }

    /// The time when the clock was last read: what is not urgent goes by that.
    pub(crate) fn recent_time(&self) -> Time {
        self.clock_read
    }

    /// The program polled and found completions that were there already: sends what does not wait for what it does with them.
    pub(crate) fn found(&mut self, now: impl FnOnce() -> Time) {
        if self.has_deferred() && !self.batching.outlasts_found_poll() {
            self.flush(now());
        }
    }

    /// Sends what waits for the program's next call, or for more to travel with, if anything does.
    pub(crate) fn flush_deferred(&mut self, now: impl FnOnce() -> Time) {
        if self.has_deferred() {
            self.flush(now());
        }
    }

    /// Fails the device if the program has closed a descriptor of it.
    pub(crate) fn check_descriptors(&mut self, now: Time) {
        if self.carriers.has_lost_descriptor() {
            self.fail(now);
        }
    }

    /// Gives up: flushes all requests with an error and reports it to the program. Closes what is left of the links, so
    /// that another process can have the port and nothing is sent to descriptor numbers that are the program's by now.
    pub(crate) fn fail(&mut self, now: Time) {
        self.carriers.close();
        self.schedule.forget_links();
        self.failure.fail(!self.nic.has_failed());
        self.nic.fail(now);
        if !self.common.failed.swap(true, Ordering::SeqCst) {
            self.failure.is_the_first();
            self.common.connections.wake_all();
        }
    }

    /// Whether another shard of the device has failed.
    fn must_fail(&self) -> bool {
        self.common.failed.load(Ordering::Relaxed) && !self.nic.has_failed()
    }

    /// Publishes completions, notifies their listeners and passes on other events.
    fn publish(&mut self, now: Time) {
        self.failure.told();
        self.common.connections.tell();
        while let Some(event) = self.carriers.poll_event() {
            self.common.connections.tell_of(event);
        }
        self.fail_disconnected(now);
        self.nic.publish();
        if self.nic.has_recorded() {
            log::tell_recorded(&mut self.nic);
        }
        while let Some(event) = self.nic.poll_event() {
            match event {
                Event::Completion(cq) => {
                    let listeners = self.common.listeners.read();
                    let listeners = listeners.unwrap_or_else(PoisonError::into_inner);
                    if let Some(listener) = listeners.get(&cq) {
                        listener.notify(cq);
                    }
                }
                Event::DeviceFatal if !self.failure.tells() => {}
                other => self.common.events.push(other),
            }
        }
    }

    /// Queue pairs whose connection has ended go to the error state.
    fn fail_disconnected(&mut self, now: Time) {
        if !self.common.connections.has_failing(self.index) {
            return;
        }
        // What the peer sent before it disconnected may wait in another source: its last acknowledgements above all,
        // without which requests would seem to have failed that were done.
        self.finish_records(now);
        self.receive(now, self.schedule.hot());
        self.receive_elsewhere(now);
        let failed = QpAttributes {
            state: Some(QpState::Error),
            ..QpAttributes::default()
        };
        for qpn in self.common.connections.take_failing(self.index) {
            // The program may have destroyed it already.
            let _ = self.nic.modify_qp(now, qpn, &failed);
        }
    }

    /// Tells the peer of a destroyed queue pair, unless the connection manager does. The program may close the device next,
    /// and then no process would answer what the peer sends.
    pub(crate) fn bid_farewell(&mut self, now: Time, qpn: Qpn) {
        let Some((address, peer)) = self.nic.departed_peer(qpn) else {
            return;
        };
        if !self.common.connections.with(|cm| cm.knows_peer(address, peer)) {
            self.nic.bid_farewell(qpn);
            self.flush(now);
        }
    }

    /// A thread that slept on the descriptors is awake, and looks for packets next. Whether others still sleep: they are not woken by
    /// what has come already, so this thread must take it, or wake them.
    pub(crate) fn wake(&mut self) -> bool {
        self.sleepers = self.sleepers.saturating_sub(1);
        let others_sleep = self.sleepers > 0;
        self.carriers.wake(others_sleep);
        others_sleep
    }

    /// Hands the connection manager what arrived for it, and the NIC what it has to say.
    fn exchange_messages(&mut self, now: Time) {
        let nic = &mut self.nic;
        let connections = &self.common.connections;
        connections.with(|cm| cm.exchange(now, nic, demultiplex::dest_qpn_of));
    }
}
