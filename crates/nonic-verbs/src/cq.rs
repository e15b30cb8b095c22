//! Completion queues: creating, arming, resizing, destroying. Taking completions is in `poll` and `extended`.

use crate::channel::{CompChannel, Listener};
use crate::context::{Context, Shared, context};
use crate::extended::Current;
use crate::limits::MAX_CQE;
use crate::object::{Acks, Object, Users, argument, next_handle, object, reclaim, zeroed};
use crate::objects::reserve;
use crate::pd::{Buffer, Pd};
use crate::refusal::ANSWER;
use libc::{c_int, c_void};
use nonic_abi::errno::{Errno, refused};
use nonic_abi::verbs::*;
use nonic_core::{Arm, CompletionQueue};
use nonic_engine::{Device, Notify};
use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A completion queue, of either kind.
#[repr(C)]
pub(crate) struct Cq {
    pub(crate) c: UnsafeCell<ibv_cq_ex>,
    pub(crate) device: Device,
    pub(crate) queue: Arc<CompletionQueue>,
    /// The completion that an extended queue's readers look at.
    pub(crate) current: Current,
    pub(crate) completion_acks: Acks,
    pub(crate) async_acks: Acks,
    pub(crate) users: Users,
    shared: Arc<Shared>,
    _buffer: Option<Buffer>,
}

// SAFETY: `repr(C)`, and what is first begins with the fields of `ibv_cq`.
unsafe impl Object for Cq {
    type C = ibv_cq;
}

/// What to create, from either way of asking.
pub(crate) struct CqRequest {
    pub(crate) entries: u32,
    pub(crate) cq_context: *mut c_void,
    pub(crate) channel: *mut ibv_comp_channel,
    pub(crate) vector: u32,
    pub(crate) single_threaded: bool,
    pub(crate) parent_domain: *mut ibv_pd,
}

/// What a parent domain's allocator is told the memory is for.
const RESOURCE_CQ: u64 = 2;

