//! The target: listens, makes a connection for each queue of each host, and ends what must end together.
//!
//! Read first: [`Target`], then [`connection`], where commands are executed. How many queues a host may have is in [`admission`].

mod admission;
mod connection;

use crate::controller::{Controller, Place, Queue, Subsystem, SubsystemConfig};
use crate::disk::{DiskThreads, Storage};
use crate::wire::{Accept, CmRequest, ControllerKind, Nqn, RdmaProvider, Refusal};
use admission::{Limits, Queues, Room};
use connection::{QueueConnection, Shape};
use nonic::{ConnectError, ConnectOptions, Domain, Incoming, Listener, Pool, Wire};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often a thread that waits for hosts looks whether it shall end.
const LOOK: Duration = Duration::from_millis(100);

/// How long the end waits for connections to end.
const FAREWELL: Duration = Duration::from_secs(5);

/// What a target is.
#[derive(Clone, Debug)]
pub struct TargetConfig {
    /// The subsystem's name.
    pub nqn: Nqn,
    /// The length of a block, as a power of two; 9 or 12.
    pub block_shift: u8,
    /// Threads that wait for the disk.
    pub disk_threads: usize,
    /// Queues at once, of all hosts. Each may use 16 MiB for data that is on its way, and a thread.
    pub max_queues: usize,
    /// Of those, for hosts at one address. A host has a queue for each of its processors and one more, and as many again for a moment
    /// when it connects anew before the end of the old ones was noticed.
    pub max_queues_per_host: usize,
    /// How often a host is probed, which its NIC answers alone. One that does not answer for as long again is given up.
    pub keepalive: Duration,
}

impl TargetConfig {
    /// The usual, with this name.
    pub fn new(nqn: Nqn) -> Self {
        TargetConfig {
            nqn,
            block_shift: 9,
            disk_threads: 4,
            max_queues: 64,
            max_queues_per_host: 40,
            keepalive: Duration::from_secs(5),
        }
    }
}

/// Events for people who watch the target.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A host has connected an admin queue.
    HostConnected {
        /// Its name, as it says.
        host_nqn: String,
        /// Where it is.
        peer: SocketAddr,
        /// The number of its controller.
        cntlid: u16,
        /// What the controller is for.
        kind: ControllerKind,
    },
    /// Its admin queue has ended.
    HostLeft {
        /// The number of its controller.
        cntlid: u16,
        /// Why.
        reason: String,
    },
    /// A connection was not accepted, or ended before it became a queue.
    Refused {
        /// The peer's address.
        peer: SocketAddr,
        /// Why.
        reason: String,
    },
}

/// The program's callback for events.
type Watcher = Box<dyn Fn(Event) + Send + Sync>;

/// An NVMe over Fabrics target with one namespace.
pub struct Target {
    shared: Arc<Shared>,
}

/// What all connections of a target share.
struct Shared {
    config: TargetConfig,
    subsystem: Arc<Subsystem>,
    storage: Arc<dyn Storage>,
    disk_threads: DiskThreads,
    queues: Mutex<Queues<Arc<QueueConnection>>>,
    stopping: AtomicBool,
    watcher: Watcher,
    statistics: Statistics,
}

/// What was done so far.
#[derive(Debug, Default)]
struct Statistics {
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

impl Target {
    /// A target for this storage. `watcher` gets its events.
    pub fn new(
        config: TargetConfig,
        storage: Arc<dyn Storage>,
        watcher: impl Fn(Event) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let subsystem = Arc::new(Subsystem::new(SubsystemConfig {
            nqn: config.nqn.clone(),
            bytes: storage.len(),
            block_shift: config.block_shift,
        }));
        let disk_threads = DiskThreads::start(&*storage, config.disk_threads)?;
        Ok(Target {
            shared: Arc::new(Shared {
                config,
                subsystem,
                storage,
                disk_threads,
                queues: Mutex::default(),
                stopping: AtomicBool::new(false),
                watcher: Box::new(watcher),
                statistics: Statistics::default(),
            }),
        })
    }

    /// Accepts hosts at a listener until the target is stopped. To be called once for each listener, on a thread of its own.
    pub fn serve(&self, listener: &Listener) {
        let domain = listener.device().domain();
        let pool = domain.pool();
        while !self.shared.stopping.load(Ordering::Acquire) {
            let Some(incoming) = listener.accept_within(LOOK) else {
                continue;
            };
            let peer = incoming.peer_addr();
            if let Err(reason) = self.shared.accept(&domain, &pool, listener, incoming) {
                (self.shared.watcher)(Event::Refused { peer, reason });
            }
        }
    }

