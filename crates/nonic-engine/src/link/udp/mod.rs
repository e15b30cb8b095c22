//! The UDP link: one of the device's addresses, with all of the operating system's objects that belong to it.
//!
//! - its *own* socket, on a port of the kernel's choice: all packets leave from here, and peers on this host
//!   send here directly;
//! - the socket at port 4791, which the processes of a user share, and how the kernel sorts packets among them;
//! - its [`Names`] on this host: blocks of queue pair numbers that are ours and services that we listen on, each with an inbox;
//! - the multicast groups we joined, each with a socket;
//! - the ways to peers on this host ([`Routes`]).
//!
//! This module hands packets over that came to port 4791 and are for another process; the NIC does not see them.

mod names;
mod neighbours;
pub mod socket;

use super::lane::{IncomingLanes, OpenedLanes, OutgoingLanes};
use super::{Datagrams, Deliver, ExecuteRecord, Link, LinkCounters, Notice, Presence, Sources};
use crate::direct::{DirectLinks, Reached};
use crate::host::demultiplex::{self, Owner};
use crate::host::holder;
use crate::host::routes::Routes;
use crate::host::survey::{self, Answer, Question, Steering, Step};
use crate::host::{
    Block, BlockClaim, BlockName, ClaimError, Delivery, InboxBuffer, InboxName, Message, Outbox, Port,
    PortState, RetryReason, ServiceClaim, ServiceName, steering,
};
use crate::netdev::LocalAddress;
use crate::os::descriptors;
use crate::os::entropy::KernelEntropy;
use crate::os::poller::Poller;
use names::Names;
use nonic_core::cm::ListenerId;
use nonic_core::{Entropy as _, Time, Transmit};
use socket::{ROCE_PORT, RecvBatch, WireSocket};
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Inbox messages per call and inbox.
const MESSAGES_PER_CALL: usize = 16;

/// The sources, by number; from [`FIRST_GROUP`] on come the multicast groups.
const OWN: usize = 0;
const PORT: usize = 1;
const HOST: usize = 2;
const FIRST_GROUP: usize = 3;

/// An address in use.
pub(crate) struct UdpLink {
    address: LocalAddress,
    interface_index: u32,
    own: WireSocket,
    port: Port,
    steering: Steering,
    names: Names,
    groups: Vec<(IpAddr, WireSocket)>,
    outbox: Outbox,
    routes: Routes,
    outgoing: OutgoingLanes,
    incoming: IncomingLanes,
    /// Direct access to the processes that lanes lead to, and theirs to us.
    direct: Option<DirectLinks>,
    /// Peers that were reached until the kernel did not let us any more.
    forbidden_later: Arc<AtomicU64>,
    /// The processes whose memory we reach.
    reached: Vec<(BlockName, Arc<Reached>)>,
    notices: VecDeque<Notice>,
    /// Whether every packet goes alone, though the kernel would take batches.
    single_packets: bool,
    poller: Arc<Poller>,
    entropy: KernelEntropy,
    counters: LinkCounters,
    /// Taken out while received packets, which live in it, are worked on.
    buffers: Option<Box<Buffers>>,
}

/// Where packets and messages land.
struct Buffers {
    batch: RecvBatch,
    inbox: InboxBuffer,
}

/// How an address is to be used.
pub(crate) struct UdpOptions {
    /// The interface, for multicast.
    pub(crate) interface_index: u32,
    /// Whether every packet goes alone.
    pub(crate) single_packets: bool,
    /// Whether processes of this host are sent to directly.
    pub(crate) shortcut: bool,
    /// Where lanes through memory to and from them are left for the NIC, if there are to be any.
    pub(crate) lanes: Option<Arc<OpenedLanes>>,
    /// Whether requests may be executed in their memory, and theirs in ours.
    pub(crate) direct: Option<DirectLinks>,
}

