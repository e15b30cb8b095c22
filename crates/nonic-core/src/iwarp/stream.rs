//! Stream input, output and timers of an iWARP queue pair.

use super::event::{StreamClosed, StreamEnd, StreamReading};
use super::fault::{self, StreamFault};
use super::frame::{BufferFrame, Frame, GatherFrame, StreamGather};
use super::halves::Inbound;
use super::queue_pair::IwarpQueuePair;
use super::states::{StreamInput, StreamPhase};
use crate::record::QpEvent;
use crate::resources::NicResources;
use nonic_wire::iwarp::rdmap::QUEUE_REQUEST;
use nonic_wire::iwarp::{DdpHeader, Framing, Terminate, TerminateCode};

/// Memory that an empty buffer keeps: there may be many connections, of which few are active.
const SPARE_MEMORY: usize = 4096;

impl IwarpQueuePair {
    /// Takes bytes from the stream.
    pub(crate) fn receive(&mut self, nic: &mut NicResources, bytes: &[u8]) {
        if self.reading() == StreamReading::Blocked {
            self.woken = false;
            self.resume(nic);
        }
        match self.reading() {
            StreamReading::Ready => self.consume(nic, bytes),
            StreamReading::Blocked => {
                if let Some(connected) = &mut self.connected {
                    connected.backlog.extend_from_slice(bytes);
                }
            }
            StreamReading::Discarding | StreamReading::Closed => {}
        }
        self.end_input(nic);
    }

    /// Offers what is held again.
    fn resume(&mut self, nic: &mut NicResources) {
        let Some(connected) = &mut self.connected else {
            return;
        };
        let Some(held) = connected.held.take() else { return };
        let result = connected.halves.handle(&self.common, nic, &held);
        if result == Ok(Inbound::NoReceive) {
            connected.held = Some(held);
            return;
        }
        connected.timers.receive_by = None;
        let mut backlog = std::mem::take(&mut connected.backlog);
        if self.take_result(nic, result) {
            self.consume(nic, &backlog);
        }
        if let Some(connected) = &mut self.connected {
            if connected.backlog.is_empty() && backlog.capacity() <= SPARE_MEMORY {
                backlog.clear();
                connected.backlog = backlog;
            }
        }
    }

    /// Takes FPDUs until there is none, or none may be taken.
    fn consume(&mut self, nic: &mut NicResources, mut chunk: &[u8]) {
        loop {
            let Some(connected) = &mut self.connected else {
                return;
            };
            let ulpdu = match connected.deframer.next(&mut chunk) {
                Ok(Some(ulpdu)) => ulpdu,
                Ok(None) => {
                    if connected.deframer.capacity() > SPARE_MEMORY && connected.deframer.is_at_boundary() {
                        connected.deframer.release_memory();
                    }
                    return;
                }
                Err(error) => {
                    nic.counters.rx_fpdu_errors += 1;
                    self.fail(nic, StreamFault::local(error.terminate_code()));
                    return;
                }
            };
            let result = connected.halves.handle(&self.common, nic, ulpdu);
            if result == Ok(Inbound::NoReceive) {
                connected.held = Some(ulpdu.to_vec());
                connected.backlog.extend_from_slice(chunk);
                connected.timers.receive_by = Some(nic.now + self.config.receive_grace);
                // There is no place for it, but it has come.
                self.heard();
                return;
            }
            if !self.take_result(nic, result) {
                return;
            }
        }
    }

    /// Acts on what became of a segment; returns whether to go on.
    fn take_result(&mut self, nic: &mut NicResources, result: Result<Inbound, StreamFault>) -> bool {
        match result {
            Ok(Inbound::Done) => {
                self.heard();
                true
            }
            Ok(Inbound::NoReceive) => false,
            Ok(Inbound::Terminated(terminate)) => {
                self.terminated(nic, &terminate);
                false
            }
            Err(fault) => {
                self.fail(nic, fault);
                false
            }
        }
    }

    /// A message has come: a responder may send from now on.
    fn heard(&mut self) {
        let Some(connected) = &mut self.connected else {
            return;
        };
        connected.timers.ready_again_at = None;
        if !connected.may_send || connected.announces {
            connected.may_send = true;
            (connected.timers.first_send_at, connected.timers.ready_by) = (None, None);
            self.signals.established |= std::mem::take(&mut connected.announces);
        }
    }

    /// The peer complains. If it says about what, that request fails; all others are flushed.
    fn terminated(&mut self, nic: &mut NicResources, terminate: &Terminate) {
        nic.counters.terminates_received += 1;
        nic.record(self.common.qpn, QpEvent::PeerTerminated(terminate.code));
        let failed = self.connected.as_ref().and_then(|connected| {
            let sink = terminate.read_request.map(|request| request.sink_stag);
            // Queues count by themselves: a complaint about a SEND says nothing about the atomic of the same number.
            let msn = match terminate.ddp {
                Some(DdpHeader::Untagged { qn, msn, .. }) if sink.is_some() || qn == QUEUE_REQUEST => msn,
                _ => return None,
            };
            let number = connected.halves.requester.find_refused(sink, msn)?;
            Some((number, fault::status(terminate.code)))
        });
        let end = StreamEnd::PeerTerminated(terminate.code);
        self.step(nic, StreamInput::Terminate, end, failed);
    }

