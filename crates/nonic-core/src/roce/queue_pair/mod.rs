//! A queue pair of RoCE: its attributes, and the transport machine that fits the service.

mod direct;
mod post;
mod records;
mod reliable;
mod view;

use crate::direct::Target;
use crate::queue_pair::{QpAttributes, QpState};
use crate::record::QpEvent;
use crate::resources::NicResources;
use crate::roce::context::RoceContext;
use crate::roce::departure::Departure;
use crate::roce::emit::{Batch, Emit, Fatal, Hop};
use crate::roce::notification::Notification;
use crate::roce::pacer::Pacer;
use crate::roce::sender::UnreliableSender;
use crate::roce::uc::UcReceiver;
use crate::roce::ud::UdReceiver;
use crate::roce::window::Share;
use crate::time::Time;
use crate::timer::Timer;
use crate::verbs::event::Event;
use crate::verbs::work::Status;
use nonic_wire::{Flow, Operation, Packet, Service};
use reliable::{RcRequester, RcResponder};

/// A queue pair.
#[derive(Debug)]
pub(crate) struct RoceQueuePair {
    pub(crate) roce: RoceContext,
    machine: ServiceMachine,
    /// Whether it waits in the NIC's list of queue pairs with something to send.
    pub(crate) ready: bool,
    /// Whether it is listed among those that wait for room in a lane.
    pub(crate) blocked: bool,
    /// Whether it stands in line for the window to its peer.
    pub(crate) in_line: bool,
    /// Whether it is listed among those that have their fair share of it.
    pub(crate) resting: bool,
    /// Whether it stood in line and it is its turn.
    pub(crate) in_turn: bool,
    drain_reported: bool,
    /// The next batch begins with answers to the peer.
    replies_first: bool,
    notification: Notification,
    pacer: Pacer,
    /// What was published to its peer, if that is on this host. Boxed: few have one.
    published: Option<Box<Target>>,
}

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all queue pairs are reliable connections"
)]
enum ServiceMachine {
    Rc {
        requester: RcRequester,
        responder: RcResponder,
    },
    Uc {
        sender: UnreliableSender,
        receiver: UcReceiver,
    },
    Ud {
        sender: UnreliableSender,
        receiver: UdReceiver,
    },
}

impl RoceQueuePair {
    pub(crate) fn new(roce: RoceContext) -> Self {
        let machine = match roce.common.service {
            Service::Uc => ServiceMachine::Uc {
                sender: UnreliableSender::default(),
                receiver: UcReceiver::default(),
            },
            Service::Ud => ServiceMachine::Ud {
                sender: UnreliableSender::default(),
                receiver: UdReceiver,
            },
            _ => ServiceMachine::Rc {
                requester: RcRequester::new(),
                responder: RcResponder::new(),
            },
        };
        RoceQueuePair {
            roce,
            machine,
            ready: false,
            blocked: false,
            in_line: false,
            resting: false,
            in_turn: false,
            drain_reported: false,
            replies_first: false,
            notification: Notification::default(),
            pacer: Pacer::default(),
            published: None,
        }
    }

    /// When `timer` is due, if it is set.
    pub(crate) fn deadline(&self, timer: Timer) -> Option<Time> {
        if timer == Timer::Pace {
            return self.pacer.next().filter(|_| self.has_unsent());
        }
        match (&self.machine, timer) {
            (ServiceMachine::Rc { responder, .. }, Timer::Gap) => responder.deadline(),
            (ServiceMachine::Rc { requester, .. }, timer) => requester.deadline(timer),
            (ServiceMachine::Uc { sender, .. } | ServiceMachine::Ud { sender, .. }, Timer::Retransmit) => {
                sender.deadline()
            }
            _ => None,
        }
    }

    /// Requests posted and not completed.
    pub(crate) fn send_queue_len(&self) -> usize {
        match &self.machine {
            ServiceMachine::Rc { requester, .. } => requester.len(),
            ServiceMachine::Uc { sender, .. } | ServiceMachine::Ud { sender, .. } => sender.len(),
        }
    }

    /// Bytes the peer's window counts for it.
    pub(crate) fn in_flight(&self) -> u64 {
        match &self.machine {
            ServiceMachine::Rc { requester, .. } => requester.counted(),
            _ => 0,
        }
    }

