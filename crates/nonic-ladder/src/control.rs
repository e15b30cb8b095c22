//! Recognises the packets of control connections: those whose request to connect says so in its private data.
//!
//! Two processes that measure something agree on it first, over a connection of their own. A reader of the measured
//! traffic does not want to see that.

use nonic_wire::cm::{CmMad, Message};
use nonic_wire::{Flow, Packet, Qpn};
use std::collections::HashSet;
use std::net::IpAddr;

/// A side of a connection, or a queue pair: an address and its number there.
type Numbered = (IpAddr, u32);

/// The control connections of a capture.
#[derive(Debug, Default)]
pub(crate) struct ControlConnections {
    /// What their private data holds; without it there are none.
    greeting: Option<&'static [u8]>,
    /// The sides that asked for one.
    asked: HashSet<Numbered>,
    /// Both sides, each with the other: processes of one address may have the same numbers.
    sides: HashSet<(Numbered, Numbered)>,
    queue_pairs: HashSet<Numbered>,
}

impl ControlConnections {
    pub(crate) fn with(greeting: &'static [u8]) -> Self {
        ControlConnections {
            greeting: Some(greeting),
            ..ControlConnections::default()
        }
    }

    /// Whether private data is that of a control connection. What is in front of a program's own is the connection manager's.
    pub(crate) fn is_announced(&self, private_data: &[u8]) -> bool {
        self.greeting.is_some_and(|greeting| {
            private_data
                .windows(greeting.len())
                .any(|window| window == greeting)
        })
    }

    /// Takes note of a packet. Returns whether it belongs to a control connection.
    pub(crate) fn learn(&mut self, flow: &Flow, packet: &Packet<'_>) -> bool {
        if self.greeting.is_none() {
            return false;
        }
        let dest_qp = packet.headers.bth.dest_qp;
        if dest_qp != Qpn::GSI {
            return self.queue_pairs.contains(&(flow.dst, dest_qp.value()));
        }
        let (here, there) = match CmMad::parse(packet.payload).map(|mad| mad.message) {
            Ok(Message::Req(req)) => {
                let is_control = self.is_announced(&req.private_data.0);
                note(&mut self.asked, (flow.src, req.local_comm_id), is_control);
                note(
                    &mut self.queue_pairs,
                    (flow.src, req.local_qpn.value()),
                    is_control,
                );
                return is_control;
            }
            Ok(Message::Rep(rep)) => {
                let (own, asking) = ((flow.src, rep.local_comm_id), (flow.dst, rep.remote_comm_id));
                let is_control = self.asked.contains(&asking);
                note(&mut self.sides, (own, asking), is_control);
                note(&mut self.sides, (asking, own), is_control);
                note(
                    &mut self.queue_pairs,
                    (flow.src, rep.local_qpn.value()),
                    is_control,
                );
                return is_control;
            }
            Ok(Message::Mra(mra)) => return self.asked.contains(&(flow.dst, mra.remote_comm_id)),
            Ok(Message::Rej(rej)) => return self.asked.contains(&(flow.dst, rej.remote_comm_id)),
            Ok(Message::Rtu(rtu)) => (rtu.local_comm_id, rtu.remote_comm_id),
            Ok(Message::Dreq(dreq)) => (dreq.local_comm_id, dreq.remote_comm_id),
            Ok(Message::Drep(drep)) => (drep.local_comm_id, drep.remote_comm_id),
            _ => return false,
        };
        self.sides.contains(&((flow.src, here), (flow.dst, there)))
    }
}

/// Numbers are used again: one may be of a control connection now and of another one later.
fn note<T: std::hash::Hash + Eq>(set: &mut HashSet<T>, what: T, is_control: bool) {
    match is_control {
        true => set.insert(what),
        false => set.remove(&what),
    };
}
