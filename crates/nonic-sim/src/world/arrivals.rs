//! Why a receive may end as it did on RoCE, and which message it got where some may be missing.
//!
//! What must hold of a message that arrived is checked in [`crate::program::arrivals`].

use super::model::{Life, Mark};
use super::ops::GRH_LEN;
use super::{Check, World};
use crate::program::arrivals;
use crate::program::model::Taken;
use crate::program::post::SHARED;
use crate::program::request::{Kind, Op, Target};
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
        let wakes = arrivals::received(self, number, completion)?;
        let shared = completion.wr_id & SHARED != 0;
        if !shared && std::mem::take(&mut self.qps[number].receives_blocked) {
            let pace_ns = self.model.programs[number].recv_pace_ns;
            let delay_ns = 300 + self.prng.below(pace_ns + 1);
            self.fabric.mark(delay_ns, Mark::Receive(number));
        }
        Ok(wakes)
    }

    /// A message arrived: the next one, or with an unreliable service one of the next.
    pub(super) fn arrived(
        &mut self,
        number: usize,
        completion: &Completion,
        receive: &Taken,
    ) -> Result<Option<bool>, String> {
        let solicited = match self.qps[number].service {
            Service::Rc => return self.model.take_next_message(number, completion, receive),
            Service::Uc => self.received_unreliably(number, completion, receive)?,
            _ => self.received_datagram(number, completion, receive)?,
        };
        // Short messages look alike; where some may be missing, they may be taken for each other.
        let certain = completion.byte_len >= GRH_LEN + 8;
        Ok(certain.then_some(solicited))
    }

    /// Whether a receive may fail like this; the queue pair fails with it.
    pub(super) fn receive_failed(&mut self, number: usize, status: Status, short: bool) -> Check {
        let explained = match status {
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
        if status != Status::Flushed && self.qps[number].works() {
            self.qps[number].life = Life::Error;
        }
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
        let receives = &self.model.programs[number].receives;
        receives.iter().any(|receive| receive.short && receive.done)
    }

    /// In order, but some may be missing: looks for the next message that fits.
    fn received_unreliably(
        &mut self,
        number: usize,
        completion: &Completion,
        receive: &Taken,
    ) -> Result<bool, String> {
        let program = &self.model.programs[number];
        let peer = program.peer.ok_or("a connected queue pair has a peer")?;
        let from = program.received;
        let candidates = self.model.programs[peer].messages[from..].to_vec();
        for (passed, message) in candidates.into_iter().enumerate() {
            let fits = self.model.check_message(peer, message, completion, receive);
            if fits.is_ok() {
                self.model.programs[number].received = from + passed + 1;
                // Behind the message there may be the rest of a dropped one.
                self.model.accept(receive);
                let flags = self.model.programs[peer].ops[message].flags;
                return Ok(flags.contains(SendFlags::SOLICITED));
            }
        }
        Err("fits none of the messages the peer may have sent next".into())
    }

    fn received_datagram(
        &mut self,
        number: usize,
        completion: &Completion,
        receive: &Taken,
    ) -> Result<bool, String> {
        let (arena, buffer) = (receive.arena, &receive.buffer);
        if !completion.grh || completion.byte_len < GRH_LEN || completion.opcode != CompletionOpcode::Recv {
            return Err("not a datagram's completion".into());
        }
        let bytes = self.model.arenas[arena].read(&buffer.prefix(completion.byte_len));
        let (header, payload) = bytes.split_at(GRH_LEN as usize);
        let from = source_of(header, self.scenario.v6);
        let sender = (0..self.qps.len()).find(|sender| {
            let (service, program) = (self.qps[*sender].service, &self.model.programs[*sender]);
            let host = &self.hosts[program.host];
            service == Service::Ud && program.qpn == completion.src_qp && host.ip == from
        });
        let sender = sender.ok_or_else(|| format!("no such sender: {from}"))?;
        let in_group = self.qps[number].in_group;
        let fits = |op: &Op| match op.kind {
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
        let sent = &self.model.programs[sender].ops[..self.model.programs[sender].next_op];
        let message = sent.iter().position(fits).ok_or("nobody sent such a datagram")?;
        let solicited = sent[message].flags.contains(SendFlags::SOLICITED);
        buffer.scatter(&mut self.model.arenas[arena].image, &bytes);
        self.count_datagram(number, sender, message)?;
        Ok(solicited)
    }

    /// Nothing arrives more often than the network copied it.
    fn count_datagram(&mut self, number: usize, sender: usize, message: usize) -> Check {
        let length = self.model.programs[sender].ops[message].length;
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