impl UdpLink {
    /// Takes up an address. What is readable from now on ends a sleep of `poller`'s.
    pub(crate) fn new(
        address: LocalAddress,
        options: &UdpOptions,
        poller: Arc<Poller>,
        now: Time,
    ) -> io::Result<Self> {
        let mut own = WireSocket::bind(address.with_port(0))?;
        // Without them, peers that are gone are waited for a little longer.
        let _ = own.hear_refusals();
        // Not every interface carries multicast; sending to a group will say so.
        let _ = own.set_multicast_interface(options.interface_index);
        let link = UdpLink {
            address,
            interface_index: options.interface_index,
            own,
            port: Port::join(address, now.as_ns()),
            steering: Steering::default(),
            names: Names::new()?,
            groups: Vec::new(),
            outbox: Outbox::new()?,
            routes: Routes::new(options.shortcut),
            outgoing: OutgoingLanes::new(options.lanes.clone()),
            incoming: IncomingLanes::new(address.ip, options.lanes.is_some()),
            direct: options.direct.clone(),
            forbidden_later: Arc::default(),
            reached: Vec::new(),
            notices: VecDeque::new(),
            single_packets: options.single_packets,
            poller,
            entropy: KernelEntropy::new(),
            counters: LinkCounters::default(),
            buffers: Some(Box::new(Buffers {
                batch: RecvBatch::new(1),
                inbox: InboxBuffer::new(),
            })),
        };
        link.fds().try_for_each(|fd| link.poller.watch(fd))?;
        Ok(link)
    }

    /// Descriptors whose readability means work.
    fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let port = self.port.socket().map(AsFd::as_fd);
        let groups = self.groups.iter().map(|(_, socket)| socket.as_fd());
        [self.own.as_fd(), self.outbox.as_fd()]
            .into_iter()
            .chain(port)
            .chain(self.names.fds())
            .chain(groups)
            .chain(self.outgoing.fds())
            .chain(self.incoming.fds())
    }

    /// Reads a socket once. How many bytes came.
    fn read_socket(
        &mut self,
        source: usize,
        batch: &mut RecvBatch,
        deliver: &mut Deliver<'_>,
    ) -> io::Result<usize> {
        let socket = match source {
            OWN => Some(&self.own),
            PORT => self.port.socket(),
            group => self.groups.get(group - FIRST_GROUP).map(|(_, socket)| socket),
        };
        let socket = socket.ok_or(io::ErrorKind::WouldBlock)?;
        socket.recv(batch)?;
        self.counters.receives += 1;
        let mut bytes = 0;
        for datagrams in batch.iter() {
            bytes += datagrams.bytes.len();
            let survey = datagrams.bytes.first() == Some(&steering::SURVEY_OPCODE);
            match source {
                PORT if survey => self.answer_survey(&datagrams),
                OWN if survey => self.take_survey(&datagrams),
                PORT => demultiplex::sort(&datagrams, |owner, run| self.pass_on(owner, run), deliver),
                _ => deliver(&datagrams),
            }
        }
        Ok(bytes)
    }

    /// Hands packets that came to port 4791 over to the process that they are for. Whether that is us.
    fn pass_on(&mut self, owner: Owner, packets: &Datagrams<'_>) -> bool {
        let to: InboxName = match owner {
            Owner::Block(block) | Owner::Identifier(block) if !self.owns(block) => BlockName {
                address: self.address,
                block,
            }
            .into(),
            Owner::Service(service_id) if !self.serves(service_id) => ServiceName {
                address: self.address,
                service_id,
            }
            .into(),
            _ => return true,
        };
        // What the operating system refuses is lost, as on a wire.
        let refused = match owner {
            Owner::Service(_) => Delivery::Gone,
            _ => Delivery::Full,
        };
        let delivery = self
            .outbox
            .post(to, &Message::Handover(*packets))
            .unwrap_or(refused);
        match (delivery, owner) {
            (Delivery::Sent, _) | (Delivery::Full, Owner::Service(_)) => self.counters.handed_over += 1,
            // No process listens, or the process has ended: it is up to us to say so to the peer that asks or is connected
            // to it.
            (Delivery::Gone, Owner::Service(_) | Owner::Identifier(_)) => return true,
            _ => self.counters.nobody += 1,
        }
        false
    }

    /// Whether we listen on a service here.
    fn serves(&self, service_id: u64) -> bool {
        self.names.has_service(service_id)
    }

    /// Tries for port 4791 once more: a process that wrote to us has ended, and may have been the last of the user that has
    /// the port.
    fn try_port_again(&mut self, now: Time) {
        if self.port.try_again(now.as_ns()) {
            self.watch_port();
        }
    }

    /// Out of watches, the socket is still looked at whenever something else wakes us.
    fn watch_port(&self) {
        if let Some(socket) = self.port.socket() {
            let _ = self.poller.watch(socket);
        }
    }

    /// Answers the questions of a survey. They come from this host; other hosts get no answer.
    fn answer_survey(&self, datagrams: &Datagrams<'_>) {
        if datagrams.src.ip() != self.address.ip {
            return;
        }
        for question in datagrams.segments().filter_map(Question::decode) {
            let blocks = self.names.blocks().take(survey::MAX_ENTRIES);
            let services = self.names.services().take(survey::MAX_ENTRIES);
            let services = services.map(|service_id| service_id as u32);
            let answer = Answer::to(question, blocks.collect(), services.collect());
            let _ = self.own.send(datagrams.src, &answer.encode(), None);
        }
    }

    /// Takes the answers of a survey.
    fn take_survey(&mut self, datagrams: &Datagrams<'_>) {
        if datagrams.src.ip() == self.address.ip {
            for answer in datagrams.segments().filter_map(Answer::decode) {
                self.steering.answered(datagrams.src.port(), answer);
            }
        }
    }

    fn attend_steering(&mut self, now: Time) {
        let Some(port) = self.port.socket() else { return };
        let entropy = &mut self.entropy;
        let mut token = || (u64::from(entropy.next_u32()) << 32) | u64::from(entropy.next_u32());
        while let Some(step) = self.steering.poll(now.as_ns(), &mut token) {
            match step {
                // A question that is lost is a process that does not answer.
                Step::Ask(question) => {
                    let _ = self
                        .own
                        .send(self.address.with_port(ROCE_PORT), &question.encode(), None);
                }
                // A kernel that does not take it leaves the sorting to us.
                Step::Attach(members) => drop(steering::attach(port, &members)),
            }
        }
    }

    /// A peer's address with the scope of ours.
    fn peer(&self, ip: IpAddr) -> LocalAddress {
        let link_local = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local() || ip.is_multicast());
        LocalAddress {
            ip,
            scope_id: if link_local { self.address.scope_id } else { 0 },
        }
    }

    fn destination(&mut self, now: Time, transmit: &Transmit) -> SocketAddr {
        let to = self.peer(transmit.flow.dst);
        let port = self
            .routes
            .port(now, to, transmit.dest_qpn.value(), &mut self.outbox);
        to.with_port(port)
    }
}

