//! Drives a side as the engine does: moves bytes in and out of its socket, and does what the queue pair asks for.

use super::model::{Cause, Mark, Phase, Trouble};
use super::pipe::{PipeFault, Read};
use super::{Check, Streams};
use nonic_core::iwarp::{StreamClosed, StreamEvent, StreamGather, StreamReading};
use nonic_core::{Nic, Region};
use nonic_netem::mix;
use std::sync::Arc;

impl Streams {
    /// Something that this side wrote arrives.
    pub(super) fn arrive(&mut self, number: usize) -> Check {
        let reader = number ^ 1;
        let came = self.pipes[number].arrive(self.model.now_ns);
        if matches!(self.sides[reader].phase, Phase::Closed) {
            self.pipes[number].discard();
            if came > 0 && !matches!(self.sides[number].phase, Phase::Closed) {
                // The reader has closed: TCP resets the connection.
                let latency_ns = self.pipes[reader].profile.latency_ns;
                self.mark(latency_ns, Mark::Break(number));
            }
            return Ok(());
        }
        let delay_ns = self.prng.below(300);
        self.turn_in(reader, delay_ns);
        Ok(())
    }

    /// One turn of a side: what is to be written, and one read.
    pub(super) fn turn(&mut self, number: usize) -> Check {
        let host = self.model.programs[number].host;
        if !self.hosts[host].up {
            return Ok(());
        }
        match self.sides[number].phase {
            Phase::Planned | Phase::Closed => return Ok(()),
            Phase::Starting(_) => {
                self.write_unsent(number)?;
                self.read_starting(number)?;
            }
            Phase::Attached => {
                self.write_attached(number)?;
                self.read_attached(number)?;
            }
        }
        self.attend(host)?;
        let blocked = self.sides[number].is_attached()
            && !self.sides[number].reads_ahead
            && self.hosts[host]
                .nic
                .stream_reading(self.model.programs[number].qpn)
                == StreamReading::Blocked;
        let more = self.pipes[number ^ 1].is_readable(self.model.now_ns) && !self.sides[number].told_end;
        if more && !blocked && !self.was_cut(number ^ 1) {
            let delay_ns = 100 + self.prng.below(1_000);
            self.turn_in(number, delay_ns);
        }
        Ok(())
    }

    fn was_cut(&self, pipe: usize) -> bool {
        let pipe = &self.pipes[pipe];
        pipe.struck && matches!(pipe.fault, Some(PipeFault::Cut { .. }))
    }

    /// Reads from the socket of a side.
    fn read(&mut self, number: usize) -> Result<Read, StreamClosed> {
        let before = self.was_cut(number ^ 1);
        let read = self.pipes[number ^ 1].read(self.model.now_ns, &mut self.prng);
        if !before && self.was_cut(number ^ 1) {
            self.tell(|| format!("side {number} is cut off"));
            self.connections[number / 2].causes.push(Cause::Stream);
        }
        if let Read::Bytes(_) = read {
            // There is room again.
            let latency_ns = self.pipes[number].profile.latency_ns;
            self.turn_in(number ^ 1, latency_ns);
            return Ok(read);
        }
        if self.was_cut(number ^ 1) {
            self.pipes[number ^ 1].discard();
            return match self.connections[number / 2].trouble {
                Trouble::Cut { reset: false } => Ok(Read::End),
                _ => {
                    self.mark(1_000, Mark::Break(number ^ 1));
                    Err(StreamClosed::Broken)
                }
            };
        }
        match self.sides[number].broken {
            true => Err(StreamClosed::Broken),
            false => Ok(read),
        }
    }

    fn read_starting(&mut self, number: usize) -> Check {
        let read = self.read(number);
        let Phase::Starting(startup) = &mut self.sides[number].phase else {
            return Ok(());
        };
        let (bytes, used) = match read {
            Ok(Read::Bytes(bytes)) => {
                let used = startup.handle_bytes(&bytes);
                self.sides[number].startup_read += used as u64;
                (bytes, used)
            }
            Ok(Read::Nothing) => (Vec::new(), 0),
            Ok(Read::End) | Err(_) => {
                startup.handle_closed();
                (Vec::new(), 0)
            }
        };
        self.go_on_starting(number)?;
        if self.sides[number].is_attached() && used < bytes.len() {
            // What came behind the Reply is the queue pair's.
            self.hand_in(number, &bytes[used..])?;
        }
        Ok(())
    }

