//! The answers of a process, in portions: so many queue pairs in one turn at a shard, then other threads may have the lock.

use super::gate::{Gate, Inspected, Unseen};
use super::record::Line;
use super::request::Request;
use super::service::service_name;
use crate::host::{PortState, RetryReason};
use crate::link::LinkCounters;
use crate::netdev::Wire;
use crate::shard::Shard;
use crate::stream::StreamView;
use nonic_core::cm::{Cm, ConnectionView, ListenerView};
use nonic_core::{Arm, Counters, CqView, Key, QueuePairView, Service};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Slots of queue pairs that are looked at in one turn: some ten microseconds.
const SLOTS: usize = 64;
/// Memory keys, connections and completion queues that are looked at under one lock.
const PORTION: usize = 256;

/// Where the records go, portion by portion. What it answers ends the answer.
pub(super) type Sink<'a> = dyn FnMut(&str) -> io::Result<()> + 'a;

/// Answers a request, beginning with the process that answers. A device that closes meanwhile is left out.
pub(super) fn answer(request: Request, devices: &[Arc<Gate>], sink: &mut Sink<'_>) -> io::Result<()> {
    sink(&process(devices.len()))?;
    for device in devices {
        let told = match request {
            Request::Process => Ok(()),
            Request::Devices => tell_device(device, sink),
            Request::QueuePairs => tell_queue_pairs(device, sink),
            Request::MemoryKeys => tell_memory_keys(device, sink),
            Request::CompletionQueues => tell_completion_queues(device, sink),
            Request::Connections => tell_connections(device, sink),
        };
        match told {
            Ok(()) | Err(Stop::Unseen(Unseen::Closed)) => {}
            Err(Stop::Unseen(Unseen::Busy)) => return Err(io::ErrorKind::WouldBlock.into()),
            Err(Stop::Io(error)) => return Err(error),
        }
    }
    Ok(())
}

/// Why an answer ends before its time.
enum Stop {
    Unseen(Unseen),
    Io(io::Error),
}

impl From<Unseen> for Stop {
    fn from(unseen: Unseen) -> Self {
        Stop::Unseen(unseen)
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Stop::Io(error)
    }
}

fn process(devices: usize) -> String {
    let mut out = String::new();
    let command = std::fs::read("/proc/self/comm").unwrap_or_default();
    Line::new(&mut out, "process")
        .number("pid", std::process::id().into())
        .text("command", String::from_utf8_lossy(&command).trim_end())
        .text("version", env!("CARGO_PKG_VERSION"))
        .number("devices", devices as u64)
        .end();
    out
}

/// What the shards of a device have, added up.
#[derive(Default)]
struct Sums {
    nic: Counters,
    link: LinkCounters,
    queue_pairs: u64,
    failed: bool,
    ports: Vec<String>,
    /// Whether a program that is not nonic has one of them.
    port_taken: bool,
    streams: u64,
    stream_listeners: u64,
}

impl Sums {
    fn add(&mut self, shard: &Shard) {
        self.nic += *shard.nic.counters();
        self.link += shard.link_counters();
        self.queue_pairs += shard.nic.queue_pair_count() as u64;
        self.failed |= shard.nic.has_failed();
        if self.ports.is_empty() {
            self.ports.extend(shard.presences().map(|presence| {
                let state = presence.port_state();
                let name = match state {
                    PortState::Joined => "joined",
                    PortState::Retry { .. } if is_foreign(state) => "taken",
                    PortState::Retry { .. } => "not_joined",
                };
                self.port_taken |= is_foreign(state);
                format!("{}={name}", presence.address())
            }));
        }
        if let Some(streams) = shard.inspect_streams() {
            self.streams += streams.connection_count() as u64;
            self.stream_listeners += streams.listener_count() as u64;
        }
    }
}

fn is_foreign(state: PortState) -> bool {
    let reason = RetryReason::Foreign;
    state == PortState::Retry { reason }
}

