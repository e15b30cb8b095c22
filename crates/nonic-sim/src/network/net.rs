//! The network in motion: packets from queue to queue, in virtual time.
//!
//! Everything is a function of the topology, the flows, the faults and the seed. Read [`Net::run`] first.

use super::device::Devices;
use super::flow::{Flow, FlowSpec};
use super::packet::{ANSWER, HEADERS, Packet, What};
use super::port::{Node, Port, SharedBuffer, Verdict};
use super::topology::{Spread, Topology};
use nonic_netem::{Prng, Schedule, mix};
use std::collections::VecDeque;

/// A host's socket takes so many bytes before the cable has taken them; then its flows take turns.
const SOCKET_BYTES: u64 = 256 << 10;

/// Packets a flow sends before it is another's turn.
const TURN: usize = 16;

/// How long switches take to notice that a cable does not work, or works again.
const CONVERGENCE_NS: u64 = 5_000_000;

/// Something to come.
#[derive(Debug)]
enum Event {
    /// The first packet of a port's queue is in its cable.
    Sent {
        port: u32,
        generation: u32,
    },
    /// A packet is at the far end of a cable.
    Arrived {
        port: u32,
        generation: u32,
        at: u32,
    },
    Start {
        flow: u32,
    },
    Timer {
        flow: u32,
    },
    Cable {
        leaf: usize,
        spine: usize,
        up: bool,
    },
    Converged {
        leaf: usize,
        spine: usize,
        up: bool,
    },
    Device {
        host: usize,
    },
    Sample,
}

/// What was seen at intervals.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples {
    /// Useful bytes that arrived since the sample before, of all flows; headers included.
    pub(super) arrived: Vec<u64>,
    /// The longest queue of a switch.
    pub(super) queue: Vec<u64>,
}

/// A network.
pub(super) struct Net {
    pub(super) topology: Topology,
    pub(super) now_ns: u64,
    schedule: Schedule<Event>,
    ports: Vec<Port>,
    switches: Vec<SharedBuffer>,
    /// Whether the cable between a leaf and a spine is used, by leaf and spine.
    used: Vec<bool>,
    packets: Vec<Packet>,
    free: Vec<u32>,
    pub(super) flows: Vec<Flow>,
    /// Flows of a host that wait for its socket.
    waiting: Vec<VecDeque<u32>>,
    pub(super) devices: Devices,
    prng: Prng,
    sample_ns: u64,
    arrived: u64,
    pub(super) counted_from_ns: u64,
    pub(super) counted_from_sample: usize,
    pub(super) samples: Samples,
    pub(super) events: u64,
}

impl Net {
    /// What these flows have delivered since counting began.
    pub(super) fn counted_bytes(&self, flows: std::ops::Range<usize>) -> u64 {
        self.flows[flows].iter().map(|flow| flow.counted_bytes()).sum()
    }

    pub(super) fn new(topology: Topology, flows: &[FlowSpec], seed: u64) -> Net {
        let mut net = Net {
            now_ns: 0,
            schedule: Schedule::new(),
            ports: Vec::new(),
            switches: Vec::new(),
            used: vec![true; topology.leaves * topology.spines],
            packets: Vec::new(),
            free: Vec::new(),
            flows: flows.iter().map(Flow::new).collect(),
            waiting: vec![VecDeque::new(); topology.hosts()],
            devices: Devices::default(),
            prng: Prng::new(seed),
            sample_ns: 0,
            arrived: 0,
            counted_from_ns: 0,
            counted_from_sample: 0,
            samples: Samples::default(),
            events: 0,
            topology,
        };
        net.lay_cables();
        for (index, spec) in flows.iter().enumerate() {
            net.schedule
                .push(spec.start_ns, Event::Start { flow: index as u32 });
        }
        net
    }

