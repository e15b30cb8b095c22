//! Devices as this library uses them: each opened once, at first use, and kept until the process ends.
//!
//! A program sees the context of a device as `id->verbs` and makes its own objects there. The device's events come
//! in here ([`deliver`]) and are put on the channels of the identifiers they concern.

use crate::convert::{gid_of, ip_of_gid};
use crate::refusal;
use crate::refusal::ANSWER;
use libc::{c_int, c_void};
use nonic_abi::cm::*;
use nonic_abi::errno::{self, Errno, of_system, refused};
use nonic_abi::fork::Birth;
use nonic_abi::libibverbs::*;
use nonic_abi::verbs::*;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A device in use.
pub(crate) struct Device {
    /// What the program sees.
    pub(crate) context: *mut ibv_context,
    /// For identifiers whose program has none of its own.
    pub(crate) pd: *mut ibv_pd,
    /// READs and atomics a queue pair can answer, and have under way, at a time.
    pub(crate) max_responder_resources: u8,
    pub(crate) max_initiator_depth: u8,
    /// As `enum ibv_mtu`.
    pub(crate) path_mtu: u8,
    /// Whether connections are TCP's: queue pairs are then connected by the connection itself.
    pub(crate) is_iwarp: bool,
    c: *mut ibv_device,
    /// For extended reliable connections whose program has no domain of its own; NULL until the first.
    xrc_domain: Mutex<SharedPointer>,
    made_in: Birth,
    table: Mutex<Table>,
}

/// A domain that any thread may use.
struct SharedPointer(*mut ibv_xrcd);

// SAFETY: the pointers are to objects of libibverbs that any thread may use.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// A recipient of events: an identifier. It is called with the device's table locked, perhaps by a thread that has the
/// device locked as well, so it must not call either.
pub(crate) trait Recipient: Send + Sync {
    /// The connection manager's name of its connection; 0 if there is none (any more).
    fn connection(&self) -> u32;

    fn set_connection(&self, connection: u32);

    /// Something happened to its connection.
    fn deliver(self: Arc<Self>, event: nonic_cm_event);

    /// A request to connect has come to it: it listens. Answers the recipient of the new connection's events.
    fn deliver_request(self: Arc<Self>, device: &'static Device, event: nonic_cm_event)
    -> Arc<dyn Recipient>;
}

/// The recipients of a device's events.
#[derive(Default)]
struct Table {
    connections: HashMap<u32, Arc<dyn Recipient>>,
    listeners: HashMap<u64, Arc<dyn Recipient>>,
    /// Events of connections and listeners that are not known yet: the call that makes them has not returned.
    early: Vec<nonic_cm_event>,
}

static OPEN: Mutex<Vec<&'static Device>> = Mutex::new(Vec::new());

impl Device {
    /// The device that has an address.
    pub(crate) fn with_address(address: IpAddr) -> Result<&'static Device, Errno> {
        let gid = gid_of(address);
        // SAFETY: the address lives during the call.
        let c =
            errno::check_pointer(unsafe { nonic_device_with_address(&raw const gid) }).map_err(|errno| {
                refused(
                    errno.number(),
                    format!("no device has the address {address}"),
                    "look at `nonic devices`",
                )
            })?;
        Self::open(c)
    }

