//! The fabric: NICs, links between them, and one virtual clock.
//!
//! A [`Fabric`] moves packets and time and drives every NIC with the discipline of the real engine: handle what
//! arrived, transmit until there is nothing left, then publish, then hand out events. It does not know what the NICs
//! are used for: its caller gets control back after every [`Step`], and can put marks of its own (`T`) on the timeline.
//!
//! Everything is a function of the seed and of the caller's own calls.

use crate::capture::Capture;
use crate::flight::{Departure, Flight};
use crate::forger::Forger;
use crate::lanes::LaneHost;
use crate::link::{Link, LinkProfile};
use nonic_core::{Arrival, Event, MAX_BATCH_LEN, MAX_BATCH_PACKETS, Nic, Qpn, Time, Transmit};
use nonic_ladder::describe;
use nonic_netem::{FaultCounts, FaultInjector, Faults, Prng, Schedule, Train, mix};
use nonic_wire::Packet;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

/// How batches travel.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Batching {
    /// As one, as GSO sends and GRO delivers them. A fault inside cuts a batch up.
    Whole,
    /// Sent as one, delivered packet by packet: the receiver must be lenient about Identifications (IPv4).
    Split,
    /// Packet by packet.
    Single,
    /// Sent packet by packet, merged where they queue up at the receiver.
    Merged,
}

/// What a fabric is made of.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FabricConfig {
    /// Every NIC's link from the network, unless set otherwise.
    pub link: LinkProfile,
    /// The faults on it.
    pub faults: Faults,
    /// How batches travel.
    pub batching: Batching,
    /// How long a NIC lets arrivals gather before it looks at them.
    pub poll_delay_ns: u64,
    /// How many datagrams a NIC handles before it transmits.
    pub handle_budget: usize,
    /// How long a NIC pauses at most before it goes on with what it does without packets.
    pub direct_pause_ns: u64,
}

impl Default for FabricConfig {
    fn default() -> Self {
        FabricConfig {
            link: LinkProfile::default(),
            faults: Faults::default(),
            batching: Batching::Whole,
            poll_delay_ns: 0,
            handle_budget: 64,
            direct_pause_ns: 1_000,
        }
    }
}

/// What just happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step<T> {
    /// This NIC was driven: look at its completion queues and at [`Fabric::take_events`].
    Driven(usize),
    /// The caller's mark was reached.
    Mark(T),
}

/// NICs, links and a clock.
pub struct Fabric<T> {
    config: FabricConfig,
    now_ns: u64,
    schedule: Schedule<Happening<T>>,
    stations: Vec<Station>,
    by_ip: HashMap<IpAddr, usize>,
    /// Queue pairs that live elsewhere than their address says.
    by_qpn: HashMap<(IpAddr, Qpn), usize>,
    pair_links: BTreeMap<(usize, usize), Ingress>,
    partitions: Vec<Partition>,
    /// Packets that did not get from one station to another, or not in time or unharmed.
    disturbed: BTreeMap<(usize, usize), u64>,
    prng: Prng,
    buffer: Vec<u8>,
    capture: Option<Capture>,
    trace: u64,
    packets: u64,
    narrating: bool,
    /// What became of packets, if that is asked for.
    flights: Option<Vec<Flight>>,
    /// An attacker that sends packets in the name of other NICs.
    forger: Option<Forger>,
    /// The lanes between NICs, and how long a NIC takes to look at its own, at most.
    lanes: Option<(LaneHost, u64)>,
}

enum Happening<T> {
    Arrive { to: usize, train: Box<Train> },
    Drive { station: usize },
    Wake { station: usize },
    Mark(T),
}

struct Station {
    nic: Nic,
    ingress: Ingress,
    inbox: VecDeque<Train>,
    events: Vec<Event>,
    /// When the next `Drive` that counts is due.
    drive_at_ns: Option<u64>,
    /// The earliest `Wake` scheduled.
    wake_at_ns: Option<u64>,
    /// It is not driven before.
    paused_until_ns: u64,
}

/// A link with its decorator.
struct Ingress {
    injector: FaultInjector,
    link: Link,
}

struct Partition {
    between: (usize, usize),
    until_ns: u64,
}

