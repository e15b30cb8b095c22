//! An open device: the thread-safe handle through which programs use a NIC.
//!
//! [`Device`] is what both doors stand on: the safe Rust API and the C ABI. It checks nothing the core
//! already checks, and adds only what needs an operating system: sockets, threads, descriptors.

mod connections;
#[cfg(test)]
mod tests;
mod usage;

pub use connections::ListenError;
pub use usage::DeviceUsage;

use crate::attachment::Attachment;
use crate::capture::Capture;
use crate::channel::{Channel, Notify};
use crate::clock::Clock;
use crate::entropy::KernelEntropy;
use crate::farewell;
use crate::gsi::Gsi;
use crate::netdev::{self, GidEntry, NetDevice};
use crate::progress::Progress;
use crate::registry::{Block, BlockClaim, ClaimError, Standing};
use crate::settings::Settings;
use crate::shard::{LinkCounters, Shard};
use crate::socket::{ROCE_PORT, WireSocket};
use nonic_core::{
    Arm, Completion, CompletionQueue, Counters, CqId, CqOverflow, CreateError, Event, Key, KeyError, KeySpec,
    KeyTable, ModifyError, Nic, NicConfig, PathMtu, PdId, PostError, Psn, QpAttributes, QpInit, QpState, Qpn,
    ReceiveQueue, RecvRequest, SendRequest, SrqId, Time, WindowKind, XrcDomain,
};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long connecting waits for a peer on this host to say where it listens.
const ROUTE_PATIENCE: Duration = Duration::from_millis(20);

/// An open device. Clones are handles to the same one; it closes with the last.
#[derive(Clone)]
pub struct Device {
    inner: Arc<Inner>,
}

struct Inner {
    netdev: NetDevice,
    gids: Vec<GidEntry>,
    config: NicConfig,
    keys: Arc<KeyTable>,
    progress: Arc<Progress>,
    events: Arc<Channel<Event>>,
    next_id: AtomicU32,
    settings: Settings,
    thread: Option<JoinHandle<()>>,
}

/// Why a device could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no such device.
    #[error("no device is called {name}; there are: {available}")]
    NotFound {
        /// What was asked for.
        name: String,
        /// What there is.
        available: String,
    },
    /// The interface has no address that could be bound.
    #[error("{0} has no usable IP address; give the interface one (`ip addr add …`) and switch it on")]
    NoAddress(String),
    /// All queue pair numbers of the address are taken by other processes.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// The process has as many descriptors open as it may.
    #[error(
        "cannot open {name}: this process may have only {limit} files open; raise the limit (`ulimit -n`)"
    )]
    TooManyFiles {
        /// The device.
        name: String,
        /// How many it may have.
        limit: u64,
    },
    /// The operating system refused something.
    #[error("cannot open {name}: {error}")]
    Io {
        /// The device.
        name: String,
        /// What it said.
        error: io::Error,
    },
}

impl OpenError {
    /// What the operating system said to an attempt to open a device.
    fn from_io(name: &str, error: io::Error) -> Self {
        let name = name.to_owned();
        if error.raw_os_error() != Some(libc::EMFILE) {
            return OpenError::Io { name, error };
        }
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        OpenError::TooManyFiles {
            name,
            limit: limit.unwrap_or(u64::MAX),
        }
    }
}

impl Device {
    /// The devices of this host: one per network interface.
    pub fn list() -> io::Result<Vec<NetDevice>> {
        netdev::devices()
    }

    /// Opens the device of this name (`roce_lo`, or the interface's name itself).
    pub fn open(name: &str) -> Result<Self, OpenError> {
        let io = |error| OpenError::from_io(name, error);
        let devices = Self::list().map_err(io)?;
        let found = devices
            .iter()
            .find(|device| device.device_name() == name || device.name == name);
        match found {
            Some(device) => Self::open_netdev(device.clone()),
            None => {
                let available: Vec<String> = devices.iter().map(NetDevice::device_name).collect();
                Err(OpenError::NotFound {
                    name: name.to_owned(),
                    available: available.join(", "),
                })
            }
        }
    }

