//! Hosts with a real device: [`nonic_core::Nic`] as it is, with the simulated network between its packets.
//!
//! Each device has queue pairs to others and keeps WRITEs posted on them until so many are done. A device costs a
//! thousand times what a flow costs, so there are few of them; they show that what holds for flows holds for devices.

use super::metrics::Metrics;
use super::packet::{HEADERS, Packet, What};
use super::statistics::{jain, rank};
use crate::reliable;
use nonic_core::{
    Access, AckTimeout, Arrival, CompletionQueue, CqId, Data, Endpoint, HeapRegion, KeySpec, KeyTable, Nic,
    NicConfig, PathMtu, PdId, QpInit, Qpn, RemoteAddress, SeededEntropy, SendFlags, SendOp, SendRequest, Sge,
    Status, Time,
};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// Bytes of each device's memory.
const MEMORY: usize = 1 << 20;
/// RoCE headers that are in a device's packet already: BTH and ICRC.
const IN_PACKET: u32 = 16;

/// A transfer between two devices.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Transfer {
    pub(super) from: usize,
    pub(super) to: usize,
    /// Bytes in a message, and how many messages there are; so many of them are posted at a time.
    pub(super) message: u32,
    pub(super) messages: u32,
    pub(super) depth: u32,
}

/// What became of a transfer.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    pub(super) transfer: Transfer,
    qpn: Qpn,
    remote: RemoteAddress,
    posted: u32,
    pub(super) completed: u32,
    pub(super) done_ns: Option<u64>,
}

struct Station {
    nic: Nic,
    pd: PdId,
    key: u32,
    cq: Arc<CompletionQueue>,
    /// Where packets are kept that came, and whether they were marked.
    inbox: VecDeque<(u32, bool)>,
    /// When it is driven next because something came, and because of its timers.
    drive_ns: Option<u64>,
    wake_ns: Option<u64>,
}

/// All devices of a network, by host.
#[derive(Default)]
pub(super) struct Devices {
    stations: Vec<Option<Station>>,
    pub(super) progress: Vec<Progress>,
    bytes: Vec<(SocketAddr, Vec<u8>)>,
    free: Vec<u32>,
    buffer: Vec<u8>,
    /// Bytes of payload in a packet.
    mtu: u32,
    /// Packets sent that carry data.
    sent: u64,
    pub(super) failures: Vec<String>,
}

/// What a device did when it was driven.
#[derive(Debug, Default)]
pub(super) struct Turn {
    pub(super) packets: Vec<Packet>,
    /// Bytes whose completion came.
    pub(super) arrived: u64,
    pub(super) finished: usize,
    pub(super) due_ns: Option<u64>,
}

fn address(host: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 1, (host >> 8) as u8, host as u8))
}

fn host_of(ip: IpAddr) -> usize {
    match ip {
        IpAddr::V4(ip) => usize::from(ip.octets()[2]) << 8 | usize::from(ip.octets()[3]),
        IpAddr::V6(_) => 0,
    }
}

impl Devices {
    /// Devices at hosts 0 to `hosts`, connected for these transfers.
    pub(super) fn new(hosts: usize, mtu: PathMtu, transfers: &[Transfer]) -> Devices {
        let mut devices = Devices {
            buffer: vec![0; nonic_core::MAX_BATCH_LEN],
            mtu: mtu.bytes(),
            ..Devices::default()
        };
        for host in 0..hosts {
            devices.stations.push(Some(Station::new(host)));
        }
        for transfer in transfers {
            let (here, there) = (devices.create_qp(transfer.from), devices.create_qp(transfer.to));
            devices
                .station(transfer.from)
                .connect(here, transfer.to, there, mtu);
            devices
                .station(transfer.to)
                .connect(there, transfer.from, here, mtu);
            let rkey = devices.station(transfer.to).key;
            devices.progress.push(Progress {
                transfer: *transfer,
                qpn: here,
                remote: RemoteAddress { va: 0, rkey },
                posted: 0,
                completed: 0,
                done_ns: None,
            });
        }
        devices
    }