impl<T> Fabric<T> {
    /// An empty fabric.
    pub fn new(config: FabricConfig, seed: u64) -> Self {
        Fabric {
            config,
            now_ns: 0,
            schedule: Schedule::new(),
            stations: Vec::new(),
            by_ip: HashMap::new(),
            by_qpn: HashMap::new(),
            pair_links: BTreeMap::new(),
            partitions: Vec::new(),
            disturbed: BTreeMap::new(),
            prng: Prng::new(seed),
            buffer: vec![0; MAX_BATCH_LEN],
            capture: None,
            trace: seed,
            packets: 0,
            narrating: false,
            flights: None,
            forger: None,
            lanes: None,
        }
    }

    /// Prints every packet on standard error from now on.
    pub fn set_narrating(&mut self, narrating: bool) {
        self.narrating = narrating;
    }

    /// Lets an attacker send packets in the name of other NICs from now on.
    pub(crate) fn set_forger(&mut self, forger: Forger) {
        self.forger = Some(forger);
    }

    /// Gives NICs lanes, if they are attached to them. They look at them within this time.
    pub fn set_lanes(&mut self, lanes: LaneHost, look_ns: u64) {
        self.lanes = Some((lanes, look_ns));
    }

    /// The lanes, for NICs to be attached to.
    pub fn lanes(&self) -> Option<&LaneHost> {
        self.lanes.as_ref().map(|(lanes, _)| lanes)
    }

    /// Notes what becomes of every packet from now on.
    pub(crate) fn set_recording(&mut self, recording: bool) {
        self.flights = recording.then(Vec::new);
    }

