//! Identifiers: the object behind an `rdma_cm_id` pointer, and the events on their way to its program.
//!
//! How programs create and destroy them is in `lifetime`, how they get their events in `delivery`.

use crate::channel::{Channel, channel};
use crate::convert::{ACK_TIMEOUT, HOP_LIMIT, gid_of, ip_of_gid, random, storage};
use crate::descriptor::Audience;
use crate::device::{Device, Recipient};
use crate::port::Claim;
use libc::{c_int, c_void};
use nonic_abi::cm::*;
use nonic_abi::errno::{Errno, refused};
use nonic_abi::rdma_cma::*;
use nonic_abi::verbs::*;
use std::cell::UnsafeCell;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

const PSN_MASK: u32 = 0xff_ffff;

/// What an `rdma_cm_id` pointer leads to.
#[repr(C)]
pub(crate) struct Id {
    c: UnsafeCell<rdma_cm_id>,
    channel: Mutex<Arc<Channel<Pending>>>,
    /// The connection manager's name of the connection; 0 if there is none (any more).
    connection: AtomicU32,
    /// Events of it that are on its channel: at least as many as there are, at any time.
    queued: AtomicU32,
    /// Events the program has not acknowledged.
    unacknowledged: Mutex<u32>,
    acknowledged: Condvar,
    state: Mutex<IdState>,
}

// SAFETY: the program's structure is read and written through its pointer only, as C programs do from any thread;
// everything else is locked. Pointers are to objects of libibverbs.
unsafe impl Send for Id {}
// SAFETY: as above.
unsafe impl Sync for Id {}

/// What this library knows of it.
#[derive(Default)]
pub(crate) struct IdState {
    /// Where it is bound to.
    pub(crate) device: Option<&'static Device>,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) remote: Option<SocketAddr>,
    /// The port was ours to choose.
    pub(crate) any_port: bool,
    /// The names that keep other processes from binding the port.
    pub(crate) claims: Vec<Claim>,
    /// The program does not mind if another identifier or process has the port.
    pub(crate) reuses_port: bool,
    /// Bound to no particular address: where to listen. Known before, since opening devices takes time that a
    /// client that was told our port does not have.
    pub(crate) everywhere: Vec<&'static Device>,
    pub(crate) listeners: Vec<(&'static Device, u64)>,
    /// Calls wait for the event they lead to.
    pub(crate) synchronous: bool,
    pub(crate) peer: Peer,
    pub(crate) starting_psn: u32,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) traffic_class: u8,
    pub(crate) ack_timeout: Option<u8>,
    pub(crate) own_family_only: bool,
    pub(crate) path: Option<Box<ibv_sa_path_rec>>,
    /// Passive endpoints: what queue pairs their requests get.
    pub(crate) queue_pairs: Option<ibv_qp_init_attr>,
    pub(crate) groups: Vec<Group>,
}

/// What the other side said.
#[derive(Copy, Clone, Default)]
pub(crate) struct Peer {
    pub(crate) qpn: u32,
    pub(crate) psn: u32,
    pub(crate) service_id: u64,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    pub(crate) path_mtu: u8,
    pub(crate) ack_timeout: u8,
}

/// A multicast group an identifier is in.
#[derive(Copy, Clone)]
pub(crate) struct Group {
    pub(crate) ip: IpAddr,
    /// The queue pair receives what is sent to it.
    pub(crate) is_attached: bool,
    /// What the program gets back with the event.
    pub(crate) context: *mut c_void,
    pub(crate) ah_attr: ibv_ah_attr,
    /// Zero, or the errno that attaching came to.
    pub(crate) status: c_int,
}

// SAFETY: the context is the program's business: it is handed back and never followed.
unsafe impl Send for Group {}

/// An event on its way to the program.
pub(crate) struct Pending {
    /// The identifier it is about. The thread that destroys that takes the event out of the channel.
    pub(crate) owner: Arc<Id>,
    /// Requests: the identifier that was made for it.
    pub(crate) asked: Option<Arc<Id>>,
    pub(crate) what: What,
}

/// What happened.
pub(crate) enum What {
    /// An event of the connection manager.
    Wire(Box<nonic_cm_event>),
    /// Something the program asked for is done (or failed).
    Local { event: c_int, status: c_int },
    /// A multicast group was joined.
    Joined(Box<Group>),
}