    /// Opens a device found by [`Device::list`].
    pub fn open_netdev(netdev: NetDevice) -> Result<Self, OpenError> {
        let name = netdev.device_name();
        let io = |error| OpenError::from_io(&name, error);
        let settings = Settings::from_environment().map_err(io)?;
        let config = NicConfig {
            port_mtu: PathMtu::from_bytes(u32::from(netdev.path_mtu())).expect("one of the five MTUs"),
            lenient_icrc: !settings.strict_icrc,
            ..NicConfig::default()
        };
        let keys = Arc::new(KeyTable::new());
        let nic = Nic::new(config.clone(), Arc::clone(&keys), Box::new(KernelEntropy::new()));
        let events = Arc::new(Channel::new().map_err(io)?);
        let capture = Capture::from_environment().map_err(io)?;
        let mut shard = Shard::new(nic, Clock::new(), Arc::clone(&events), capture);
        shard.single_packets = settings.single_packets;
        let gids = attach(&mut shard, &netdev).map_err(io)?;
        if gids.is_empty() {
            return Err(OpenError::NoAddress(name));
        }
        claim_block(&mut shard).map_err(|error| match error {
            ClaimError::Io(error) => io(error),
            error => error.into(),
        })?;
        // Whoever receives a message for us at port 4791 finds us by our first block.
        let block = shard.attachments[0].claims.first().map(|claim| claim.block());
        shard.gsi = Gsi::new(guid_of(&netdev), block);
        let progress = Progress::new(shard).map_err(io)?;
        for attachment in &progress.turn().attachments {
            attachment
                .fds()
                .try_for_each(|fd| progress.watch(fd))
                .map_err(io)?;
        }
        let thread = progress.spawn(&netdev.name).map_err(io)?;
        farewell::expect_end(&progress);
        let next_id = AtomicU32::new(1);
        let inner = Inner {
            netdev,
            gids,
            config,
            keys,
            progress,
            events,
            next_id,
            settings,
            thread: Some(thread),
        };
        Ok(Device {
            inner: Arc::new(inner),
        })
    }

    /// The interface it stands on, as it was when the device was opened.
    pub fn netdev(&self) -> &NetDevice {
        &self.inner.netdev
    }

    /// Its addresses; the position is the GID index.
    pub fn gids(&self) -> &[GidEntry] {
        &self.inner.gids
    }

    /// Its limits.
    pub fn config(&self) -> &NicConfig {
        &self.inner.config
    }

    /// A fresh protection domain.
    pub fn alloc_pd(&self) -> PdId {
        self.inner.keys.alloc_pd()
    }

    /// The device's memory keys.
    pub fn keys(&self) -> &Arc<KeyTable> {
        &self.inner.keys
    }

    /// Registers memory under a fresh key.
    pub fn register(&self, spec: KeySpec) -> Result<Arc<Key>, KeyError> {
        self.inner.progress.turn().nic.register(spec)
    }

    /// Revokes a key. When this returns, no access through it is under way and none will begin.
    pub fn revoke(&self, key: u32) -> bool {
        let revoked = self.inner.keys.revoke(key);
        self.inner.progress.fence();
        revoked
    }

    /// Revokes a key as [`Device::revoke`] does, unless memory windows are bound to it.
    pub fn revoke_unbound(&self, key: u32) -> Result<(), KeyError> {
        self.inner.keys.revoke_unbound(key)?;
        self.inner.progress.fence();
        Ok(())
    }

    /// Allocates a memory window; its first key.
    pub fn alloc_window(&self, pd: PdId, kind: WindowKind) -> Result<u32, KeyError> {
        self.inner.progress.turn().nic.alloc_window(pd, kind)
    }

    /// Frees the memory window that `rkey` belongs to. When this returns, no access through it is under way
    /// and none will begin. Answers whether it was there.
    pub fn free_window(&self, rkey: u32) -> bool {
        let freed = self.inner.keys.free_window(rkey);
        self.inner.progress.fence();
        freed
    }

    /// Creates a completion queue. With a listener, an armed queue's notification goes there.
    pub fn create_cq(&self, capacity: usize, listener: Option<Arc<dyn Notify>>) -> Arc<CompletionQueue> {
        let id = CqId(self.inner.next_id.fetch_add(1, Ordering::Relaxed));
        if let Some(listener) = listener {
            self.inner.progress.turn().listeners.insert(id, listener);
        }
        Arc::new(CompletionQueue::new(id, capacity))
    }

    /// Ends a completion queue's notifications.
    pub fn forget_cq(&self, cq: CqId) {
        self.inner.progress.turn().listeners.remove(&cq);
    }

    /// Creates a shared receive queue.
    pub fn create_srq(&self, pd: PdId, capacity: usize, max_sge: usize) -> Arc<ReceiveQueue> {
        let id = SrqId(self.inner.next_id.fetch_add(1, Ordering::Relaxed));
        Arc::new(ReceiveQueue::shared(id, pd, capacity, max_sge))
    }

