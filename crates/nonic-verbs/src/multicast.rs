//! Joining and leaving multicast groups.

use crate::object::{argument, object};
use crate::qp::Qp;
use crate::refusal::ANSWER;
use libc::c_int;
use nonic_abi::errno::{Errno, of_io, refused};
use nonic_abi::verbs::{ibv_gid, ibv_qp};
use nonic_engine::netdev::Gid;
use std::net::IpAddr;
use std::sync::PoisonError;

/// # Safety
///
/// The pointers are what the program passed.
unsafe fn member<'a>(qp: *mut ibv_qp, gid: *const ibv_gid) -> Result<(&'a Qp, IpAddr), Errno> {
    // SAFETY: the caller's promise.
    let (qp, gid) = unsafe { (object::<Qp>(qp)?, argument(gid)?) };
    // SAFETY: every bit pattern is an array of bytes.
    let group = Gid(unsafe { gid.raw }).ip();
    if !qp.is_datagram() || !group.is_multicast() {
        return Err(refused(
            libc::EINVAL,
            "qp is no datagram queue pair, or gid no multicast address",
            "attach IBV_QPT_UD queue pairs to groups of ff00::/8 or ::ffff:224.0.0.0/4",
        ));
    }
    Ok((qp, group))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, _lid: u16) -> c_int {
    // SAFETY: the program passes a live queue pair and a GID.
    let member = unsafe { member(qp, gid) };
    ANSWER.code(
        "ibv_attach_mcast",
        member.and_then(|(qp, group)| {
            let attached = qp.device.attach_multicast(qp.qpn, group);
            attached.map_err(|error| match error.raw_os_error() {
                Some(_) => of_io("joining the multicast group", &error),
                None => refused(
                    libc::EINVAL,
                    error.to_string(),
                    "attach a queue pair that exists to a group of an IP version that the device has",
                ),
            })?;
            // Attaching twice is attaching once.
            qp.groups
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(group);
            Ok(())
        }),
    )
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, _lid: u16) -> c_int {
    // SAFETY: the program passes a live queue pair and a GID.
    let member = unsafe { member(qp, gid) };
    ANSWER.code(
        "ibv_detach_mcast",
        member.and_then(|(qp, group)| {
            if qp.device.detach_multicast(qp.qpn, group) {
                qp.groups
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .remove(&group);
                Ok(())
            } else {
                Err(refused(
                    libc::EINVAL,
                    "the queue pair is not attached to this group",
                    "detach what ibv_attach_mcast attached",
                ))
            }
        }),
    )
}
