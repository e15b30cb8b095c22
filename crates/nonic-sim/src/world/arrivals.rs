//! Checks completions of receives: each answers a message that was sent, in order, once, with its bytes.

use super::content::{Pieces, is_overlay};
use super::memory::difference;
use super::model::{Bad, Kind, Life, Mark, Target, Writing};
use super::ops::GRH_LEN;
use super::post::{RECEIVE, SHARED, from_wr_id};
use super::{Check, World};
use nonic_core::{Completion, CompletionOpcode, SendFlags, Service, Status};
use std::net::IpAddr;

impl World {
    /// Takes a receive completion; returns whether it wakes a waiter for solicited ones, if that is certain.
    pub(super) fn received(&mut self, completion: &Completion, host: usize) -> Result<Option<bool>, String> {
        let Some(number) = self.by_qpn.get(&(host, completion.qpn.value())).copied() else {
            return Err(format!("{completion:?} names no queue pair"));
        };
        if self.qps[number].life == Life::Overflowed {
            return Ok(None);
        }
        let context = |what: String| format!("QP {number}: {completion:?}: {what}");
        let (arena, buffer) = self.take_receive(number, completion).map_err(context)?;
        self.completions += 1;
        if completion.status != Status::Success {
            self.receive_failed(number, completion, arena, &buffer)
                .map_err(context)?;
            return Ok(Some(true));
        }
        let solicited = match self.qps[number].service {
            Service::Rc => self.received_reliably(number, completion, arena, &buffer),
            Service::Uc => self.received_unreliably(number, completion, arena, &buffer),
            _ => self.received_datagram(number, completion, arena, &buffer),
        }
        .map_err(context)?;
        // Short messages look alike; where some may be missing, they may be taken for each other.
        let certain = self.qps[number].service == Service::Rc || completion.byte_len >= GRH_LEN + 8;
        Ok(certain.then_some(solicited))
    }

    /// The receive a completion is for: it was posted, is not done, and is next in line.
    fn take_receive(&mut self, number: usize, completion: &Completion) -> Result<(usize, Pieces), String> {
        let (owner, index) = from_wr_id(completion.wr_id);
        if completion.wr_id & RECEIVE == 0 {
            return Err("not a receive's wr_id".into());
        }
        if completion.wr_id & SHARED != 0 {
            if self.qps[number].srq != Some(owner) {
                return Err("a receive of a queue it does not draw from".into());
            }
            let srq = &mut self.srqs[owner];
            if !srq.waiting.remove(&index) {
                return Err(format!("shared receive {index} is not outstanding"));
            }
            srq.receives[index].done = true;
            return Ok((srq.arena, srq.receives[index].buffer.clone()));
        }
        if owner != number {
            return Err("another queue pair's receive".into());
        }
        let qp = &mut self.qps[number];
        let next = qp.waiting.pop_front();
        if next != Some(index) {
            return Err(format!(
                "receive {index} completed, but the next in line is {next:?}"
            ));
        }
        if std::mem::take(&mut qp.receives_blocked) {
            let delay_ns = 300 + self.prng.below(qp.recv_pace_ns + 1);
            self.fabric.mark(delay_ns, Mark::Receive(number));
        }
        qp.receives[index].done = true;
        Ok((qp.arena, qp.receives[index].buffer.clone()))
    }

    fn receive_failed(
        &mut self,
        number: usize,
        completion: &Completion,
        arena: usize,
        buffer: &Pieces,
    ) -> Check {
        let (_, index) = from_wr_id(completion.wr_id);
        let shared = completion.wr_id & SHARED != 0;
        let short = !shared && self.qps[number].receives[index].short;
        let explained = match completion.status {
            // What explains it may be in another completion queue: judged after the turn.
            Status::Flushed => {
                self.flushed.push(number);
                true
            }
            Status::LocalLength => short,
            // A SEND_WITH_INV that named no valid key.
            Status::LocalQpOperation => self.qps[number].may_be_refused,
            _ => false,
        };
        if !explained {
            return Err("nothing explains this status".into());
        }
        if completion.status != Status::Flushed && self.qps[number].works() {
            self.qps[number].life = Life::Error;
        }
        self.settle_partial_receive(number, arena, buffer);
        Ok(())
    }

