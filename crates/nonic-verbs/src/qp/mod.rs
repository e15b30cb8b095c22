//! Queue pairs: creating and destroying. Modifying and querying is in `attributes`, posting to them in `post` and
//! `extended`.

mod attributes;

use crate::refusal::ANSWER;
pub(crate) use attributes::{ibv_modify_qp, modify_qp_rate_limit};
use nonic_abi::errno::{Errno, refused};

use crate::context::{Shared, context};
use crate::cq::Cq;
use crate::errors;
use crate::extended::Builder;
use crate::object::{Acks, Object, Users, argument, argument_mut, next_handle, object, reclaim, zeroed};
use crate::objects::reserve;
use crate::pd::{Buffer, Pd};
use crate::srq::Srq;
use crate::xrc::Xrcd;
use libc::c_int;
use nonic_abi::verbs::*;
use nonic_core::{QpCapacity, QpInit, QpState, Qpn, Service};
use nonic_engine::Device;
use std::cell::UnsafeCell;
use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// A queue pair, with or without the extended interface.
#[repr(C)]
pub(crate) struct Qp {
    pub(crate) c: UnsafeCell<ibv_qp_ex_with_flush>,
    pub(crate) device: Device,
    pub(crate) qpn: Qpn,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) acks: Acks,
    /// Multicast groups it is in.
    pub(crate) groups: Mutex<HashSet<IpAddr>>,
    /// Requests being built through the extended interface.
    pub(crate) builder: Builder,
    pub(crate) is_extended: bool,
    service: Service,
    signal_all: bool,
    /// The route as the program gave it: the NIC keeps only what it needs.
    route: Mutex<ibv_ah_attr>,
    shared: Arc<Shared>,
    /// For a target of extended reliable connections: the domain it serves.
    xrcd: *mut ibv_xrcd,
    /// A target can be opened several times; the last handle ends it.
    handle: Arc<Handle>,
    buffer: Option<Buffer>,
}

/// The queue pair in the NIC.
struct Handle(Qpn);

/// The fields of a queue pair that never change.
struct Links {
    context: *mut ibv_context,
    qp_context: *mut libc::c_void,
    pd: *mut ibv_pd,
    send_cq: *mut ibv_cq,
    recv_cq: *mut ibv_cq,
    srq: *mut ibv_srq,
    qp_type: c_int,
}

// SAFETY: `repr(C)`, and what is first begins with `ibv_qp`.
unsafe impl Object for Qp {
    type C = ibv_qp;
}

impl Qp {
    pub(crate) fn is_datagram(&self) -> bool {
        self.service == Service::Ud
    }

    pub(crate) fn service(&self) -> Service {
        self.service
    }

    fn new(
        c: ibv_qp_ex_with_flush,
        shared: &Arc<Shared>,
        service: Service,
        init: &ibv_qp_init_attr,
        handle: Arc<Handle>,
    ) -> Self {
        Qp {
            c: UnsafeCell::new(c),
            device: shared.device.clone(),
            qpn: handle.0,
            cap: init.cap,
            acks: Acks::default(),
            groups: Mutex::default(),
            builder: Builder::default(),
            is_extended: false,
            service,
            signal_all: init.sq_sig_all != 0,
            route: Mutex::new(zeroed()),
            shared: Arc::clone(shared),
            xrcd: std::ptr::null_mut(),
            handle,
            buffer: None,
        }
    }

    /// Counts it as a user of what it uses, which cannot be destroyed before it, and lists it for events.
    fn register(self) -> Box<Self> {
        let qp = Box::new(self);
        qp.for_each_used(Users::join);
        qp.shared.objects().qps.insert(qp.qpn, qp.as_c());
        qp
    }

    /// Calls `act` for each object it uses.
    fn for_each_used(&self, act: impl Fn(&Users)) {
        let links = self.links();
        // SAFETY: a queue pair keeps what it uses from being destroyed. What it has not got is NULL.
        unsafe {
            let _ = object::<Pd>(links.pd).map(|pd| act(&pd.users));
            let _ = object::<Cq>(links.send_cq).map(|cq| act(&cq.users));
            let _ = object::<Cq>(links.recv_cq).map(|cq| act(&cq.users));
            let _ = object::<Srq>(links.srq).map(|srq| act(&srq.users));
            let _ = object::<Xrcd>(self.xrcd).map(|xrcd| act(&xrcd.users));
        }
    }

