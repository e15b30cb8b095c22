//! Carries messages between a connection manager and queue pair 1 of a NIC.

use super::Cm;
use crate::nic::Nic;
use crate::time::Time;
use nonic_wire::Qpn;
use nonic_wire::mad::MAD_LEN;

impl Cm {
    /// Takes what arrived at queue pair 1 of the NIC, and gives the NIC the messages to send, as far as it has room.
    /// Call it after the NIC was fed and after any call of the connection manager that takes the time, before the NIC
    /// is asked what to transmit.
    ///
    /// `dest_qpn` is asked for each message which queue pair [`Transmit::dest_qpn`](crate::Transmit::dest_qpn) is to name:
    /// one of the process that the message is for, or [`Qpn::GSI`] if that is not known.
    pub fn exchange(&mut self, now: Time, nic: &mut Nic, dest_qpn: impl Fn(&[u8; MAD_LEN]) -> Qpn) {
        while let Some(arrived) = nic.poll_management() {
            self.handle_mad(now, arrived.route, &arrived.mad);
        }
        while nic.has_management_room() {
            let Some(message) = self.poll_transmit() else {
                return;
            };
            let dest_qpn = dest_qpn(&message.mad);
            // A message whose address is gone is lost, as it might be on the network.
            let _ = nic.send_management(message, dest_qpn);
        }
    }
}
