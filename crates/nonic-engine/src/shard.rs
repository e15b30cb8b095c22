//! The pipeline: packets from sockets to the NIC, from the NIC to sockets, completions to the program.
//!
//! A [`Shard`] is driven by whoever holds its lock: the program's own thread while it posts and polls, the
//! background thread otherwise. Every call does a bounded amount of work. The order within one is always
//! the same: receive, timers, transmit, publish, notify — so an acknowledgement is on the wire before the
//! completion it belongs to can be seen.
//!
//! Two exceptions. While the program polls, a plain acknowledgement may wait for its next call
//! ([`Effort::Light`]). A program that answers what it received then sends answer and acknowledgement in one
//! system call, which is what half the time of a short message goes into. And a short request that is posted while the
//! peer owes an answer to an earlier one may wait for it ([`Shard::posted`]): those posted until then travel as one
//! batch. See ARCHITECTURE.md for the price of both.

use crate::attachment::Attachment;
use crate::capture::Capture;
use crate::channel::{Channel, Notify};
use crate::clock::Clock;
use crate::entropy::KernelEntropy;
use crate::gsi::{self, Gsi, Owner};
use crate::netdev::{self, LocalAddress};
use crate::os::descriptors;
use crate::registry::steering::SURVEY_OPCODE;
use crate::registry::{Delivery, Heard, InboxBuffer, InboxName, Message};
use crate::routes::Routes;
use crate::socket::{Datagrams, ROCE_PORT, RecvBatch, WireSocket};
use nonic_core::cm::CmEvent;
use nonic_core::{
    Arrival, CqId, Endpoint, Entropy as _, Event, MAX_BATCH_LEN, Nic, QpAttributes, QpState, Qpn, Time,
    Transmit,
};
use nonic_wire::Flow;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

/// Receives per call and socket, so that a flood cannot keep a caller.
const RECEIVES_PER_DRIVE: usize = 16;
/// Below this, a receive is answered before looking for the next one: somebody waits for it.
const SMALL_RECEIVE: usize = 4096;
/// The sockets that were quiet lately are looked at every so many calls.
const QUIET_SOCKET_INTERVAL: u32 = 128;
/// A program that polls at all does so at least this often: it has completions to look at in between.
const POLLING: Duration = Duration::from_micros(200);
/// Batches sent per call beyond one for each queue pair with something to send.
const BATCHES_PER_FLUSH: usize = 64;
/// After so many posts, or bytes, requests are held back no longer: they fill a batch.
const HELD_POSTS: u32 = 16;
const HELD_BYTES: u64 = 60 * 1024;
/// The most packets in a batch that any socket takes.
const MAX_SEGMENTS: usize = 64;
/// Inbox messages per call.
const MESSAGES_PER_DRIVE: usize = 16;

/// What the sockets saw.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct LinkCounters {
    pub sends: u64,
    pub send_errors: u64,
    pub receives: u64,
    /// Batches for other processes that came to our socket at port 4791 and were passed on.
    pub handed_over: u64,
    /// Packets for queue pairs nobody on this host has.
    pub nobody: u64,
    /// Batches that came through another process.
    pub handed_in: u64,
}

/// A NIC and its sockets.
pub(crate) struct Shard {
    pub(crate) nic: Nic,
    pub(crate) gsi: Gsi,
    /// Who hears of connections.
    pub(crate) connection_sink: Option<Arc<dyn ConnectionSink>>,
    pub(crate) clock: Clock,
    pub(crate) attachments: Vec<Attachment>,
    pub(crate) groups: Vec<(IpAddr, WireSocket)>,
    pub(crate) listeners: HashMap<CqId, Arc<dyn Notify>>,
    pub(crate) events: Arc<Channel<Event>>,
    pub(crate) routes: Routes,
    pub(crate) entropy: KernelEntropy,
    pub(crate) capture: Option<Capture>,
    pub(crate) counters: LinkCounters,
    /// Whether every packet goes alone, though the kernel would take batches.
    pub(crate) single_packets: bool,
    /// Taken out while received packets, which live in it, are worked on.
    buffers: Option<Box<Buffers>>,
    out: SendBuffer,
    /// A batch the kernel had no room for.
    stalled: Option<Transmit>,
    /// The last call stopped sending with more to send.
    unsent: bool,
    /// The socket that had packets last.
    hot: Source,
    /// How often it was driven; wraps.
    pub(crate) calls: u32,
    /// When the program last drove it by polling.
    polled_at: Time,
    /// Whether acknowledgements may wait for the program's next call at all.
    may_defer: bool,
    /// Acknowledgements wait for the next call.
    deferred: bool,
    /// Requests that wait for more to travel with, and how many bytes they have.
    held_posts: u32,
    held_bytes: u64,
    /// There are sockets that nobody watches yet.
    unwatched: bool,
    /// An operation failed as it does on a descriptor that is not ours any more.
    in_doubt: bool,
}