    fn read_attached(&mut self, number: usize) -> Check {
        let (host, qpn) = (self.model.programs[number].host, self.model.programs[number].qpn);
        let reading = self.hosts[host].nic.stream_reading(qpn);
        let waits = reading == StreamReading::Blocked && !self.sides[number].reads_ahead;
        if self.sides[number].told_end || waits || reading == StreamReading::Closed {
            return Ok(());
        }
        let now = self.now();
        match self.read(number) {
            Ok(Read::Bytes(bytes)) => self.hand_in(number, &bytes)?,
            Ok(Read::Nothing) => {}
            Ok(Read::End) => {
                self.sides[number].told_end = true;
                self.tell(|| format!("side {number} reads the end"));
                self.hosts[host].nic.stream_closed(now, qpn, StreamClosed::ByPeer);
            }
            Err(closed) => {
                self.sides[number].told_end = true;
                self.tell(|| format!("side {number} is broken"));
                self.hosts[host].nic.stream_closed(now, qpn, closed);
            }
        }
        Ok(())
    }

    fn hand_in(&mut self, number: usize, bytes: &[u8]) -> Check {
        let (now, host, qpn) = (
            self.now(),
            self.model.programs[number].host,
            self.model.programs[number].qpn,
        );
        self.tell(|| format!("side {number} reads {} bytes", bytes.len()));
        let read = self.pipes[number ^ 1].read - self.sides[number].startup_read;
        if let Some(observer) = &mut self.observers[number ^ 1] {
            self.sides[number].answered += observer.answers_until(read);
        }
        self.hosts[host].nic.stream_received(now, qpn, bytes);
        Ok(())
    }

    /// Writes what start-up, or the queue pair, has left.
    pub(super) fn write_unsent(&mut self, number: usize) -> Check {
        if self.sides[number].unsent.is_empty() {
            return Ok(());
        }
        let now_ns = self.model.now_ns;
        let unsent = std::mem::take(&mut self.sides[number].unsent);
        let struck = self.pipes[number].struck;
        let (taken, arrival_ns) = self.pipes[number].write(now_ns, &unsent, &mut self.prng);
        self.sides[number].unsent = unsent[taken..].to_vec();
        if taken == 0 {
            let closed_ns = self.pipes[number].closed_until_ns;
            if closed_ns > now_ns {
                self.turn_in(number, closed_ns - now_ns);
            }
            return Ok(());
        }
        self.note(number, &unsent[..taken]);
        self.mark_at(arrival_ns, Mark::Arrive(number));
        let uncounted = unsent.len() - self.sides[number].counted;
        let startup = taken.min(uncounted);
        self.sides[number].startup_written += startup as u64;
        let counted = taken - startup;
        if self.pipes[number].struck && !struck {
            let crc = self.sides[number].params.is_some_and(|params| params.crc);
            let protected = crc && counted > 0;
            self.tell(|| format!("side {number}: a bit is flipped, protected: {protected}"));
            self.connections[number / 2].causes.push(Cause::Stream);
            for side in [number, number ^ 1] {
                self.model.programs[side].damaged |= !protected;
            }
        }
        if counted > 0 {
            self.check_may_send(number)?;
            self.sides[number].counted -= counted;
            let stream = &unsent[startup..taken];
            if let Some(observer) = &mut self.observers[number] {
                let seen = observer.see(stream);
                seen.map_err(|what| format!("side {number} writes: {what}"))?;
            }
            self.check_outstanding_reads(number)?;
            let (now, host, qpn) = (
                self.now(),
                self.model.programs[number].host,
                self.model.programs[number].qpn,
            );
            self.hosts[host].nic.stream_written(now, qpn, counted);
        }
        self.end_half(number);
        if !self.sides[number].unsent.is_empty() {
            // One write may take less than there is room for.
            let delay_ns = 200 + self.prng.below(2_000);
            self.turn_in(number, delay_ns);
        }
        Ok(())
    }

    /// Writes what a queue pair has to send, as long as there is room.
    pub(super) fn write_attached(&mut self, number: usize) -> Check {
        let side = &self.sides[number];
        let to_write = !side.unsent.is_empty() || side.wants_to_send;
        if side.is_attached() && side.broken && to_write && !side.told_end {
            let program = &self.model.programs[number];
            let (now, host, qpn) = (self.now(), program.host, program.qpn);
            self.sides[number].told_end = true;
            self.hosts[host].nic.stream_closed(now, qpn, StreamClosed::Broken);
        }
        while self.sides[number].is_attached() && !self.sides[number].broken {
            self.write_unsent(number)?;
            let side = &mut self.sides[number];
            if !side.unsent.is_empty() || !side.wants_to_send {
                return Ok(());
            }
            let (qpn, mss) = (self.model.programs[number].qpn, side.mss);
            let at = self.now();
            let nic = &mut self.hosts[self.model.programs[number].host].nic;
            let side = &mut self.sides[number];
            if side.gathers && nic.can_gather_stream(qpn) {
                let mut gather = Copying {
                    bytes: Vec::new(),
                    pieces: 64,
                };
                let length = nic.gather_stream(at, qpn, mss, &mut gather);
                if length != gather.bytes.len() {
                    return Err(format!(
                        "side {number}: gathered {} bytes, not {length}",
                        gather.bytes.len()
                    ));
                }
                side.unsent = gather.bytes;
            } else {
                let length = nic.poll_stream_transmit(at, qpn, mss, &mut self.buffer);
                side.unsent = self.buffer[..length].to_vec();
            }
            side.counted = side.unsent.len();
            side.wants_to_send = side.counted > 0;
        }
        Ok(())
    }

