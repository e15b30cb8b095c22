//! The requester's side of direct access: the processes whose memory we reach, and executing requests there.

use super::access::{self, Failed, Placed};
use super::mapping::{Mapping, PeerMemory, Question};
use super::publication::PublishedView;
use super::revocation::Hazard;
use crate::link::lane::memory::LaneMemory;
use nonic_core::{Direct, DirectOperation, DirectRequest, KeyHasher, Qpn};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Keys of a peer that a queue pair remembers.
const KEYS: usize = 8;
/// Requests that the core executes together, at most; if there are more, memory is allocated.
const LONGEST_RUN: usize = 32;

/// A process whose memory we reach.
#[derive(Debug)]
pub(crate) struct Reached {
    pid: i32,
    view: PublishedView,
    /// The ring of our lane to it.
    ring: Arc<LaneMemory>,
    /// The kernel does not let us any more, or the lane has ended.
    lost: AtomicBool,
    /// Counts processes that the kernel does not let us reach any more.
    forbidden: Arc<AtomicU64>,
    /// Memory of its that we have mapped.
    memory: PeerMemory,
}

impl Reached {
    /// Finds out whether we reach the process that published this.
    pub(crate) fn find(
        published: impl AsFd,
        pid: u32,
        ring: &Arc<LaneMemory>,
        forbidden: &Arc<AtomicU64>,
    ) -> io::Result<Self> {
        let view = PublishedView::open(published)?;
        let pid = i32::try_from(pid).map_err(|_| io::ErrorKind::InvalidInput)?;
        let (nonce, address) = view.nonce();
        if access::peek(pid, address)? != nonce {
            // The number means another process to us.
            return Err(io::ErrorKind::NotFound.into());
        }
        access::probe_writing(pid)?;
        Ok(Reached {
            pid,
            view,
            ring: Arc::clone(ring),
            lost: AtomicBool::new(false),
            forbidden: Arc::clone(forbidden),
            memory: PeerMemory::default(),
        })
    }

    /// What we have mapped of its memory.
    pub(crate) fn memory(&self) -> &PeerMemory {
        &self.memory
    }

    pub(super) fn view(&self) -> &PublishedView {
        &self.view
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Reached {
    /// It has answered a question for memory, with a descriptor if it gives it. Whether it is mapped now.
    pub(crate) fn memory_answered(&self, number: u64, memory: Option<impl AsFd>) -> bool {
        let mapping = memory.and_then(|memory| Mapping::open(memory).ok());
        let mapped = mapping.is_some();
        self.memory().answered(number, mapping, self.view());
        mapped
    }

    /// Gives back memory that is gone, or whose keys are.
    pub(crate) fn tidy(&self) {
        self.memory().tidy(self.view());
    }
}

/// The processes whose memory a shard reaches, by the block that a lane leads to.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    peers: Mutex<HashMap<(IpAddr, u16), Arc<Reached>>>,
    /// Changes when they do.
    generation: AtomicU64,
}

impl Peers {
    fn peers(&self) -> MutexGuard<'_, HashMap<(IpAddr, u16), Arc<Reached>>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process was found to be reached.
    pub(crate) fn insert(&self, ip: IpAddr, block: u16, peer: Arc<Reached>) {
        self.peers().insert((ip, block), peer);
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// The lane to a process has ended.
    pub(crate) fn remove(&self, ip: IpAddr, block: u16) {
        if let Some(peer) = self.peers().remove(&(ip, block)) {
            peer.lost.store(true, Ordering::Release);
            peer.memory.end();
            self.generation.fetch_add(1, Ordering::Release);
        }
    }

    fn find(&self, ip: IpAddr, qpn: Qpn) -> Option<Arc<Reached>> {
        self.peers()
            .get(&(ip, (qpn.value() >> 12) as u16))
            .map(Arc::clone)
    }
}

/// The requests of a shard.
pub(super) struct Requester {
    peers: Arc<Peers>,
    generation: u64,
    /// `None`: its peer is not reached.
    connections: Vec<Option<Connection>>,
    /// Where in the list our queue pairs are.
    indexes: HashMap<u32, usize, BuildHasherDefault<KeyHasher>>,
    /// The one that was used last, and its place: most requests are by the same one as the one before.
    latest: (u32, usize),
}

/// A queue pair of ours and its peer.
#[derive(Debug)]
struct Connection {
    peer: Arc<Reached>,
    target: Qpn,
    index: usize,
    /// Keys of the peer that were used lately.
    keys: [KnownKey; KEYS],
}

/// A key of a peer.
#[derive(Copy, Clone, Debug, Default)]
struct KnownKey {
    value: u32,
    /// Where it is published.
    index: usize,
    /// Where its memory was among the mappings, if it was.
    place: usize,
}

impl Requester {
    pub(super) fn new(peers: Arc<Peers>) -> Self {
        Requester {
            peers,
            generation: 0,
            connections: Vec::new(),
            indexes: HashMap::default(),
            latest: (0, usize::MAX),
        }
    }

