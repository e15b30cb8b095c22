//! Opening a device: an address at a time, a shard at a time.

use super::{Device, Inner, listing};
use crate::capture::Capture;
use crate::config::{Config, Direction, FaultPlan, UNSERVED_GRACE};
use crate::direct::{DirectLinks, Publication, ShardAccess};
use crate::driver::waiters::Waiters;
use crate::driver::{Driver, exit};
use crate::host::{Block, ClaimError, PortState, RetryReason};
use crate::inspect::queues::CompletionQueues;
use crate::inspect::{Inspected, Inspection};
use crate::link::faults::Faults;
use crate::link::lane::{OpenedLanes, RecordLanes};
use crate::link::pcap::Pcap;
use crate::link::udp::{UdpLink, UdpOptions};
use crate::link::{Link, Presence};
use crate::log::{self, Severity, tell};
use crate::netdev::{GidEntry, NetDevice, Wire};
use crate::notify::Channel;
use crate::os::clock::Clock;
use crate::os::entropy::KernelEntropy;
use crate::os::poller::Poller;
use crate::shard::connections::ConnectionManager;
use crate::shard::map::ShardMap;
use crate::shard::published::Published;
use crate::shard::{Common, Listeners, Shard};
use crate::stream::Streams;
use nonic_core::cm::{Cm, CmConfig};
use nonic_core::iwarp::startup::StartupConfig;
use nonic_core::{KeyPublisher, KeyTable, Nic, NicConfig, PathMtu};
use nonic_settings::SettingError;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// Why a device could not be opened.
#[derive(thiserror::Error)]
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
    /// The environment asks for something we do not know.
    #[error(transparent)]
    Setting(#[from] SettingError),
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

/// As a sentence: it is what a program prints that ends with it.
impl fmt::Debug for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
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
    /// Opens the device of this name (`roce_lo`, or the interface's name itself), as the environment says.
    pub fn open(name: &str) -> Result<Self, OpenError> {
        Self::open_with(name, &Config::from_environment()?)
    }

    /// Opens the device of this name, whatever the environment says.
    pub fn open_with(name: &str, config: &Config) -> Result<Self, OpenError> {
        let interfaces = crate::netdev::devices().map_err(|error| OpenError::from_io(name, error))?;
        match listing::named(&interfaces, name, config.wires) {
            Some(device) => {
                let device = listing::as_shown(&device, &interfaces, config.loopback);
                Self::open_netdev_with(device, config)
            }
            None => {
                let available: Vec<String> = interfaces.iter().map(NetDevice::device_name).collect();
                Err(OpenError::NotFound {
                    name: name.to_owned(),
                    available: available.join(", "),
                })
            }
        }
    }

    /// Opens a device found by [`Device::list`], as the environment says.
    pub fn open_netdev(netdev: NetDevice) -> Result<Self, OpenError> {
        Self::open_netdev_with(netdev, &Config::from_environment()?)
    }

    /// Opens a device found by [`Device::list`], whatever the environment says.
    pub fn open_netdev_with(netdev: NetDevice, settings: &Config) -> Result<Self, OpenError> {
        let name = netdev.device_name();
        let io = |error| OpenError::from_io(&name, error);
        let opening = Opening::new(&netdev, settings).map_err(io)?;
        let (first, gids) = opening.first_shard()?;
        if let Some(file) = &settings.counters {
            if let Err(error) = nonic_settings::check_writable(file) {
                // Now, and not when the program has ended and the counters are lost.
                log::counters_unwritten(file, &error);
            }
        }
        warn_of_taken_ports(&first.shard, &name);
        let mut shards = vec![first];
        for index in 1..opening.common.map.shards() {
            shards.push(opening.shard(index, &gids)?);
        }
        let waiters = Arc::<Waiters>::default();
        let mut drivers = Vec::with_capacity(shards.len());
        for Undriven { shard, poller, .. } in shards {
            drivers.push(Driver::new(shard, poller, Arc::clone(&waiters), opening.clock).map_err(io)?);
        }
        let threads = Mutex::new(start_threads(&drivers, &netdev.name).map_err(io)?);
        let Opening {
            config,
            keys,
            publication,
            common,
            ..
        } = opening;
        let_connections_wake(&drivers, &common);
        let failing_registrations = settings
            .faults
            .as_ref()
            .and_then(FaultPlan::failing_registrations);
        let completion_queues = Arc::<CompletionQueues>::default();
        let inspection = settings.inspect.then(|| {
            Inspection::begin(Inspected {
                netdev: netdev.clone(),
                gids: gids.clone(),
                keys: Arc::clone(&keys),
                common: common.clone(),
                drivers: drivers.clone(),
                completion_queues: Arc::clone(&completion_queues),
            })
        });
        let inner = Arc::new(Inner {
            netdev,
            gids,
            config,
            keys,
            publication,
            common,
            drivers,
            waiters,
            closing: Arc::default(),
            failing_registrations: failing_registrations.map(Mutex::new),
            next_shard: AtomicUsize::new(0),
            next_id: AtomicU32::new(1),
            settings: settings.clone(),
            threads,
            completion_queues,
            inspection,
        });
        let leaving: Weak<Inner> = Arc::downgrade(&inner);
        exit::expect_end(leaving);
        tell!(INFO, "nonic::device", "opened {name}");
        Ok(Device { inner })
    }
}