    /// All that programs are shown.
    fn listed() -> Result<Vec<&'static Device>, Errno> {
        let listed = list()?.into_iter();
        // An interface may go away meanwhile; the others still count.
        Ok(listed.filter_map(|c| Self::open(c).ok()).collect())
    }

    /// All at which requests may arrive: those that programs are shown, and loopback.
    pub(crate) fn all() -> Result<Vec<&'static Device>, Errno> {
        let mut devices = Self::listed()?;
        for address in [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()] {
            if let Ok(device) = Self::with_address(address) {
                if !devices.iter().any(|other| std::ptr::eq(*other, device)) {
                    devices.push(device);
                }
            }
        }
        Ok(devices)
    }

    /// Whether programs are shown another device than this one.
    pub(crate) fn has_company(&self) -> Result<bool, Errno> {
        Ok(list()?.into_iter().any(|c| c != self.c))
    }

    fn open(c: *mut ibv_device) -> Result<&'static Device, Errno> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        // A child of fork cannot use what its parent opened.
        if let Some(known) = open
            .iter()
            .find(|device| device.c == c && !device.made_in.is_elsewhere())
        {
            return Ok(known);
        }
        // SAFETY: the device is one of the list.
        let context = errno::check_pointer(unsafe { ibv_open_device(c) })?;
        let device = Self::set_up(c, context).inspect_err(|_| {
            // SAFETY: just opened, and nothing uses it.
            unsafe { ibv_close_device(context) };
        })?;
        let device: &'static Device = Box::leak(Box::new(device));
        let cookie: *const Device = device;
        // SAFETY: the device lives for ever.
        errno::check(unsafe { nonic_cm_start(context, deliver, cookie.cast_mut().cast()) })?;
        open.push(device);
        Ok(device)
    }

    fn set_up(c: *mut ibv_device, context: *mut ibv_context) -> Result<Device, Errno> {
        // SAFETY: all zeros are valid attributes.
        let (mut attr, mut port): (ibv_device_attr, ibv_port_attr) = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open and the answers go to our variables.
        let pd = unsafe {
            errno::check(ibv_query_device(context, &raw mut attr))?;
            let query_port = extended(context)
                .query_port
                .ok_or_else(refusal::no_such_operation)?;
            errno::check(query_port(context, 1, &raw mut port, size_of::<ibv_port_attr>()))?;
            errno::check_pointer(ibv_alloc_pd(context))?
        };
        Ok(Device {
            context,
            pd,
            max_responder_resources: attr.max_qp_rd_atom.clamp(0, 255) as u8,
            max_initiator_depth: attr.max_qp_init_rd_atom.clamp(0, 255) as u8,
            path_mtu: port.active_mtu.clamp(1, 5) as u8,
            // SAFETY: the device is one of the list.
            is_iwarp: unsafe { (*c).transport_type } == IBV_TRANSPORT_IWARP,
            c,
            xrc_domain: Mutex::new(SharedPointer(std::ptr::null_mut())),
            made_in: Birth::now(),
            table: Mutex::default(),
        })
    }

    /// The domain of extended reliable connections that were not given one.
    pub(crate) fn xrc_domain(&self) -> Result<*mut ibv_xrcd, Errno> {
        let mut domain = self.xrc_domain.lock().unwrap_or_else(PoisonError::into_inner);
        if domain.0.is_null() {
            let mut attr = ibv_xrcd_init_attr {
                comp_mask: IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
                fd: -1,
                oflags: libc::O_CREAT,
            };
            // SAFETY: the context is open, and the attributes are our variable.
            domain.0 = unsafe {
                let open = extended(self.context)
                    .open_xrcd
                    .ok_or_else(refusal::no_such_operation)?;
                errno::check_pointer(open(self.context, &raw mut attr))?
            };
        }
        Ok(domain.0)
    }

    /// The number of the network interface below.
    pub(crate) fn interface_index(&self) -> u32 {
        // SAFETY: the device is one of the list, whose entries live as long as the process, and its name is a string.
        let name = unsafe { std::ffi::CStr::from_ptr((*self.c).name.as_ptr()) };
        let name = name.to_bytes_with_nul();
        let mut prefixes = [b"roce_".as_slice(), b"iwarp_"].into_iter();
        let interface = prefixes
            .find_map(|prefix| name.strip_prefix(prefix))
            .unwrap_or(name);
        // SAFETY: what is left of a string still ends as one.
        unsafe { libc::if_nametoindex(interface.as_ptr().cast()) }
    }

    /// All its addresses.
    pub(crate) fn addresses(&self) -> Vec<IpAddr> {
        (0..=u32::from(u8::MAX))
            .map_while(|index| self.address(index))
            .map(|address| ip_of_gid(&address))
            .collect()
    }

    fn address(&self, index: u32) -> Option<[u8; 16]> {
        let mut found = [0; 16];
        // SAFETY: the context is open and the answer goes to our variable.
        let answered = unsafe { nonic_device_address(self.context, index, &raw mut found) } == 0;
        answered.then_some(found)
    }

    fn gid(&self, index: u8) -> Option<[u8; 16]> {
        let mut found = ibv_gid { raw: [0; 16] };
        // SAFETY: the context is open and the answer goes to our variable; every bit pattern is an array of bytes.
        unsafe {
            let answered = ibv_query_gid(self.context, 1, c_int::from(index), &raw mut found) == 0;
            answered.then_some(found.raw)
        }
    }

    /// The place of an address in the device's table of GIDs.
    pub(crate) fn gid_index(&self, gid: &[u8; 16]) -> Result<u8, Errno> {
        let mut indices = (0..=u8::MAX).map_while(|index| Some((index, self.gid(index)?)));
        let found = indices.find(|(_, found)| found == gid);
        found.map(|(index, _)| index).ok_or_else(|| {
            refused(
                libc::EADDRNOTAVAIL,
                "the device does not have the address any more",
                "look at `nonic devices`, and bind again",
            )
        })
    }

    /// Events of this connection are for `recipient` from now on.
    pub(crate) fn know_connection(&'static self, connection: u32, recipient: Arc<dyn Recipient>) {
        let mut table = self.table();
        recipient.set_connection(connection);
        table.connections.insert(connection, recipient);
        let early = take(&mut table.early, |event| event.connection == connection);
        for event in early {
            table.dispatch(self, event);
        }
    }

    /// Requests to this listener are for `recipient` from now on.
    pub(crate) fn know_listener(&'static self, listener: u64, recipient: Arc<dyn Recipient>) {
        let mut table = self.table();
        table.listeners.insert(listener, recipient);
        let early = take(&mut table.early, |event| event.listener == listener);
        for event in early {
            table.dispatch(self, event);
        }
    }

    /// A connection is given up: no event of it comes any more.
    pub(crate) fn abandon(&self, recipient: &dyn Recipient) {
        let connection = recipient.connection();
        if connection == 0 {
            return;
        }
        // SAFETY: the context is open. A connection that has just ended by itself is no concern.
        unsafe { nonic_cm_abandon(self.context, connection) };
        let mut table = self.table();
        if recipient.connection() == connection {
            recipient.set_connection(0);
            table.connections.remove(&connection);
        }
    }

    /// A listener listens no more.
    pub(crate) fn unlisten(&self, listener: u64) {
        // SAFETY: the context is open.
        unsafe { nonic_cm_unlisten(self.context, listener) };
        let mut table = self.table();
        table.listeners.remove(&listener);
        table.early.retain(|event| event.listener != listener);
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn dispatch(&mut self, device: &'static Device, event: nonic_cm_event) {
        if matches!(event.kind, REQUEST | SIDR_REQUEST) {
            let Some(listener) = self.listeners.get(&event.listener) else {
                self.early.push(event);
                return;
            };
            let asked = Arc::clone(listener).deliver_request(device, event);
            self.connections.insert(event.connection, asked);
            return;
        }
        let Some(recipient) = self.connections.get(&event.connection).map(Arc::clone) else {
            self.early.push(event);
            return;
        };
        if matches!(event.kind, REJECTED | UNREACHABLE | TIMEWAIT_EXIT | SIDR_RESPONSE) {
            // The last event of the connection: its number may be another's from now on.
            self.connections.remove(&event.connection);
            recipient.set_connection(0);
        }
        if event.kind == TIMEWAIT_EXIT && device.is_iwarp {
            // TCP's business. The program must not be woken for it either.
            return;
        }
        recipient.deliver(event);
    }
}