/// # Safety
///
/// The pointers in the request are what the program passed.
pub(crate) unsafe fn create(context: &Context, request: &CqRequest) -> Result<Box<Cq>, Errno> {
    let c_context = context.as_c();
    // SAFETY: the context is open.
    let vectors = unsafe { (*c_context).num_comp_vectors };
    if request.entries == 0 || request.entries > MAX_CQE as u32 {
        return Err(refused(
            libc::EINVAL,
            format!(
                "cqe is {}: it must be from 1 to {MAX_CQE}",
                request.entries as c_int
            ),
            "ask for no more than ibv_query_device says (max_cqe)",
        ));
    }
    if i64::from(request.vector) >= i64::from(vectors) {
        return Err(refused(
            libc::EINVAL,
            format!("comp_vector is {}, and the context has {vectors}", request.vector),
            "use a number below num_comp_vectors of the context, or 0",
        ));
    }
    let buffer = match request.parent_domain.is_null() {
        true => None,
        false => {
            // SAFETY: the program passes a live domain.
            let domain = unsafe { object::<Pd>(request.parent_domain) }?;
            Buffer::new(domain, request.entries as usize * 64, RESOURCE_CQ)?
        }
    };
    reserve(&mut context.shared.objects().cqs)?;
    let listener = match request.channel.is_null() {
        true => None,
        false => {
            // SAFETY: the program passes a live channel.
            let channel = unsafe { object::<CompChannel>(request.channel) }?;
            channel.users.join();
            Some(Arc::new(Listener {
                queue: Arc::clone(&channel.queue),
                cq: AtomicPtr::new(std::ptr::null_mut()),
            }))
        }
    };
    let notify = listener.clone().map(|listener| listener as Arc<dyn Notify>);
    let queue = context.device().create_cq(request.entries as usize, notify);
    let mut c: ibv_cq_ex = zeroed();
    c.base.context = c_context;
    c.base.channel = request.channel;
    c.base.cq_context = request.cq_context;
    c.base.handle = next_handle();
    c.base.cqe = request.entries as c_int;
    let cq = Box::new(Cq {
        c: UnsafeCell::new(c),
        device: context.device().clone(),
        current: Current::new(request.single_threaded),
        completion_acks: Acks::default(),
        async_acks: Acks::default(),
        users: Users::default(),
        shared: Arc::clone(&context.shared),
        _buffer: buffer,
        queue,
    });
    if let Some(listener) = listener {
        listener.cq.store(cq.as_c(), Ordering::Release);
    }
    context.shared.objects().cqs.insert(cq.queue.id(), cq.as_c());
    Ok(cq)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_cq(
    c_context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    let entries = u32::try_from(cqe).unwrap_or(0);
    let vector = u32::try_from(comp_vector).unwrap_or(u32::MAX);
    let request = CqRequest {
        entries,
        cq_context,
        channel,
        vector,
        single_threaded: false,
        parent_domain: std::ptr::null_mut(),
    };
    // SAFETY: the program passes an open context, and NULL or a live channel.
    let created = unsafe { context(c_context).and_then(|context| create(context, &request)) };
    ANSWER.pointer("ibv_create_cq", created.map(|cq| Box::into_raw(cq).cast()))
}

/// # Safety
///
/// The pointer is what the program passed.
unsafe fn destroy(c_cq: *mut ibv_cq) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let cq = unsafe { object::<Cq>(c_cq) }?;
    if cq.shared.is_elsewhere() {
        return Ok(());
    }
    cq.users.none()?;
    cq.device.forget_cq(cq.queue.id());
    cq.shared.objects().cqs.remove(&cq.queue.id());
    // SAFETY: set when the queue was made, and never again.
    let channel = unsafe { (*cq.c.get()).base.channel };
    if !channel.is_null() {
        // SAFETY: a completion queue keeps its channel from being destroyed.
        let channel = unsafe { object::<CompChannel>(channel) }?;
        channel
            .queue
            .take_out(usize::MAX, |event| event.load(Ordering::Relaxed) == c_cq);
        channel.users.leave();
    }
    cq.completion_acks.wait();
    cq.async_acks.wait();
    // SAFETY: the program does not use it again.
    drop(unsafe { reclaim::<Cq>(c_cq) });
    Ok(())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: the program passes a live queue.
    ANSWER.code("ibv_destroy_cq", unsafe { destroy(cq) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_resize_cq(c_cq: *mut ibv_cq, cqe: c_int) -> c_int {
    // SAFETY: the program passes a live queue.
    let cq = unsafe { object::<Cq>(c_cq) };
    ANSWER.code("ibv_resize_cq", cq.and_then(|cq| {
        if cqe <= 0 || cqe > MAX_CQE || !cq.queue.resize(cqe as usize) {
            return Err(refused(libc::EINVAL, format!("cqe is {cqe}: it must be from 1 to {MAX_CQE}, and no less than the completions that wait in the queue"), "ask for no more than ibv_query_device says (max_cqe), and poll before you shrink a queue"));
        }
        // SAFETY: the program resizes one queue from one thread at a time.
        unsafe { (*c_cq).cqe = cqe };
        Ok(())
    }))
}

pub(crate) unsafe extern "C" fn req_notify_cq(c_cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: the program passes a live queue.
    let cq = unsafe { object::<Cq>(c_cq) };
    ANSWER.code(
        "ibv_req_notify_cq",
        cq.map(|cq| {
            let arm = if solicited_only == 0 {
                Arm::Next
            } else {
                Arm::Solicited
            };
            // SAFETY: the channel is set when the queue is made, never again, and kept from being destroyed by the queue.
            match unsafe { object::<CompChannel>((*c_cq).channel) } {
                Ok(channel) => cq.device.arm_to_wait(&cq.queue, arm, &channel.waits),
                Err(_) => cq.device.arm(&cq.queue, arm),
            }
        }),
    )
}

/// Moderation is accepted and not done: completions are announced at once.
pub(crate) unsafe extern "C" fn modify_cq(c_cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int {
    // SAFETY: the program passes a live queue and its structure.
    let (cq, attr) = unsafe { (object::<Cq>(c_cq), argument(attr)) };
    ANSWER.code(
        "ibv_modify_cq",
        cq.and_then(|_| {
            if attr?.attr_mask & !IBV_CQ_ATTR_MODERATE != 0 {
                return Err(refused(
                    libc::EINVAL,
                    "attr.attr_mask has more than IBV_CQ_ATTR_MODERATE",
                    "set that bit alone",
                ));
            }
            Ok(())
        }),
    )
}