/// The connection manager, which threads of any shard use, wakes a shard that has something to do.
fn let_connections_wake(drivers: &[Arc<Driver>], common: &Common) {
    let wakes: Vec<Weak<Driver>> = drivers.iter().map(Arc::downgrade).collect();
    common.connections.set_wake(Box::new(move |shard| {
        if let Some(driver) = wakes.get(shard).and_then(Weak::upgrade) {
            driver.nudge();
        }
    }));
}

/// Warns of addresses to which nothing can come from other hosts because another program has the port. Nothing else would
/// say so: requests to connect that come from there are lost without a trace.
fn warn_of_taken_ports(shard: &Shard, name: &str) {
    /// `nonic doctor` and `nonic devices` take the port for a moment to see whose it is.
    const MOMENT: Duration = Duration::from_millis(20);
    fn is_taken(presence: &dyn Presence) -> bool {
        let reason = RetryReason::Foreign;
        // Nothing comes from other hosts to a loopback address anyway.
        !presence.address().ip.is_loopback() && presence.port_state() == PortState::Retry { reason }
    }
    if !shard.presences().any(is_taken) {
        return;
    }
    std::thread::sleep(MOMENT);
    for presence in shard.presences().filter(|presence| is_taken(*presence)) {
        let address = presence.address();
        log::tell_always(
            Severity::Warning,
            &format!(
                "{name}: another program has UDP port 4791 of {address}, so nothing can arrive from other hosts: what they send is lost, and \
                 connections with them time out. Programs on this host that connect queue pairs by themselves reach each other all \
                 the same; connecting by address and port does not work either. Try: `ss -ulpn sport = 4791` shows the program, `rdma link` a kernel's rxe; the port is taken over within a second after it ends"
            ),
        );
    }
}

/// Starts the thread of each driver, or none.
fn start_threads(drivers: &[Arc<Driver>], interface: &str) -> io::Result<Vec<JoinHandle<()>>> {
    let threads: io::Result<Vec<_>> = drivers.iter().map(|driver| driver.spawn(interface)).collect();
    threads.inspect_err(|_| {
        // Those that did start would keep their sockets.
        for driver in drivers {
            driver.stop();
        }
    })
}

/// A shard that no driver has yet.
struct Undriven {
    shard: Shard,
    /// What watches its links.
    poller: Arc<Poller>,
    /// Where its links leave lanes for the NIC, if there are to be any.
    lanes: Option<Arc<OpenedLanes>>,
    /// What its links tell of lanes.
    direct: Option<DirectLinks>,
}

/// Packets that are captured or disturbed on purpose have to be on the wire.
fn lanes(netdev: &NetDevice, settings: &Config) -> bool {
    netdev.wire == Wire::Roce && settings.lanes && settings.faults.is_none() && settings.pcap.is_none()
}

/// A device that is being opened.
struct Opening<'a> {
    netdev: &'a NetDevice,
    settings: &'a Config,
    config: NicConfig,
    keys: Arc<KeyTable>,
    /// What processes of this host see of it, if they may access its memory.
    publication: Option<Arc<Publication>>,
    common: Common,
    capture: Option<Arc<Capture>>,
    clock: Clock,
}