    /// Receives were flushed in a NIC's turn: by now it must be known why.
    pub(super) fn check_flushed(&mut self) -> Check {
        for number in std::mem::take(&mut self.flushed) {
            if !self.error_is_explained(number) && !self.in_error_for_receiving(number) {
                return Err(format!(
                    "QP {number}: a receive was flushed, and nothing explains it"
                ));
            }
        }
        Ok(())
    }

    /// A receive that was too short fails its queue pair, whatever the service.
    fn in_error_for_receiving(&self, number: usize) -> bool {
        let qp = &self.qps[number];
        qp.receives.iter().any(|receive| receive.short && receive.done)
    }

    /// A failed receive may hold the first packets of a message.
    fn settle_partial_receive(&mut self, number: usize, arena: usize, buffer: &Pieces) {
        let qp = &self.qps[number];
        let arena = &mut self.arenas[arena];
        let actual = arena.read(buffer);
        let before = buffer.gather(&arena.image);
        let pending = qp.peer.filter(|_| qp.service == Service::Rc).and_then(|peer| {
            let peer = &self.qps[peer];
            let message = peer.messages.get(qp.received)?;
            Some(peer.ops[*message].source.content().bytes())
        });
        let permitted = match pending {
            None => qp.service != Service::Rc || actual == before,
            Some(mut message) => {
                // What is behind the message's end is untouched.
                message.truncate(actual.len());
                let covered = message.len();
                let head = is_overlay(
                    &actual[..covered],
                    &message,
                    &before[..covered],
                    qp.terms.mtu.bytes() as usize,
                );
                head && actual[covered..] == before[covered..]
            }
        };
        if permitted {
            buffer.scatter(&mut arena.image, &actual);
        }
        // Otherwise the final comparison finds the difference.
    }

    fn received_reliably(
        &mut self,
        number: usize,
        completion: &Completion,
        arena: usize,
        buffer: &Pieces,
    ) -> Result<bool, String> {
        let peer = self.qps[number].peer.ok_or("a connected queue pair has a peer")?;
        let position = self.qps[number].received;
        let Some(message) = self.qps[peer].messages.get(position).copied() else {
            return Err("more receives than the peer sent messages".into());
        };
        self.qps[number].received += 1;
        self.check_message(peer, message, completion, arena, buffer)?;
        self.check_writes_before(peer, message)?;
        Ok(self.qps[peer].ops[message].flags.contains(SendFlags::SOLICITED))
    }

    /// In order, but some may be missing: looks for the next message that fits.
    fn received_unreliably(
        &mut self,
        number: usize,
        completion: &Completion,
        arena: usize,
        buffer: &Pieces,
    ) -> Result<bool, String> {
        let peer = self.qps[number].peer.ok_or("a connected queue pair has a peer")?;
        let from = self.qps[number].received;
        let candidates = self.qps[peer].messages[from..].to_vec();
        for (passed, message) in candidates.into_iter().enumerate() {
            if self
                .check_message(peer, message, completion, arena, buffer)
                .is_ok()
            {
                self.qps[number].received = from + passed + 1;
                // Behind the message there may be the rest of a dropped one.
                let whole = self.arenas[arena].read(buffer);
                buffer.scatter(&mut self.arenas[arena].image, &whole);
                return Ok(self.qps[peer].ops[message].flags.contains(SendFlags::SOLICITED));
            }
        }
        Err("fits none of the messages the peer may have sent next".into())
    }

    /// Whether a completion and its buffer are those of a message.
    fn check_message(
        &mut self,
        sender: usize,
        message: usize,
        completion: &Completion,
        arena: usize,
        buffer: &Pieces,
    ) -> Check {
        let op = &self.qps[sender].ops[message];
        let (kind, length) = (op.kind, op.length);
        if completion.byte_len != length {
            return Err(format!("byte_len {} instead of {length}", completion.byte_len));
        }
        let mut invalidated = None;
        let (opcode, immediate) = match kind {
            Kind::Send { immediate } => (CompletionOpcode::Recv, immediate),
            Kind::Write {
                how: Writing::WithImmediate(immediate),
                ..
            } => (CompletionOpcode::RecvWriteWithImmediate, Some(immediate)),
            Kind::SendInvalidate { export } => {
                invalidated = Some(self.exports[export].key);
                (CompletionOpcode::Recv, None)
            }
            Kind::Bad(Bad::SendInvalidateUnknownKey) => return Err("an invalid key was invalidated".into()),
            other => return Err(format!("{other:?} takes no receive")),
        };
        if (
            completion.opcode,
            completion.immediate,
            completion.invalidated_rkey,
        ) != (opcode, immediate, invalidated)
        {
            return Err(format!(
                "should be {opcode:?} with {immediate:?} and {invalidated:?}"
            ));
        }
        if let Kind::Write { cell, version, .. } = kind {
            return self.check_cell(cell, version);
        }
        self.check_payload(sender, message, arena, &buffer.prefix(length))?;
        if let Kind::SendInvalidate { export } = kind {
            self.revoked(export);
        }
        Ok(())
    }