    /// Creates a queue pair in RESET.
    pub fn create_qp(&self, init: QpInit) -> Result<Qpn, CreateError> {
        self.create_with(|nic| nic.create_qp(init.clone()))
    }

    /// A fresh domain for extended reliable connections.
    pub fn alloc_xrc_domain(&self) -> XrcDomain {
        XrcDomain(self.inner.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// Creates a shared receive queue for the target queue pairs of a domain, which completes to `cq`; and
    /// the number by which peers name it.
    pub fn create_xrc_srq(
        &self,
        domain: XrcDomain,
        pd: PdId,
        cq: &Arc<CompletionQueue>,
        capacity: usize,
        max_sge: usize,
    ) -> Result<(Arc<ReceiveQueue>, u32), CreateError> {
        let srq = self.create_srq(pd, capacity, max_sge);
        let mut shard = self.inner.progress.turn();
        let number = shard.nic.add_xrc_srq(domain, Arc::clone(&srq), Arc::clone(cq))?;
        Ok((srq, number))
    }

    /// Ends the service of an XRC SRQ. Answers whether it was there.
    pub fn remove_xrc_srq(&self, number: u32) -> bool {
        self.inner.progress.turn().nic.remove_xrc_srq(number)
    }

    /// Creates the receiving half of an extended reliable connection, in RESET.
    pub fn create_xrc_target(&self, domain: XrcDomain) -> Result<Qpn, CreateError> {
        self.create_with(|nic| nic.create_xrc_target(domain))
    }

    fn create_with(&self, create: impl Fn(&mut Nic) -> Result<Qpn, CreateError>) -> Result<Qpn, CreateError> {
        let mut shard = self.inner.progress.turn();
        match create(&mut shard.nic) {
            Err(CreateError::NoQpn) => {}
            result => return result,
        }
        // All our numbers are in use: claim another block.
        claim_block(&mut shard).map_err(|_| CreateError::NoQpn)?;
        for attachment in &shard.attachments {
            if let Some(claim) = attachment.claims.last() {
                self.inner
                    .progress
                    .watch(claim.inbox())
                    .map_err(|_| CreateError::NoQpn)?;
            }
        }
        create(&mut shard.nic)
    }

    /// Destroys a queue pair. Answers whether it existed.
    pub fn destroy_qp(&self, qpn: Qpn) -> bool {
        let mut shard = self.inner.progress.turn();
        // What it still owes its peer leaves first.
        shard.flush_deferred();
        let existed = shard.nic.destroy_qp(qpn);
        while let Some(block) = shard.nic.take_spare_qpn_block() {
            for attachment in &mut shard.attachments {
                attachment.claims.retain(|claim| claim.block().number() != block);
            }
        }
        existed
    }

    /// Changes a queue pair's attributes.
    pub fn modify_qp(&self, qpn: Qpn, set: &QpAttributes) -> Result<(), ModifyError> {
        let mut shard = self.inner.progress.turn();
        shard.flush_deferred();
        let now = shard.clock.now();
        shard.nic.modify_qp(now, qpn, set)?;
        let question = match (set.state, set.path, set.dest_qpn) {
            (Some(QpState::Rtr), Some(path), Some(peer)) => Some((path, peer)),
            _ => None,
        };
        if let Some((path, peer)) = question {
            shard.expect_packets_from(path.gid_index, path.remote);
            let asked = shard.refresh_route(path.gid_index, path.remote, peer.value());
            drop(shard);
            if asked {
                self.await_route(path.gid_index, path.remote, peer);
            }
        }
        Ok(())
    }

    /// Finds the way to a queue pair before the first datagram goes there.
    ///
    /// A connected queue pair does this when it is connected. Datagrams that set out before a same-host peer's
    /// answer take the detour over port 4791, where a burst of them overruns the inbox and nobody repeats them.
    pub fn find_way(&self, gid_index: u8, remote: IpAddr, peer: Qpn) {
        let mut shard = self.inner.progress.turn();
        if !remote.is_multicast() && shard.refresh_route(gid_index, remote, peer.value()) {
            drop(shard);
            self.await_route(gid_index, remote, peer);
        }
    }

    /// Waits briefly for a same-host peer's answer, so that its packets never change their way.
    fn await_route(&self, gid_index: u8, remote: IpAddr, peer: Qpn) {
        let deadline = Instant::now() + ROUTE_PATIENCE;
        loop {
            let mut shard = self.inner.progress.turn();
            shard.drive(crate::shard::Effort::Full);
            if shard.route_is_settled(gid_index, remote, peer.value()) || Instant::now() >= deadline {
                return;
            }
            drop(shard);
            std::thread::yield_now();
        }
    }

    /// A queue pair's state.
    pub fn qp_state(&self, qpn: Qpn) -> Option<QpState> {
        self.inner.progress.turn().nic.qp_state(qpn)
    }

    /// A queue pair's attributes.
    pub fn query_qp(&self, qpn: Qpn) -> Option<QpAttributes> {
        self.inner.progress.turn().nic.query_qp(qpn)
    }

    /// A starting PSN nobody can guess.
    pub fn random_psn(&self) -> Psn {
        self.inner.progress.turn().nic.random_psn()
    }

    /// Posts a send request and sends what can be sent.
    pub fn post_send(&self, qpn: Qpn, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.post_sends(qpn, std::slice::from_ref(request))
            .map_err(|(_, error)| error)
    }

    /// Posts several send requests at once. On refusal, tells which one; those before it are posted.
    pub fn post_sends(&self, qpn: Qpn, requests: &[SendRequest<'_>]) -> Result<(), (usize, PostError)> {
        let mut shard = self.inner.progress.turn();
        let now = shard.clock.now();
        let mut bytes = 0;
        let posted = requests.iter().enumerate().try_for_each(|(index, request)| {
            bytes += request.data.length();
            shard
                .nic
                .post_send(now, qpn, request)
                .map_err(|error| (index, error))
        });
        shard.posted(now, qpn, bytes);
        posted
    }

    /// Posts send requests as `post` produces them, under one lock, and sends what can be sent.
    pub fn post_each_send<T>(&self, qpn: Qpn, post: impl FnOnce(&mut SendPoster<'_>) -> T) -> T {
        let mut shard = self.inner.progress.turn();
        let now = shard.clock.now();
        let mut poster = SendPoster {
            nic: &mut shard.nic,
            now,
            qpn,
            bytes: 0,
        };
        let result = post(&mut poster);
        let bytes = poster.bytes;
        shard.posted(now, qpn, bytes);
        result
    }

    /// Posts receives to a queue pair's own queue as `post` produces them, under one lock.
    pub fn post_each_recv<T>(&self, qpn: Qpn, post: impl FnOnce(&mut RecvPoster<'_>) -> T) -> T {
        let mut shard = self.inner.progress.turn();
        let nic = &mut shard.nic;
        post(&mut RecvPoster { nic, qpn })
    }

    /// Posts a receive to a queue pair's own queue.
    pub fn post_recv(&self, qpn: Qpn, request: &RecvRequest<'_>) -> Result<(), PostError> {
        self.inner.progress.turn().nic.post_recv(qpn, request)
    }

    /// Takes completions; drives the NIC if there are none.
    pub fn poll(
        &self,
        cq: &CompletionQueue,
        max: usize,
        mut sink: impl FnMut(Completion),
    ) -> Result<usize, CqOverflow> {
        let taken = cq.poll(max, &mut sink)?;
        if taken > 0 {
            return Ok(taken);
        }
        self.inner.progress.inline();
        cq.poll(max, sink)
    }

    /// Asks for a notification and makes sure somebody is awake to give it. Poll once more afterwards.
    pub fn arm(&self, cq: &CompletionQueue, arm: Arm) {
        cq.arm(arm);
        self.inner.progress.resume();
    }

    /// Drives the NIC once. Whether there was work.
    pub fn progress(&self) -> bool {
        self.inner.progress.inline()
    }

    /// Asynchronous events: of queue pairs, SRQs and completion queues.
    pub fn events(&self) -> &Arc<Channel<Event>> {
        &self.inner.events
    }

    /// Adds a datagram queue pair to a multicast group.
    pub fn attach_multicast(&self, qpn: Qpn, group: IpAddr) -> io::Result<()> {
        let mut shard = self.inner.progress.turn();
        if !shard.nic.attach_multicast(qpn, group) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "only a datagram queue pair can join, and only a multicast address",
            ));
        }
        if shard.groups.iter().all(|(joined, _)| *joined != group) {
            let socket = WireSocket::bind_multicast(group, ROCE_PORT, self.inner.netdev.index)?;
            self.inner.progress.watch(&socket)?;
            shard.groups.push((group, socket));
        }
        Ok(())
    }

    /// Removes a queue pair from a group. Answers whether it was a member.
    pub fn detach_multicast(&self, qpn: Qpn, group: IpAddr) -> bool {
        let mut shard = self.inner.progress.turn();
        let removed = shard.nic.detach_multicast(qpn, group);
        if !shard.nic.has_multicast(group) {
            shard.groups.retain(|(joined, _)| *joined != group);
        }
        removed
    }

    /// For each address, in the order of the GID table, whether this process has a socket at port 4791.
    pub fn standings(&self) -> Vec<Standing> {
        let shard = self.inner.progress.turn();
        shard.attachments.iter().map(|a| a.port.standing()).collect()
    }

    /// What the NIC and its sockets have seen.
    pub fn counters(&self) -> (Counters, LinkCounters) {
        let shard = self.inner.progress.turn();
        (*shard.nic.counters(), shard.counters)
    }
}

/// Takes send requests for one queue pair; see [`Device::post_each_send`].
pub struct SendPoster<'a> {
    nic: &'a mut Nic,
    now: Time,
    qpn: Qpn,
    bytes: u64,
}

impl SendPoster<'_> {
    /// How many more fit.
    pub fn room(&self) -> usize {
        self.nic.send_room(self.qpn).unwrap_or(0)
    }