impl<'a> Opening<'a> {
    fn new(netdev: &'a NetDevice, settings: &'a Config) -> io::Result<Self> {
        let shards = match netdev.wire {
            Wire::Roce => settings.shards.max(1),
            // Connections come to a listener before they have a queue pair, and so a shard.
            Wire::Iwarp => 1,
        };
        let map = Arc::new(ShardMap::new(shards));
        let capture = settings.pcap.as_ref().map(|file| {
            let has_faults = settings.faults.is_some();
            Capture::create(file, &netdev.device_name(), has_faults).map_err(|error| {
                io::Error::new(error.kind(), format!("NONIC_PCAP={}: {error}", file.display()))
            })
        });
        let keys = Arc::new(KeyTable::new());
        // Where the kernel does not offer what it takes, requests go as packets.
        let publication = (lanes(netdev, settings) && settings.direct).then(|| Publication::new().ok());
        let publication = publication.flatten().map(Arc::new);
        let access = if publication.is_some() { "on" } else { "off" };
        let name = netdev.device_name();
        tell!(
            INFO,
            "nonic::direct",
            "{name}: direct access to peers on this host is {access}"
        );
        if let Some(publication) = &publication {
            keys.publish_to(Arc::clone(publication) as Arc<dyn KeyPublisher>);
        }
        Ok(Opening {
            netdev,
            settings,
            config: NicConfig {
                port_mtu: PathMtu::from_bytes(u32::from(netdev.path_mtu())).expect("one of the five MTUs"),
                lenient_icrc: !settings.strict_icrc,
                ..NicConfig::default()
            },
            keys,
            publication,
            common: Common {
                connections: Arc::new(ConnectionManager::new(Arc::clone(&map))),
                map,
                listeners: Arc::new(Listeners::default()),
                events: Arc::new(Channel::new()?),
                failed: Arc::default(),
            },
            capture: capture.transpose()?.map(Arc::new),
            clock: Clock::new(),
        })
    }

    /// The first shard, with the addresses that can be bound; all shards have the same. A process that receives a message
    /// for us at port 4791 finds us by this shard's first block.
    fn first_shard(&self) -> Result<(Undriven, Vec<GidEntry>), OpenError> {
        let io = |error| OpenError::from_io(&self.netdev.device_name(), error);
        let mut undriven = self.bare_shard(0).map_err(io)?;
        let gids = match self.netdev.wire {
            Wire::Roce => self.bind(&mut undriven).map_err(io)?,
            Wire::Iwarp => self.stream(&mut undriven).map_err(io)?,
        };
        if gids.is_empty() {
            return Err(OpenError::NoAddress(self.netdev.device_name()));
        }
        let block = self.claim(&mut undriven.shard)?;
        let config = CmConfig {
            ca_guid: self.netdev.guid(),
            id_block: Some(block.number()),
            unserved_grace: UNSERVED_GRACE,
            ..CmConfig::default()
        };
        let cm = Cm::new(config, Box::new(KernelEntropy::new()));
        self.common.connections.install(cm);
        Ok((undriven, gids))
    }

    /// Another shard, at the same addresses.
    fn shard(&self, index: usize, gids: &[GidEntry]) -> Result<Undriven, OpenError> {
        let io = |error| OpenError::from_io(&self.netdev.device_name(), error);
        let mut undriven = self.bare_shard(index).map_err(io)?;
        for (gid_index, entry) in gids.iter().enumerate() {
            let link = self.link(index, gid_index, entry, &undriven).map_err(io)?;
            undriven.shard.attach(link);
        }
        self.claim(&mut undriven.shard)?;
        Ok(undriven)
    }

