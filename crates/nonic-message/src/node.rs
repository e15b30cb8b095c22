//! Nodes, where channels begin: a device, its memory, and what this program wants of its channels.

use crate::channel::Channel;
use crate::cutoff::{Cutoff, CutoffSource};
use crate::cutoff_trials;
use crate::driver::{Outgoing, Shared, block_on};
use crate::error::Error;
use crate::message::{Buffer, Message};
use crate::options::Options;
use crate::protocol::{Greeting, GreetingError, Machine, OFFER_BYTES, Role};
use crate::registration_cache::{CacheStatistics, RegistrationCache};
use nonic::{ConnectError, Connection, Device, Domain, Pool, QpCapacity, QueuePairBuilder, Rc};
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

/// READs, a probe and the question after the end have places in the send queue beside those of frames.
const OTHER_REQUESTS: usize = 16;

/// A device with memory for messages. Its channels share buffers. Clones are handles to the same one.
///
/// ```
/// use nonic_message::Node;
///
/// # fn main() -> Result<(), nonic_message::Error> {
/// let node = Node::open("roce_lo")?;
/// let listener = node.listen(([127, 0, 0, 1], 0).into())?;
/// let address = listener.local_addr();
/// let server = std::thread::spawn(move || -> Result<(), nonic_message::Error> {
///     let mut channel = listener.accept().wait()?;
///     while let Some(message) = channel.recv().wait()? {
///         channel.send(message).wait()?; // straight back, without a copy if it is long
///     }
///     channel.close().wait()
/// });
/// let mut channel = node.connect(address).wait()?;
/// channel.send(b"hello").wait()?;
/// assert_eq!(&channel.recv().wait()?.expect("an echo")[..], b"hello");
/// channel.close().wait()?;
/// # server.join().expect("no panic")
/// # }
/// ```
#[derive(Clone)]
pub struct Node {
    shared: Arc<NodeShared>,
}

struct NodeShared {
    domain: Domain,
    pool: Pool,
    cache: RegistrationCache,
    options: Options,
    /// What was measured to each peer.
    cutoffs: Mutex<HashMap<IpAddr, Cutoff>>,
}

/// Peers whose cut-off is remembered, at most.
const REMEMBERED: usize = 1024;

impl Node {
    /// Opens a device by name.
    pub fn open(name: &str) -> Result<Self, Error> {
        Ok(Node::new(&Device::open(name)?, Options::default()))
    }

    /// Opens the device from which the kernel would send to `peer`. The unspecified address (`0.0.0.0`) belongs to no
    /// host, and is refused.
    pub fn toward(peer: IpAddr) -> Result<Self, Error> {
        Ok(Node::new(&Device::toward(peer)?, Options::default()))
    }

    /// On an open device, with other than the usual options. What makes no sense is brought into range.
    pub fn new(device: &Device, options: Options) -> Self {
        let domain = device.domain();
        let options = Options {
            credits: options.credits.clamp(1, 1024),
            frame_bytes: options.frame_bytes.clamp(OFFER_BYTES as u32, 1 << 20),
            ..options
        };
        Node {
            shared: Arc::new(NodeShared {
                pool: domain.pool(),
                cache: RegistrationCache::new(&domain, options.cached_bytes),
                domain,
                options,
                cutoffs: Mutex::default(),
            }),
        }
    }

    /// Its device.
    pub fn device(&self) -> &Device {
        self.shared.domain.device()
    }

    /// Its options.
    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    /// Registered memory for a message of `len` bytes, which any of its channels sends without a copy.
    pub fn buffer(&self, len: usize) -> Result<Buffer, Error> {
        Ok(Buffer::new(self.shared.cache.lease(len)?))
    }

    /// Statistics of the buffers so far.
    pub fn cache_statistics(&self) -> CacheStatistics {
        self.shared.cache.statistics()
    }

    /// A channel to the listener at `peer`. Await it or wait for it.
    pub fn connect(&self, peer: SocketAddr) -> Connect {
        let node = self.clone();
        Connect {
            future: Box::pin(async move { node.connecting(peer).await }),
        }
    }