    /// Executes a request. `None` if that is not possible, or not finished.
    #[inline]
    pub(super) fn execute(&mut self, request: &DirectRequest<'_>) -> Option<Direct> {
        self.connection(request)?.execute(request)
    }

    /// Executes WRITEs, or READs, of one queue pair through one key. How many, from the first on.
    #[inline]
    pub(super) fn execute_run(&mut self, requests: &[DirectRequest<'_>]) -> Option<usize> {
        self.connection(requests.first()?)?.execute_run(requests)
    }

    /// What is known of the peer of a request's queue pair, if that is reached.
    #[inline]
    fn connection(&mut self, request: &DirectRequest<'_>) -> Option<&mut Connection> {
        let generation = self.peers.generation.load(Ordering::Acquire);
        if generation != self.generation {
            self.forget(generation);
        }
        let own = request.own.value();
        if self.latest.0 != own {
            let index = self.indexes.get(&own).copied();
            self.latest = (own, index.unwrap_or(usize::MAX));
        }
        let index = match self.connections.get(self.latest.1) {
            Some(Some(connection)) if connection.target == request.target => self.latest.1,
            Some(None) => return None,
            _ => self.connect(request)?,
        };
        self.connections.get_mut(index)?.as_mut()
    }

    /// Lanes have come or gone.
    #[cold]
    fn forget(&mut self, generation: u64) {
        self.connections.clear();
        self.indexes.clear();
        self.latest = (0, usize::MAX);
        self.generation = generation;
    }

    #[cold]
    fn connect(&mut self, request: &DirectRequest<'_>) -> Option<usize> {
        let connection = match self.peers.find(request.remote, request.target) {
            // Not published yet, perhaps: it is asked again next time.
            Some(peer) => Some(Connection::new(peer, request.target)?),
            None => None,
        };
        let own = request.own.value();
        let index = *self.indexes.entry(own).or_insert(self.connections.len());
        match self.connections.get_mut(index) {
            Some(known) => *known = connection,
            None => self.connections.push(connection),
        }
        self.latest = (own, index);
        Some(index)
    }
}

impl Connection {
    fn new(peer: Arc<Reached>, target: Qpn) -> Option<Self> {
        Some(Connection {
            target,
            index: peer.view.find_qp(target)?,
            keys: [KnownKey::default(); KEYS],
            peer,
        })
    }

    #[inline]
    fn execute(&mut self, request: &DirectRequest<'_>) -> Option<Direct> {
        if self.peer.is_lost() {
            return None;
        }
        let key = self.find_key(request.rkey)?;
        // Looked at once more when it counts.
        if request.operation.is_atomic() && self.peer.view.key(key).memory() == 0 {
            return None;
        }
        self.announce(Hazard::new(self.index, key));
        // See `revocation`.
        fence(Ordering::SeqCst);
        let done = self.execute_announced(request, key);
        self.announce(Hazard::NONE);
        done
    }