    fn check_payload(&mut self, sender: usize, message: usize, arena: usize, buffer: &Pieces) -> Check {
        let expected = self.qps[sender].ops[message].source.content().bytes();
        let arena = &mut self.arenas[arena];
        let actual = arena.read(buffer);
        if actual != expected {
            return Err(format!("the wrong bytes: {}", difference(&actual, &expected)));
        }
        buffer.scatter(&mut arena.image, &actual);
        Ok(())
    }

    /// A message arrives after every WRITE that was posted before it.
    fn check_writes_before(&mut self, sender: usize, message: usize) -> Check {
        for index in self.qps[sender].writes_seen..message {
            if let Kind::Write { cell, version, .. } = self.qps[sender].ops[index].kind {
                self.check_cell(cell, version)
                    .map_err(|what| format!("WRITE {index} before message {message}: {what}"))?;
                self.qps[sender].ops[index].verified = true;
            }
        }
        self.qps[sender].writes_seen = message;
        Ok(())
    }

    fn received_datagram(
        &mut self,
        number: usize,
        completion: &Completion,
        arena: usize,
        buffer: &Pieces,
    ) -> Result<bool, String> {
        if !completion.grh || completion.byte_len < GRH_LEN || completion.opcode != CompletionOpcode::Recv {
            return Err("not a datagram's completion".into());
        }
        let bytes = self.arenas[arena].read(&buffer.prefix(completion.byte_len));
        let (header, payload) = bytes.split_at(GRH_LEN as usize);
        let from = source_of(header, self.scenario.v6);
        let sender = (0..self.qps.len()).find(|sender| {
            let qp = &self.qps[*sender];
            qp.service == Service::Ud && qp.qpn == completion.src_qp && self.hosts[qp.host].ip == from
        });
        let sender = sender.ok_or_else(|| format!("no such sender: {from}"))?;
        let in_group = self.qps[number].in_group;
        let fits = |op: &super::model::Op| match op.kind {
            Kind::Datagram {
                to,
                immediate,
                wrong_qkey: false,
            } => {
                (to == Target::Qp(number) || (to == Target::Group && in_group))
                    && immediate == completion.immediate
                    && op.length as usize == payload.len()
                    && op.source.content().bytes() == payload
            }
            _ => false,
        };
        let sent = &self.qps[sender].ops[..self.qps[sender].next_op];
        let message = sent.iter().position(fits).ok_or("nobody sent such a datagram")?;
        let solicited = sent[message].flags.contains(SendFlags::SOLICITED);
        buffer.scatter(&mut self.arenas[arena].image, &bytes);
        self.count_datagram(number, sender, message)?;
        Ok(solicited)
    }

    /// Nothing arrives more often than the network copied it.
    fn count_datagram(&mut self, number: usize, sender: usize, message: usize) -> Check {
        let length = self.qps[sender].ops[message].length;
        let seen = self.datagrams_seen.entry((number, sender, message)).or_default();
        *seen += 1;
        // Short ones look alike; a network that duplicates may duplicate anything.
        if *seen > 1 && length >= 8 && self.scenario.fabric.faults.duplicate_ppm == 0 {
            return Err(format!("datagram {message} of QP {sender} arrived {seen} times"));
        }
        Ok(())
    }
}

/// The sender's address in a datagram's network header.
fn source_of(header: &[u8], v6: bool) -> IpAddr {
    if v6 {
        let octets: [u8; 16] = header[8..24].try_into().expect("16 bytes");
        IpAddr::from(octets)
    } else {
        let octets: [u8; 4] = header[32..36].try_into().expect("4 bytes");
        IpAddr::from(octets)
    }
}