impl Link for UdpLink {
    fn max_segments(&self) -> usize {
        if self.single_packets {
            1
        } else {
            self.own.max_gso_segments()
        }
    }

    fn sources(&self) -> Sources {
        Sources {
            busy: HOST,
            all: FIRST_GROUP + self.groups.len(),
        }
    }

    fn receive(&mut self, now: Time, source: usize, deliver: &mut Deliver<'_>) -> io::Result<usize> {
        let mut buffers = self
            .buffers
            .take()
            .expect("put back before anyone else can receive");
        let received = match source {
            HOST => self.read_host(now, &mut buffers.inbox, deliver),
            _ => self.read_socket(source, &mut buffers.batch, deliver),
        };
        self.buffers = Some(buffers);
        received
    }

    fn send(&mut self, now: Time, transmit: &Transmit, bytes: &[u8]) -> io::Result<()> {
        let destination = self.destination(now, transmit);
        let segment_size = (transmit.segments > 1).then_some(transmit.segment_size);
        let sent = self.own.send(destination, bytes, segment_size);
        match &sent {
            Ok(()) => self.counters.sends += 1,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.counters.send_errors += 1,
        }
        sent
    }

    #[inline]
    fn has_records_for_itself(&self) -> bool {
        self.outgoing.has_unread_of_our_own()
    }

    #[inline]
    fn receive_records(&mut self, execute: &mut ExecuteRecord<'_>) -> u64 {
        let count = self.incoming.receive_records(execute);
        self.counters.lane_receives += count;
        count
    }

    fn fall_asleep(&mut self) -> bool {
        self.incoming.fall_asleep() | self.outgoing.fall_asleep()
    }

    fn wake(&mut self, others_sleep: bool) {
        self.incoming.wake(others_sleep);
        self.outgoing.wake(others_sleep);
    }

    fn next_timeout(&self) -> Option<Time> {
        let steering = self.port.socket().and_then(|_| self.steering.next_deadline_ns());
        let due = [self.port.next_deadline_ns(), steering];
        due.into_iter().flatten().min().map(Time::from_ns)
    }

    fn counters(&self) -> LinkCounters {
        let mut counters = self.counters;
        counters.direct_forbidden += self.forbidden_later.load(Ordering::Relaxed);
        counters.lane_sends += self.outgoing.records();
        counters
    }

