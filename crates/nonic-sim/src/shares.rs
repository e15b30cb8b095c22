//! The sharing workload: many processes at one address, of which some are dead, slow or not ready, and what the others
//! get.
//!
//! One host has a queue pair to each process, and keeps all of them busy. A run measures what the live processes are
//! sent while the others are in trouble, and again without those. Read [`Shares::run`] first. What must hold:
//! - the live processes get most of what they get alone, and each of them a part of it;
//! - what the host has under way is bounded by its window, whichever processes answer.
//!
//! The network loses nothing: whatever goes wrong here is how the window is shared.

use crate::capture::Capture;
use crate::fabric::{Batching, Fabric, FabricConfig, Step};
use crate::link::LinkProfile;
use crate::reliable;
use nonic_core::{
    Access, AckTimeout, CompletionQueue, CqId, Data, Endpoint, HeapRegion, KeySpec, KeyTable, Nic, NicConfig,
    PathMtu, QpInit, Qpn, RemoteAddress, SeededEntropy, SendFlags, SendOp, SendRequest, Sge, Status, Time,
    WindowConfig,
};
use nonic_netem::Prng;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const PEERS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const MEMORY: usize = 64 << 10;
/// Requests each queue pair to the living is kept busy with.
const DEPTH: u64 = 16;
/// The same for the others: enough to fill the window alone.
const TROUBLED_DEPTH: u64 = 100;
/// Counting begins when it has become clear which processes answer, and ends before any retries are exhausted.
const COUNTED_NS: std::ops::Range<u64> = 100_000_000..450_000_000;
/// In a hundred, of what the living get without the others; or of their fair share of it, if the others answer
/// often enough to deserve one.
const LIVING_GET: u64 = 80;
/// In a hundred, of what the living get on average.
const EACH_GETS: u64 = 50;

/// What is wrong with a process.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Trouble {
    None,
    /// It is gone.
    Dead,
    /// It takes one packet in this time.
    Slow {
        packet_ns: u64,
    },
    /// It never posts a receive.
    NotReady,
}

/// What a seed means.
#[derive(Clone, Debug)]
struct Plan {
    processes: Vec<Trouble>,
    /// Packets in each of the living ones' messages.
    packets: u32,
    reads: bool,
    mtu: PathMtu,
    window: u32,
    latency_ns: u64,
    timeout: AckTimeout,
}

impl Plan {
    fn draw(prng: &mut Prng) -> Plan {
        let count = prng.pick(&[2, 4, 16, 64]);
        let troubled = prng.range(1, (count / 8).max(1)) as usize;
        let trouble = match prng.below(5) {
            0 | 1 => Trouble::Dead,
            2 => Trouble::Slow {
                packet_ns: prng.range(30_000_000, 90_000_000),
            },
            3 => Trouble::Slow {
                packet_ns: prng.range(500_000, 1_000_000),
            },
            _ => Trouble::NotReady,
        };
        let mut processes = vec![Trouble::None; count as usize];
        processes[..troubled].fill(trouble);
        let mtu = prng.pick(&[PathMtu::Mtu256, PathMtu::Mtu1024]);
        let exponent = match trouble {
            // Slow is not dead: its answers come before the timeout.
            Trouble::Slow { .. } => 20,
            _ => prng.range(14, 15) as u8,
        };
        Plan {
            processes,
            packets: prng.range(1, 4) as u32,
            reads: prng.percent(25),
            mtu,
            window: mtu.bytes() * prng.range(32, 64) as u32,
            latency_ns: prng.range(200_000, 800_000),
            timeout: AckTimeout::from_exponent(exponent).unwrap_or(AckTimeout::INFINITE),
        }
    }

    fn without_trouble(&self) -> Plan {
        let living = |trouble: &Trouble| *trouble == Trouble::None;
        Plan {
            processes: self.processes.iter().copied().filter(living).collect(),
            ..self.clone()
        }
    }
}

/// A seed of it.
pub(crate) struct Shares {
    pub(crate) fabric: Fabric<()>,
    pub(crate) steps: u64,
    pub(crate) operations: u64,
    pub(crate) completions: u64,
    seed: u64,
    plan: Plan,
    narrating: bool,
    capture: Option<Capture>,
}

impl Shares {
    pub(crate) fn draw(seed: u64) -> Shares {
        let plan = Plan::draw(&mut Prng::new(seed));
        Shares {
            fabric: fabric(&plan, seed),
            steps: 0,
            operations: 0,
            completions: 0,
            seed,
            plan,
            narrating: false,
            capture: None,
        }
    }

    pub(crate) fn narrate(&mut self, narrate: bool) {
        self.narrating = narrate;
        if narrate {
            eprintln!("{:#?}", self.plan);
        }
    }

