//! Multicast groups. Every shard that has a member joins with a socket of its own, and the kernel gives each socket a copy
//! of what is sent.

use super::Device;
use nonic_core::Qpn;
use std::io;
use std::net::IpAddr;

impl Device {
    /// Adds a datagram queue pair to a multicast group.
    pub fn attach_multicast(&self, qpn: Qpn, group: IpAddr) -> io::Result<()> {
        let mut turn = self.inner.turn_of(qpn);
        if !turn.nic.attach_multicast(qpn, group) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "only a datagram queue pair can join, and only a multicast address",
            ));
        }
        // A group is of the interface, not of one of its addresses: the first link takes what is sent to it.
        let joined = match turn.presence_mut(0) {
            Some(presence) => presence.join(group),
            None => Err(io::ErrorKind::NotConnected.into()),
        };
        joined.inspect_err(|_| {
            turn.nic.detach_multicast(qpn, group);
        })
    }

    /// Removes a queue pair from a group. Answers whether it was a member.
    pub fn detach_multicast(&self, qpn: Qpn, group: IpAddr) -> bool {
        let mut turn = self.inner.turn_of(qpn);
        let removed = turn.nic.detach_multicast(qpn, group);
        if !turn.nic.has_multicast(group) {
            if let Some(presence) = turn.presence_mut(0) {
                presence.leave(group);
            }
        }
        removed
    }
}