    fn sync(&mut self) {}

    fn presence(&self) -> &dyn Presence {
        self
    }

    fn presence_mut(&mut self) -> &mut dyn Presence {
        self
    }
}

impl Presence for UdpLink {
    fn address(&self) -> LocalAddress {
        self.address
    }

    fn port(&self) -> u16 {
        self.own.local_addr().port()
    }

    fn ask_for_memory(&mut self) {
        self.ask_neighbours_for_memory();
    }

    fn claim(&mut self, wanted: Option<Block>) -> Result<Block, ClaimError> {
        let claim = match wanted {
            Some(block) => BlockClaim::claim_block(self.address, block)?,
            None => BlockClaim::claim(self.address)?,
        };
        self.poller.watch(claim.inbox())?;
        let block = claim.block();
        self.names.add_block(claim)?;
        Ok(block)
    }

    fn release(&mut self, block: Block) {
        self.names.remove_block(block);
    }

    fn owns(&self, block: Block) -> bool {
        self.names.has_block(block)
    }

    fn listen(&mut self, listener: ListenerId, service_id: u64) -> io::Result<()> {
        let claim = ServiceClaim::claim(ServiceName {
            address: self.address,
            service_id,
        })?;
        self.poller.watch(claim.inbox())?;
        self.names.add_service(listener, claim)?;
        // No answer to a survey tells of more, so none is worth making for them.
        if self.names.services().len() <= survey::MAX_ENTRIES {
            self.steering.want_again();
        }
        Ok(())
    }

    fn unlisten(&mut self, listener: ListenerId) {
        self.names.remove_service(listener);
    }

    fn join(&mut self, group: IpAddr) -> io::Result<()> {
        if self.groups.iter().all(|(joined, _)| *joined != group) {
            let socket = WireSocket::bind_multicast(group, ROCE_PORT, self.interface_index)?;
            self.poller.watch(&socket)?;
            self.groups.push((group, socket));
        }
        Ok(())
    }

    fn leave(&mut self, group: IpAddr) {
        self.groups.retain(|(joined, _)| *joined != group);
    }

    fn find_way(&mut self, now: Time, remote: IpAddr, qpn: u32) -> bool {
        let to = self.peer(remote);
        let asked = self.routes.refresh(now, to, qpn, &mut self.outbox);
        asked || !self.way_is_settled(now, remote, qpn)
    }

    fn way_is_settled(&self, now: Time, remote: IpAddr, qpn: u32) -> bool {
        let address = self.peer(remote);
        let lane = Block::of_qpn(qpn).map(|block| BlockName { address, block });
        self.routes.is_settled(now, address, qpn)
            && lane.is_none_or(|lane| self.outgoing.is_settled(now, lane))
    }

    fn expect_packets_from(&mut self, now: Time, remote: IpAddr) {
        let peer = self.peer(remote);
        if !self.routes.is_local(now, peer) {
            self.steering.want();
        }
    }

    fn is_steered(&self, now: Time) -> bool {
        self.port.socket().is_none() || self.steering.is_settled(now.as_ns())
    }

    fn attend(&mut self, now: Time) {
        if self.port.poll(now.as_ns()) {
            self.watch_port();
        }
        self.attend_steering(now);
    }

    #[inline]
    fn poll_notice(&mut self) -> Option<Notice> {
        let refused = self.own.poll_refusal().map(Notice::Refused);
        refused.or_else(|| self.notices.pop_front())
    }

    fn lane_descriptors(&self) -> usize {
        self.outgoing.fds().count() + self.incoming.fds().count()
    }

    fn has_lost_descriptor(&self) -> bool {
        self.fds().any(descriptors::is_lost)
    }

    /// Packets that are in the socket by now are lost; those that come later go to the processes that stay.
    fn retire(&mut self) {
        self.port.leave();
    }

    fn port_state(&self) -> PortState {
        let is_ours = |name: &str| self.names.has_block_named(name);
        match self.port.port_state() {
            PortState::Retry {
                reason: RetryReason::Taken,
            } if holder::is_foreign(self.address, is_ours) => PortState::Retry {
                reason: RetryReason::Foreign,
            },
            state => state,
        }
    }

    #[cfg(test)]
    fn forbid_batches(&self) -> io::Result<()> {
        self.own.forbid_batches()
    }
}

impl std::fmt::Debug for UdpLink {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("UdpLink")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
