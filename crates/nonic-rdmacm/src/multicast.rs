//! Joining and leaving multicast groups. On Ethernet the group's address is its GID, and joining needs no query.

use crate::convert::{address, ah_attributes, gid_of};
use crate::delivery::complete;
use crate::id::{Group, Id, Pending, What, id};
use crate::refusal::ANSWER;
use libc::{c_int, c_void, sockaddr};
use nonic_abi::errno::{self, Errno, refused};
use nonic_abi::libibverbs::*;
use nonic_abi::rdma_cma::*;
use nonic_abi::verbs::*;
use std::net::IpAddr;
use std::sync::Arc;

fn join(id: &Arc<Id>, ip: IpAddr, send_only: bool, context: *mut c_void) -> Result<(), Errno> {
    let device = id.device()?;
    id.check_service(device)?;
    if !ip.is_multicast() {
        return Err(refused(
            libc::EINVAL,
            format!("{ip} is no multicast address"),
            "join groups of 224.0.0.0/4 or ff00::/8",
        ));
    }
    let local = id
        .state()
        .local
        .ok_or_else(|| {
            refused(
                libc::EINVAL,
                "the identifier has no address",
                "bind it first (rdma_bind_addr), or resolve an address (rdma_resolve_addr)",
            )
        })?
        .ip();
    let gid = ibv_gid { raw: gid_of(ip) };
    let mut group = Group {
        ip,
        is_attached: false,
        context,
        ah_attr: ah_attributes(
            gid_of(ip),
            device.gid_index(&gid_of(local))?,
            id.state().traffic_class,
        ),
        status: 0,
    };
    if !id.qp().is_null() && !send_only {
        // SAFETY: the queue pair is alive, and the GID is our variable.
        let attached = errno::check(unsafe { ibv_attach_mcast(id.qp(), &raw const gid, 0) });
        group.is_attached = attached.is_ok();
        group.status = attached.err().map_or(0, |errno| -errno.number());
    }
    id.state().groups.push(group);
    id.push(Pending {
        owner: Arc::clone(id),
        asked: None,
        what: What::Joined(Box::new(group)),
    });
    complete(id)
}

fn leave(id: &Arc<Id>, ip: IpAddr) -> Result<(), Errno> {
    let mut state = id.state();
    let place = state.groups.iter().position(|group| group.ip == ip);
    let group = state.groups.remove(place.ok_or_else(|| {
        refused(
            libc::EADDRNOTAVAIL,
            format!("the identifier is not in the group {ip}"),
            "leave what rdma_join_multicast joined",
        )
    })?);
    drop(state);
    if group.is_attached && !id.qp().is_null() {
        let gid = group.ah_attr.grh.dgid;
        // SAFETY: the queue pair is alive, and the GID is our variable.
        errno::check(unsafe { ibv_detach_mcast(id.qp(), &raw const gid, 0) })?;
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_join_multicast(
    pointer: *mut rdma_cm_id,
    group: *mut sockaddr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the program passes its identifier and an address.
    let arguments = unsafe { id(pointer).and_then(|id| Ok((id, address(group)?.ip()))) };
    ANSWER.minus_one(
        "rdma_join_multicast",
        arguments.and_then(|(id, ip)| join(&id, ip, false, context)),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_join_multicast_ex(
    pointer: *mut rdma_cm_id,
    attr: *mut rdma_cm_join_mc_attr_ex,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the program passes its identifier and a structure with an address.
    let arguments = unsafe {
        id(pointer).and_then(|id| {
            let attr = attr.as_ref().ok_or_else(|| {
                refused(
                    libc::EINVAL,
                    "mc_join_attr is NULL",
                    "pass the attributes of the group",
                )
            })?;
            if attr.comp_mask & RDMA_CM_JOIN_MC_ATTR_ADDRESS == 0 {
                return Err(refused(
                    libc::EINVAL,
                    "mc_join_attr.comp_mask lacks RDMA_CM_JOIN_MC_ATTR_ADDRESS",
                    "set the bit and the address",
                ));
            }
            let has_flags = attr.comp_mask & RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS != 0;
            let send_only = has_flags && attr.join_flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
            Ok((id, address(attr.addr)?.ip(), send_only))
        })
    };
    ANSWER.minus_one(
        "rdma_join_multicast_ex",
        arguments.and_then(|(id, ip, send_only)| join(&id, ip, send_only, context)),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_leave_multicast(pointer: *mut rdma_cm_id, group: *mut sockaddr) -> c_int {
    // SAFETY: the program passes its identifier and an address.
    let arguments = unsafe { id(pointer).and_then(|id| Ok((id, address(group)?.ip()))) };
    ANSWER.minus_one(
        "rdma_leave_multicast",
        arguments.and_then(|(id, ip)| leave(&id, ip)),
    )
}