    /// What it is connected with inside this library.
    fn links(&self) -> Links {
        // Not a reference to the structure: `state` in it changes, and the program sets fields of its own.
        let base = self.c.get().cast::<ibv_qp>();
        // SAFETY: these fields are set when the queue pair is made, and never again.
        unsafe {
            Links {
                context: (*base).context,
                qp_context: (*base).qp_context,
                pd: (*base).pd,
                send_cq: (*base).send_cq,
                recv_cq: (*base).recv_cq,
                srq: (*base).srq,
                qp_type: (*base).qp_type,
            }
        }
    }
}

/// What a parent domain's allocator is told the memory is for.
const RESOURCE_QP: u64 = 0;

/// As much inline data as a queue pair gets whose program did not ask for any.
const MAX_UNASKED_INLINE: u32 = 256;

fn service_of(qp_type: c_int) -> Result<Service, Errno> {
    match qp_type {
        IBV_QPT_RC => Ok(Service::Rc),
        IBV_QPT_UC => Ok(Service::Uc),
        IBV_QPT_UD => Ok(Service::Ud),
        IBV_QPT_XRC_SEND => Ok(Service::Xrc),
        IBV_QPT_RAW_PACKET | IBV_QPT_DRIVER => Err(refused(
            libc::EOPNOTSUPP,
            "qp_type is IBV_QPT_RAW_PACKET or IBV_QPT_DRIVER, which need hardware",
            "use IBV_QPT_RC, UC, UD or XRC",
        )),
        _ => Err(refused(
            libc::EINVAL,
            format!("qp_type {qp_type} is unknown here"),
            "use IBV_QPT_RC, UC, UD or XRC_SEND; IBV_QPT_XRC_RECV is made by ibv_create_qp_ex",
        )),
    }
}

/// Creates a queue pair; `init` tells afterwards what it really got.
///
/// # Safety
///
/// The pointers are what the program passed.
pub(crate) unsafe fn create(
    c_pd: *mut ibv_pd,
    init: &mut ibv_qp_init_attr,
    is_extended: bool,
) -> Result<Box<Qp>, Errno> {
    // SAFETY: the caller's promise.
    let (pd, send_cq) = unsafe { (object::<Pd>(c_pd)?, object::<Cq>(init.send_cq)?) };
    let service = service_of(init.qp_type)?;
    if service == Service::Xrc {
        // It only sends.
        init.srq = std::ptr::null_mut();
        init.recv_cq = std::ptr::null_mut();
    }
    let recv_cq = match service {
        Service::Xrc => send_cq,
        // SAFETY: the caller's promise.
        _ => unsafe { object::<Cq>(init.recv_cq) }?,
    };
    let srq = match init.srq.is_null() {
        true => None,
        // SAFETY: the caller's promise.
        false => Some(unsafe { object::<Srq>(init.srq) }?),
    };
    if srq.is_some() || service == Service::Xrc {
        init.cap.max_recv_wr = 0;
        init.cap.max_recv_sge = 0;
    }
    // Programs write small messages inline without asking, since every device gives at least the room of its
    // scatter/gather list.
    let list_bytes = init.cap.max_send_sge.saturating_mul(size_of::<ibv_sge>() as u32);
    init.cap.max_inline_data = init.cap.max_inline_data.max(list_bytes.min(MAX_UNASKED_INLINE));
    let cap = init.cap;
    let device = &pd.shared.device;
    reserve(&mut pd.shared.objects().qps)?;
    let qpn = device
        .create_qp(QpInit {
            service,
            pd: pd.id,
            send_cq: Arc::clone(&send_cq.queue),
            recv_cq: Arc::clone(&recv_cq.queue),
            srq: srq.map(|srq| Arc::clone(&srq.queue)),
            capacity: capacity(&cap),
            signal_all: init.sq_sig_all != 0,
        })
        .map_err(errors::of_create)?;
    let bytes = (cap.max_send_wr + cap.max_recv_wr).max(1) as usize * 64;
    let buffer = Buffer::new(pd, bytes, RESOURCE_QP).inspect_err(|_| {
        device.destroy_qp(qpn);
    })?;
    let c = view(pd.c_context(), c_pd, init, qpn);
    let mut qp = Qp::new(c, &pd.shared, service, init, Arc::new(Handle(qpn)));
    qp.is_extended = is_extended;
    qp.buffer = buffer;
    Ok(qp.register())
}