    pub(crate) fn capture(&mut self, capture: Capture) {
        self.capture = Some(capture);
    }

    /// Only the run with trouble is narrated and captured: it is the second.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        let alone = self.measure(self.plan.without_trouble())?;
        self.fabric = fabric(&self.plan, self.seed);
        self.fabric.set_narrating(self.narrating);
        if let Some(capture) = self.capture.take() {
            self.fabric.set_capture(capture);
        }
        let beside = self.measure(self.plan.clone())?;
        let (total, expected) = (beside.iter().sum::<u64>(), alone.iter().sum::<u64>());
        let trouble = self.plan.processes[0];
        let fair = match trouble {
            Trouble::Slow { packet_ns } if packet_ns <= 1_000_000 => {
                expected * beside.len() as u64 / self.plan.processes.len() as u64
            }
            _ => expected,
        };
        if total * 100 < fair * LIVING_GET {
            return Err(format!(
                "the living got {total} bytes beside {trouble:?}, {expected} without"
            ));
        }
        let mean = total / beside.len() as u64;
        match beside.iter().find(|bytes| **bytes * 100 < mean * EACH_GETS) {
            Some(least) => Err(format!("one got {least} bytes, {mean} is the mean")),
            None => Ok(()),
        }
    }

    /// Runs a plan from the start; how many bytes each of the living got.
    fn measure(&mut self, plan: Plan) -> Result<Vec<u64>, String> {
        let mut hosts = Hosts::new(&mut self.fabric, plan);
        hosts.post_all(&mut self.fabric);
        while self.fabric.now() < Time::from_ns(COUNTED_NS.end) {
            let Some(step) = self.fabric.step() else {
                return Err("everything stopped".to_owned());
            };
            self.steps += 1;
            if step == Step::Driven(0) {
                hosts.take_completions(&mut self.fabric)?;
            }
        }
        self.operations += hosts.posted;
        self.completions += hosts.completed;
        Ok(hosts.living().map(|client| hosts.clients[client].bytes).collect())
    }
}

fn fabric(plan: &Plan, seed: u64) -> Fabric<()> {
    let config = FabricConfig {
        link: LinkProfile {
            latency_ns: plan.latency_ns,
            ..LinkProfile::default()
        },
        // A slow process takes packet by packet, not batch by batch.
        batching: Batching::Single,
        ..FabricConfig::default()
    };
    Fabric::new(config, seed)
}

struct Client {
    qpn: Qpn,
    /// The memory of the process.
    remote: RemoteAddress,
    /// Acknowledged while it counted.
    bytes: u64,
}

/// The host, which is station 0, and the processes at the other address.
struct Hosts {
    plan: Plan,
    cq: Arc<CompletionQueue>,
    lkey: u32,
    clients: Vec<Client>,
    posted: u64,
    completed: u64,
}

impl Hosts {
    fn new(fabric: &mut Fabric<()>, plan: Plan) -> Hosts {
        let cq = Arc::new(CompletionQueue::new(CqId(0), 1 << 14));
        let mut host = Host::new(HOST, 0, &plan, &cq);
        let (lkey, mut clients) = (host.key, Vec::new());
        let mut processes: Vec<Host> = Vec::new();
        for index in 0..plan.processes.len() {
            let mut process = Host::new(PEERS, index as u64 + 1, &plan, &cq);
            let (qpn, there) = (host.create_qp(), process.create_qp());
            host.connect(qpn, PEERS, there, &plan);
            if plan.processes[index] == Trouble::Dead {
                // Without a peer, its destruction is announced to no one: a process that is gone is silent.
                process.nic.destroy_qp(Time::ZERO, there);
            } else {
                process.connect(there, HOST, qpn, &plan);
            }
            let remote = RemoteAddress {
                va: 0,
                rkey: process.key,
            };
            clients.push(Client {
                qpn,
                remote,
                bytes: 0,
            });
            fabric.route(PEERS, there, index + 1);
            processes.push(process);
        }
        fabric.add(host.nic, &[HOST]);
        for (index, process) in processes.into_iter().enumerate() {
            let station = fabric.add(process.nic, &[]);
            if let Trouble::Slow { packet_ns } = plan.processes[index] {
                let slow = LinkProfile {
                    byte_time_ps: packet_ns * 1000 / u64::from(plan.mtu.bytes()),
                    latency_ns: plan.latency_ns,
                    ..LinkProfile::default()
                };
                fabric.set_link(0, station, slow, nonic_netem::Faults::default());
            }
        }
        Hosts {
            plan,
            cq,
            lkey,
            clients,
            posted: 0,
            completed: 0,
        }
    }