fn tell_device(device: &Gate, sink: &mut Sink<'_>) -> Result<(), Stop> {
    let mut sums = Sums::default();
    for shard in 0..shards(device)? {
        device.look_at_shard(shard, |shard| sums.add(shard))?;
    }
    let out = device.look(|inspected| {
        let mut out = String::new();
        write_device(&mut out, inspected, &sums);
        let name = inspected.netdev.device_name();
        let line = Line::new(&mut out, "counters").text("device", &name);
        let counters = sums.nic.named().chain(sums.link.named());
        counters
            .fold(line, |line, (name, value)| line.number(name, value))
            .end();
        out
    })?;
    Ok(sink(&out)?)
}

fn write_device(out: &mut String, inspected: &Inspected, sums: &Sums) {
    let usage = inspected.common.connections.with(|cm| cm.usage());
    let addresses: Vec<String> = inspected.gids.iter().map(|gid| gid.address.to_string()).collect();
    let queues = inspected.completion_queues.all();
    let live = queues.iter().filter(|queue| queue.strong_count() > 0).count();
    let wire = match inspected.netdev.wire {
        Wire::Roce => "roce",
        Wire::Iwarp => "iwarp",
    };
    Line::new(out, "device")
        .text("device", inspected.netdev.device_name())
        .text("netdev", &inspected.netdev.name)
        .text("wire", wire)
        .text("addresses", addresses.join(","))
        .text("port_4791", sums.ports.join(","))
        .flag("port_taken", sums.port_taken)
        .number("path_mtu", inspected.netdev.path_mtu().into())
        .number("shards", inspected.drivers.len() as u64)
        .flag(
            "failed",
            sums.failed || inspected.common.failed.load(Ordering::Relaxed),
        )
        .number("queue_pairs", sums.queue_pairs)
        .number("memory_keys", inspected.keys.len() as u64)
        .number("completion_queues", live as u64)
        .number("connections", usage.connections as u64 + sums.streams)
        .number("listeners", usage.listeners as u64 + sums.stream_listeners)
        .end();
}

fn shards(device: &Gate) -> Result<usize, Unseen> {
    device.look(|inspected| inspected.drivers.len())
}

fn name(device: &Gate) -> Result<String, Unseen> {
    device.look(|inspected| inspected.netdev.device_name())
}

/// A queue pair and what the engine knows of its way to the peer.
struct Seen {
    view: QueuePairView,
    road: &'static str,
    /// The two ends of its TCP connection.
    stream: Option<(SocketAddr, SocketAddr)>,
}

impl Seen {
    fn new(shard: &Shard, view: QueuePairView) -> Self {
        let road = match &view.peer {
            _ if view.iwarp => "tcp",
            None => "-",
            Some(_) if view.direct => "direct",
            Some(_) if view.lane => "lane",
            Some(_) => "udp",
        };
        let streams = shard.inspect_streams().filter(|_| view.iwarp);
        Seen {
            road,
            stream: streams.and_then(|streams| streams.ends_of(view.qpn)),
            view,
        }
    }
}

fn tell_queue_pairs(device: &Gate, sink: &mut Sink<'_>) -> Result<(), Stop> {
    let name = name(device)?;
    let mut seen: Vec<Seen> = Vec::with_capacity(SLOTS);
    let mut out = String::new();
    for shard in 0..shards(device)? {
        let mut next = Some(0);
        while let Some(from) = next {
            next = device.look_at_shard(shard, |shard| {
                let mut keep = |view| seen.push(Seen::new(shard, view));
                shard.nic.view_queue_pairs(from, SLOTS, &mut keep)
            })?;
            for seen in seen.drain(..) {
                write_queue_pair(&mut out, &name, shard, &seen);
            }
            sink(&out)?;
            out.clear();
        }
    }
    Ok(())
}