/// Creates the receiving half of an extended reliable connection.
///
/// # Safety
///
/// The pointers are what the program passed.
pub(crate) unsafe fn create_target(
    c_xrcd: *mut ibv_xrcd,
    init: &mut ibv_qp_init_attr,
) -> Result<Box<Qp>, Errno> {
    // SAFETY: the caller's promise.
    let xrcd = unsafe { object::<Xrcd>(c_xrcd) }?;
    let qpn = xrcd.shared.device.create_xrc_target(xrcd.domain());
    let qpn = qpn.map_err(errors::of_create)?;
    Ok(target(xrcd, init, Arc::new(Handle(qpn))))
}

/// The program's view of a target, new or opened once more.
fn target(xrcd: &Xrcd, init: &mut ibv_qp_init_attr, handle: Arc<Handle>) -> Box<Qp> {
    // It has nothing of its own: shared receive queues bring all it needs.
    *init = ibv_qp_init_attr {
        qp_context: init.qp_context,
        send_cq: std::ptr::null_mut(),
        recv_cq: std::ptr::null_mut(),
        srq: std::ptr::null_mut(),
        cap: ibv_qp_cap::default(),
        qp_type: IBV_QPT_XRC_RECV,
        sq_sig_all: 0,
    };
    let c = view(xrcd.c_context(), std::ptr::null_mut(), init, handle.0);
    let mut qp = Qp::new(c, &xrcd.shared, Service::Xrc, init, handle);
    qp.xrcd = xrcd.as_c();
    qp.register()
}

pub(crate) unsafe extern "C" fn open_qp(
    c_context: *mut ibv_context,
    attr: *mut ibv_qp_open_attr,
) -> *mut ibv_qp {
    // SAFETY: the program passes an open context and its structure.
    ANSWER.pointer("ibv_open_qp", unsafe { open(c_context, attr) })
}

/// # Safety
///
/// The pointers are what the program passed.
unsafe fn open(c_context: *mut ibv_context, attr: *mut ibv_qp_open_attr) -> Result<*mut ibv_qp, Errno> {
    // SAFETY: the caller's promise.
    let (context, attr) = unsafe { (context(c_context)?, argument(attr)?) };
    let needed = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    let known = needed | IBV_QP_OPEN_ATTR_CONTEXT;
    if attr.comp_mask & !known != 0 || attr.comp_mask & needed != needed || attr.qp_type != IBV_QPT_XRC_RECV {
        return Err(refused(
            libc::EINVAL,
            "attr.comp_mask lacks IBV_QP_OPEN_ATTR_NUM, _XRCD or _TYPE or has unknown bits, or qp_type is not IBV_QPT_XRC_RECV",
            "set the three bits and that type: only the receiving half of XRC can be opened",
        ));
    }
    // SAFETY: the caller's promise.
    let xrcd = unsafe { object::<Xrcd>(attr.xrcd) }?;
    let found = context.shared.objects().qps.get(&Qpn::new(attr.qp_num)).copied();
    // SAFETY: listed objects are alive.
    let first = unsafe { object::<Qp>(found.unwrap_or(std::ptr::null_mut())) }?;
    if first.xrcd != xrcd.as_c() {
        return Err(refused(
            libc::EINVAL,
            format!("the queue pair {:#x} is of another XRC domain", attr.qp_num),
            "pass the domain it was made with",
        ));
    }
    let mut init: ibv_qp_init_attr = zeroed();
    if attr.comp_mask & IBV_QP_OPEN_ATTR_CONTEXT != 0 {
        init.qp_context = attr.qp_context;
    }
    let qp = target(xrcd, &mut init, Arc::clone(&first.handle));
    Ok(Box::into_raw(qp).cast())
}