    /// Whether its peer owes an answer to something that is under way.
    pub(crate) fn awaits_answer(&self) -> bool {
        match &self.machine {
            ServiceMachine::Rc { requester, .. } => requester.awaits_answer(),
            _ => false,
        }
    }

    /// What it has in the peer's window; `None` if its service does not count.
    pub(crate) fn share(&mut self) -> Option<&mut Share> {
        match &mut self.machine {
            ServiceMachine::Rc { requester, .. } => requester.share(),
            _ => None,
        }
    }

    /// A packet for it came with a mark: the peer is sent a CNP, if it has one.
    pub(crate) fn note_mark(&mut self, now: Time) {
        if self.roce.connected_hop().is_some() {
            self.notification.on_marked(now);
        }
    }

    /// The peer says that what we send meets a congested path.
    fn handle_notification(&mut self, nic: &mut NicResources) {
        nic.counters.cnps_received += 1;
        let (now, mtu) = (nic.now, self.roce.mtu);
        if let Some(peer) = self.roce.peer(nic) {
            peer.on_notified(now, mtu);
        }
    }

    /// Takes a packet meant for it.
    pub(crate) fn handle(&mut self, nic: &mut NicResources, packet: &Packet<'_>, flow: &Flow) {
        if !self.roce.common.state.receives() {
            nic.counters.rx_unclaimed += 1;
            return;
        }
        if packet.headers.bth.opcode.operation() == Operation::Cnp {
            self.handle_notification(nic);
            return;
        }
        let first = self.note_heard(nic);
        let roce = &self.roce;
        let result = match &mut self.machine {
            ServiceMachine::Rc { requester, responder } => {
                if packet.headers.bth.opcode.operation().is_response() {
                    if roce.common.state.requests() {
                        requester.handle(roce, nic, packet)
                    } else {
                        Ok(())
                    }
                } else if roce.is_initiator() {
                    nic.counters.rx_unclaimed += 1;
                    Ok(())
                } else {
                    responder.handle(roce, nic, packet)
                }
            }
            ServiceMachine::Uc { receiver, .. } => receiver.handle(roce, nic, packet),
            ServiceMachine::Ud { receiver, .. } => receiver.handle(roce, nic, packet, flow),
        };
        if let Err(Fatal) = result {
            self.enter_error(nic);
        } else if first {
            self.publish(nic);
        }
        self.report_drained(nic);
    }

    /// Something came from the peer. Returns whether it is the first, to a queue pair that does not send yet: its program waits for
    /// that.
    fn note_heard(&mut self, nic: &mut NicResources) -> bool {
        let first = self.roce.common.state == QpState::Rtr && !self.roce.heard;
        if first {
            self.roce.heard = true;
            nic.events
                .push_back(Event::CommunicationEstablished(self.roce.common.qpn));
        }
        first
    }

    /// Runs what is due.
    pub(crate) fn handle_timeout(&mut self, nic: &mut NicResources) {
        match &mut self.machine {
            ServiceMachine::Rc { requester, responder } => {
                responder.handle_timeout(nic);
                if let Err(Fatal) = requester.handle_timeout(&self.roce, nic) {
                    self.enter_error(nic);
                }
            }
            ServiceMachine::Uc { sender, .. } | ServiceMachine::Ud { sender, .. } => {
                sender.handle_timeout(nic.now);
            }
        }
    }