    fn note(&mut self, number: usize, bytes: &[u8]) {
        self.tell(|| format!("side {number} writes {} bytes", bytes.len()));
        self.frames += 1;
        self.trace = mix(self.trace ^ self.model.now_ns ^ (number as u64) << 48);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.trace = (self.trace ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }

    /// Does what a queue pair asks for.
    pub(super) fn stream_event(&mut self, host: usize, event: StreamEvent) -> Check {
        let Some(number) = self.by_qpn.get(&(host, event.qpn().value())).copied() else {
            return Err(format!("{event:?} names no queue pair"));
        };
        self.tell(|| format!("side {number} {event:?}"));
        let side = &mut self.sides[number];
        if side.closed {
            return Err(format!("side {number}: {event:?} after Close"));
        }
        // What is left to say of one that was destroyed is that it is over.
        if side.gone && !matches!(event, StreamEvent::Close(_) | StreamEvent::Disconnected(..)) {
            return Err(format!("side {number}: {event:?} of a destroyed queue pair"));
        }
        match event {
            StreamEvent::Transmit(_) => {
                side.wants_to_send = true;
                self.write_attached(number)
            }
            StreamEvent::Receive(qpn) => {
                let now = self.now();
                self.hosts[host].nic.stream_received(now, qpn, &[]);
                self.turn_in(number, 0);
                Ok(())
            }
            StreamEvent::Established(_) => {
                let promised = side.params.is_some_and(|params| params.rtr.is_some());
                if side.established || number % 2 == 0 || !promised || side.ended.is_some() {
                    return Err(format!("side {number}: established without reason"));
                }
                side.established = true;
                Ok(())
            }
            StreamEvent::Finish(_) => {
                if side.counted > 0 || side.finished {
                    return Err(format!("side {number}: Finish with bytes unsent, or twice"));
                }
                side.finished = true;
                self.end_half(number);
                Ok(())
            }
            StreamEvent::Disconnected(_, end) => {
                if side.ended.is_some() {
                    return Err(format!("side {number}: {event:?}, and it was before"));
                }
                side.ended = Some((end, self.model.now_ns));
                self.model.note_ended(number);
                self.judge(number, end)
            }
            StreamEvent::Close(_) => {
                if side.ended.is_none() && !side.gone {
                    return Err(format!("side {number}: Close before Disconnected"));
                }
                side.closed = true;
                self.close_socket(number);
                Ok(())
            }
        }
    }

    /// Ends a half of the stream whose queue pair wants so, behind the Reply if that is not out yet.
    fn end_half(&mut self, number: usize) {
        if self.sides[number].finished && self.sides[number].unsent.is_empty() {
            let end_ns = self.pipes[number].end(self.model.now_ns);
            self.mark_at(end_ns, Mark::Arrive(number));
        }
    }

    /// Closes the socket of a side, as the operating system does: with an end, or with a reset if something was not read.
    pub(super) fn close_socket(&mut self, number: usize) {
        let peer = number ^ 1;
        if matches!(self.sides[number].phase, Phase::Closed) {
            return;
        }
        let unread = self.pipes[peer].readable() > 0;
        self.sides[number].phase = Phase::Closed;
        self.sides[number].unsent.clear();
        self.sides[number].counted = 0;
        let end_ns = self.pipes[number].end(self.model.now_ns);
        self.mark_at(end_ns, Mark::Arrive(number));
        if unread && !matches!(self.sides[peer].phase, Phase::Closed) {
            self.mark_at(end_ns, Mark::Break(peer));
        }
        self.pipes[peer].discard();
    }
}

/// Gathers by copying at once.
struct Copying {
    bytes: Vec<u8>,
    pieces: usize,
}

impl StreamGather for Copying {
    fn room(&self) -> usize {
        Nic::stream_buffer_len().saturating_sub(self.bytes.len())
    }

    fn pieces(&self) -> usize {
        self.pieces
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.pieces = self.pieces.saturating_sub(1);
        self.bytes.extend_from_slice(bytes);
    }

    fn memory(&mut self, region: &Arc<dyn Region>, offset: usize, length: usize) {
        self.pieces = self.pieces.saturating_sub(1);
        let start = self.bytes.len();
        self.bytes.resize(start + length, 0);
        region
            .read(offset, &mut self.bytes[start..])
            .expect("memory that is named to be sent can be read");
    }
}