impl Pending {
    pub(crate) fn wire(owner: &Arc<Id>, event: nonic_cm_event) -> Self {
        Pending {
            owner: Arc::clone(owner),
            asked: None,
            what: What::Wire(Box::new(event)),
        }
    }

    pub(crate) fn request(listener: &Arc<Id>, asked: Arc<Id>, event: nonic_cm_event) -> Self {
        Pending {
            asked: Some(asked),
            ..Self::wire(listener, event)
        }
    }

    pub(crate) fn local(owner: &Arc<Id>, event: c_int, status: c_int) -> Self {
        Pending {
            owner: Arc::clone(owner),
            asked: None,
            what: What::Local { event, status },
        }
    }
}

impl Id {
    fn new(
        channel: Arc<Channel<Pending>>,
        context: *mut c_void,
        port_space: c_int,
        qp_type: c_int,
    ) -> Arc<Self> {
        // SAFETY: all zeros is a value of the structure.
        let mut c: rdma_cm_id = unsafe { std::mem::zeroed() };
        c.channel = channel.as_c();
        c.context = context;
        c.ps = port_space;
        c.qp_type = qp_type;
        Arc::new(Id {
            c: UnsafeCell::new(c),
            channel: Mutex::new(channel),
            connection: AtomicU32::new(0),
            queued: AtomicU32::new(0),
            unacknowledged: Mutex::new(0),
            acknowledged: Condvar::new(),
            state: Mutex::new(IdState {
                // From the beginning: programs with a queue pair of their own ask for it before they accept.
                starting_psn: random() & PSN_MASK,
                ..IdState::default()
            }),
        })
    }

    /// The identifier of a connection that a peer asks for.
    fn for_request(listener: &Id, device: &'static Device, event: &nonic_cm_event) -> Arc<Self> {
        let parent = listener.as_c();
        // SAFETY: the listener is alive; the program may write its context, of which either value will do.
        let (context, port_space) = unsafe { ((*parent).context, (*parent).ps) };
        let qp_type = match event.service {
            SERVICE_UC => IBV_QPT_UC,
            SERVICE_UD => IBV_QPT_UD,
            SERVICE_XRC => IBV_QPT_XRC_RECV,
            _ => IBV_QPT_RC,
        };
        let id = Id::new(listener.channel(), context, port_space, qp_type);
        id.bind(
            device,
            SocketAddr::new(ip_of_gid(&event.local), event.service_id as u16),
        );
        id.set_remote(SocketAddr::new(ip_of_gid(&event.remote), event.remote_port));
        let mut state = id.state();
        state.peer = Peer {
            qpn: event.remote_qpn,
            psn: event.starting_psn,
            service_id: event.service_id,
            retry_count: event.retry_count,
            rnr_retry_count: event.rnr_retry_count,
            path_mtu: event.path_mtu,
            ack_timeout: event.ack_timeout,
        };
        state.responder_resources = event.responder_resources;
        state.initiator_depth = event.initiator_depth;
        state.traffic_class = event.traffic_class;
        drop(state);
        id.fill_path();
        id
    }