    /// Ports in a fixed order, so that their numbers can be computed: from hosts, to hosts, from leaves to spines, and back.
    fn lay_cables(&mut self) {
        let topology = &self.topology;
        let hosts = topology.hosts();
        let leaf = |host| Node::Switch(topology.leaf_of(host));
        let mut ports = Vec::new();
        for host in 0..hosts {
            ports.push(Port::new(Node::Host(host), leaf(host), topology.cable_of(host)));
        }
        for host in 0..hosts {
            let mut port = Port::new(leaf(host), Node::Host(host), topology.cable_of(host));
            port.lost_ppm = topology.lost_ppm;
            ports.push(port);
        }
        for upwards in [true, false] {
            for leaf in 0..topology.leaves {
                for spine in 0..topology.spines {
                    let mut cable = topology.uplink;
                    cable.delay_ns += topology.skew_ns * spine as u64;
                    let (leaf, spine) = (Node::Switch(leaf), Node::Switch(topology.leaves + spine));
                    let (from, to) = if upwards { (leaf, spine) } else { (spine, leaf) };
                    ports.push(Port::new(from, to, cable));
                }
            }
        }
        let buffer = SharedBuffer {
            size: topology.buffer,
            used: 0,
            marking: topology.marking,
        };
        self.switches = vec![buffer; topology.leaves + topology.spines];
        self.ports = ports;
    }

    /// All ports of switches.
    pub(super) fn switch_ports(&self) -> impl Iterator<Item = &Port> {
        self.ports[self.topology.hosts()..].iter()
    }

    fn up_port(&self, leaf: usize, spine: usize) -> usize {
        2 * self.topology.hosts() + leaf * self.topology.spines + spine
    }

    fn down_port(&self, leaf: usize, spine: usize) -> usize {
        self.up_port(leaf, spine) + self.topology.leaves * self.topology.spines
    }

    /// The cable between a leaf and a spine is cut at some time, and mended at another.
    pub(super) fn flap(&mut self, leaf: usize, spine: usize, down_ns: u64, up_ns: u64) {
        for (at_ns, up) in [(down_ns, false), (up_ns, true)] {
            self.schedule.push(at_ns, Event::Cable { leaf, spine, up });
            self.schedule
                .push(at_ns + CONVERGENCE_NS, Event::Converged { leaf, spine, up });
        }
    }

    /// Looks at queues and at what arrived so often.
    pub(super) fn sample_every(&mut self, ns: u64) {
        self.sample_ns = ns;
        self.schedule.push(self.now_ns + ns, Event::Sample);
    }

    /// Lets things happen until then, or until all flows are done.
    pub(super) fn run(&mut self, until_ns: u64) {
        let mut unfinished =
            self.flows.iter().filter(|flow| !flow.is_done()).count() + self.devices.unfinished();
        while unfinished > 0 {
            if self.schedule.next_at().is_none_or(|at_ns| at_ns > until_ns) {
                self.now_ns = until_ns;
                break;
            }
            let Some((at_ns, event)) = self.schedule.pop() else {
                break;
            };
            self.now_ns = at_ns;
            self.events += 1;
            unfinished -= self.happen(event);
        }
    }

    /// One event; how many flows it finished.
    fn happen(&mut self, event: Event) -> usize {
        match event {
            Event::Sent { port, generation } => self.sent(port as usize, generation),
            Event::Arrived { port, generation, at } => return self.arrived(port as usize, generation, at),
            Event::Start { flow } => self.pump(flow as usize),
            Event::Timer { flow } => self.flow_timer(flow as usize),
            Event::Cable { leaf, spine, up } => self.set_cable(leaf, spine, up),
            Event::Converged { leaf, spine, up } => self.used[leaf * self.topology.spines + spine] = up,
            Event::Device { host } => return self.drive_device(host),
            Event::Sample => self.sample(),
        }
        0
    }

    fn sample(&mut self) {
        self.samples.arrived.push(std::mem::take(&mut self.arrived));
        let longest = self.switch_ports().map(|port| port.queued).max();
        self.samples.queue.push(longest.unwrap_or(0));
        self.schedule.push(self.now_ns + self.sample_ns, Event::Sample);
    }

    /// What was before now does not count.
    pub(super) fn count_from_now(&mut self) {
        self.counted_from_ns = self.now_ns;
        self.counted_from_sample = self.samples.queue.len();
        for flow in &mut self.flows {
            flow.counted_from = flow.receiver.first_copies;
        }
        for port in &mut self.ports {
            port.counts.longest = port.queued;
        }
    }

    /// From one sample to the next.
    pub(super) fn sample_ns(&self) -> u64 {
        self.sample_ns
    }