    #[inline]
    fn execute_run(&mut self, requests: &[DirectRequest<'_>]) -> Option<usize> {
        if self.peer.is_lost() {
            return None;
        }
        let key = self.find_key(requests.first()?.rkey)?;
        self.announce(Hazard::new(self.index, key));
        // See `revocation`.
        fence(Ordering::SeqCst);
        let executed = self.execute_run_announced(requests, key);
        self.announce(Hazard::NONE);
        executed
    }

    fn execute_run_announced(&mut self, requests: &[DirectRequest<'_>], key: usize) -> Option<usize> {
        let first = requests.first()?;
        let operation = first.operation;
        // What the target says of its queue pair and its key is the same for all of them.
        let pd = self.admit(first, key)?;
        let entry = self.peer.view.key(key);
        let needed = operation.needs_there();
        let start =
            |request: &DirectRequest<'_>| entry.check(pd, needed, request.va, u64::from(request.left));
        let starts: SmallVec<[u64; LONGEST_RUN]> = requests.iter().map_while(start).collect();
        if entry.memory() != 0 {
            // Mapped memory, where each is a copy.
            let executed = requests.iter().zip(starts);
            let executed =
                executed.take_while(|(request, start)| self.move_bytes(request, key, *start).is_some());
            return Some(executed.count());
        }
        let placed = requests.iter().zip(&starts);
        let placed = placed.map_while(|(request, start)| Some((request, entry.address(*start)?)));
        self.call(operation, placed)
    }

    #[inline]
    fn announce(&self, hazard: Hazard) {
        self.peer.ring.hazard().store(hazard.to_word(), Ordering::Release);
    }

    /// Whether the target takes requests like this one now, through this key: then the domain that the key must belong to.
    #[inline]
    fn admit(&mut self, request: &DirectRequest<'_>, key: usize) -> Option<u32> {
        if !self.peer.view.is_qp(self.index, request.target) {
            self.look_again();
            return None;
        }
        let peer = &*self.peer;
        let qp = peer.view.qp(self.index);
        let needed = request.operation.needs_there();
        if qp.first() != request.first
            || !qp.access().contains(needed)
            || !qp.is_connected_to(request.own, request.local, request.remote)
            || !peer.view.is_key(key, request.rkey)
        {
            return None;
        }
        Some(qp.pd())
    }

    /// Moves the bytes of a request that is permitted, or executes an atomic.
    #[inline]
    fn move_bytes(&mut self, request: &DirectRequest<'_>, key: usize, start: u64) -> Option<Direct> {
        let peer = &*self.peer;
        let entry = peer.view.key(key);
        let by_mapping = match entry.memory() {
            0 => None,
            number => {
                let memory = Question {
                    key: request.rkey,
                    number,
                };
                let place = &mut self.keys[request.rkey as usize % KEYS].place;
                peer.memory
                    .execute(place, memory, |mapping| mapping.execute(request, start))
            }
        };
        match by_mapping {
            Some(executed) => executed,
            None if request.operation.is_atomic() => None,
            None => {
                let placed = std::iter::once((request, entry.address(start)?));
                self.call(request.operation, placed).map(|_| Direct::Done)
            }
        }
    }

    /// Moves the bytes of requests by one system call. Of how many, from the first on.
    #[inline]
    fn call<'a>(
        &self,
        operation: DirectOperation,
        placed: impl Iterator<Item = Placed<'a>> + Clone,
    ) -> Option<usize> {
        let peer = &*self.peer;
        match access::execute(peer.pid, operation, placed) {
            Ok(count) => Some(count),
            Err(Failed::Once) => None,
            Err(failed @ (Failed::Forbidden | Failed::Gone)) => {
                if !peer.lost.swap(true, Ordering::AcqRel) && failed == Failed::Forbidden {
                    peer.forbidden.fetch_add(1, Ordering::Relaxed);
                }
                None
            }
        }
    }

    #[inline]
    fn execute_announced(&mut self, request: &DirectRequest<'_>, key: usize) -> Option<Direct> {
        let pd = self.admit(request, key)?;
        let needed = request.operation.needs_there();
        let entry = self.peer.view.key(key);
        let start = entry.check(pd, needed, request.va, u64::from(request.left))?;
        self.move_bytes(request, key, start)
    }

    /// The queue pair is not where it was: it may have been published anew.
    #[cold]
    fn look_again(&mut self) {
        if let Some(index) = self.peer.view.find_qp(self.target) {
            self.index = index;
        }
    }

    #[inline]
    fn find_key(&mut self, key: u32) -> Option<usize> {
        let known = &mut self.keys[key as usize % KEYS];
        if known.value == key && self.peer.view.is_key(known.index, key) {
            return Some(known.index);
        }
        let index = self.peer.view.find_key(key)?;
        *known = KnownKey {
            value: key,
            index,
            place: 0,
        };
        Some(index)
    }
}
