//! A link that injects faults into what it receives and, if asked to, sends: `NONIC_FAULTS`.
//!
//! [`Faults`] decorates any link with the fault injector that the simulator uses. By default packets are disturbed on
//! arrival, so the wire itself stays as it is: a capture at the sender shows what was sent, one at the receiver what its
//! NIC had to deal with. A packet that came to another process first is disturbed once, here: handing over happens below
//! this decorator.
//!
//! It is a testing aid: it copies and allocates. What it holds back is bounded; beyond that it drops packets, and counts
//! them.

use super::{Datagrams, Deliver, Link, LinkCounters, Presence, Sources};
use crate::os::clock::Clock;
use nonic_core::{Time, Transmit};
use nonic_netem::{Delivered, FaultInjector, Schedule, Train};
use std::io;
use std::time::Duration;

/// The most bytes held back at a time.
const MAX_HELD_BYTES: usize = 64 << 20;

/// The decorator.
pub(crate) struct Faults {
    inner: Box<dyn Link>,
    incoming: FaultInjector,
    outgoing: Option<FaultInjector>,
    /// The time that a polling caller passes may be as old as its last poll; this clock is exact.
    clock: Option<Clock>,
    /// When it began; known with the first packet.
    began: Option<Time>,
    /// Packets that are to be delivered or sent later.
    held: Schedule<Held>,
    held_bytes: usize,
    holds: u64,
    overflow: u64,
}

/// What is held back.
enum Held {
    /// On its way in.
    Incoming { piece: Delivered, ecn: u8 },
    /// On its way out.
    Outgoing { transmit: Transmit, bytes: Vec<u8> },
}

impl Held {
    fn len(&self) -> usize {
        match self {
            Held::Incoming { piece, .. } => piece.train.bytes.len(),
            Held::Outgoing { bytes, .. } => bytes.len(),
        }
    }

    fn packets(&self) -> u64 {
        match self {
            Held::Incoming { piece, .. } => piece.train.len() as u64,
            Held::Outgoing { .. } => 1,
        }
    }
}

impl Faults {
    /// With an injector for what leaves, callers must send packets one by one. Without a clock, the time is what callers
    /// say.
    pub(crate) fn new(
        inner: Box<dyn Link>,
        incoming: FaultInjector,
        outgoing: Option<FaultInjector>,
        clock: Option<Clock>,
    ) -> Self {
        Faults {
            inner,
            incoming,
            outgoing,
            clock,
            began: None,
            held: Schedule::new(),
            held_bytes: 0,
            holds: 0,
            overflow: 0,
        }
    }

    /// Delivers and sends what has been held back for long enough. How many bytes were delivered.
    fn release_due(&mut self, now: Time, deliver: &mut Deliver<'_>) -> usize {
        let mut delivered = 0;
        while let Some(held) = self.held.pop_due(now.as_ns()) {
            self.held_bytes -= held.len();
            match held {
                Held::Incoming { piece, ecn } => {
                    delivered += piece.train.bytes.len();
                    deliver(&datagrams(&piece, ecn));
                }
                // What the kernel does not take now is lost, as on a full wire.
                Held::Outgoing { transmit, bytes } => drop(self.inner.send(now, &transmit, &bytes)),
            }
        }
        delivered
    }

    fn elapsed_ns(&mut self, now: Time) -> u64 {
        now.as_ns() - self.began.get_or_insert(now).as_ns().min(now.as_ns())
    }

    fn hold(&mut self, at: Time, held: Held) {
        let packets = held.packets();
        if self.held_bytes + held.len() > MAX_HELD_BYTES {
            self.overflow += packets;
            return;
        }
        self.held_bytes += held.len();
        self.holds += packets;
        self.held.push(at.as_ns(), held);
    }
}