/// Where batches are written. It begins so that the payload behind a base transport header, in every packet of
/// a batch of full ones, lies at the start of a cache line: copies are fastest there.
struct SendBuffer {
    storage: Box<[u8]>,
    start: usize,
}

impl SendBuffer {
    fn new() -> Self {
        const LINE: usize = 64;
        let storage = vec![0; MAX_BATCH_LEN + LINE].into_boxed_slice();
        let payload = storage.as_ptr().addr() + nonic_wire::Bth::LEN;
        SendBuffer {
            start: payload.next_multiple_of(LINE) - payload,
            storage,
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.storage[self.start..]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.storage[self.start..]
    }
}

/// Where packets and messages land.
struct Buffers {
    batch: RecvBatch,
    inbox: InboxBuffer,
}

/// A socket, by where it hangs.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Source {
    Own(usize),
    Port(usize),
    Group(usize),
}

/// Hears what becomes of connections. Called while the device is locked: it must not call the device.
pub trait ConnectionSink: Send + Sync {
    /// Something happened. Answers a queue pair that is to go to the error state because of it, so that whoever
    /// waits for its requests learns of it.
    fn deliver(&self, event: CmEvent) -> Option<Qpn>;
}

/// How thoroughly to look for work.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Effort {
    /// Mostly the socket that was busy last: what a polling program's thread does.
    Light {
        /// Whether the background thread is sure to look soon, should the program not call again.
        backed: bool,
    },
    /// Every socket and inbox.
    Full,
}

impl Shard {
    pub(crate) fn new(nic: Nic, clock: Clock, events: Arc<Channel<Event>>, capture: Option<Capture>) -> Self {
        Shard {
            nic,
            gsi: Gsi::new(0, None),
            connection_sink: None,
            clock,
            attachments: Vec::new(),
            groups: Vec::new(),
            listeners: HashMap::new(),
            events,
            routes: Routes::default(),
            entropy: KernelEntropy::new(),
            capture,
            counters: LinkCounters::default(),
            single_packets: false,
            buffers: Some(Box::new(Buffers {
                batch: RecvBatch::new(1),
                inbox: InboxBuffer::new(),
            })),
            out: SendBuffer::new(),
            stalled: None,
            unsent: false,
            hot: Source::Own(0),
            calls: 0,
            polled_at: Time::ZERO,
            may_defer: std::env::var_os("NONIC_PROMPT_ACKS").is_none(),
            deferred: false,
            held_posts: 0,
            held_bytes: 0,
            unwatched: false,
            in_doubt: false,
        }
    }

    /// Takes up an address: packets go to and from it from now on.
    pub(crate) fn attach(&mut self, attachment: Attachment) {
        self.nic.add_endpoint(Endpoint {
            ip: attachment.address.ip,
            port: attachment.own.local_addr().port(),
        });
        self.attachments.push(attachment);
        self.limit_batches(self.attachments.len() - 1);
    }

    /// Asks an address's socket how many packets it takes at once. The answer may change after a send has failed.
    fn limit_batches(&mut self, index: usize) {
        let attachment = &self.attachments[index];
        let segments = if self.single_packets {
            1
        } else {
            attachment.own.max_gso_segments()
        };
        self.nic.limit_batches(attachment.address.ip, segments);
    }

