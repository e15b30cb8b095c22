//! Queue pairs: creating, modifying, querying, destroying. Posting to them is in `post` and `extended`.

use crate::abi::*;
use crate::address::path;
use crate::context::{Context, Shared, context};
use crate::cq::Cq;
use crate::errno::{self, Errno};
use crate::extended::Builder;
use crate::object::{Acks, Object, argument, argument_mut, next_handle, object, reclaim, zeroed};
use crate::pd::{Buffer, Pd};
use crate::srq::Srq;
use libc::c_int;
use nonic_core::{
    Access, AckTimeout, PathMtu, Psn, QpAttributes, QpCapacity, QpInit, QpState, Qpn, RnrTimer, Service,
};
use nonic_engine::Device;
use std::cell::UnsafeCell;
use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
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
    qkey: AtomicU32,
    /// The route as the program gave it: the NIC keeps only what it needs.
    route: Mutex<ibv_ah_attr>,
    shared: Arc<Shared>,
    _buffer: Option<Buffer>,
}

// SAFETY: `repr(C)`, and what is first begins with `ibv_qp`.
unsafe impl Object for Qp {
    type C = ibv_qp;
}

impl Qp {
    pub(crate) fn is_datagram(&self) -> bool {
        self.service == Service::Ud
    }

    /// The datagram key it was given.
    pub(crate) fn qkey(&self) -> u32 {
        self.qkey.load(Ordering::Relaxed)
    }

    pub(crate) fn service(&self) -> Service {
        self.service
    }

    fn base(&self) -> &ibv_qp {
        // SAFETY: these fields are set when the queue pair is made; `state`, which changes, is only written.
        unsafe { &(*self.c.get()).base.qp_base }
    }
}

/// What a parent domain's allocator is told the memory is for.
const RESOURCE_QP: u64 = 0;