    async fn connecting(self, peer: SocketAddr) -> Result<Channel, Error> {
        let own = self.options().greeting();
        let (builder, queue) = self.queue_pair(own)?;
        let options = &self.options().connect;
        let connected = nonic::connect_with(builder, peer, options, &own.emit())?.await;
        let connection = connected.map_err(refusal)?;
        let theirs = Greeting::parse(connection.private_data())?;
        let channel = self.channel(Role::Connector, theirs, connection, queue)?;
        let known = self.options().cutoff.map(Cutoff::fixed);
        let known = known.or_else(|| self.cutoffs().get(&peer.ip()).copied());
        let cutoff = match known {
            Some(known) => known,
            None => {
                let measured = cutoff_trials::measure(channel.shared()).await?;
                let mut cutoffs = self.cutoffs();
                if cutoffs.len() < REMEMBERED && measured.source == CutoffSource::Measured {
                    cutoffs.insert(peer.ip(), measured);
                }
                measured
            }
        };
        channel.use_cutoff(cutoff);
        Ok(channel)
    }

    /// A queue pair of the right size, and the queue it completes to.
    pub(crate) fn queue_pair(
        &self,
        own: Greeting,
    ) -> Result<(QueuePairBuilder<Rc>, nonic::CompletionQueue), Error> {
        let receives = Machine::<Outgoing, Message>::receives(own.credits);
        let sends = Machine::<Outgoing, Message>::most_send_slots() + OTHER_REQUESTS;
        let queue = self.device().completion_queue(0).map_err(ConnectError::from)?;
        let capacity = QpCapacity {
            max_send_wr: sends as u32,
            max_recv_wr: receives as u32,
            ..QpCapacity::default()
        };
        let builder = self.shared.domain.queue_pair_builder::<Rc>(&queue);
        Ok((builder.capacity(capacity), queue))
    }

    pub(crate) fn channel(
        &self,
        role: Role,
        theirs: Greeting,
        connection: Connection<Rc>,
        queue: nonic::CompletionQueue,
    ) -> Result<Channel, Error> {
        let NodeShared {
            pool, cache, options, ..
        } = &*self.shared;
        let mut machine = Machine::new(role, options.greeting(), theirs, options.read_ahead);
        let cutoff = options.cutoff.map_or(Cutoff::default(), Cutoff::fixed);
        machine.set_cutoff(cutoff.bytes);
        let (wire, pool, cache) = (self.device().netdev().wire, pool.clone(), cache.clone());
        let shared = Shared::new(wire, machine, connection, queue, pool, cache, options)?;
        Ok(Channel::new(shared))
    }

    fn cutoffs(&self) -> MutexGuard<'_, HashMap<IpAddr, Cutoff>> {
        self.shared.cutoffs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A listener of another version says so in the private data of its rejection.
fn refusal(error: ConnectError) -> Error {
    if let ConnectError::Rejected { private_data, .. } = &error {
        if let Err(GreetingError::Version(version)) = Greeting::parse(private_data) {
            return GreetingError::Version(version).into();
        }
    }
    error.into()
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("device", &self.device().netdev().device_name())
            .field("cache", &self.shared.cache)
            .finish_non_exhaustive()
    }
}

/// A channel that is being made. Await it or wait for it; dropped, it is given up.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let node = nonic_message::Node::open("roce_lo")?;
/// # let listener = node.listen("127.0.0.1:0".parse()?)?;
/// # let address = listener.local_addr();
/// # let accepting = std::thread::spawn(move || listener.accept().wait());
/// let channel = node.connect(address).wait()?; // or `.await?`
/// # accepting.join().expect("no panic")?;
/// # Ok(()) }
/// ```
#[must_use = "the channel is not there yet"]
pub struct Connect {
    future: Pin<Box<dyn Future<Output = Result<Channel, Error>> + Send>>,
}

impl Connect {
    /// Waits until the channel is there.
    pub fn wait(self) -> Result<Channel, Error> {
        block_on(self)
    }
}

impl Future for Connect {
    type Output = Result<Channel, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.future.as_mut().poll(context)
    }
}

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connect").finish_non_exhaustive()
    }
}