    /// The program's pointer.
    pub(crate) fn as_c(&self) -> *mut rdma_cm_id {
        self.c.get()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, IdState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn channel(&self) -> Arc<Channel<Pending>> {
        Arc::clone(&self.channel.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts an event on its channel.
    pub(crate) fn push(&self, pending: Pending) {
        // Under the lock, so that it cannot move to another channel meanwhile.
        let channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        self.queued.fetch_add(1, Ordering::Release);
        channel.push(pending);
    }

    /// An event of it was taken from its channel.
    pub(crate) fn taken(&self) {
        self.queued.fetch_sub(1, Ordering::Release);
    }

    /// Takes its events from a channel.
    fn take_from(&self, channel: &Channel<Pending>) -> Vec<Pending> {
        let most = self.queued.load(Ordering::Acquire) as usize;
        let found = channel.purge(most, |pending| std::ptr::eq(&*pending.owner, self));
        self.queued.fetch_sub(found.len() as u32, Ordering::Release);
        found
    }

    /// Whether its device speaks iWARP.
    pub(crate) fn is_iwarp(&self) -> bool {
        self.state().device.is_some_and(|device| device.is_iwarp)
    }

    /// Whether a device has what the identifier is for: over iWARP there are reliable connections, and nothing else.
    pub(crate) fn check_service(&self, device: &Device) -> Result<(), Errno> {
        // SAFETY: the field is ours to read.
        match device.is_iwarp && unsafe { (*self.as_c()).qp_type } != IBV_QPT_RC {
            true => Err(refused(
                libc::EOPNOTSUPP,
                "over iWARP there are reliable connections (RDMA_PS_TCP), and nothing else",
                "use a RoCE device for datagrams and multicast",
            )),
            false => Ok(()),
        }
    }

    pub(crate) fn is_datagram(&self) -> bool {
        // SAFETY: the field is ours to read.
        unsafe { (*self.as_c()).qp_type == IBV_QPT_UD }
    }

    /// The queue pair, if the program let us create it.
    pub(crate) fn qp(&self) -> *mut ibv_qp {
        // SAFETY: the field is ours to read.
        unsafe { (*self.as_c()).qp }
    }

    pub(crate) fn device(&self) -> Result<&'static Device, Errno> {
        self.state().device.ok_or_else(|| {
            refused(
                libc::EINVAL,
                "the identifier has no device yet",
                "bind it first (rdma_bind_addr), or resolve an address (rdma_resolve_addr)",
            )
        })
    }

    /// It is at this address of this device from now on.
    pub(crate) fn bind(&self, device: &'static Device, local: SocketAddr) {
        self.set_local(local);
        self.state().device = Some(device);
        let c = self.as_c();
        // SAFETY: the program does not use the identifier while it is being bound.
        unsafe {
            (*c).verbs = device.context;
            (*c).port_num = 1;
            if (*c).pd.is_null() {
                (*c).pd = device.pd;
            }
            (*c).route.addr.addr.sgid.raw = gid_of(local.ip());
            (*c).route.addr.addr.pkey = 0xffff;
        }
    }

    pub(crate) fn set_local(&self, local: SocketAddr) {
        self.state().local = Some(local);
        // SAFETY: as in `bind`.
        unsafe { (*self.as_c()).route.addr.src_storage = storage(local) };
    }

    pub(crate) fn set_remote(&self, remote: SocketAddr) {
        self.state().remote = Some(remote);
        let c = self.as_c();
        // SAFETY: as in `bind`.
        unsafe {
            (*c).route.addr.dst_storage = storage(remote);
            (*c).route.addr.addr.dgid.raw = gid_of(remote.ip());
        }
    }

    /// Both addresses, once they are known.
    pub(crate) fn addresses(&self) -> Result<(IpAddr, IpAddr), Errno> {
        let state = self.state();
        match (state.local, state.remote) {
            (Some(local), Some(remote)) => Ok((local.ip(), remote.ip())),
            _ => Err(refused(
                libc::EINVAL,
                "the identifier has no addresses yet",
                "resolve an address first (rdma_resolve_addr)",
            )),
        }
    }

    /// Describes the path, as programs that look for one expect it.
    pub(crate) fn fill_path(&self) {
        let (Ok((local, remote)), Ok(device)) = (self.addresses(), self.device()) else {
            return;
        };
        let mut state = self.state();
        let path = Box::new(ibv_sa_path_rec {
            dgid: ibv_gid { raw: gid_of(remote) },
            sgid: ibv_gid { raw: gid_of(local) },
            dlid: 0,
            slid: 0,
            raw_traffic: 0,
            flow_label: 0,
            hop_limit: HOP_LIMIT,
            traffic_class: state.traffic_class,
            reversible: 1,
            numb_path: 1,
            pkey: 0xffff,
            sl: 0,
            mtu_selector: 2,
            mtu: device.path_mtu,
            rate_selector: 2,
            rate: 0,
            packet_life_time_selector: 2,
            packet_life_time: state.ack_timeout.unwrap_or(ACK_TIMEOUT) - 1,
            preference: 0,
        });
        let path: &mut ibv_sa_path_rec = state.path.insert(path);
        let path: *mut ibv_sa_path_rec = path;
        // SAFETY: the program does not use the identifier while its route is being resolved.
        unsafe {
            (*self.as_c()).route.path_rec = path;
            (*self.as_c()).route.num_paths = 1;
        }
    }

    /// An event was given to the program.
    pub(crate) fn report(&self) {
        *self.unacknowledged.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }

    /// The program gave it back.
    pub(crate) fn acknowledge(&self) {
        let mut open = self.unacknowledged.lock().unwrap_or_else(PoisonError::into_inner);
        *open = open.saturating_sub(1);
        self.acknowledged.notify_all();
    }

    /// Waits until the program has given all of them back.
    pub(crate) fn wait_for_acknowledgements(&self) {
        let mut open = self.unacknowledged.lock().unwrap_or_else(PoisonError::into_inner);
        while *open > 0 {
            open = self
                .acknowledged
                .wait(open)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Moves it and its events to another channel.
    pub(crate) fn move_to(&self, to: Arc<Channel<Pending>>) {
        // Under the lock, so that no event comes to the old one meanwhile.
        let mut current = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        for pending in self.take_from(&current) {
            self.queued.fetch_add(1, Ordering::Release);
            to.push(pending);
        }
        // SAFETY: the program uses the field only to wait, and not while it changes it.
        unsafe { (*self.as_c()).channel = to.as_c() };
        *current = to;
    }

    /// Ends its listeners and its connection, so that no event comes any more, and takes those out that have come.
    pub(crate) fn silence(&self) {
        let (listeners, device, claims) = {
            let mut state = self.state();
            let claims = std::mem::take(&mut state.claims);
            (std::mem::take(&mut state.listeners), state.device, claims)
        };
        for (device, listener) in listeners {
            device.unlisten(listener);
        }
        drop(claims);
        if let Some(device) = device {
            device.abandon(self);
        }
        let left = self.take_from(&self.channel());
        for asked in left.into_iter().filter_map(|pending| pending.asked) {
            // The program never got it, so only this call can destroy it.
            asked.silence();
        }
    }
}

impl Recipient for Id {
    fn connection(&self) -> u32 {
        self.connection.load(Ordering::Acquire)
    }

    fn set_connection(&self, connection: u32) {
        self.connection.store(connection, Ordering::Release);
    }

    fn deliver(self: Arc<Self>, event: nonic_cm_event) {
        self.push(Pending::wire(&self, event));
    }

    fn deliver_request(
        self: Arc<Self>,
        device: &'static Device,
        event: nonic_cm_event,
    ) -> Arc<dyn Recipient> {
        let asked = Id::for_request(&self, device, &event);
        asked.set_connection(event.connection);
        self.push(Pending::request(&self, Arc::clone(&asked), event));
        asked
    }
}

/// The identifier behind a program's pointer; `EINVAL` for NULL.
///
/// # Safety
///
/// The pointer is NULL or to an identifier that was not destroyed.
pub(crate) unsafe fn id(pointer: *mut rdma_cm_id) -> Result<Arc<Id>, Errno> {
    if pointer.is_null() {
        return Err(refused(
            libc::EINVAL,
            "id is NULL",
            "pass what rdma_create_id returned",
        ));
    }
    let pointer = pointer.cast::<Id>().cast_const();
    // SAFETY: the program holds one reference; this is another.
    unsafe {
        Arc::increment_strong_count(pointer);
        Ok(Arc::from_raw(pointer))
    }
}

/// Gives the program its reference.
pub(crate) fn give(id: Arc<Id>) -> *mut rdma_cm_id {
    Arc::into_raw(id).cast_mut().cast()
}

/// A new identifier; without a channel it gets its own, and its calls wait.
///
/// # Safety
///
/// The channel is NULL or the program's.
pub(crate) unsafe fn create(
    c_channel: *mut rdma_event_channel,
    context: *mut c_void,
    port_space: c_int,
    qp_type: c_int,
) -> Result<Arc<Id>, Errno> {
    let synchronous = c_channel.is_null();
    let channel = match synchronous {
        true => Channel::new(Audience::Program)?,
        // SAFETY: the caller's promise.
        false => unsafe { channel(c_channel) }?,
    };
    let id = Id::new(channel, context, port_space, qp_type);
    id.state().synchronous = synchronous;
    Ok(id)
}

/// The queue pairs that go with a port space.
pub(crate) fn qp_type_of(port_space: c_int) -> Result<c_int, Errno> {
    match port_space {
        RDMA_PS_TCP | RDMA_PS_IB => Ok(IBV_QPT_RC),
        RDMA_PS_UDP | RDMA_PS_IPOIB => Ok(IBV_QPT_UD),
        _ => Err(refused(
            libc::EPROTONOSUPPORT,
            format!("ps {port_space:#x} is unknown"),
            "use RDMA_PS_TCP, RDMA_PS_UDP, RDMA_PS_IB or RDMA_PS_IPOIB",
        )),
    }
}