    /// Looks for work and does it. Whether there was any.
    pub(crate) fn drive(&mut self, effort: Effort) -> bool {
        let now = self.clock.now();
        self.calls = self.calls.wrapping_add(1);
        if effort != Effort::Full {
            self.polled_at = now;
        }
        let full = effort == Effort::Full || self.calls.is_multiple_of(QUIET_SOCKET_INTERVAL);
        let mut buffers = self
            .buffers
            .take()
            .expect("put back before anyone else can drive");
        let mut worked = self.receive(now, self.hot, &mut buffers.batch);
        if full {
            worked |= self.receive_elsewhere(now, &mut buffers);
            self.attend_ports(now);
        }
        self.buffers = Some(buffers);
        self.nic.handle_timeout(now);
        if self.gsi.cm.poll_timeout().is_some_and(|at| at <= now) {
            self.gsi.cm.handle_timeout(now);
        }
        let may_defer = self.may_defer && effort == (Effort::Light { backed: true });
        if may_defer && worked && !self.deferred && self.stalled.is_none() && self.nic.only_acknowledges() {
            self.deferred = true;
            self.publish();
            return true;
        }
        worked | self.flush(now)
    }

    /// Sends what there is to send, then shows what completed. Whether anything was sent.
    pub(crate) fn flush(&mut self, now: Time) -> bool {
        let worked = self.transmit(now);
        for attachment in &self.attachments {
            self.gsi.hear_refusals(now, &attachment.own);
        }
        self.deferred = false;
        (self.held_posts, self.held_bytes) = (0, 0);
        if std::mem::take(&mut self.in_doubt) {
            self.check_descriptors(now);
        }
        if self.stalled.is_none() {
            self.publish();
        }
        worked
    }

    /// Whether something is to be sent or shown that does not wait for the program's next call on purpose.
    pub(crate) fn needs_flush(&self) -> bool {
        let waits = self.held_posts > 0 || (self.deferred && self.nic.only_acknowledges());
        let to_send = self.nic.ready_queue_pairs() > 0 && !waits;
        to_send || self.nic.has_unpublished() || self.gsi.cm.has_output()
    }

    /// Whether there are new sockets to watch since this was last asked.
    pub(crate) fn take_unwatched(&mut self) -> bool {
        std::mem::take(&mut self.unwatched)
    }

    /// The program posted so many bytes to a queue pair: they leave now, or wait for more to travel with.
    ///
    /// They wait only while the peer owes an answer to an earlier request of the same queue pair. So a lone request never
    /// waits, and nobody has to be woken for those that do: the answer, the timer that is set for it, or any poll of
    /// the program sends them.
    pub(crate) fn posted(&mut self, now: Time, qpn: Qpn, bytes: u64) {
        self.held_posts += 1;
        self.held_bytes += bytes;
        let full = self.held_posts >= HELD_POSTS || self.held_bytes >= HELD_BYTES;
        if full || !self.may_defer || self.stalled.is_some() || !self.nic.awaits_answer(qpn) {
            self.flush(now);
        }
    }

    /// Sends what waits for the program's next call, or for more to travel with, if anything does.
    pub(crate) fn flush_deferred(&mut self) {
        if self.deferred || self.held_posts > 0 {
            let now = self.clock.now();
            self.flush(now);
        }
    }

    /// Fails the device if the program has closed a descriptor of it.
    pub(crate) fn check_descriptors(&mut self, now: Time) {
        let attached = self.attachments.iter().flat_map(Attachment::fds);
        let joined = self.groups.iter().map(|(_, socket)| socket.as_fd());
        if attached.chain(joined).any(descriptors::is_lost) {
            self.fail(now);
        }
    }

    /// Gives up: everything is flushed and the program told. What is left of the sockets is closed, so that another
    /// process can have the port and nothing is sent to numbers that are the program's by now. Needs a flush.
    pub(crate) fn fail(&mut self, now: Time) {
        self.attachments.clear();
        self.groups.clear();
        self.stalled = None;
        self.nic.fail(now);
    }

    /// Shows what completed and passes on what else happened.
    fn publish(&mut self) {
        self.tell_of_connections();
        self.nic.publish();
        while let Some(event) = self.nic.poll_event() {
            match event {
                Event::Completion(cq) => {
                    if let Some(listener) = self.listeners.get(&cq) {
                        listener.notify(cq);
                    }
                }
                other => self.events.push(other),
            }
        }
    }