fn write_queue_pair(out: &mut String, device: &str, shard: usize, seen: &Seen) {
    let view = &seen.view;
    let (local, peer) = match (&view.peer, seen.stream) {
        (_, Some((local, remote))) => (local.to_string(), remote.to_string()),
        (Some(peer), None) => (peer.local.to_string(), peer.remote.to_string()),
        (None, None) => (String::new(), String::new()),
    };
    let psn = |psn: Option<nonic_core::Psn>| psn.map(|psn| u64::from(psn.value()));
    let line = Line::new(out, "qp")
        .text("device", device)
        .number("qpn", view.qpn.value().into())
        .text("service", word_of(view.service))
        .text("state", view.state)
        .text("road", seen.road)
        .text("local", local)
        .text("peer", peer)
        .number_if("peer_qpn", view.peer.map(|peer| peer.qpn.value().into()))
        .number("path_mtu", view.path_mtu.into())
        .number("shard", shard as u64)
        .number_if("next_psn", psn(view.sequence.next))
        .number_if("una_psn", psn(view.sequence.unacknowledged))
        .number_if("expected_psn", psn(view.sequence.expected))
        .number("send_requests", view.send_requests as u64)
        .number("send_capacity", view.send_capacity as u64)
        .number("receives", view.receives as u64)
        .number("receive_capacity", view.receive_capacity as u64)
        .number_if("srq", view.srq.map(|srq| srq.0.into()))
        .number("send_cq", view.send_cq.0.into())
        .number("recv_cq", view.recv_cq.0.into())
        .number("pd", view.pd.value().into())
        .number("in_flight_bytes", view.in_flight_bytes)
        .number_if("window_bytes", view.window_bytes);
    let round_trip = view.round_trip.map(|time| time.as_nanos() as u64);
    let (traffic, troubles) = (&view.traffic, &view.troubles);
    line.number_if("round_trip_ns", round_trip)
        .number("retries_left", view.retries_left.into())
        .number("rnr_retries_left", view.rnr_retries_left.into())
        .flag("recovering", view.recovering)
        .number("tx_packets", traffic.tx_packets)
        .number("tx_bytes", traffic.tx_bytes)
        .number("rx_packets", traffic.rx_packets)
        .number("rx_bytes", traffic.rx_bytes)
        .number("direct_bytes", traffic.direct_bytes)
        .number("timeouts", troubles.timeouts.into())
        .number("retransmitted_packets", troubles.retransmitted_packets.into())
        .number("naks_sent", troubles.naks_sent.into())
        .number("naks_received", troubles.naks_received.into())
        .number("rnr_naks_sent", troubles.rnr_naks_sent.into())
        .number("rnr_naks_received", troubles.rnr_naks_received.into())
        .end();
}

fn word_of(service: Service) -> &'static str {
    match service {
        Service::Rc => "rc",
        Service::Uc => "uc",
        Service::Ud => "ud",
        Service::Xrc => "xrc",
        Service::Cnp => "cnp",
    }
}

fn tell_memory_keys(device: &Gate, sink: &mut Sink<'_>) -> Result<(), Stop> {
    let name = name(device)?;
    let mut values = device.look(|inspected| inspected.keys.values())?;
    values.sort_unstable();
    let mut out = String::new();
    for portion in values.chunks(PORTION) {
        device.look(|inspected| {
            let mut show = |key: &Key| write_key(&mut out, &name, key);
            inspected.keys.view(portion, &mut show);
        })?;
        sink(&out)?;
        out.clear();
    }
    Ok(())
}

fn write_key(out: &mut String, device: &str, key: &Key) {
    let rights: Vec<String> = key
        .access()
        .iter_names()
        .map(|(name, _)| name.to_ascii_lowercase())
        .collect();
    Line::new(out, "mr")
        .text("device", device)
        .number("key", key.value().into())
        .text("kind", if key.is_window() { "window" } else { "region" })
        .number("pd", key.pd().value().into())
        .text("address", format_args!("{:#x}", key.iova()))
        .number("length", key.length())
        .text("access", rights.join(","))
        .number("windows", key.bound_windows().into())
        .end();
}

fn tell_completion_queues(device: &Gate, sink: &mut Sink<'_>) -> Result<(), Stop> {
    let name = name(device)?;
    let queues = device.look(|inspected| inspected.completion_queues.all())?;
    let mut out = String::new();
    for portion in queues.chunks(PORTION) {
        let views = portion.iter().filter_map(|queue| Some(queue.upgrade()?.view()));
        for view in views {
            write_queue(&mut out, &name, &view);
        }
        sink(&out)?;
        out.clear();
    }
    Ok(())
}

