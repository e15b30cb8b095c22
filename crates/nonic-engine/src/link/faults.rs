//! A link that disturbs what it receives: `NONIC_FAULTS`.
//!
//! [`Faults`] decorates any link with the fault injector that the simulator uses. Packets are disturbed on arrival, so the
//! wire itself stays as it is: a capture of the sender shows what was sent, one of the receiver what its NIC had to deal
//! with. A packet that came to another process first is disturbed once, here: handing over happens below this decorator.
//!
//! It is a testing aid: it copies and allocates. What it holds back is bounded; beyond that it loses packets, and counts
//! them.

use super::{Datagrams, Deliver, Link, LinkCounters, Presence, Sources};
use nonic_core::link::{FaultInjector, Train};
use nonic_core::{Time, Transmit};
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

/// The most bytes held back at a time.
const MAX_HELD_BYTES: usize = 64 << 20;

/// The decorator.
pub(crate) struct Faults {
    inner: Box<dyn Link>,
    injector: FaultInjector,
    /// Packets that are to be delivered later; the number keeps those of one moment in order.
    held: BTreeMap<(Time, u64), (Train, u8)>,
    held_bytes: usize,
    holds: u64,
    overflow: u64,
}

impl Faults {
    pub(crate) fn new(inner: Box<dyn Link>, injector: FaultInjector) -> Self {
        Faults {
            inner,
            injector,
            held: BTreeMap::new(),
            held_bytes: 0,
            holds: 0,
            overflow: 0,
        }
    }

    /// Delivers what has been held back for long enough. How many bytes that was.
    fn deliver_due(&mut self, now: Time, deliver: &mut Deliver<'_>) -> usize {
        let mut bytes = 0;
        while let Some(first) = self.held.first_entry()
            && first.key().0 <= now
        {
            let (train, ecn) = first.remove();
            bytes += train.bytes.len();
            deliver(&datagrams(&train, ecn));
        }
        self.held_bytes -= bytes;
        bytes
    }
}

impl Link for Faults {
    fn receive(&mut self, now: Time, source: usize, deliver: &mut Deliver<'_>) -> io::Result<usize> {
        let due = self.deliver_due(now, deliver);
        let Faults {
            inner,
            injector,
            held,
            held_bytes,
            holds,
            overflow,
        } = self;
        let received = inner.receive(now, source, &mut |arrived| {
            let train = Train {
                src: arrived.src,
                dst: arrived.dst_ip,
                stride: arrived.stride,
                first_id: 0,
                bytes: arrived.bytes.to_vec(),
            };
            injector.apply(train, |delay_ns, piece| {
                if delay_ns == 0 {
                    return deliver(&datagrams(&piece, arrived.ecn));
                }
                if *held_bytes + piece.bytes.len() > MAX_HELD_BYTES {
                    *overflow += piece.len() as u64;
                    return;
                }
                *held_bytes += piece.bytes.len();
                *holds += piece.len() as u64;
                let at = now + Duration::from_nanos(delay_ns);
                held.insert((at, *holds), (piece, arrived.ecn));
            });
        });
        match received {
            Err(_) if due > 0 => Ok(due),
            received => received.map(|bytes| bytes + due),
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        let held = self.held.keys().next().map(|(at, _)| *at);
        [held, self.inner.next_timeout()].into_iter().flatten().min()
    }

    fn counters(&self) -> LinkCounters {
        let mut counters = self.inner.counters();
        let done = self.injector.counts();
        counters += LinkCounters {
            faults_lost: done.lost,
            faults_duplicated: done.duplicated,
            faults_reordered: done.reordered,
            faults_corrupted: done.corrupted,
            faults_held: self.holds,
            faults_overflow: self.overflow,
            ..LinkCounters::default()
        };
        counters
    }

    fn max_segments(&self) -> usize {
        self.inner.max_segments()
    }

    fn sources(&self) -> Sources {
        self.inner.sources()
    }

    fn send(&mut self, now: Time, transmit: &Transmit, bytes: &[u8]) -> io::Result<()> {
        self.inner.send(now, transmit, bytes)
    }

    fn sync(&mut self) {
        self.inner.sync();
    }

    fn presence(&self) -> &dyn Presence {
        self.inner.presence()
    }

    fn presence_mut(&mut self) -> &mut dyn Presence {
        self.inner.presence_mut()
    }
}

fn datagrams(train: &Train, ecn: u8) -> Datagrams<'_> {
    Datagrams {
        src: train.src,
        dst_ip: train.dst,
        ecn,
        stride: train.stride.max(1),
        bytes: &train.bytes,
        sealed: true,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::link::memory::MemoryLink;
    use nonic_core::link::Prng;

    const MILLISECOND: Duration = Duration::from_millis(1);

    fn disturbed(faults: nonic_core::link::Faults) -> (Faults, MemoryLink) {
        let link = MemoryLink::new("127.0.0.1".parse().expect("an address"));
        let injector = FaultInjector::new(faults, Prng::new(1));
        (Faults::new(Box::new(link.clone()), injector), link)
    }

    fn received(link: &mut Faults, now: Time) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        let _ = link.receive(now, 0, &mut |datagrams| {
            packets.extend(datagrams.segments().map(<[u8]>::to_vec));
        });
        packets
    }

    #[test]
    fn a_delayed_packet_comes_when_it_is_due_and_says_when() {
        let (mut link, wire) = disturbed(nonic_core::link::Faults {
            delay_ns: 1_000_000,
            ..nonic_core::link::Faults::default()
        });
        let start = Time::from_ns(5);
        wire.arrive(&[1, 2, 3]);
        assert!(received(&mut link, start).is_empty());
        assert_eq!(link.next_timeout(), Some(start + MILLISECOND));
        wire.arrive(&[4]);
        let later = start + MILLISECOND;
        assert_eq!(
            received(&mut link, later),
            [[1, 2, 3]],
            "and not what has just come"
        );
        assert_eq!(received(&mut link, later + MILLISECOND), [[4]]);
        assert_eq!(link.next_timeout(), None);
        assert_eq!(link.counters().faults_held, 2);
    }

    #[test]
    fn what_it_did_is_counted() {
        let (mut link, wire) = disturbed(nonic_core::link::Faults {
            loss_ppm: 500_000,
            ..nonic_core::link::Faults::default()
        });
        let mut came = 0;
        for _ in 0..1000 {
            wire.arrive(&[7; 12]);
            came += received(&mut link, Time::ZERO).len() as u64;
        }
        assert_eq!(came + link.counters().faults_lost, 1000);
        assert!((400..600).contains(&came), "{came}");
    }

    #[test]
    fn what_it_holds_is_bounded() {
        let (mut link, wire) = disturbed(nonic_core::link::Faults {
            delay_ns: 1_000_000_000,
            ..nonic_core::link::Faults::default()
        });
        const LENGTH: usize = 1 << 20;
        for _ in 0..2 * MAX_HELD_BYTES / LENGTH {
            wire.arrive(&vec![0; LENGTH]);
            assert!(received(&mut link, Time::ZERO).is_empty());
        }
        let held = (MAX_HELD_BYTES / LENGTH) as u64;
        assert_eq!(link.counters().faults_held, held);
        assert_eq!(link.counters().faults_overflow, held);
    }
}