    /// After input: what the peer's end of its half was waiting for, and what cannot be answered any more.
    fn end_input(&mut self, nic: &mut NicResources) {
        let Some(connected) = &mut self.connected else {
            return;
        };
        let replies_due = connected.halves.responder.replies.len() > 0;
        if self.phase == StreamPhase::HalfClosed && replies_due {
            // This half has ended: a READ that comes now cannot be answered.
            self.step(nic, StreamInput::Fault, StreamEnd::Closed, None);
        } else if connected.finish_waits && connected.held.is_none() {
            connected.finish_waits = false;
            self.peer_finished(nic);
        }
    }

    /// The stream has come to its end.
    pub(crate) fn closed(&mut self, nic: &mut NicResources, closed: StreamClosed) {
        if closed == StreamClosed::Broken {
            self.step(nic, StreamInput::Lost, StreamEnd::Lost, None);
            return;
        }
        match &mut self.connected {
            Some(connected) if connected.held.is_some() => connected.finish_waits = true,
            _ => self.peer_finished(nic),
        }
    }

    fn peer_finished(&mut self, nic: &mut NicResources) {
        let discarding = self.reading() == StreamReading::Discarding;
        let whole = self
            .connected
            .as_ref()
            .is_some_and(|connected| connected.deframer.is_at_boundary());
        let (input, end) = match (whole || discarding, self.phase) {
            // A side that has closed is not told of a message that the peer broke off when it learnt of that.
            (_, StreamPhase::Closing | StreamPhase::HalfClosed) => (StreamInput::Finish, StreamEnd::Closed),
            (false, _) => (StreamInput::Lost, StreamEnd::Lost),
            (true, _) => (StreamInput::Finish, StreamEnd::PeerClosed),
        };
        self.step(nic, input, end, None);
    }

    /// Writes as many segments as there are and fit to a buffer; returns how many bytes.
    pub(crate) fn transmit_to_buffer(&mut self, nic: &mut NicResources, mss: usize, out: &mut [u8]) -> usize {
        // The framer is borrowed by the frame, so it cannot be in the queue pair meanwhile.
        let Some(mut framer) = self.connected.as_mut().map(|connected| connected.framer.clone()) else {
            return 0;
        };
        let mut frame = BufferFrame::new(out, &mut framer, mss);
        self.transmit(nic, &mut frame);
        let length = frame.len();
        if let Some(connected) = &mut self.connected {
            connected.framer = framer;
        }
        length
    }

    /// The same without copying payload.
    pub(crate) fn transmit_gathered(
        &mut self,
        nic: &mut NicResources,
        mss: usize,
        gather: &mut dyn StreamGather,
    ) -> usize {
        let mut frame = GatherFrame::new(gather, mss);
        self.transmit(nic, &mut frame);
        frame.len()
    }

    /// Whether payload may be sent from where it is.
    pub(crate) fn gathers(&self) -> bool {
        let plain = Framing {
            crc: false,
            markers: false,
        };
        self.connected
            .as_ref()
            .is_some_and(|connected| connected.framer.framing() == plain)
    }

    fn transmit(&mut self, nic: &mut NicResources, frame: &mut impl Frame) {
        // Once for what is to be said, and if that fails, once more for the Terminate.
        for _ in 0..2 {
            if !self.has_output() {
                return;
            }
            let Some(connected) = &mut self.connected else {
                return;
            };
            let Err(fault) = connected.write(&self.common, nic, frame) else {
                return;
            };
            self.fail(nic, fault);
        }
    }

    /// TCP has taken so many more bytes of what was written.
    pub(crate) fn written(&mut self, nic: &mut NicResources, bytes: u64) {
        let Some(connected) = &mut self.connected else {
            return;
        };
        let halves = &mut connected.halves;
        halves.taken = (halves.taken + bytes).min(connected.emitted);
        halves.requester.complete(&self.common, nic, halves.taken);
        self.check_sent(nic);
    }

    /// Runs what is due.
    pub(crate) fn handle_timeout(&mut self, nic: &mut NicResources) {
        let now = nic.now;
        let Some(connected) = &mut self.connected else {
            return;
        };
        let due = |timer: &mut Option<crate::time::Time>| timer.take_if(|at| *at <= now).is_some();
        let (receive, first_send) = (
            due(&mut connected.timers.receive_by),
            due(&mut connected.timers.first_send_at),
        );
        let (ready, linger) = (
            due(&mut connected.timers.ready_by),
            due(&mut connected.timers.linger_until),
        );
        connected.may_send |= first_send;
        if due(&mut connected.timers.ready_again_at) {
            connected.say_again_ready(now, &self.config);
        }
        if linger {
            self.step(nic, StreamInput::Expired, StreamEnd::Closed, None);
        }
        if ready {
            self.step(nic, StreamInput::Lost, StreamEnd::NotReady, None);
        }
        if receive {
            self.give_up_waiting(nic);
        }
    }

    /// There has been no receive for too long. A shared queue may have one by now.
    fn give_up_waiting(&mut self, nic: &mut NicResources) {
        self.resume(nic);
        let Some(connected) = &mut self.connected else {
            return;
        };
        let waits_anew = connected.timers.receive_by.is_some();
        if let Some(held) = connected.held.take_if(|_| !waits_anew) {
            let fault = StreamFault::about(TerminateCode::DDP_UNTAGGED_NO_BUFFER, &held);
            self.fail(nic, fault);
        }
        self.end_input(nic);
    }
}