fn write_queue(out: &mut String, device: &str, view: &CqView) {
    let armed = match view.armed {
        None => "no",
        Some(Arm::Next) => "next",
        Some(Arm::Solicited) => "solicited",
    };
    Line::new(out, "cq")
        .text("device", device)
        .number("cq", view.id.0.into())
        .number("entries", view.entries as u64)
        .number("capacity", view.capacity as u64)
        .text("armed", armed)
        .flag("overflowed", view.overflowed)
        .end();
}

fn tell_connections(device: &Gate, sink: &mut Sink<'_>) -> Result<(), Stop> {
    let name = name(device)?;
    let with = |use_cm: &mut dyn FnMut(&Cm)| {
        device.look(|inspected| inspected.common.connections.with(|cm| use_cm(cm)))
    };
    let (mut ids, mut listeners) = (Vec::new(), Vec::new());
    with(&mut |cm| (ids, listeners) = (cm.connection_ids(), cm.view_listeners()))?;
    ids.sort_unstable();
    let mut out = String::new();
    for listener in &listeners {
        write_listener(&mut out, &name, listener);
    }
    for portion in ids.chunks(PORTION) {
        let mut views: Vec<ConnectionView> = Vec::new();
        with(&mut |cm| views = portion.iter().filter_map(|id| cm.view_connection(*id)).collect())?;
        for view in &views {
            write_connection(&mut out, &name, view);
        }
        sink(&out)?;
        out.clear();
    }
    sink(&out)?;
    tell_streams(device, &name, sink)
}

fn write_listener(out: &mut String, device: &str, view: &ListenerView) {
    let local = view.address.map_or_else(|| "*".to_owned(), |ip| ip.to_string());
    Line::new(out, "listener")
        .text("device", device)
        .text("service", service_name(view.service_id))
        .text("local", local)
        .number("pending", view.pending as u64)
        .number("backlog", view.backlog as u64)
        .end();
}

fn write_connection(out: &mut String, device: &str, view: &ConnectionView) {
    Line::new(out, "connection")
        .text("device", device)
        .number("id", view.id.0.into())
        .text("state", format_args!("{:?}", view.state))
        .text("role", role(view.active))
        .text("type", word_of(view.service))
        .text("service", service_name(view.service_id))
        .text("local", view.route.local)
        .text("peer", view.route.remote)
        .number("qpn", view.local_qpn.value().into())
        .number("peer_qpn", view.remote_qpn.value().into())
        .end();
}

fn role(active: bool) -> &'static str {
    if active { "active" } else { "passive" }
}

/// The TCP connections of an iWARP device, which its first shard has.
fn tell_streams(device: &Gate, name: &str, sink: &mut Sink<'_>) -> Result<(), Stop> {
    let mut out = String::new();
    let listeners = device.look_at_shard(0, |shard| {
        let streams = shard.inspect_streams();
        streams.map_or_else(Vec::new, |streams| streams.view_listeners())
    })?;
    for listener in &listeners {
        write_listener(&mut out, name, listener);
    }
    let mut next = Some(0);
    while let Some(from) = next {
        let mut views: Vec<StreamView> = Vec::new();
        next = device.look_at_shard(0, |shard| {
            let streams = shard.inspect_streams()?;
            streams.view_connections(from, SLOTS, &mut |view| views.push(view))
        })?;
        for view in &views {
            write_stream(&mut out, name, view);
        }
        sink(&out)?;
        out.clear();
    }
    Ok(())
}

fn write_stream(out: &mut String, device: &str, view: &StreamView) {
    Line::new(out, "connection")
        .text("device", device)
        .number("id", view.id.0.into())
        .text("state", view.phase)
        .text("role", role(view.active))
        .text("type", word_of(Service::Rc))
        .text("service", view.service_id.map(service_name).unwrap_or_default())
        .text("local", view.local)
        .text("peer", view.remote)
        .number("qpn", view.qpn.map_or(0, |qpn| qpn.value().into()))
        .end();
}