    fn bare_shard(&self, index: usize) -> io::Result<Undriven> {
        let mut nic = Nic::new(
            self.config.clone(),
            Arc::clone(&self.keys),
            Box::new(KernelEntropy::new()),
        );
        if cfg!(feature = "tracing") {
            nic.tell_recorded();
        }
        let direct = self.publication.as_ref().map(DirectLinks::new);
        if let Some(direct) = &direct {
            nic.set_direct(Box::new(ShardAccess::new(direct)));
        }
        let lanes = lanes(self.netdev, self.settings).then(Arc::<OpenedLanes>::default);
        if let Some(lanes) = &lanes {
            nic.set_lanes(Box::new(RecordLanes::new(lanes)));
        }
        let faults = self.settings.faults.as_ref();
        if let Some(some) = faults.and_then(|plan| plan.missing_receives(index as u64)) {
            nic.hide_receives(some);
        }
        let mut shard = Shard::new(nic, index, self.common.clone(), self.settings.prompt_acks);
        if let Some(ns) = faults.and_then(|plan| plan.fatal_ns) {
            shard.fail_at(self.clock.now() + Duration::from_nanos(ns));
        }
        // Programs also run without published counters.
        let files = self.settings.files.as_deref();
        if let Some(published) = files.and_then(|files| self.published(files)) {
            shard.publish_to(published);
        }
        let poller = Arc::new(Poller::new()?);
        shard.watched_by(&poller);
        Ok(Undriven {
            shard,
            poller,
            lanes,
            direct,
        })
    }

    /// Where `nonic run` shows counters as files.
    fn published(&self, files: &Path) -> Option<Published> {
        let name = self.netdev.device_name();
        let published = Published::open(files, &name);
        if let Err(error) = &published {
            let files = files.display();
            tell!(
                WARN,
                "nonic::device",
                "{name}: its counters are not shown below {files}: {error}"
            );
        }
        published.ok()
    }

    fn claim(&self, shard: &mut Shard) -> Result<Block, OpenError> {
        shard.claim_block().map_err(|error| match error {
            ClaimError::Io(error) => OpenError::from_io(&self.netdev.device_name(), error),
            error => error.into(),
        })
    }

    /// Binds every address of the interface that can be bound; in the order of the GID table.
    fn bind(&self, undriven: &mut Undriven) -> io::Result<Vec<GidEntry>> {
        let mut gids = Vec::new();
        let mut refused = None;
        for entry in &self.netdev.gids {
            match self.link(0, gids.len(), entry, undriven) {
                Ok(link) => {
                    undriven.shard.attach(link);
                    gids.push(*entry);
                }
                // An address that was removed this moment.
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

    /// Makes the shard accept and open TCP connections at every address of the interface.
    fn stream(&self, undriven: &mut Undriven) -> io::Result<Vec<GidEntry>> {
        let addresses = self.netdev.gids.iter().map(|entry| entry.address).collect();
        let config = StartupConfig {
            crc: self.settings.iwarp_crc,
            max_ird: u16::from(self.config.max_rd_atomic),
            max_ord: u16::from(self.config.max_rd_atomic),
            ..StartupConfig::default()
        };
        let streams = Streams::new(addresses, config, &undriven.poller, self.capture.clone())?;
        undriven.shard.attach_streams(streams);
        Ok(self.netdev.gids.clone())
    }

    /// An address with everything that was asked for around it. The capture is outermost: it shows what the NIC sees.
    fn link(
        &self,
        shard: usize,
        gid_index: usize,
        entry: &GidEntry,
        bare: &Undriven,
    ) -> io::Result<Box<dyn Link>> {
        let Undriven {
            poller,
            lanes,
            direct,
            ..
        } = bare;
        let sending_is_disturbed = self
            .settings
            .faults
            .as_ref()
            .is_some_and(FaultPlan::disturbs_sending);
        let options = UdpOptions {
            interface_index: self.netdev.index,
            single_packets: self.settings.single_packets || sending_is_disturbed,
            shortcut: !self.settings.no_shortcut,
            lanes: lanes.clone(),
            direct: direct.clone(),
        };
        let now = self.clock.now();
        let udp = UdpLink::new(entry.address, &options, Arc::clone(poller), now)?;
        let mut link: Box<dyn Link> = Box::new(udp);
        if let Some(plan) = &self.settings.faults {
            let number = (shard << 16 | gid_index) as u64;
            let outgoing = plan
                .disturbs_sending()
                .then(|| plan.injector(number, Direction::Out));
            let incoming = plan.injector(number, Direction::In);
            link = Box::new(Faults::new(link, incoming, outgoing, Some(self.clock)));
        }
        if let Some(capture) = &self.capture {
            link = Box::new(Pcap::new(link, Arc::clone(capture)));
        }
        Ok(link)
    }
}
