//! The life of an identifier: programs create, move and destroy it.

use crate::channel::{Channel, channel};
use crate::delivery::release_event;
use crate::descriptor::Audience;
use crate::id::{Id, Pending, create, give, id, qp_type_of};
use crate::refusal::ANSWER;
use libc::{c_int, c_void};
use nonic_abi::errno::{Errno, refused};
use nonic_abi::rdma_cma::{rdma_cm_id, rdma_event_channel};
use std::sync::Arc;

/// Moves an identifier and its events to another channel; to one of its own if there is none.
fn migrate(id: &Id, to: Option<Arc<Channel<Pending>>>) -> Result<(), Errno> {
    let synchronous = to.is_none();
    let to = match to {
        Some(channel) => channel,
        None => Channel::new(Audience::Program)?,
    };
    release_event(id);
    id.move_to(to);
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
        return ANSWER.minus_one(
            "rdma_create_id",
            Err(refused(
                libc::EINVAL,
                "id is NULL",
                "pass where to put the identifier",
            )),
        );
    }
    // SAFETY: the program passes its channel or NULL.
    let id =
        qp_type_of(port_space).and_then(|qp_type| unsafe { create(c_channel, context, port_space, qp_type) });
    ANSWER.minus_one(
        "rdma_create_id",
        id.map(|id| {
            // SAFETY: the program passes where to put it.
            unsafe { *made = give(id) };
        }),
    )
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_destroy_id(pointer: *mut rdma_cm_id) -> c_int {
    if pointer.is_null() {
        return ANSWER.minus_one(
            "rdma_destroy_id",
            Err(refused(
                libc::EINVAL,
                "id is NULL",
                "pass what rdma_create_id returned",
            )),
        );
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
    ANSWER.minus_one("rdma_migrate_id", id.and_then(|id| migrate(&id, to)))
}
