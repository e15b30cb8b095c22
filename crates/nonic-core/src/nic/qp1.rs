//! The NIC's queue pair 1: receives and sends management datagrams.

use super::receive::Integrity;
use super::transmit::Transmit;
use super::{Nic, ReadySender};
use crate::roce::emit::Hop;
use crate::roce::qp1::{ManagementDatagram, NotManagement, Outgoing, Route, management_datagram};
use nonic_wire::{Flow, Packet, Qpn, ROCE_PORT, Service, icrc};

/// Why a management datagram is not sent. To its protocol it is a lost one.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagementError {
    /// The NIC does not have the address it is to be sent from, or that is of another family than the peer's.
    #[error("the device has no address to send this from")]
    NoAddress,
    /// Too many wait already ([`Nic::has_management_room`]).
    #[error("too many management datagrams wait to be sent")]
    Full,
    /// The NIC's link is gone.
    #[error("the device has failed")]
    DeviceFailed,
}

impl Nic {
    /// The next datagram that arrived at queue pair 1. There may be one after [`Nic::handle_datagram`].
    pub fn poll_management(&mut self) -> Option<ManagementDatagram> {
        self.qp1.poll_received()
    }

    /// Whether there is one.
    #[inline]
    pub fn has_management(&self) -> bool {
        self.qp1.has_received()
    }

    /// Queues a datagram to be sent from queue pair 1 to the peer's. [`Nic::poll_transmit`] writes it when its turn has come.
    ///
    /// `dest_qpn` is put into [`Transmit::dest_qpn`]: a queue pair of the process that the datagram is for, if the caller
    /// knows one, and else [`Qpn::GSI`]. It does not change the packet.
    pub fn send_management(
        &mut self,
        datagram: ManagementDatagram,
        dest_qpn: Qpn,
    ) -> Result<(), ManagementError> {
        if self.failed {
            return Err(ManagementError::DeviceFailed);
        }
        self.management_hop(&datagram.route, dest_qpn)
            .ok_or(ManagementError::NoAddress)?;
        if !self.qp1.has_room() {
            return Err(ManagementError::Full);
        }
        if !self.qp1.has_to_send() {
            self.ready.push_back(ReadySender::Qp1);
        }
        self.qp1.send(Outgoing { datagram, dest_qpn });
        Ok(())
    }

    /// Whether [`Nic::send_management`] takes one more.
    pub fn has_management_room(&self) -> bool {
        self.qp1.has_room()
    }

    /// Whether management datagrams wait to be sent.
    pub fn has_management_to_send(&self) -> bool {
        self.qp1.has_to_send()
    }

    /// From which of our addresses to the peer; `None` if none will do.
    fn management_hop(&self, route: &Route, dest_qpn: Qpn) -> Option<Hop> {
        let endpoints = &self.resources.endpoints;
        let gid_index = endpoints.iter().position(|endpoint| endpoint.ip == route.local)?;
        let own = endpoints[gid_index];
        (own.ip.is_ipv4() == route.remote.is_ipv4()).then_some(Hop {
            flow: Flow {
                src: own.ip,
                dst: route.remote,
                src_port: own.port,
                dst_port: ROCE_PORT,
            },
            dest_qpn,
            gid_index: gid_index as u8,
        })
    }

    /// Takes a packet for queue pair 1.
    pub(super) fn handle_management(
        &mut self,
        flow: &Flow,
        integrity: Integrity,
        bytes: &[u8],
        packet: &Packet<'_>,
    ) {
        if packet.headers.bth.opcode.service() != Service::Ud {
            self.resources.counters.rx_unclaimed += 1;
            return;
        }
        // Peers send any Identification, and a message is worth little until the identifiers in it fit.
        if !self.verify(flow, integrity, true, bytes) {
            return;
        }
        let route = Route {
            local: flow.dst,
            remote: flow.src,
        };
        match management_datagram(packet) {
            Ok(mad) => {
                let kept = self.qp1.receive(ManagementDatagram { route, mad: *mad });
                self.resources.counters.rx_dropped += u64::from(!kept);
            }
            Err(NotManagement::Opcode) => self.resources.counters.rx_unclaimed += 1,
            Err(NotManagement::Partition) => self.resources.counters.rx_pkey_violations += 1,
            Err(NotManagement::QueueKey) => self.resources.counters.rx_qkey_violations += 1,
            Err(NotManagement::Length) => self.resources.counters.rx_dropped += 1,
        }
    }

    /// Writes the next management datagram as a batch of one packet. The rest waits for the next turn.
    pub(super) fn transmit_management(&mut self, buf: &mut [u8]) -> Option<Transmit> {
        let Outgoing { datagram, dest_qpn } = self.qp1.next_to_send()?;
        if self.qp1.has_to_send() {
            self.ready.push_back(ReadySender::Qp1);
        }
        let hop = self.management_hop(&datagram.route, dest_qpn)?;
        let len = self.qp1.write(&datagram.mad, buf);
        icrc::seal(&hop.flow, 0, &mut buf[..len]);
        Some(Transmit::of_one(&hop, len))
    }
}