    /// Writes the next packet, if there is one and it fits the batch; and where it goes.
    pub(crate) fn emit(&mut self, nic: &mut NicResources, batch: &Batch, out: &mut [u8]) -> (Emit, Hop) {
        let roce = &self.roce;
        if self.notification.is_due() {
            return (self.notification.emit(roce, nic, batch, out), roce.hop());
        }
        if self.pacer.holds(nic.now) {
            return (self.emit_replies(nic, batch, out), self.roce.hop());
        }
        let (emitted, hop) = match &mut self.machine {
            ServiceMachine::Rc { requester, responder } => {
                // An acknowledgement is shorter than most requests, so it fits behind them in one batch but
                // not before them. If the last batch left no room, the answers go first.
                let emitted = if self.replies_first {
                    match responder.emit(roce, nic, batch, out) {
                        Emit::Idle => requester.emit(roce, nic, batch, out),
                        other => other,
                    }
                } else {
                    match requester.emit(roce, nic, batch, out) {
                        Emit::Packet(length) => Emit::Packet(length),
                        Emit::Failed => Emit::Failed,
                        blocked => match responder.emit(roce, nic, batch, out) {
                            Emit::Idle => blocked,
                            other => other,
                        },
                    }
                };
                (emitted, roce.hop())
            }
            ServiceMachine::Uc { sender, .. } | ServiceMachine::Ud { sender, .. } => {
                sender.emit(roce, nic, batch, out)
            }
        };
        match emitted {
            Emit::Packet(length) => self.pacer.on_sent(nic.now, length),
            Emit::Failed => self.send_failed(nic),
            _ => {}
        }
        self.report_drained(nic);
        (emitted, hop)
    }

    /// Writes an answer to the peer, if there is one: requests must wait.
    fn emit_replies(&mut self, nic: &mut NicResources, batch: &Batch, out: &mut [u8]) -> Emit {
        let ServiceMachine::Rc { responder, .. } = &mut self.machine else {
            return Emit::Idle;
        };
        let emitted = responder.emit(&self.roce, nic, batch, out);
        if emitted == Emit::Failed {
            self.send_failed(nic);
        }
        emitted
    }

    /// From now on, its requests leave no faster than so many kilobits in a second; 0 is as fast as they can.
    pub(crate) fn set_rate(&mut self, now: Time, kilobits_per_second: u32) {
        self.pacer.set(now, kilobits_per_second);
    }

    /// The attributes in force.
    pub(crate) fn attributes(&self) -> QpAttributes {
        QpAttributes {
            rate_limit: Some(self.pacer.rate()),
            ..self.roce.attributes()
        }
    }

    /// The send queue cannot go on. Unreliable services keep receiving.
    fn send_failed(&mut self, nic: &mut NicResources) {
        match &mut self.machine {
            ServiceMachine::Rc { .. } => self.enter_error(nic),
            ServiceMachine::Uc { sender, .. } | ServiceMachine::Ud { sender, .. } => {
                self.roce.common.state = QpState::Sqe;
                nic.record(self.roce.common.qpn, QpEvent::Moved(QpState::Sqe));
                sender.flush(&self.roce, nic);
            }
        }
    }

    /// Moves to the error state and flushes both queues, in order.
    pub(crate) fn enter_error(&mut self, nic: &mut NicResources) {
        if self.roce.common.state == QpState::Error {
            return;
        }
        self.roce.common.state = QpState::Error;
        nic.record(self.roce.common.qpn, QpEvent::Moved(QpState::Error));
        self.withdraw(nic);
        let roce = &self.roce;
        match &mut self.machine {
            ServiceMachine::Rc { requester, responder } => {
                requester.flush(roce, nic);
                responder.flush(roce, nic);
            }
            ServiceMachine::Uc { sender, receiver } => {
                sender.flush(roce, nic);
                receiver.flush(roce, nic);
            }
            ServiceMachine::Ud { sender, .. } => sender.flush(roce, nic),
        }
        self.flush_receives(nic);
        if self.roce.common.rq.srq_id().is_some() || self.roce.domain.is_some() {
            nic.events.push_back(Event::LastWqeReached(self.roce.common.qpn));
        }
    }

    /// Ends the receives of a private queue as flushed.
    pub(crate) fn flush_receives(&mut self, nic: &mut NicResources) {
        if self.roce.common.rq.srq_id().is_some() {
            return;
        }
        while let Some((wqe, _)) = self.roce.common.rq.take() {
            let flushed = self.roce.common.received(&wqe, Status::Flushed, 0);
            self.roce.common.complete_recv(nic, flushed);
        }
    }

    /// It is about to be destroyed: returns what its peer is still to be answered, if it has one.
    pub(crate) fn depart(&mut self, nic: &mut NicResources) -> Option<Departure> {
        self.withdraw(nic);
        let hop = self.roce.connected_hop()?;
        let ServiceMachine::Rc { responder, .. } = &mut self.machine else {
            return None;
        };
        let (expected, msn, kin) = match responder {
            RcResponder::Packets(responder) => (responder.expected(), responder.msn(), responder.has_kin()),
            // It sends no packets: its records are answered.
            RcResponder::Records(responder) => (responder.expected(), 0, false),
        };
        let serves = !self.roce.is_initiator();
        serves.then(|| Departure {
            hop,
            service: self.roce.common.service,
            bth: self.roce.bth(Operation::Acknowledge, expected),
            msn,
            kin,
            answered_at: None,
        })
    }