    fn tell_of_connections(&mut self) {
        while let Some(event) = self.gsi.cm.poll_event() {
            let sink = self.connection_sink.as_ref();
            if let Some(qpn) = sink.and_then(|sink| sink.deliver(event)) {
                let failed = QpAttributes {
                    state: Some(QpState::Error),
                    ..QpAttributes::default()
                };
                // The program may have destroyed it already.
                let _ = self.nic.modify_qp(self.clock.now(), qpn, &failed);
            }
        }
    }

    /// When [`Shard::drive`] is needed even if nothing happens.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        let ports = self.attachments.iter().filter_map(Attachment::next_deadline_ns);
        let timeouts = [self.nic.poll_timeout(), self.gsi.cm.poll_timeout()];
        timeouts
            .into_iter()
            .flatten()
            .chain(ports.map(Time::from_ns))
            .min()
    }

    /// Whether the program polls at this moment.
    pub(crate) fn is_polled(&self, now: Time) -> bool {
        now.since(self.polled_at) < POLLING
    }

    /// Whether packets wait to be sent: for room in the kernel, or because a call had sent enough.
    pub(crate) fn is_behind(&self) -> bool {
        self.stalled.is_some() || self.unsent
    }

    /// Does what is due for our sockets at port 4791.
    fn attend_ports(&mut self, now: Time) {
        for attachment in &mut self.attachments {
            let entropy = &mut self.entropy;
            let token = || (u64::from(entropy.next_u32()) << 32) | u64::from(entropy.next_u32());
            self.unwatched |= attachment.attend_port(now.as_ns(), token);
        }
    }

    fn receive_elsewhere(&mut self, now: Time, buffers: &mut Buffers) -> bool {
        let mut worked = false;
        for index in 0..self.attachments.len() {
            for source in [Source::Own(index), Source::Port(index)] {
                if source != self.hot {
                    worked |= self.receive(now, source, &mut buffers.batch);
                }
            }
            worked |= self.read_inboxes(now, index, &mut buffers.inbox);
            worked |= self.hear_others(now, index);
        }
        for index in 0..self.groups.len() {
            worked |= self.receive(now, Source::Group(index), &mut buffers.batch);
        }
        worked
    }

    /// Takes what one socket has.
    fn receive(&mut self, now: Time, source: Source, batch: &mut RecvBatch) -> bool {
        let mut worked = false;
        for _ in 0..RECEIVES_PER_DRIVE {
            let socket = match source {
                Source::Own(index) => self.attachments.get(index).map(|attachment| &attachment.own),
                Source::Port(index) => self.attachments.get(index).and_then(|a| a.port.socket()),
                Source::Group(index) => self.groups.get(index).map(|(_, socket)| socket),
            };
            match socket.map(|socket| socket.recv(batch)) {
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    self.in_doubt |= descriptors::casts_doubt(&error);
                    break;
                }
                None => break,
            }
            self.counters.receives += 1;
            worked = true;
            let mut bytes = 0;
            for datagrams in batch.iter() {
                bytes += datagrams.bytes.len();
                let survey = datagrams.bytes.first() == Some(&SURVEY_OPCODE);
                match source {
                    Source::Port(index) if survey => self.attachments[index].answer_survey(&datagrams),
                    Source::Own(index) if survey => self.attachments[index].take_survey(&datagrams),
                    Source::Port(index) => self.sort(now, index, &datagrams),
                    _ => self.take(now, &datagrams),
                }
            }
            if bytes < SMALL_RECEIVE {
                break;
            }
        }
        if worked && !matches!(source, Source::Group(_)) {
            self.hot = source;
        }
        worked
    }

    /// Packets that came to port 4791: ours to the NIC, others' to their owners.
    fn sort(&mut self, now: Time, index: usize, datagrams: &Datagrams<'_>) {
        let mut rest = datagrams.bytes;
        while !rest.is_empty() {
            let owner = gsi::owner_of(&rest[..datagrams.stride.min(rest.len())]);
            // The longest run of packets for the same owner.
            let run = rest
                .chunks(datagrams.stride)
                .take_while(|packet| gsi::owner_of(packet) == owner)
                .map(<[u8]>::len);
            let length = run.sum::<usize>().max(1).min(rest.len());
            let (head, tail) = rest.split_at(length);
            rest = tail;
            let run = Datagrams {
                bytes: head,
                ..*datagrams
            };
            let attachment = &mut self.attachments[index];
            match owner {
                Owner::Block(block) | Owner::Identifier(block) if !attachment.owns(block) => {
                    match attachment.hand_over(block, &run) {
                        Delivery::Sent => self.counters.handed_over += 1,
                        // Its process has ended: ours to say so to whoever is connected to it.
                        Delivery::Gone if owner == Owner::Identifier(block) => self.take(now, &run),
                        _ => self.counters.nobody += 1,
                    }
                }
                Owner::Service(service) if !attachment.serves(service) => {
                    match attachment.hand_request_over(service, &run) {
                        Delivery::Sent | Delivery::Full => self.counters.handed_over += 1,
                        // Nobody listens: ours to refuse.
                        Delivery::Gone => self.take(now, &run),
                    }
                }
                _ => self.take(now, &run),
            }
        }
    }

    fn take(&mut self, now: Time, datagrams: &Datagrams<'_>) {
        let flow = Flow {
            src: datagrams.src.ip(),
            dst: datagrams.dst_ip,
            src_port: datagrams.src.port(),
            dst_port: ROCE_PORT,
        };
        if let Some(capture) = &mut self.capture {
            capture.received(&flow, datagrams.stride, datagrams.bytes);
        }
        if gsi::is_for(datagrams.bytes) {
            for (index, packet) in datagrams.segments().enumerate() {
                self.gsi.receive(now, &flow, index, packet);
            }
            return;
        }
        let arrival = Arrival {
            src: datagrams.src,
            dst: datagrams.dst_ip,
            stride: datagrams.stride,
        };
        self.nic.handle_datagram(now, &arrival, datagrams.bytes);
    }

    /// What the processes of this host say that we have written to; one that has ended without a word ends its
    /// connections.
    fn hear_others(&mut self, now: Time, index: usize) -> bool {
        let mut worked = false;
        for _ in 0..MESSAGES_PER_DRIVE {
            let Some(heard) = self.attachments[index].outbox.poll() else {
                break;
            };
            worked = true;
            match heard {
                Heard::IAm {
                    who: InboxName::Block(who),
                    udp_port,
                } => self.routes.answered(now, who, udp_port),
                Heard::Gone(InboxName::Block(gone)) => {
                    let is_its = |id| gsi::block_of(id) == Some(gone.block);
                    self.gsi.cm.peer_gone(now, gone.address.ip, is_its);
                }
                // Services are not asked anything, and own no connections.
                _ => {}
            }
        }
        worked
    }

    /// Packets and questions from other processes of this host.
    fn read_inboxes(&mut self, now: Time, index: usize, buffer: &mut InboxBuffer) -> bool {
        let mut worked = false;
        for claim in 0..self.attachments[index].claims.len() {
            for _ in 0..MESSAGES_PER_DRIVE {
                let attachment = &mut self.attachments[index];
                let udp_port = attachment.own.local_addr().port();
                let inbox = attachment.claims[claim].inbox_mut();
                let Ok(Some(message)) = inbox.recv(buffer) else {
                    break;
                };
                worked = true;
                match message {
                    Message::Handover(datagrams) => {
                        attachment.steering.stray();
                        self.counters.handed_in += 1;
                        self.take(now, &datagrams);
                    }
                    Message::WhereAreYou => inbox.reply(&Message::IAm { udp_port }),
                    // Answers come on the line of the question.
                    Message::IAm { .. } => {}
                }
            }
        }
        for service in 0..self.attachments[index].services.len() {
            for _ in 0..MESSAGES_PER_DRIVE {
                let attachment = &mut self.attachments[index];
                let Ok(Some(message)) = attachment.services[service].1.inbox_mut().recv(buffer) else {
                    break;
                };
                worked = true;
                // Nothing but requests is meant for a service.
                if let Message::Handover(datagrams) = message {
                    attachment.steering.stray();
                    self.counters.handed_in += 1;
                    self.take(now, &datagrams);
                }
            }
        }
        self.unwatched |= self.attachments[index].try_port_again(now.as_ns());
        worked
    }

    fn transmit(&mut self, now: Time) -> bool {
        let mut worked = false;
        if let Some(transmit) = self.stalled.take() {
            self.send(now, &transmit);
            worked = true;
        }
        // Every queue pair gets its turn, so every acknowledgement leaves; a flood of READ responses or
        // datagrams goes on in the next call.
        let budget = self.nic.ready_queue_pairs() + BATCHES_PER_FLUSH;
        self.unsent = true;
        for _ in 0..budget {
            if self.stalled.is_some() {
                break;
            }
            let batch = self.nic.poll_transmit(now, MAX_SEGMENTS, self.out.bytes_mut());
            let Some(transmit) = batch.or_else(|| self.next_message()) else {
                self.unsent = false;
                break;
            };
            if let Some(capture) = &mut self.capture {
                capture.sent(&transmit, &self.out.bytes()[..transmit.len]);
            }
            self.send(now, &transmit);
            worked = true;
        }
        worked
    }

    /// The next message of the connection manager, written to the send buffer.
    fn next_message(&mut self) -> Option<Transmit> {
        let attachments = &self.attachments;
        let port_of = |ip| {
            let attachment = attachments
                .iter()
                .find(|attachment| attachment.address.ip == ip)?;
            Some(attachment.own.local_addr().port())
        };
        self.gsi.transmit(port_of, self.out.bytes_mut())
    }

    fn send(&mut self, now: Time, transmit: &Transmit) {
        let Some(index) = self
            .attachments
            .iter()
            .position(|a| a.address.ip == transmit.flow.src)
        else {
            self.counters.send_errors += 1;
            return;
        };
        let destination = self.destination(now, index, transmit);
        let segment_size = (transmit.segments > 1).then_some(transmit.segment_size);
        let sent =
            self.attachments[index]
                .own
                .send(destination, &self.out.bytes()[..transmit.len], segment_size);
        match sent {
            Ok(()) => self.counters.sends += 1,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.stalled = Some(*transmit),
            // Unreachable, refused, too long for the interface: to the transport it is a lost packet.
            Err(error) => {
                self.counters.send_errors += 1;
                self.in_doubt |= descriptors::casts_doubt(&error);
                self.limit_batches(index);
            }
        }
    }

    fn destination(&mut self, now: Time, index: usize, transmit: &Transmit) -> SocketAddr {
        let to = self.peer(index, transmit.flow.dst);
        let outbox = &mut self.attachments[index].outbox;
        let port = self.routes.port(now, to, transmit.dest_qpn.value(), outbox);
        to.with_port(port)
    }

    /// Looks up how to reach a queue pair that is about to be connected. Whether an answer may come.
    pub(crate) fn refresh_route(&mut self, gid_index: u8, remote: IpAddr, qpn: u32) -> bool {
        let index = usize::from(gid_index);
        let to = self.peer(index, remote);
        let Some(attachment) = self.attachments.get_mut(index) else {
            return false;
        };
        self.routes
            .refresh(self.clock.now(), to, qpn, &mut attachment.outbox)
    }

    /// Whether the kernel sorts by everything that it was to be told of.
    pub(crate) fn is_steered(&self) -> bool {
        let now_ns = self.clock.now().as_ns();
        let mut ports = self
            .attachments
            .iter()
            .filter(|attachment| attachment.port.socket().is_some());
        ports.all(|attachment| attachment.steering.is_settled(now_ns))
    }

    /// A peer is about to send to a queue pair of ours at this address. If it is on another host, its packets come to
    /// port 4791, and the kernel should know that they are for this process.
    pub(crate) fn expect_packets_from(&mut self, gid_index: u8, remote: IpAddr) {
        let index = usize::from(gid_index);
        if !netdev::is_local(self.peer(index, remote))
            && let Some(attachment) = self.attachments.get_mut(index)
        {
            attachment.steering.want();
        }
    }

    /// Whether the answer has come.
    pub(crate) fn route_is_settled(&self, gid_index: u8, remote: IpAddr, qpn: u32) -> bool {
        self.routes
            .is_settled(self.peer(usize::from(gid_index), remote), qpn)
    }

    /// A peer's address with the scope of the local address it is reached from.
    fn peer(&self, index: usize, ip: IpAddr) -> LocalAddress {
        let link_local = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local() || ip.is_multicast());
        let scope_id = self
            .attachments
            .get(index)
            .map_or(0, |attachment| attachment.address.scope_id);
        LocalAddress {
            ip,
            scope_id: if link_local { scope_id } else { 0 },
        }
    }
}