/// Takes out what fits, in order.
fn take(events: &mut Vec<nonic_cm_event>, fits: impl Fn(&nonic_cm_event) -> bool) -> Vec<nonic_cm_event> {
    let (taken, kept) = events.drain(..).partition(fits);
    *events = kept;
    taken
}

/// The devices that programs are shown.
fn list() -> Result<Vec<*mut ibv_device>, Errno> {
    let mut count: c_int = 0;
    // SAFETY: the number goes to our variable.
    let list = errno::check_pointer(unsafe { ibv_get_device_list(&raw mut count) })?;
    // SAFETY: the list has that many entries; devices live as long as the process.
    let devices = (0..count as usize)
        .map(|index| unsafe { *list.add(index) })
        .collect();
    // SAFETY: the list is ours, and nothing of it is used any more.
    unsafe { ibv_free_device_list(list) };
    Ok(devices)
}

/// What the device calls with each event.
unsafe extern "C" fn deliver(cookie: *mut c_void, event: *const nonic_cm_event) {
    // SAFETY: the cookie is a device, which lives for ever; the event lives during the call.
    let (device, event): (&'static Device, _) = unsafe { (&*cookie.cast::<Device>(), *event) };
    device.table().dispatch(device, event);
}

/// The contexts of all devices that programs are shown, ended by NULL.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_devices(count: *mut c_int) -> *mut *mut ibv_context {
    let devices = match Device::listed() {
        Ok(devices) => devices,
        Err(errno) => {
            return ANSWER.pointer("rdma_get_devices", Err(errno));
        }
    };
    // SAFETY: calloc takes any numbers; one entry more, for the NULL at the end.
    let array = unsafe { libc::calloc(devices.len() + 1, size_of::<*mut ibv_context>()) };
    let array = array.cast::<*mut ibv_context>();
    if array.is_null() {
        return ANSWER.pointer("rdma_get_devices", Err(of_system("calloc")));
    }
    for (index, device) in devices.iter().enumerate() {
        // SAFETY: the array has room for all of them.
        unsafe { *array.add(index) = device.context };
    }
    // SAFETY: the program passes NULL or where to put the number.
    if let Some(count) = unsafe { count.as_mut() } {
        *count = devices.len() as c_int;
    }
    array
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    // SAFETY: the program passes what `rdma_get_devices` gave it: memory from calloc, or NULL.
    unsafe { libc::free(list.cast()) };
}