fn service_of(qp_type: c_int) -> Result<Service, Errno> {
    match qp_type {
        IBV_QPT_RC => Ok(Service::Rc),
        IBV_QPT_UC => Ok(Service::Uc),
        IBV_QPT_UD => Ok(Service::Ud),
        IBV_QPT_RAW_PACKET | IBV_QPT_XRC_SEND | IBV_QPT_XRC_RECV | IBV_QPT_DRIVER => Err(libc::EOPNOTSUPP),
        _ => Err(libc::EINVAL),
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
    let (pd, send_cq, recv_cq) = unsafe {
        (
            object::<Pd>(c_pd)?,
            object::<Cq>(init.send_cq)?,
            object::<Cq>(init.recv_cq)?,
        )
    };
    let srq = match init.srq.is_null() {
        true => None,
        // SAFETY: the caller's promise.
        false => Some(unsafe { object::<Srq>(init.srq) }?),
    };
    let service = service_of(init.qp_type)?;
    if srq.is_some() {
        init.cap.max_recv_wr = 0;
        init.cap.max_recv_sge = 0;
    }
    let cap = init.cap;
    let device = pd.shared.device.clone();
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
        .map_err(errno::of_create)?;
    let bytes = (cap.max_send_wr + cap.max_recv_wr).max(1) as usize * 64;
    let buffer = Buffer::new(pd, bytes, RESOURCE_QP).inspect_err(|_| {
        device.destroy_qp(qpn);
    })?;
    pd.users.join();
    send_cq.users.join();
    recv_cq.users.join();
    if let Some(srq) = srq {
        srq.users.join();
    }
    let qp = Box::new(Qp {
        c: UnsafeCell::new(view(pd, init, qpn)),
        device,
        qpn,
        cap,
        acks: Acks::default(),
        groups: Mutex::default(),
        builder: Builder::default(),
        is_extended,
        service,
        signal_all: init.sq_sig_all != 0,
        qkey: AtomicU32::new(0),
        route: Mutex::new(zeroed()),
        shared: Arc::clone(&pd.shared),
        _buffer: buffer,
    });
    pd.shared.objects().qps.insert(qpn, qp.as_c());
    Ok(qp)
}

/// What the program sees of a new queue pair.
fn view(pd: &Pd, init: &ibv_qp_init_attr, qpn: Qpn) -> ibv_qp_ex_with_flush {
    let mut c: ibv_qp_ex_with_flush = zeroed();
    let base = &mut c.base.qp_base;
    base.context = pd.c_context();
    base.qp_context = init.qp_context;
    base.pd = pd.as_c();
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
unsafe extern "C" fn ibv_create_qp(pd: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    // SAFETY: the program passes a live domain and its structure.
    let created = unsafe { argument_mut(init).and_then(|init| create(pd, init, false)) };
    errno::pointer(created.map(|qp| Box::into_raw(qp).cast()))
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
        return Err(libc::EBUSY);
    }
    qp.device.destroy_qp(qp.qpn);
    qp.shared.objects().qps.remove(&qp.qpn);
    qp.acks.wait();
    let base = qp.base();
    // SAFETY: a queue pair keeps what it uses from being destroyed; the program does not use it again.
    unsafe {
        object::<Pd>(base.pd)?.users.leave();
        object::<Cq>(base.send_cq)?.users.leave();
        object::<Cq>(base.recv_cq)?.users.leave();
        if !base.srq.is_null() {
            object::<Srq>(base.srq)?.users.leave();
        }
        drop(reclaim::<Qp>(c_qp));
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: the program passes a live queue pair.
    errno::code(unsafe { destroy(qp) })
}

fn state_of(value: c_int) -> Result<QpState, Errno> {
    let found = QpState::ALL.into_iter().find(|state| *state as c_int == value);
    found.ok_or(libc::EINVAL)
}

fn mtu_of(value: c_int) -> Result<PathMtu, Errno> {
    let bytes = u32::try_from(value)
        .ok()
        .and_then(|code| 128_u32.checked_shl(code));
    bytes.and_then(PathMtu::from_bytes).ok_or(libc::EINVAL)
}

/// The attributes that `mask` names.
fn attributes(context: &Context, attr: &ibv_qp_attr, mask: u32) -> Result<QpAttributes, Errno> {
    let given = |bit: u32| mask & bit != 0;
    let mut set = QpAttributes::default();
    if given(IBV_QP_STATE) {
        set.state = Some(state_of(attr.qp_state)?);
    }
    if given(IBV_QP_AV) {
        if attr.ah_attr.port_num > 1 {
            return Err(libc::EINVAL);
        }
        set.path = Some(path(context, &attr.ah_attr)?);
    }
    if given(IBV_QP_PATH_MTU) {
        set.path_mtu = Some(mtu_of(attr.path_mtu)?);
    }
    if given(IBV_QP_TIMEOUT) {
        set.timeout = Some(AckTimeout::from_exponent(attr.timeout).ok_or(libc::EINVAL)?);
    }
    if given(IBV_QP_MIN_RNR_TIMER) {
        set.min_rnr_timer = Some(RnrTimer::from_code(attr.min_rnr_timer).ok_or(libc::EINVAL)?);
    }
    set.access = given(IBV_QP_ACCESS_FLAGS).then_some(Access::from_bits_truncate(attr.qp_access_flags));
    set.pkey_index = given(IBV_QP_PKEY_INDEX).then_some(attr.pkey_index);
    set.port = given(IBV_QP_PORT).then_some(attr.port_num);
    set.qkey = given(IBV_QP_QKEY).then_some(attr.qkey);
    set.retry_count = given(IBV_QP_RETRY_CNT).then_some(attr.retry_cnt);
    set.rnr_retry = given(IBV_QP_RNR_RETRY).then_some(attr.rnr_retry);
    set.rq_psn = given(IBV_QP_RQ_PSN).then_some(Psn::new(attr.rq_psn));
    set.sq_psn = given(IBV_QP_SQ_PSN).then_some(Psn::new(attr.sq_psn));
    set.max_rd_atomic = given(IBV_QP_MAX_QP_RD_ATOMIC).then_some(attr.max_rd_atomic);
    set.max_dest_rd_atomic = given(IBV_QP_MAX_DEST_RD_ATOMIC).then_some(attr.max_dest_rd_atomic);
    set.dest_qpn = given(IBV_QP_DEST_QPN).then_some(Qpn::new(attr.dest_qp_num));
    Ok(set)
}

/// Attributes that have a meaning here; path migration and rate limits have none.
const KNOWN_ATTRIBUTES: u32 = ((1 << 21) - 1) & !(IBV_QP_ALT_PATH | IBV_QP_CAP);

/// # Safety
///
/// The pointers are what the program passed.
unsafe fn modify(c_qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: u32) -> Result<(), Errno> {
    // SAFETY: the caller's promise; a queue pair's context is open.
    let (qp, attr, context) = unsafe {
        let qp = object::<Qp>(c_qp)?;
        (qp, argument(attr)?, context(qp.base().context)?)
    };
    if mask & !KNOWN_ATTRIBUTES != 0 {
        return Err(libc::EINVAL);
    }
    if mask & IBV_QP_CUR_STATE != 0 {
        let expected = state_of(attr.cur_qp_state)?;
        if qp.device.qp_state(qp.qpn) != Some(expected) {
            return Err(libc::EINVAL);
        }
    }
    let set = attributes(context, attr, mask)?;
    qp.device.modify_qp(qp.qpn, &set).map_err(errno::of_modify)?;
    if let Some(qkey) = set.qkey {
        qp.qkey.store(qkey, Ordering::Relaxed);
    }
    if set.path.is_some() {
        *qp.route.lock().unwrap_or_else(PoisonError::into_inner) = attr.ah_attr;
    }
    if set.state == Some(QpState::Reset) {
        forget_completions(qp);
    }
    if let Some(state) = set.state {
        // SAFETY: programs modify one queue pair from one thread at a time, and only read the field.
        unsafe { (*c_qp).state = state as c_int };
    }
    Ok(())
}

/// A queue pair that begins anew has no completions from its former life.
fn forget_completions(qp: &Qp) {
    for cq in [qp.base().send_cq, qp.base().recv_cq] {
        // SAFETY: a queue pair keeps its completion queues from being destroyed.
        if let Ok(cq) = unsafe { object::<Cq>(cq) } {
            cq.queue.purge(qp.qpn);
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
    // SAFETY: the program passes a live queue pair and its structure.
    errno::code(unsafe { modify(qp, attr, mask.cast_unsigned()) })
}

/// The attributes in force, as C sees them.
fn answer(qp: &Qp, now: &QpAttributes) -> ibv_qp_attr {
    let mut attr: ibv_qp_attr = zeroed();
    let state = now.state.unwrap_or_default() as c_int;
    attr.qp_state = state;
    attr.cur_qp_state = state;
    attr.path_mtu = now.path_mtu.map_or(0, |mtu| mtu as c_int);
    attr.qkey = now.qkey.unwrap_or_default();
    attr.rq_psn = now.rq_psn.unwrap_or_default().value();
    attr.sq_psn = now.sq_psn.unwrap_or_default().value();
    attr.dest_qp_num = now.dest_qpn.unwrap_or_default().value();
    attr.qp_access_flags = now.access.map_or(0, |access| access.bits());
    attr.cap = qp.cap;
    attr.ah_attr = *qp.route.lock().unwrap_or_else(PoisonError::into_inner);
    attr.pkey_index = now.pkey_index.unwrap_or_default();
    attr.max_rd_atomic = now.max_rd_atomic.unwrap_or_default();
    attr.max_dest_rd_atomic = now.max_dest_rd_atomic.unwrap_or_default();
    attr.min_rnr_timer = now.min_rnr_timer.map_or(0, RnrTimer::code);
    attr.port_num = now.port.unwrap_or_default();
    attr.timeout = now.timeout.map_or(0, AckTimeout::exponent);
    attr.retry_cnt = now.retry_count.unwrap_or_default();
    attr.rnr_retry = now.rnr_retry.unwrap_or_default();
    attr
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_qp(
    c_qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the program passes a live queue pair and where to put the answers.
    let (qp, attr, init) = unsafe { (object::<Qp>(c_qp), argument_mut(attr), argument_mut(init)) };
    errno::code(qp.and_then(|qp| {
        let now = qp.device.query_qp(qp.qpn).ok_or(libc::EINVAL)?;
        let attr = attr?;
        *attr = answer(qp, &now);
        let base = qp.base();
        if let Ok(init) = init {
            *init = ibv_qp_init_attr {
                qp_context: base.qp_context,
                send_cq: base.send_cq,
                recv_cq: base.recv_cq,
                srq: base.srq,
                cap: qp.cap,
                qp_type: base.qp_type,
                sq_sig_all: c_int::from(qp.signal_all),
            };
        }
        // SAFETY: as in `modify`.
        unsafe { (*c_qp).state = attr.qp_state };
        Ok(())
    }))
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
    errno::code(qp.and_then(|_| match ece?.vendor_id {
        // Nothing asked for: nothing to refuse.
        0 => Ok(()),
        _ => Err(libc::EOPNOTSUPP),
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    // SAFETY: the program passes a live queue pair and where to put the answer.
    let (qp, ece) = unsafe { (object::<Qp>(qp), argument_mut(ece)) };
    errno::code(qp.and_then(|_| {
        *ece? = ibv_ece {
            vendor_id: 0,
            options: 0,
            comp_mask: 0,
        };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_qp_to_qp_ex(c_qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    // SAFETY: the program passes a live queue pair.
    match unsafe { object::<Qp>(c_qp) } {
        Ok(qp) if qp.is_extended => c_qp.cast(),
        _ => std::ptr::null_mut(),
    }
}