    fn station(&mut self, host: usize) -> &mut Station {
        self.stations[host].as_mut().expect("a device at each host")
    }

    fn create_qp(&mut self, host: usize) -> Qpn {
        let station = self.station(host);
        let init = station.init();
        station.nic.create_qp(init).expect("a queue pair")
    }

    pub(super) fn unfinished(&self) -> usize {
        let done = |progress: &&Progress| progress.done_ns.is_none();
        self.progress.iter().filter(done).count()
    }

    /// Enters what became of the transfers.
    pub(super) fn complete_metrics(&self, metrics: &mut Metrics, now_ns: u64, capacity: u64) {
        let shares: Vec<f64> = self
            .progress
            .iter()
            .map(|progress| f64::from(progress.completed) * f64::from(progress.transfer.message))
            .collect();
        let mut took: Vec<f64> = self
            .progress
            .iter()
            .filter_map(|progress| progress.done_ns.map(|done| done as f64 / 1e9))
            .collect();
        took.sort_by(f64::total_cmp);
        // Headers count, as they do for flows.
        let wire = shares.iter().sum::<f64>() * (1.0 + f64::from(HEADERS) / f64::from(self.mtu));
        metrics.goodput = wire * 1e9 / (capacity as f64 * now_ns as f64);
        metrics.fairness = jain(&shares);
        metrics.flows = self.progress.len();
        metrics.finished = took.len();
        metrics.completion = [500, 990, 999].map(|part| rank(&took, part));
        metrics.sent = self.sent;
        for station in self.stations.iter().flatten() {
            let counters = station.nic.counters();
            metrics.repeated += counters.retransmitted_packets;
            metrics.timeouts += counters.timeouts;
        }
    }

    pub(super) fn discard(&mut self, at: u32) {
        self.free.push(at);
    }

    /// A packet came; when the device is to be driven, if that is not known yet.
    pub(super) fn take(&mut self, host: usize, at: u32, marked: bool, now_ns: u64) -> Option<u64> {
        let station = self.station(host);
        station.inbox.push_back((at, marked));
        let news = station.drive_ns.is_none();
        station.drive_ns = Some(now_ns);
        news.then_some(now_ns)
    }

    /// One turn of a device: what came, what it sends, what it completed.
    pub(super) fn drive(&mut self, host: usize, now_ns: u64) -> Option<Turn> {
        let now = Time::from_ns(now_ns);
        let mut turn = Turn::default();
        let station = self.stations.get_mut(host)?.as_mut()?;
        if ![station.drive_ns, station.wake_ns].contains(&Some(now_ns)) {
            return None;
        }
        station.drive_ns = None;
        station.wake_ns.take_if(|wake| *wake <= now_ns);
        station.nic.handle_timeout(now);
        while let Some((at, congested)) = station.inbox.pop_front() {
            let (src, bytes) = &self.bytes[at as usize];
            let arrival = Arrival {
                src: *src,
                dst: address(host),
                stride: bytes.len(),
                congested,
            };
            station.nic.handle_datagram(now, &arrival, bytes);
            self.free.push(at);
        }
        station.nic.publish();
        self.complete(host, now_ns, &mut turn);
        self.post(host, now);
        self.transmit(host, now, &mut turn);
        let station = self.station(host);
        station.nic.publish();
        while station.nic.poll_event().is_some() {}
        let due = station.nic.poll_timeout().map(|due| due.as_ns().max(now_ns + 1));
        if let Some(due) = due.filter(|due| station.wake_ns.is_none_or(|known| known > *due)) {
            station.wake_ns = Some(due);
            turn.due_ns = Some(due);
        }
        Some(turn)
    }

