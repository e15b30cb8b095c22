//! What carries a NIC's bytes: links for packets, streams for iWARP.
//!
//! A shard asks all of them alike: to look for input, to send, when they are due, what they counted. A queue pair's transport decides
//! which of them it uses; the core says what is to be moved in the words of each ([`Nic::poll_transmit`], [`Nic::poll_stream_event`]).
//! A device has links or streams.

use super::send_buffer::SendBuffer;
use crate::link::{Link, LinkCounters};
use crate::os::poller::Poller;
use crate::stream::Streams;
use nonic_core::cm::CmEvent;
use nonic_core::{Nic, Time, Transmit};
use std::sync::Arc;

/// The links and streams of a shard.
pub(super) struct Carriers {
    /// By GID index.
    pub(super) links: Vec<Box<dyn Link>>,
    /// The TCP connections of an iWARP device.
    pub(super) streams: Option<Box<Streams>>,
    /// What watches their descriptors, if something does.
    pub(super) poller: Option<Arc<Poller>>,
    /// Counters of links that are gone.
    pub(super) past: LinkCounters,
    pub(super) out: SendBuffer,
    /// A batch there was no room for.
    pub(super) stalled: Option<Transmit>,
    /// The last call stopped sending with more to send.
    pub(super) unsent: bool,
    /// The last look at lanes took as many records as it may. There may be more, of which no descriptor tells.
    pub(super) unread: bool,
}

impl Carriers {
    pub(super) fn new() -> Self {
        Carriers {
            links: Vec::new(),
            streams: None,
            poller: None,
            past: LinkCounters::default(),
            out: SendBuffer::new(),
            stalled: None,
            unsent: false,
            unread: false,
        }
    }

    /// Looks for what streams have. Whether there was anything. Links are looked at source by source.
    pub(super) fn receive_from_streams(&mut self, now: Time, nic: &mut Nic) -> bool {
        match &mut self.streams {
            Some(streams) => streams.receive(now, nic),
            None => false,
        }
    }

    /// Does what is due. (What is due of links is done where they are looked at.)
    pub(super) fn handle_timeout(&mut self, now: Time, nic: &mut Nic) {
        if let Some(streams) = &mut self.streams {
            streams.handle_timeout(now, nic);
        }
    }

    /// Whether any descriptor may have something: one system call in place of one for each.
    pub(super) fn may_be_readable(&self) -> bool {
        self.poller.as_ref().is_none_or(|poller| poller.is_readable())
    }

    /// Whether there is something to send though no descriptor says so.
    pub(super) fn is_behind(&self) -> bool {
        let streams = self.streams.as_ref();
        self.stalled.is_some() || self.unsent || streams.is_some_and(|streams| streams.is_behind())
    }

    /// Whether connections have something to tell.
    pub(super) fn has_events(&self) -> bool {
        self.streams.as_ref().is_some_and(|streams| streams.has_events())
    }

    /// What connections have to tell.
    pub(super) fn poll_event(&mut self) -> Option<CmEvent> {
        self.streams.as_mut()?.poll_event()
    }

    /// When a link is due.
    pub(super) fn next_link_timeout(&self) -> Option<Time> {
        self.links.iter().filter_map(|link| link.next_timeout()).min()
    }

    /// When a stream is due.
    pub(super) fn next_stream_timeout(&self) -> Option<Time> {
        self.streams.as_ref()?.next_timeout()
    }

    /// A thread is about to sleep. Whether packets wait already.
    pub(super) fn fall_asleep(&mut self) -> bool {
        let links = self.links.iter_mut();
        links.fold(false, |waiting, link| link.fall_asleep() | waiting)
    }

    /// A thread is awake; others may still sleep.
    pub(super) fn wake(&mut self, others_sleep: bool) {
        self.links.iter_mut().for_each(|link| link.wake(others_sleep));
    }

    /// Whether records wait that its shard wrote to itself.
    pub(super) fn has_records_for_itself(&self) -> bool {
        self.links.iter().any(|link| link.has_records_for_itself())
    }

    /// Makes visible to others what was recorded.
    pub(super) fn sync(&mut self) {
        self.links.iter_mut().for_each(|link| link.sync());
        self.streams.iter().for_each(|streams| streams.sync());
    }

    /// What was counted.
    pub(super) fn counters(&self) -> LinkCounters {
        let links = self.links.iter().map(|link| link.counters());
        let streams = self.streams.iter().map(|streams| streams.counters());
        links.chain(streams).fold(self.past, |mut sum, counters| {
            sum += counters;
            sum
        })
    }

    /// Whether the program has closed a descriptor of ours.
    pub(super) fn has_lost_descriptor(&self) -> bool {
        let streams = self.streams.as_ref();
        streams.is_some_and(|streams| streams.has_lost_descriptor())
            || self
                .links
                .iter()
                .any(|link| link.presence().has_lost_descriptor())
    }

    /// Closes everything.
    pub(super) fn close(&mut self) {
        self.past = self.counters();
        self.links.clear();
        self.streams = None;
        self.stalled = None;
    }
}