    fn set_cable(&mut self, leaf: usize, spine: usize, up: bool) {
        for port in [self.up_port(leaf, spine), self.down_port(leaf, spine)] {
            let port = &mut self.ports[port];
            if up {
                port.is_up = true;
                continue;
            }
            let freed = port.queued;
            let dropped = port.cut();
            if let Node::Switch(switch) = port.owner {
                self.switches[switch].used -= freed;
            }
            self.free.extend(dropped);
        }
    }

    /// Puts a packet in the queue of a port, if there is room.
    fn offer(&mut self, port: usize, mut packet: Packet) {
        let place = &mut self.ports[port];
        if !place.is_up {
            place.counts.dropped += 1;
            return self.discard(packet);
        }
        if let Node::Switch(switch) = place.owner {
            let buffer = &mut self.switches[switch];
            match buffer.judge(place.queued, packet.bytes, packet.markable, &mut self.prng) {
                Verdict::Drop => {
                    place.counts.dropped += 1;
                    return self.discard(packet);
                }
                Verdict::Mark => {
                    packet.marked = true;
                    place.counts.marked += 1;
                }
                Verdict::Take => {}
            }
            buffer.used += u64::from(packet.bytes);
        }
        let bytes = packet.bytes;
        let at = self.store(packet);
        let place = &mut self.ports[port];
        if place.push(at, bytes) {
            self.start_sending(port);
        }
    }

    /// A packet is gone; a device's bytes with it.
    fn discard(&mut self, packet: Packet) {
        if let What::Device { at } = packet.what {
            self.devices.discard(at);
        }
    }

    fn store(&mut self, packet: Packet) -> u32 {
        if let Some(at) = self.free.pop() {
            self.packets[at as usize] = packet;
            return at;
        }
        self.packets.push(packet);
        (self.packets.len() - 1) as u32
    }

    fn start_sending(&mut self, port: usize) {
        let place = &self.ports[port];
        if let Some(takes) = place.next_takes_ns() {
            let generation = place.generation;
            let event = Event::Sent {
                port: port as u32,
                generation,
            };
            self.schedule.push(self.now_ns + takes, event);
        }
    }

    fn sent(&mut self, port: usize, generation: u32) {
        let place = &mut self.ports[port];
        if place.generation != generation {
            return;
        }
        let Some((at, bytes)) = place.pop() else { return };
        let (owner, delay_ns) = (place.owner, place.cable.delay_ns);
        let event = Event::Arrived {
            port: port as u32,
            generation,
            at,
        };
        self.schedule.push(self.now_ns + delay_ns, event);
        self.start_sending(port);
        match owner {
            Node::Switch(switch) => self.switches[switch].used -= u64::from(bytes),
            Node::Host(host) => self.serve_waiting(host),
        }
    }

    /// A packet is at the end of a cable; how many flows that finished.
    fn arrived(&mut self, port: usize, generation: u32, at: u32) -> usize {
        let packet = self.packets[at as usize];
        self.free.push(at);
        let place = &mut self.ports[port];
        let lost = place.lost_ppm > 0 && self.prng.ppm(place.lost_ppm);
        if place.generation != generation || lost {
            place.counts.dropped += 1;
            self.discard(packet);
            return 0;
        }
        match place.leads_to {
            Node::Host(host) => self.take(host, packet),
            Node::Switch(switch) => {
                match self.next_port(switch, &packet) {
                    Some(port) => self.offer(port, packet),
                    None => self.discard(packet),
                }
                0
            }
        }
    }

    /// Where a switch sends a packet.
    fn next_port(&mut self, switch: usize, packet: &Packet) -> Option<usize> {
        let to = usize::from(packet.to);
        let leaf = self.topology.leaf_of(to);
        if switch == leaf {
            return Some(self.topology.hosts() + to);
        }
        if switch >= self.topology.leaves {
            return Some(self.down_port(leaf, switch - self.topology.leaves));
        }
        let spines = self.topology.spines;
        let works = |spine: usize| self.used[switch * spines + spine] && self.used[leaf * spines + spine];
        let count = (0..spines).filter(|spine| works(*spine)).count();
        if count == 0 {
            return None;
        }
        let chosen = match self.topology.spread {
            Spread::Flows => mix(u64::from(packet.entropy) << 8 | switch as u64) as usize % count,
            Spread::Packets => self.prng.index(count),
        };
        let spine = (0..spines).filter(|spine| works(*spine)).nth(chosen)?;
        Some(self.up_port(switch, spine))
    }