    /// Ends all connections and [`Target::serve`]. Returns when the hosts have been told.
    pub fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Release);
        let until = Instant::now() + FAREWELL;
        loop {
            let connections = self.shared.connections();
            if connections.is_empty() || Instant::now() > until {
                return;
            }
            for connection in connections {
                connection.end("the target ends");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Controllers that hosts have.
    pub fn controllers(&self) -> usize {
        self.shared.subsystem.controllers()
    }

    /// Queues that hosts have.
    pub fn queues(&self) -> usize {
        self.shared.lock().len()
    }

    /// Bytes that hosts have read and written.
    pub fn traffic(&self) -> (u64, u64) {
        let Statistics {
            read_bytes,
            written_bytes,
        } = &self.shared.statistics;
        (
            read_bytes.load(Ordering::Relaxed),
            written_bytes.load(Ordering::Relaxed),
        )
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn accept(
        self: &Arc<Self>,
        domain: &Domain,
        pool: &Pool,
        listener: &Listener,
        incoming: Incoming,
    ) -> Result<(), String> {
        let place = Place {
            address: incoming.local_ip(),
            port: listener.local_addr().port(),
            provider: match domain.device().netdev().wire {
                Wire::Roce => RdmaProvider::RoceV2,
                Wire::Iwarp => RdmaProvider::Iwarp,
            },
        };
        let queue = CmRequest::parse(incoming.private_data())
            .and_then(|request| Queue::open(&self.subsystem, place, request, Instant::now()))
            .and_then(|queue| match self.make_room(incoming.peer_addr()) {
                true => Ok(queue),
                false => Err(Refusal::NoResources),
            });
        let queue = match queue {
            Ok(queue) => queue,
            Err(refusal) => {
                // It may have given up already.
                let _ = incoming.reject(&refusal.emit());
                return Err(format!("{refusal:?}"));
            }
        };
        self.start(domain, pool, incoming, queue)
            .map_err(|error| error.to_string())
    }

    fn start(
        self: &Arc<Self>,
        domain: &Domain,
        pool: &Pool,
        incoming: Incoming,
        queue: Queue,
    ) -> Result<(), ConnectError> {
        let shape = Shape::of(&queue);
        let completions = domain.device().completion_queue(0)?;
        let builder = domain.queue_pair_builder(&completions).capacity(shape.capacity());
        let peer = incoming.peer_addr();
        let answer = Accept {
            crqsize: queue.depth(),
        };
        let options = ConnectOptions {
            keepalive: Some(self.config.keepalive),
            ..ConnectOptions::default()
        };
        let connection = incoming.accept_with(builder, &options, &answer.emit())?;
        let connection = QueueConnection::new(
            Arc::clone(self),
            domain,
            pool,
            completions,
            connection,
            queue,
            &shape,
        )
        .map_err(io::Error::other)?;
        let connection = Arc::new(connection);
        let number = self.lock().insert(peer.ip(), Arc::clone(&connection));
        let shared = Arc::clone(self);
        let thread = std::thread::Builder::new().name("nvme-queue".to_owned());
        let spawned = thread.spawn(move || {
            let reason = connection.run();
            let controller = connection.controller();
            shared.lock().remove(number);
            match controller {
                Some(controller) if connection.is_admin() => shared.end_controller(&controller, reason),
                Some(_) => {}
                None => (shared.watcher)(Event::Refused { peer, reason }),
            }
        });
        if let Err(error) = spawned {
            self.lock().remove(number);
            return Err(error.into());
        }
        Ok(())
    }

    /// Whether a host at this address may have one more queue. A queue that was never connected may go for that.
    fn make_room(&self, peer: SocketAddr) -> bool {
        let limits = Limits {
            all: self.config.max_queues,
            per_host: self.config.max_queues_per_host,
        };
        // Asked without the lock: it takes each queue's own.
        let unconnected: Vec<u64> = self
            .numbered()
            .into_iter()
            .filter(|(_, connection)| !connection.is_connected())
            .map(|(number, _)| number)
            .collect();
        let mut queues = self.lock();
        let victim = match queues.room(peer.ip(), limits, &unconnected) {
            Room::Free => return true,
            Room::None => return false,
            Room::Instead(number) => queues.remove(number),
        };
        drop(queues);
        if let Some(connection) = victim {
            connection.end("the host did not say Connect, and another came");
        }
        true
    }

    fn connections(&self) -> Vec<Arc<QueueConnection>> {
        let numbered = self.numbered().into_iter();
        numbered.map(|(_, connection)| connection).collect()
    }

    fn numbered(&self) -> Vec<(u64, Arc<QueueConnection>)> {
        self.lock()
            .iter()
            .map(|(number, connection)| (number, Arc::clone(connection)))
            .collect()
    }

    /// The admin queue has ended, and with it the controller's other queues.
    fn end_controller(&self, controller: &Arc<Controller>, reason: String) {
        for connection in self.connections() {
            let same = connection
                .controller()
                .is_some_and(|other| Arc::ptr_eq(&other, controller));
            if same {
                connection.end("the host's admin queue has ended");
            }
        }
        let cntlid = controller.cntlid;
        (self.watcher)(Event::HostLeft { cntlid, reason });
    }

    fn lock(&self) -> MutexGuard<'_, Queues<Arc<QueueConnection>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target")
            .field("config", &self.shared.config)
            .finish_non_exhaustive()
    }
}
