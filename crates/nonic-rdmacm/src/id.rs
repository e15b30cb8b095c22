//! Identifiers: what an `rdma_cm_id` pointer leads to, from creation to destruction.

use crate::address::{ip_of_gid, random, storage};
use crate::channel::{Channel, Pending, channel};
use crate::descriptor::Audience;
use crate::device::Device;
use crate::event;
use crate::multicast::Group;
use crate::port::Claim;
use libc::{c_int, c_void};
use nonic_abi::cm::*;
use nonic_abi::errno::{self, Errno};
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
    channel: Mutex<Arc<Channel>>,
    /// The connection manager's name of the connection; 0 if there is none (any more).
    connection: AtomicU32,
    /// Events the program has not acknowledged.
    unacknowledged: Mutex<u32>,
    acknowledged: Condvar,
    state: Mutex<State>,
}

// SAFETY: the program's structure is read and written through its pointer only, as C programs do from any thread;
// everything else is locked. Pointers are to objects of libibverbs.
unsafe impl Send for Id {}
// SAFETY: as above.
unsafe impl Sync for Id {}

/// What this library knows of it.
#[derive(Default)]
pub(crate) struct State {
    /// Where it is bound to.
    pub(crate) device: Option<&'static Device>,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) remote: Option<SocketAddr>,
    /// The port was ours to choose.
    pub(crate) any_port: bool,
    /// What keeps others from it.
    pub(crate) claims: Vec<Claim>,
    /// The program does not mind if somebody else has the port.
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

impl Id {
    fn new(channel: Arc<Channel>, context: *mut c_void, port_space: c_int, qp_type: c_int) -> Arc<Self> {
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
            unacknowledged: Mutex::new(0),
            acknowledged: Condvar::new(),
            state: Mutex::new(State {
                // From the beginning: programs with a queue pair of their own ask for it before they accept.
                starting_psn: random() & PSN_MASK,
                ..State::default()
            }),
        })
    }

    /// The identifier of a connection somebody asks for.
    pub(crate) fn for_request(listener: &Id, device: &'static Device, event: &nonic_cm_event) -> Arc<Self> {
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

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn channel(&self) -> Arc<Channel> {
        Arc::clone(&self.channel.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts an event on its channel.
    pub(crate) fn push(&self, pending: Pending) {
        // Under the lock, so that it cannot move to another channel meanwhile.
        self.channel
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(pending);
    }

    pub(crate) fn connection(&self) -> u32 {
        self.connection.load(Ordering::Acquire)
    }

    pub(crate) fn set_connection(&self, connection: u32) {
        self.connection.store(connection, Ordering::Release);
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
        self.state().device.ok_or(libc::EINVAL)
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
            (*c).route.addr.addr.sgid.raw = crate::address::gid_of(local.ip());
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
            (*c).route.addr.addr.dgid.raw = crate::address::gid_of(remote.ip());
        }
    }

    /// Both addresses, once they are known.
    pub(crate) fn addresses(&self) -> Result<(IpAddr, IpAddr), Errno> {
        let state = self.state();
        match (state.local, state.remote) {
            (Some(local), Some(remote)) => Ok((local.ip(), remote.ip())),
            _ => Err(libc::EINVAL),
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

    fn wait_for_acknowledgements(&self) {
        let mut open = self.unacknowledged.lock().unwrap_or_else(PoisonError::into_inner);
        while *open > 0 {
            open = self
                .acknowledged
                .wait(open)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Gives up all that others could send events about, and the events.
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
        let left = self
            .channel()
            .purge(|pending| std::ptr::eq(&*pending.owner, self));
        for asked in left.into_iter().filter_map(|pending| pending.asked) {
            // Nobody has heard of it but us.
            asked.silence();
        }
    }
}

/// The identifier behind a program's pointer; `EINVAL` for NULL.
///
/// # Safety
///
/// The pointer is NULL or to an identifier that was not destroyed.
pub(crate) unsafe fn id(pointer: *mut rdma_cm_id) -> Result<Arc<Id>, Errno> {
    if pointer.is_null() {
        return Err(libc::EINVAL);
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
        _ => Err(libc::EPROTONOSUPPORT),
    }
}

/// Waits for the event a call leads to, if the program wants that.
pub(crate) fn complete(id: &Id) -> Result<(), Errno> {
    if !id.state().synchronous {
        return Ok(());
    }
    let c = id.as_c();
    release_event(id);
    let event = crate::channel::wait(&id.channel())?;
    // SAFETY: the event is ours until it is acknowledged, and so is the field.
    unsafe {
        (*c).event = event;
        match ((*event).status, (*event).event) {
            (0, _) => Ok(()),
            (_, RDMA_CM_EVENT_REJECTED) => Err(libc::ECONNREFUSED),
            (status, _) => Err(status.abs()),
        }
    }
}

/// Acknowledges the event that a waiting call left.
pub(crate) fn release_event(id: &Id) {
    let c = id.as_c();
    // SAFETY: the field is ours, and the event in it was not acknowledged yet.
    unsafe {
        let event = std::mem::replace(&mut (*c).event, std::ptr::null_mut());
        if !event.is_null() {
            event::acknowledge(event);
        }
    }
}

/// Moves an identifier and its events to another channel; to one of its own if there is none.
pub(crate) fn migrate(id: &Arc<Id>, to: Option<Arc<Channel>>) -> Result<(), Errno> {
    let synchronous = to.is_none();
    let to = match to {
        Some(channel) => channel,
        None => Channel::new(Audience::Program)?,
    };
    release_event(id);
    let mut current = id.channel.lock().unwrap_or_else(PoisonError::into_inner);
    for pending in current.purge(|pending| Arc::ptr_eq(&pending.owner, id)) {
        to.push(pending);
    }
    // SAFETY: the program uses the field only to wait, and not while it changes it.
    unsafe { (*id.as_c()).channel = to.as_c() };
    *current = to;
    drop(current);
    id.state().synchronous = synchronous;
    id.wait_for_acknowledgements();
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_id(
    c_channel: *mut rdma_event_channel,
    made: *mut *mut rdma_cm_id,
    context: *mut c_void,
    port_space: c_int,
) -> c_int {
    if made.is_null() {
        return errno::minus_one(Err(libc::EINVAL));
    }
    // SAFETY: the program passes its channel or NULL.
    let id =
        qp_type_of(port_space).and_then(|qp_type| unsafe { create(c_channel, context, port_space, qp_type) });
    errno::minus_one(id.map(|id| {
        // SAFETY: the program passes where to put it.
        unsafe { *made = give(id) };
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_destroy_id(pointer: *mut rdma_cm_id) -> c_int {
    if pointer.is_null() {
        return errno::minus_one(Err(libc::EINVAL));
    }
    // SAFETY: the program gives its reference back.
    let id = unsafe { Arc::from_raw(pointer.cast::<Id>().cast_const()) };
    release_event(&id);
    id.silence();
    id.wait_for_acknowledgements();
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_migrate_id(pointer: *mut rdma_cm_id, c_channel: *mut rdma_event_channel) -> c_int {
    // SAFETY: the program passes its identifier, and its channel or NULL.
    let (id, to) = unsafe { (id(pointer), channel(c_channel).ok()) };
    errno::minus_one(id.and_then(|id| migrate(&id, to)))
}