    /// Posts one.
    pub fn post(&mut self, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.bytes += request.data.length();
        self.nic.post_send(self.now, self.qpn, request)
    }
}

/// Takes receives for one queue pair; see [`Device::post_each_recv`].
pub struct RecvPoster<'a> {
    nic: &'a mut Nic,
    qpn: Qpn,
}

impl RecvPoster<'_> {
    /// Posts one.
    pub fn post(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        self.nic.post_recv(self.qpn, request)
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device")
            .field("name", &self.inner.netdev.device_name())
            .finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let ends = self.progress.stop();
        if let Some(thread) = self.thread.take()
            && ends
            && thread.thread().id() != std::thread::current().id()
        {
            // A thread that panicked has said so; there is nothing to add here.
            let _ = thread.join();
        }
        let mut shard = self.progress.turn();
        farewell::take_leave(&mut shard);
        if let Some(capture) = &mut shard.capture {
            capture.flush();
        }
        self.settings.report(shard.nic.counters(), &shard.counters);
    }
}

/// The interface's hardware address as a 64-bit identifier.
fn guid_of(netdev: &NetDevice) -> u64 {
    let [a, b, c, d, e, f] = netdev.mac.unwrap_or_default();
    u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// Binds every address of the interface that can be bound; in the order of the GID table.
fn attach(shard: &mut Shard, netdev: &NetDevice) -> io::Result<Vec<GidEntry>> {
    let mut gids = Vec::new();
    let mut refused = None;
    for entry in &netdev.gids {
        let now_ns = shard.clock.now().as_ns();
        match Attachment::new(entry.address, netdev.index, now_ns) {
            Ok(attachment) => {
                shard.attach(attachment);
                gids.push(*entry);
            }
            // An address that is still tentative, or was removed this moment.
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {}
            // The next address would get no further.
            Err(error) if error.raw_os_error() == Some(libc::EMFILE) => return Err(error),
            Err(error) => refused = Some(error),
        }
    }
    match refused {
        Some(error) if gids.is_empty() => Err(error),
        _ => Ok(gids),
    }
}

/// Claims one block of queue pair numbers, the same on every address of the device.
fn claim_block(shard: &mut Shard) -> Result<(), ClaimError> {
    /// Enough to find one of the last free blocks of a crowded host.
    const TRIES: usize = 16_384;
    let Some(first) = shard.attachments.first() else {
        return Ok(());
    };
    let address = first.address;
    for _ in 0..TRIES {
        let lead = BlockClaim::claim(address)?;
        let block: Block = lead.block();
        let others: Result<Vec<BlockClaim>, ClaimError> = shard.attachments[1..]
            .iter()
            .map(|other| BlockClaim::claim_block(other.address, block))
            .collect();
        match others {
            Ok(others) => {
                let claims = std::iter::once(lead).chain(others);
                for (attachment, claim) in shard.attachments.iter_mut().zip(claims) {
                    attachment.claims.push(claim);
                }
                shard.nic.add_qpn_block(block.number());
                return Ok(());
            }
            // Taken on another address; draw again.
            Err(ClaimError::Full(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Err(ClaimError::Full(address))
}