    /// Back to a blank queue pair, without completions.
    pub(crate) fn reset(&mut self, nic: &mut NicResources) {
        self.withdraw(nic);
        self.notification.forget();
        self.pacer = Pacer::default();
        match &mut self.machine {
            ServiceMachine::Rc { requester, responder } => {
                requester.forget(&self.roce, nic);
                responder.forget(nic);
            }
            ServiceMachine::Uc { sender, receiver } => {
                sender.forget();
                receiver.forget();
            }
            ServiceMachine::Ud { sender, .. } => sender.forget(),
        }
        if self.roce.common.rq.srq_id().is_none() {
            self.roce.common.rq.clear();
        }
        if let Some(peer) = self.roce.peer.take() {
            nic.peers.leave(peer);
        }
        self.roce.common.state = QpState::Reset;
        self.roce.heard = false;
        self.roce.path = None;
    }

    /// The attributes are in place: start the halves the new state brings to life.
    pub(crate) fn start(&mut self, nic: &mut NicResources, to: QpState) {
        if to != self.roce.common.state {
            self.drain_reported = false;
        }
        let roce = &self.roce;
        match (&mut self.machine, to) {
            (ServiceMachine::Rc { responder, .. }, QpState::Rtr) => responder.start(roce),
            (ServiceMachine::Uc { receiver, .. }, QpState::Rtr) => receiver.start(roce),
            (ServiceMachine::Rc { requester, .. }, QpState::Rts) if roce.common.state == QpState::Rtr => {
                requester.start(roce, nic);
            }
            (ServiceMachine::Uc { sender, .. } | ServiceMachine::Ud { sender, .. }, QpState::Rts)
                if roce.common.state == QpState::Rtr =>
            {
                sender.start(roce, nic);
            }
            _ => {}
        }
        self.roce.common.state = to;
    }

    /// Tells the program once that a send queue it asked to drain has done so.
    pub(crate) fn report_drained(&mut self, nic: &mut NicResources) {
        if self.roce.common.state != QpState::Sqd || self.drain_reported {
            return;
        }
        let drained = match &self.machine {
            ServiceMachine::Rc { requester, .. } => requester.is_drained(),
            ServiceMachine::Uc { sender, .. } | ServiceMachine::Ud { sender, .. } => sender.is_drained(),
        };
        if drained {
            self.drain_reported = true;
            nic.events.push_back(Event::SqDrained(self.roce.common.qpn));
        }
    }

    /// A batch is complete: answers that found no room in it begin the next one.
    pub(crate) fn end_batch(&mut self) {
        self.replies_first = self.has_replies();
    }

    /// Whether it has nothing to send but plain acknowledgements.
    pub(crate) fn only_acknowledges(&self) -> bool {
        !self.notification.is_due()
            && match &self.machine {
                ServiceMachine::Rc { requester, responder } => {
                    !requester.has_unsent() && responder.only_acknowledges()
                }
                ServiceMachine::Uc { sender, .. } | ServiceMachine::Ud { sender, .. } => sender.len() == 0,
            }
    }

    /// Whether there is a request that has not been sent, or an answer. It may have to wait.
    pub(crate) fn has_to_send(&self) -> bool {
        self.has_unsent() || self.has_replies() || self.notification.is_due()
    }

    /// Whether there is a request that has not been sent.
    fn has_unsent(&self) -> bool {
        match &self.machine {
            ServiceMachine::Rc { requester, .. } => requester.has_unsent(),
            ServiceMachine::Uc { sender, .. } | ServiceMachine::Ud { sender, .. } => sender.len() > 0,
        }
    }

    /// Whether answers are waiting; they go out even in the error state.
    pub(crate) fn has_replies(&self) -> bool {
        matches!(&self.machine, ServiceMachine::Rc { responder, .. } if responder.has_replies())
    }
}