    /// The packets that were sent since the last time.
    pub(crate) fn take_flights(&mut self) -> Vec<Flight> {
        self.flights.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Adds a NIC that is reached at `addresses`; returns its number.
    pub fn add(&mut self, nic: Nic, addresses: &[IpAddr]) -> usize {
        let number = self.stations.len();
        self.by_ip.extend(addresses.iter().map(|ip| (*ip, number)));
        let ingress = self.ingress(self.config.link, self.config.faults);
        self.stations.push(Station {
            nic,
            ingress,
            inbox: VecDeque::new(),
            events: Vec::new(),
            drive_at_ns: None,
            wake_at_ns: None,
            paused_until_ns: 0,
        });
        number
    }

    /// A NIC dies and another takes its place and addresses. Packets it has sent are still on their way;
    /// what waited in its socket is gone with it.
    pub fn replace(&mut self, station: usize, nic: Nic) -> Nic {
        if let Some((_, look_ns)) = self.lanes {
            // The kernel tells those who had a lane to it.
            (0..self.stations.len()).for_each(|other| self.drive_within(other, look_ns));
        }
        let station = &mut self.stations[station];
        station.inbox.clear();
        station.events.clear();
        std::mem::replace(&mut station.nic, nic)
    }

    /// Packets for a queue pair at an address go to this NIC from now on: several processes may share an
    /// address. Batches go to one queue pair, so this is not for multicast.
    pub fn route(&mut self, ip: IpAddr, qpn: Qpn, station: usize) {
        self.by_qpn.insert((ip, qpn), station);
    }

    /// Gives the path from one NIC to another a link of its own.
    pub fn set_link(&mut self, from: usize, to: usize, link: LinkProfile, faults: Faults) {
        let ingress = self.ingress(link, faults);
        self.pair_links.insert((from, to), ingress);
    }

    /// Changes the faults on a NIC's link from the network from now on.
    pub fn set_faults(&mut self, station: usize, faults: Faults) {
        self.stations[station].ingress.injector.set_faults(faults);
    }

    /// Nothing passes between two NICs for a while.
    pub fn partition(&mut self, a: usize, b: usize, duration_ns: u64) {
        let until_ns = self.now_ns + duration_ns;
        self.partitions
            .retain(|partition| partition.until_ns > self.now_ns);
        self.partitions.push(Partition {
            between: (a.min(b), a.max(b)),
            until_ns,
        });
    }

    /// A NIC gets no processor for a while. What arrives meanwhile waits for it.
    pub fn pause(&mut self, station: usize, duration_ns: u64) {
        let until_ns = self.now_ns + duration_ns;
        let paused_until_ns = &mut self.stations[station].paused_until_ns;
        *paused_until_ns = until_ns.max(*paused_until_ns);
    }

    /// How long a NIC gets no processor yet.
    pub fn pause_left_ns(&self, station: usize) -> u64 {
        self.stations[station].paused_until_ns.saturating_sub(self.now_ns)
    }

    /// Records everything sent from now on.
    pub fn set_capture(&mut self, capture: Capture) {
        self.capture = Some(capture);
    }

    /// Gives the capture back, to be finished.
    pub fn take_capture(&mut self) -> Option<Capture> {
        self.capture.take()
    }

    /// The virtual time.
    pub fn now(&self) -> Time {
        Time::from_ns(self.now_ns)
    }

    /// A NIC.
    pub fn nic(&self, station: usize) -> &Nic {
        &self.stations[station].nic
    }

    /// A NIC, to be used. Call [`Fabric::kick`] after anything that may give it something to do.
    pub fn nic_mut(&mut self, station: usize) -> &mut Nic {
        &mut self.stations[station].nic
    }

    /// How many NICs there are.
    pub fn len(&self) -> usize {
        self.stations.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.stations.is_empty()
    }

    /// The events of a NIC since they were last taken.
    pub fn take_events(&mut self, station: usize) -> Vec<Event> {
        std::mem::take(&mut self.stations[station].events)
    }

    /// Packets transmitted so far.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Packets on the way from `from` to `to` that were lost, late or damaged so far.
    pub fn disturbed(&self, from: usize, to: usize) -> u64 {
        self.disturbed.get(&(from, to)).copied().unwrap_or(0)
    }

    /// A number that two runs share if the same packets were sent at the same times.
    pub fn trace_hash(&self) -> u64 {
        self.trace
    }

    /// Puts a mark on the timeline, `delay_ns` from now.
    pub fn mark(&mut self, delay_ns: u64, mark: T) {
        self.schedule.push(self.now_ns + delay_ns, Happening::Mark(mark));
    }

    /// Has a NIC driven at this very instant, as its own next step.
    pub fn kick(&mut self, station: usize) {
        self.drive_in(station, 0);
    }

    fn drive_in(&mut self, station: usize, delay_ns: u64) {
        let at_ns = self.now_ns + delay_ns;
        let scheduled = &mut self.stations[station].drive_at_ns;
        if scheduled.is_none_or(|scheduled| scheduled > at_ns) {
            *scheduled = Some(at_ns);
            self.schedule.push(at_ns, Happening::Drive { station });
        }
    }

    /// Lets the next thing happen. `None` when nothing will ever happen again by itself.
    pub fn step(&mut self) -> Option<Step<T>> {
        loop {
            let (at_ns, happening) = self.schedule.pop()?;
            debug_assert!(at_ns >= self.now_ns, "time does not run backwards");
            self.now_ns = at_ns;
            match happening {
                Happening::Arrive { to, train } => {
                    self.stations[to].inbox.push_back(*train);
                    self.drive_in(to, self.config.poll_delay_ns);
                }
                Happening::Drive { station } => {
                    let due = self.stations[station].drive_at_ns.take_if(|due| *due == at_ns);
                    if due.is_some() && self.turn(station) {
                        return Some(Step::Driven(station));
                    }
                }
                Happening::Wake { station } => {
                    let due = self.stations[station].wake_at_ns.take_if(|due| *due == at_ns);
                    if due.is_some() && self.turn(station) {
                        return Some(Step::Driven(station));
                    }
                }
                Happening::Mark(mark) => return Some(Step::Mark(mark)),
            }
        }
    }

    /// Drives a NIC, or schedules that for the end of its pause. Returns whether it was driven.
    fn turn(&mut self, station: usize) -> bool {
        let left_ns = self.pause_left_ns(station);
        if left_ns > 0 {
            self.drive_in(station, left_ns);
            return false;
        }
        self.drive(station);
        true
    }

    /// One turn of a NIC: handle, transmit, publish, events. In this order, like the engine.
    pub fn drive(&mut self, station: usize) {
        let now = self.now();
        self.handle_inbox(station, now);
        self.look_at_lanes(station, now);
        self.transmit_all(station, now);
        let place = &mut self.stations[station];
        place.nic.publish();
        place.events.extend(std::iter::from_fn(|| place.nic.poll_event()));
        self.schedule_wake(station);
        self.call_readers();
        if !self.stations[station].inbox.is_empty() {
            self.drive_in(station, 0);
        } else if self.stations[station].nic.ready_queue_pairs() > 0 {
            let pause_ns = self.prng.below(self.config.direct_pause_ns + 1);
            self.drive_in(station, pause_ns);
        }
    }

    fn handle_inbox(&mut self, station: usize, now: Time) {
        let Station { nic, inbox, .. } = &mut self.stations[station];
        nic.handle_timeout(now);
        for _ in 0..self.config.handle_budget.max(1) {
            let Some(mut train) = inbox.pop_front() else {
                break;
            };
            if self.config.batching == Batching::Merged {
                while inbox.front().is_some_and(|next| train.merge(next)) {
                    inbox.pop_front();
                }
            }
            let arrival = Arrival {
                src: train.src,
                dst: train.dst,
                stride: train.stride,
                congested: false,
            };
            nic.handle_datagram(now, &arrival, &train.bytes);
            if let Some(forged) = self.forger.as_mut().and_then(|forger| forger.follow(&train)) {
                let stride = forged.len();
                nic.handle_datagram(now, &Arrival { stride, ..arrival }, &forged);
            }
        }
    }

    /// Executes records that have come, and takes answers. The writers of those records are driven soon.
    fn look_at_lanes(&mut self, station: usize, now: Time) {
        let Some((lanes, look_ns)) = self.lanes.clone() else {
            return;
        };
        let nic = &mut self.stations[station].nic;
        let Some(ip) = nic.endpoints().first().map(|endpoint| endpoint.ip) else {
            return;
        };
        let others = lanes.look(ip, nic, now, self.config.handle_budget.max(1));
        self.drive_all_within(&others, look_ns);
    }

    /// Has everybody driven soon whom records wait for.
    fn call_readers(&mut self) {
        if let Some((lanes, look_ns)) = &self.lanes {
            let (awaited, look_ns) = (lanes.awaited(), *look_ns);
            self.drive_all_within(&awaited, look_ns);
        }
    }

    fn drive_all_within(&mut self, addresses: &[IpAddr], most_ns: u64) {
        for ip in addresses {
            if let Some(station) = self.by_ip.get(ip).copied() {
                self.drive_within(station, most_ns);
            }
        }
    }

    fn drive_within(&mut self, station: usize, most_ns: u64) {
        if self.stations[station].drive_at_ns.is_none() {
            let delay_ns = 1 + self.prng.below(most_ns + 1);
            self.drive_in(station, delay_ns);
        }
    }

    fn transmit_all(&mut self, station: usize, now: Time) {
        let max_segments = match self.config.batching {
            Batching::Whole | Batching::Split => MAX_BATCH_PACKETS,
            Batching::Single | Batching::Merged => 1,
        };
        let mut buffer = std::mem::take(&mut self.buffer);
        while let Some(transmit) = self.stations[station]
            .nic
            .poll_transmit(now, max_segments, &mut buffer)
        {
            let train = Train {
                src: SocketAddr::new(transmit.flow.src, transmit.flow.src_port),
                dst: transmit.flow.dst,
                stride: transmit.segment_size,
                first_id: 0,
                bytes: buffer[..transmit.len].to_vec(),
            };
            self.note(&transmit, &train);
            self.launch(station, transmit.dest_qpn, train);
        }
        self.buffer = buffer;
    }

    fn note(&mut self, transmit: &Transmit, train: &Train) {
        self.packets += transmit.segments as u64;
        if let Some(capture) = &mut self.capture {
            capture.note(self.now_ns, train);
        }
        if self.narrating {
            self.tell(train);
        }
        self.trace = mix(self.trace ^ self.now_ns);
        for packet in train.packets() {
            // The ICRC is a digest of the whole packet, its addresses included.
            if let Some((_, icrc)) = packet.split_last_chunk::<4>() {
                self.trace = mix(self.trace ^ u64::from(u32::from_le_bytes(*icrc)));
            }
        }
    }

    fn tell(&self, train: &Train) {
        for packet in train.packets().filter_map(|bytes| Packet::parse(bytes).ok()) {
            let bth = packet.headers.bth;
            eprintln!(
                "{:>12} {} -> {} QP {:#x} {}{}",
                self.now_ns,
                train.src.ip(),
                train.dst,
                bth.dest_qp.value(),
                describe(&packet).text,
                if bth.ack_request { ", ack requested" } else { "" },
            );
        }
    }

    fn launch(&mut self, from: usize, dest_qpn: Qpn, train: Train) {
        if train.dst.is_multicast() {
            // A host hears its own multicast too.
            for to in 0..self.stations.len() {
                self.send(from, to, train.clone());
            }
        } else {
            let own = self.by_qpn.get(&(train.dst, dest_qpn));
            if let Some(to) = own.or_else(|| self.by_ip.get(&train.dst)).copied() {
                self.send(from, to, train);
            }
        }
    }

    fn send(&mut self, from: usize, to: usize, train: Train) {
        let mut departure = self
            .flights
            .is_some()
            .then(|| Departure::new(self.now_ns, (from, to), &train));
        let between = (from.min(to), from.max(to));
        let cut = self
            .partitions
            .iter()
            .any(|partition| partition.between == between && partition.until_ns > self.now_ns);
        if cut {
            *self.disturbed.entry((from, to)).or_default() += train.len() as u64;
            self.note_departure(departure);
            return;
        }
        let split = self.config.batching == Batching::Split;
        let ingress = match self.pair_links.get_mut(&(from, to)) {
            Some(own) => own,
            None => &mut self.stations[to].ingress,
        };
        let Ingress { injector, link } = ingress;
        let before = trouble(injector, link);
        let (schedule, prng, now_ns) = (&mut self.schedule, &mut self.prng, self.now_ns);
        injector.apply(train, |hold_ns, mut piece| {
            let Some(arrival_ns) = link.offer(now_ns, &mut piece, prng) else {
                return;
            };
            let at_ns = arrival_ns + hold_ns;
            if let Some(departure) = &mut departure {
                departure.arrives(at_ns, &piece);
            }
            if split && piece.len() > 1 {
                for index in 0..piece.len() {
                    let train = Box::new(piece.slice(index, 1));
                    schedule.push(at_ns, Happening::Arrive { to, train });
                }
            } else {
                let train = Box::new(piece);
                schedule.push(at_ns, Happening::Arrive { to, train });
            }
        });
        let disturbed = trouble(injector, link) - before;
        if disturbed > 0 {
            *self.disturbed.entry((from, to)).or_default() += disturbed;
        }
        self.note_departure(departure);
    }

    fn note_departure(&mut self, departure: Option<Departure>) {
        if let (Some(flights), Some(departure)) = (&mut self.flights, departure) {
            flights.extend(departure.into_flights());
        }
    }

    fn schedule_wake(&mut self, station: usize) {
        let place = &mut self.stations[station];
        let Some(due) = place.nic.poll_timeout() else {
            return;
        };
        let at_ns = due.as_ns().max(self.now_ns);
        if place.wake_at_ns.is_none_or(|scheduled| scheduled > at_ns) {
            place.wake_at_ns = Some(at_ns);
            self.schedule.push(at_ns, Happening::Wake { station });
        }
    }

    fn ingress(&mut self, link: LinkProfile, faults: Faults) -> Ingress {
        Ingress {
            injector: FaultInjector::new(faults, self.prng.fork()),
            link: Link::new(link),
        }
    }

    /// What the injectors did, all together.
    pub fn fault_counts(&self) -> FaultCounts {
        let ports = self.stations.iter().map(|station| &station.ingress);
        ports
            .chain(self.pair_links.values())
            .fold(FaultCounts::default(), |sum, ingress| {
                let counts = ingress.injector.counts();
                FaultCounts {
                    lost: sum.lost + counts.lost + ingress.link.dropped_packets(),
                    duplicated: sum.duplicated + counts.duplicated,
                    reordered: sum.reordered + counts.reordered,
                    corrupted: sum.corrupted + counts.corrupted,
                    garbled: sum.garbled + counts.garbled,
                }
            })
    }
}

fn trouble(injector: &FaultInjector, link: &Link) -> u64 {
    injector.counts().disturbed() + link.dropped_packets()
}
