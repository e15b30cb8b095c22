//! One of the device's addresses, and everything of the operating system that hangs on it.
//!
//! - its *own* socket, on a port of the kernel's choice: all packets leave from here, and peers on this host
//!   send here directly;
//! - the socket at port 4791, which the processes of a user share, and how the kernel sorts packets among them;
//! - the *claims*: blocks of queue pair numbers that are ours, each with an inbox;
//! - the *services*: what we listen on, each with an inbox for requests to connect.

use crate::netdev::LocalAddress;
use crate::registry::survey::{Answer, Question, Steering, Step};
use crate::registry::{
    Block, BlockClaim, BlockName, Delivery, Inbox, Message, Outbox, Port, ServiceClaim, ServiceName, steering,
};
use crate::socket::{Datagrams, ROCE_PORT, WireSocket};
use nonic_core::cm::ListenerId;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// An address in use.
#[derive(Debug)]
pub(crate) struct Attachment {
    pub(crate) address: LocalAddress,
    pub(crate) own: WireSocket,
    pub(crate) port: Port,
    pub(crate) steering: Steering,
    pub(crate) claims: Vec<BlockClaim>,
    pub(crate) services: Vec<(ListenerId, ServiceClaim)>,
    pub(crate) outbox: Outbox,
}

impl Attachment {
    pub(crate) fn new(address: LocalAddress, interface_index: u32, now_ns: u64) -> io::Result<Self> {
        let mut own = WireSocket::bind(address.with_port(0))?;
        // Without them, peers that are gone are waited for a little longer.
        let _ = own.hear_refusals();
        // Not every interface carries multicast; sending to a group will say so.
        let _ = own.set_multicast_interface(interface_index);
        Ok(Attachment {
            address,
            own,
            port: Port::join(address, now_ns),
            steering: Steering::default(),
            claims: Vec::new(),
            services: Vec::new(),
            outbox: Outbox::new()?,
        })
    }

    /// Whether a queue pair number is ours.
    pub(crate) fn owns(&self, block: Block) -> bool {
        self.claims.iter().any(|claim| claim.block() == block)
    }

    /// Gives packets that came to port 4791 to the process that owns their queue pair.
    pub(crate) fn hand_over(&mut self, block: Block, packets: &Datagrams<'_>) -> Delivery {
        let to = BlockName {
            address: self.address,
            block,
        };
        // What the operating system refuses is lost, as on a wire.
        self.outbox
            .post(to, &Message::Handover(*packets))
            .unwrap_or(Delivery::Full)
    }

    /// Does what is due for our share of port 4791. Whether there is a new socket to watch.
    pub(crate) fn attend_port(&mut self, now_ns: u64, token: impl FnMut() -> u64) -> bool {
        let joined = self.port.poll(now_ns);
        self.attend_steering(now_ns, token);
        joined
    }

    fn attend_steering(&mut self, now_ns: u64, mut token: impl FnMut() -> u64) {
        let Some(port) = self.port.socket() else { return };
        while let Some(step) = self.steering.poll(now_ns, &mut token) {
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

    /// Tries for port 4791 once more if a process that wrote to us has ended: it may have been the last of the user that
    /// has the port. Whether there is a new socket to watch.
    pub(crate) fn try_port_again(&mut self, now_ns: u64) -> bool {
        let blocks = self.claims.iter_mut().map(BlockClaim::inbox_mut);
        let services = self.services.iter_mut().map(|(_, claim)| claim.inbox_mut());
        let ended = blocks
            .chain(services)
            .fold(false, |ended, inbox| inbox.take_ended() | ended);
        ended && self.port.try_again(now_ns)
    }

    /// When [`Attachment::attend_port`] has something to do.
    pub(crate) fn next_deadline_ns(&self) -> Option<u64> {
        let steering = self.port.socket().and_then(|_| self.steering.next_deadline_ns());
        [self.port.next_deadline_ns(), steering]
            .into_iter()
            .flatten()
            .min()
    }

    /// Answers the questions of a survey. They come from this host; whoever asks from elsewhere gets no answer.
    pub(crate) fn answer_survey(&self, datagrams: &Datagrams<'_>) {
        if datagrams.src.ip() != self.address.ip {
            return;
        }
        for question in datagrams.segments().filter_map(Question::decode) {
            let blocks = self.claims.iter().map(BlockClaim::block).collect();
            let services = self
                .services
                .iter()
                .map(|(_, claim)| claim.name().service_id as u32);
            let answer = Answer::to(question, blocks, services.collect());
            let _ = self.own.send(datagrams.src, &answer.encode(), None);
        }
    }

    /// Takes the answers of a survey.
    pub(crate) fn take_survey(&mut self, datagrams: &Datagrams<'_>) {
        if datagrams.src.ip() == self.address.ip {
            for answer in datagrams.segments().filter_map(Answer::decode) {
                self.steering.answered(datagrams.src.port(), answer);
            }
        }
    }

    /// Everything other processes of this host write to.
    pub(crate) fn inboxes(&self) -> impl Iterator<Item = &Inbox> {
        let blocks = self.claims.iter().map(BlockClaim::inbox);
        blocks.chain(self.services.iter().map(|(_, claim)| claim.inbox()))
    }

    /// Gives a request that came to port 4791 to the process that listens on its service.
    pub(crate) fn hand_request_over(&mut self, service_id: u64, packets: &Datagrams<'_>) -> Delivery {
        let to = ServiceName {
            address: self.address,
            service_id,
        };
        self.outbox
            .post(to, &Message::Handover(*packets))
            .unwrap_or(Delivery::Gone)
    }

    /// Whether we listen on a service here.
    pub(crate) fn serves(&self, service_id: u64) -> bool {
        self.services
            .iter()
            .any(|(_, claim)| claim.name().service_id == service_id)
    }

    /// Descriptors whose readability means work.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let port = self.port.socket().map(AsFd::as_fd);
        let inboxes = self.inboxes().map(AsFd::as_fd);
        [self.own.as_fd(), self.outbox.as_fd()]
            .into_iter()
            .chain(port)
            .chain(inboxes)
    }
}