impl Link for Faults {
    fn receive(&mut self, now: Time, source: usize, deliver: &mut Deliver<'_>) -> io::Result<usize> {
        let now = self.clock.map_or(now, |clock| clock.now());
        let due = self.release_due(now, deliver);
        let elapsed_ns = self.elapsed_ns(now);
        let Faults { inner, incoming, .. } = self;
        let mut late = Vec::new();
        let received = inner.receive(now, source, &mut |arrived| {
            let train = Train {
                src: arrived.src,
                dst: arrived.dst_ip,
                stride: arrived.stride,
                first_id: 0,
                bytes: arrived.bytes.to_vec(),
            };
            incoming.apply_at(elapsed_ns, arrived.src.ip(), train, |piece| {
                match piece.extra_ns {
                    0 => deliver(&datagrams(&piece, arrived.ecn)),
                    _ => late.push((piece, arrived.ecn)),
                }
            });
        });
        for (piece, ecn) in late {
            let at = now + Duration::from_nanos(piece.extra_ns);
            self.hold(at, Held::Incoming { piece, ecn });
        }
        match received {
            Err(_) if due > 0 => Ok(due),
            received => received.map(|bytes| bytes + due),
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        let held = self.held.next_at().map(Time::from_ns);
        [held, self.inner.next_timeout()].into_iter().flatten().min()
    }

    fn counters(&self) -> LinkCounters {
        let mut counters = self.inner.counters();
        for done in std::iter::once(&self.incoming)
            .chain(&self.outgoing)
            .map(|injector| injector.counts())
        {
            counters.faults_lost += done.lost;
            counters.faults_duplicated += done.duplicated;
            counters.faults_reordered += done.reordered;
            counters.faults_corrupted += done.corrupted;
            counters.faults_garbled += done.garbled;
        }
        counters += LinkCounters {
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
        if self.outgoing.is_none() {
            return self.inner.send(now, transmit, bytes);
        }
        let elapsed_ns = self.elapsed_ns(now);
        let peer = transmit.flow.dst;
        let train = Train {
            src: self.inner.presence().address().with_port(transmit.flow.src_port),
            dst: peer,
            stride: transmit.segment_size,
            first_id: 0,
            bytes: bytes.to_vec(),
        };
        let mut pieces = Vec::new();
        if let Some(outgoing) = &mut self.outgoing {
            outgoing.apply_at(elapsed_ns, peer, train, |piece| pieces.push(piece));
        }
        let mut sent = Ok(());
        for Delivered { extra_ns, train, .. } in pieces {
            match extra_ns {
                0 => sent = self.inner.send(now, transmit, &train.bytes),
                _ => {
                    let at = now + Duration::from_nanos(extra_ns);
                    let (transmit, bytes) = (*transmit, train.bytes);
                    self.hold(at, Held::Outgoing { transmit, bytes });
                }
            }
        }
        sent
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

fn datagrams(piece: &Delivered, ecn: u8) -> Datagrams<'_> {
    let train = &piece.train;
    Datagrams {
        src: train.src,
        dst_ip: train.dst,
        ecn,
        stride: train.stride.max(1),
        bytes: &train.bytes,
        sealed: !piece.garbled,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::link::memory::MemoryLink;
    use nonic_netem::Prng;

    const MILLISECOND: Duration = Duration::from_millis(1);

    fn disturbed(faults: nonic_netem::Faults) -> (Faults, MemoryLink) {
        let link = MemoryLink::new("127.0.0.1".parse().expect("an address"));
        let injector = FaultInjector::new(faults, Prng::new(1));
        (Faults::new(Box::new(link.clone()), injector, None, None), link)
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
        let (mut link, wire) = disturbed(nonic_netem::Faults {
            delay_ns: 1_000_000,
            ..nonic_netem::Faults::default()
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
        let (mut link, wire) = disturbed(nonic_netem::Faults {
            loss_ppm: 500_000,
            ..nonic_netem::Faults::default()
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
        let (mut link, wire) = disturbed(nonic_netem::Faults {
            delay_ns: 1_000_000_000,
            ..nonic_netem::Faults::default()
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
