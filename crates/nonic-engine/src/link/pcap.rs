//! A link that captures every packet: `NONIC_PCAP`.
//!
//! [`Pcap`] decorates any link. It writes the packets that the ICRC was made for: to port 4791, whatever port a same-host
//! shortcut used. It is the outermost decorator, so it writes received packets as the NIC sees them, faults included.

use super::{Deliver, Link, LinkCounters, Presence, Sources};
use crate::capture::Capture;
use nonic_core::{Time, Transmit};
use nonic_wire::pcap::Direction;
use nonic_wire::{Flow, ROCE_PORT};
use std::io;
use std::sync::Arc;

/// The decorator.
pub(crate) struct Pcap {
    inner: Box<dyn Link>,
    capture: Arc<Capture>,
}

impl Pcap {
    pub(crate) fn new(inner: Box<dyn Link>, capture: Arc<Capture>) -> Self {
        Pcap { inner, capture }
    }
}

impl Link for Pcap {
    fn receive(&mut self, now: Time, source: usize, deliver: &mut Deliver<'_>) -> io::Result<usize> {
        self.inner.receive(now, source, &mut |arrived| {
            let flow = Flow {
                src: arrived.src.ip(),
                dst: arrived.dst_ip,
                src_port: arrived.src.port(),
                dst_port: ROCE_PORT,
            };
            self.capture
                .write(Direction::Inbound, &flow, arrived.stride, arrived.bytes);
            deliver(arrived);
        })
    }

    /// The caller sends a batch again that the kernel had no room for, so such a batch is not written yet.
    fn send(&mut self, now: Time, transmit: &Transmit, bytes: &[u8]) -> io::Result<()> {
        let sent = self.inner.send(now, transmit, bytes);
        let comes_again = matches!(&sent, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        if !comes_again {
            self.capture
                .write(Direction::Outbound, &transmit.flow, transmit.segment_size, bytes);
        }
        sent
    }

    fn sync(&mut self) {
        self.capture.flush();
        self.inner.sync();
    }

    fn max_segments(&self) -> usize {
        self.inner.max_segments()
    }

    fn sources(&self) -> Sources {
        self.inner.sources()
    }

    fn next_timeout(&self) -> Option<Time> {
        self.inner.next_timeout()
    }

    fn counters(&self) -> LinkCounters {
        self.inner.counters()
    }

    fn presence(&self) -> &dyn Presence {
        self.inner.presence()
    }

    fn presence_mut(&mut self) -> &mut dyn Presence {
        self.inner.presence_mut()
    }
}