/// What the program sees of a new queue pair.
fn view(
    c_context: *mut ibv_context,
    c_pd: *mut ibv_pd,
    init: &ibv_qp_init_attr,
    qpn: Qpn,
) -> ibv_qp_ex_with_flush {
    let mut c: ibv_qp_ex_with_flush = zeroed();
    let base = &mut c.base.qp_base;
    base.context = c_context;
    base.qp_context = init.qp_context;
    base.pd = c_pd;
    base.send_cq = init.send_cq;
    base.recv_cq = init.recv_cq;
    base.srq = init.srq;
    base.handle = next_handle();
    base.qp_num = qpn.value();
    base.state = QpState::Reset as c_int;
    base.qp_type = init.qp_type;
    c
}

fn capacity(cap: &ibv_qp_cap) -> QpCapacity {
    QpCapacity {
        max_send_wr: cap.max_send_wr,
        max_recv_wr: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline_data: cap.max_inline_data,
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_qp(pd: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    // SAFETY: the program passes a live domain and its structure.
    let created = unsafe { argument_mut(init).and_then(|init| create(pd, init, false)) };
    ANSWER.pointer("ibv_create_qp", created.map(|qp| Box::into_raw(qp).cast()))
}

/// # Safety
///
/// The pointer is what the program passed.
pub(crate) unsafe fn destroy(c_qp: *mut ibv_qp) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let qp = unsafe { object::<Qp>(c_qp) }?;
    if qp.shared.is_elsewhere() {
        return Ok(());
    }
    if !qp
        .groups
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .is_empty()
    {
        return Err(refused(
            libc::EBUSY,
            "the queue pair is attached to multicast groups",
            "call ibv_detach_mcast for each first",
        ));
    }
    let mut objects = qp.shared.objects();
    if objects.qps.get(&qp.qpn) == Some(&c_qp) {
        objects.qps.remove(&qp.qpn);
    }
    drop(objects);
    if Arc::strong_count(&qp.handle) == 1 {
        qp.device.destroy_qp(qp.qpn);
    }
    qp.acks.wait();
    // SAFETY: the program does not use it again.
    let mut qp = unsafe { reclaim::<Qp>(c_qp) };
    // The domain, whose allocator gave it, must not go first.
    drop(qp.buffer.take());
    qp.for_each_used(Users::leave);
    Ok(())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: the program passes a live queue pair.
    ANSWER.code("ibv_destroy_qp", unsafe { destroy(qp) })
}

/// Data is placed packet by packet in the order of arrival, which a retransmission may change.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_qp_data_in_order(_qp: *mut ibv_qp, _op: c_int, _flags: u32) -> c_int {
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_set_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    // SAFETY: the program passes a live queue pair and its structure.
    let (qp, ece) = unsafe { (object::<Qp>(qp), argument(ece)) };
    ANSWER.code(
        "ibv_set_ece",
        qp.and_then(|_| match ece?.vendor_id {
            // Nothing asked for: nothing to refuse.
            0 => Ok(()),
            _ => Err(refused(
                libc::EOPNOTSUPP,
                "ece asks for options of a vendor, which are not offered",
                "pass vendor_id 0",
            )),
        }),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    // SAFETY: the program passes a live queue pair and where to put the answer.
    let (qp, ece) = unsafe { (object::<Qp>(qp), argument_mut(ece)) };
    ANSWER.code(
        "ibv_query_ece",
        qp.and_then(|_| {
            *ece? = ibv_ece {
                vendor_id: 0,
                options: 0,
                comp_mask: 0,
            };
            Ok(())
        }),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_qp_to_qp_ex(c_qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    // SAFETY: the program passes a live queue pair.
    match unsafe { object::<Qp>(c_qp) } {
        Ok(qp) if qp.is_extended => c_qp.cast(),
        _ => std::ptr::null_mut(),
    }
}