    fn living(&self) -> impl Iterator<Item = usize> {
        let processes = self.plan.processes.iter().enumerate();
        processes.filter_map(|(index, trouble)| (*trouble == Trouble::None).then_some(index))
    }

    /// How long its messages are.
    fn length(&self, client: usize) -> u32 {
        let packets = match self.plan.processes[client] {
            Trouble::None => self.plan.packets,
            // Each packet is acknowledged by itself.
            Trouble::Slow { .. } => 1,
            // They would fill the window alone.
            Trouble::Dead | Trouble::NotReady => 32,
        };
        packets * self.plan.mtu.bytes()
    }

    /// The troubled come first, so that they have the window when the living would like it.
    fn post_all(&mut self, fabric: &mut Fabric<()>) {
        for client in 0..self.clients.len() {
            let living = self.plan.processes[client] == Trouble::None;
            for _ in 0..if living { DEPTH } else { TROUBLED_DEPTH } {
                self.post(fabric, client);
            }
        }
        fabric.kick(0);
    }

    fn post(&mut self, fabric: &mut Fabric<()>, client: usize) {
        let Client { qpn, remote, .. } = self.clients[client];
        let op = match self.plan.processes[client] {
            Trouble::NotReady => SendOp::Send,
            Trouble::None if self.plan.reads => SendOp::Read(remote),
            _ => SendOp::Write(remote),
        };
        let sges = [Sge {
            addr: 0,
            length: self.length(client),
            lkey: self.lkey,
        }];
        let request = SendRequest {
            wr_id: client as u64,
            op,
            data: Data::Sges(&sges),
            flags: SendFlags::SIGNALED,
            destination: None,
        };
        let now = fabric.now();
        let posted = fabric.nic_mut(0).post_send(now, qpn, &request);
        posted.expect("as many are posted as completed");
        self.posted += 1;
    }

    fn take_completions(&mut self, fabric: &mut Fabric<()>) -> Result<(), String> {
        // A queue pair whose message does not fit any more may send one packet to ask for an acknowledgement.
        let limit =
            u64::from(self.plan.window) + self.clients.len() as u64 * u64::from(self.plan.mtu.bytes());
        let in_flight = fabric.nic(0).usage().in_flight_bytes;
        if in_flight > limit {
            return Err(format!("{in_flight} bytes under way, {limit} are permitted"));
        }
        let mut done = Vec::new();
        self.cq
            .poll(usize::MAX, |completion| {
                done.push((completion.wr_id, completion.status))
            })
            .map_err(|_| "the completion queue overflowed".to_owned())?;
        let counts = COUNTED_NS.contains(&fabric.now().as_ns());
        for (wr_id, status) in &done {
            if *status != Status::Success {
                return Err(format!("a request to process {wr_id} ended with {status:?}"));
            }
            let client = *wr_id as usize;
            self.completed += 1;
            if counts {
                self.clients[client].bytes += u64::from(self.length(client));
            }
            self.post(fabric, client);
        }
        if !done.is_empty() {
            fabric.kick(0);
        }
        Ok(())
    }
}

/// A NIC before it joins the fabric.
struct Host {
    nic: Nic,
    init: QpInit,
    key: u32,
}

impl Host {
    fn new(ip: IpAddr, number: u64, plan: &Plan, cq: &Arc<CompletionQueue>) -> Host {
        let keys = Arc::new(KeyTable::new());
        let pd = keys.alloc_pd();
        let config = NicConfig {
            window: WindowConfig {
                initial: plan.window,
                max: plan.window,
            },
            ..NicConfig::default()
        };
        let mut nic = Nic::new(config, keys, Box::new(SeededEntropy::new(number)));
        nic.add_endpoint(Endpoint { ip, port: 49_152 });
        // Its queue pairs have numbers of its own: they say which process a packet is for.
        nic.add_qpn_block(number as u16 + 1);
        let key = nic.register(KeySpec {
            pd,
            region: Arc::new(HeapRegion::zeroed(MEMORY)),
            offset: 0,
            length: MEMORY as u64,
            iova: 0,
            access: Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ,
            bound_qp: None,
            invalidatable: false,
        });
        let init = reliable::init(pd, cq);
        Host {
            nic,
            init,
            key: key.expect("memory is registered").value(),
        }
    }

    fn create_qp(&mut self) -> Qpn {
        self.nic.create_qp(self.init.clone()).expect("a queue pair")
    }

    fn connect(&mut self, qpn: Qpn, remote: IpAddr, dest_qpn: Qpn, plan: &Plan) {
        reliable::connect(&mut self.nic, qpn, (remote, dest_qpn), plan.mtu, plan.timeout);
    }
}