    fn take(&mut self, host: usize, packet: Packet) -> usize {
        let index = packet.flow as usize;
        match packet.what {
            What::Device { at } => {
                if let Some(due) = self.devices.take(host, at, packet.marked, self.now_ns) {
                    self.schedule.push(due, Event::Device { host });
                }
                return 0;
            }
            What::Data(data) => {
                let flow = &mut self.flows[index];
                let before = flow.receiver.first_copies;
                let answers = flow.receiver.handle(self.now_ns, &data, packet.marked);
                let new = flow.receiver.first_copies - before;
                self.arrived += new * u64::from(packet.bytes);
                if answers.notify {
                    self.answer(&packet, What::Notification);
                }
                if let Some(what) = answers.answer {
                    self.answer(&packet, what);
                }
                return 0;
            }
            What::Ack(ack) => self.flows[index].sender.handle_ack(self.now_ns, &ack),
            What::Nak { missing } => self.flows[index].sender.handle_nak(self.now_ns, missing),
            What::Notification => self.flows[index].sender.handle_notification(self.now_ns),
        }
        self.pump(index);
        usize::from(self.flows[index].note_done(self.now_ns))
    }

    fn answer(&mut self, packet: &Packet, what: What) {
        let answer = Packet {
            from: packet.to,
            to: packet.from,
            bytes: ANSWER,
            markable: false,
            marked: false,
            what,
            ..*packet
        };
        self.offer(usize::from(answer.from), answer);
    }

    /// Lets a flow send what it may.
    fn pump(&mut self, index: usize) {
        let host = self.flows[index].from;
        for _ in 0..TURN {
            if self.ports[host].queued >= SOCKET_BYTES {
                break;
            }
            let flow = &mut self.flows[index];
            let Some(data) = flow.sender.poll(self.now_ns) else {
                return self.set_flow_timer(index);
            };
            let packet = Packet {
                flow: index as u32,
                from: host as u16,
                to: flow.to as u16,
                bytes: flow.sender.mtu + HEADERS,
                entropy: flow.entropy,
                markable: flow.markable,
                marked: false,
                what: What::Data(data),
            };
            self.offer(host, packet);
        }
        // It had its turn, or there is no room.
        if !std::mem::replace(&mut self.flows[index].is_waiting, true) {
            self.waiting[host].push_back(index as u32);
        }
    }

    /// There is room in a host's socket again.
    fn serve_waiting(&mut self, host: usize) {
        while self.ports[host].queued < SOCKET_BYTES {
            let Some(flow) = self.waiting[host].pop_front() else {
                break;
            };
            self.flows[flow as usize].is_waiting = false;
            self.pump(flow as usize);
        }
    }

    fn flow_timer(&mut self, index: usize) {
        let flow = &mut self.flows[index];
        if flow.timer_ns.take_if(|due| *due <= self.now_ns).is_none() {
            return;
        }
        if flow.sender.due_at().is_some_and(|due| due <= self.now_ns) {
            flow.sender.handle_timeout(self.now_ns);
        }
        // One that waits for the socket will be served.
        if !flow.is_waiting {
            self.pump(index);
        }
    }

    fn set_flow_timer(&mut self, index: usize) {
        let flow = &mut self.flows[index];
        let Some(due) = flow.sender.due_at() else { return };
        let due = due.max(self.now_ns + 1);
        if flow.timer_ns.is_none_or(|known| known > due) {
            flow.timer_ns = Some(due);
            self.schedule.push(due, Event::Timer { flow: index as u32 });
        }
    }

    /// Has a host's device driven; how many of its transfers that finished.
    fn drive_device(&mut self, host: usize) -> usize {
        let Some(turn) = self.devices.drive(host, self.now_ns) else {
            return 0;
        };
        for packet in turn.packets {
            self.offer(host, packet);
        }
        self.arrived += turn.arrived;
        if let Some(due) = turn.due_ns {
            self.schedule.push(due.max(self.now_ns), Event::Device { host });
        }
        turn.finished
    }

    /// Has a host's device driven for the first time.
    pub(super) fn start_device(&mut self, host: usize) {
        self.schedule.push(self.now_ns, Event::Device { host });
    }
}