    fn complete(&mut self, host: usize, now_ns: u64, turn: &mut Turn) {
        let mut done = Vec::new();
        let cq = self.station(host).cq.clone();
        let polled = cq.poll(usize::MAX, |completion| {
            done.push((completion.wr_id, completion.status))
        });
        if polled.is_err() {
            self.failures
                .push(format!("the completion queue of host {host} overflowed"));
        }
        for (wr_id, status) in done {
            let progress = &mut self.progress[wr_id as usize];
            if status != Status::Success {
                self.failures
                    .push(format!("{:?} ended with {status:?}", progress.transfer));
            }
            progress.completed += 1;
            turn.arrived += u64::from(progress.transfer.message);
            if progress.completed == progress.transfer.messages {
                progress.done_ns = Some(now_ns);
                turn.finished += 1;
            }
        }
    }

    fn post(&mut self, host: usize, now: Time) {
        let station = self.stations[host].as_mut().expect("it is being driven");
        for (index, progress) in self.progress.iter_mut().enumerate() {
            let transfer = progress.transfer;
            if transfer.from != host {
                continue;
            }
            while progress.posted < transfer.messages && progress.posted - progress.completed < transfer.depth
            {
                let sges = [Sge {
                    addr: 0,
                    length: transfer.message,
                    lkey: station.key,
                }];
                let request = SendRequest {
                    wr_id: index as u64,
                    op: SendOp::Write(progress.remote),
                    data: Data::Sges(&sges),
                    flags: SendFlags::SIGNALED,
                    destination: None,
                };
                if let Err(error) = station.nic.post_send(now, progress.qpn, &request) {
                    self.failures
                        .push(format!("{transfer:?} could not be posted: {error}"));
                    break;
                }
                progress.posted += 1;
            }
        }
    }

    fn transmit(&mut self, host: usize, now: Time, turn: &mut Turn) {
        let mut buffer = std::mem::take(&mut self.buffer);
        while let Some(transmit) = self.station(host).nic.poll_transmit(now, 1, &mut buffer) {
            let src = SocketAddr::new(transmit.flow.src, transmit.flow.src_port);
            let bytes = buffer[..transmit.len].to_vec();
            let length = bytes.len() as u32;
            self.sent += u64::from(length > self.mtu / 2);
            let at = self.store(src, bytes);
            turn.packets.push(Packet {
                flow: 0,
                from: host as u16,
                to: host_of(transmit.flow.dst) as u16,
                bytes: length + HEADERS - IN_PACKET,
                entropy: transmit.dest_qpn.value(),
                markable: true,
                marked: false,
                what: What::Device { at },
            });
        }
        self.buffer = buffer;
    }

    fn store(&mut self, src: SocketAddr, bytes: Vec<u8>) -> u32 {
        if let Some(at) = self.free.pop() {
            self.bytes[at as usize] = (src, bytes);
            return at;
        }
        self.bytes.push((src, bytes));
        (self.bytes.len() - 1) as u32
    }
}

impl Station {
    fn new(host: usize) -> Station {
        let keys = Arc::new(KeyTable::new());
        let pd = keys.alloc_pd();
        let mut nic = Nic::new(
            NicConfig::default(),
            keys,
            Box::new(SeededEntropy::new(host as u64)),
        );
        nic.add_endpoint(Endpoint {
            ip: address(host),
            port: 49_152,
        });
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
        Station {
            nic,
            pd,
            key: key.expect("memory is registered").value(),
            cq: Arc::new(CompletionQueue::new(CqId(0), 1 << 14)),
            inbox: VecDeque::new(),
            // Everything begins at once.
            drive_ns: Some(0),
            wake_ns: None,
        }
    }

    fn init(&self) -> QpInit {
        reliable::init(self.pd, &self.cq)
    }

    fn connect(&mut self, qpn: Qpn, to: usize, dest_qpn: Qpn, mtu: PathMtu) {
        let timeout = AckTimeout::from_exponent(14).expect("a valid exponent");
        reliable::connect(&mut self.nic, qpn, (address(to), dest_qpn), mtu, timeout);
    }
}
