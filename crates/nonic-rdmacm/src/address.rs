//! Addresses: binding to one, and finding the way to another.
//!
//! The kernel's routing decides which of our addresses talks to a peer; the address decides the device. There is no
//! path to look up on Ethernet, so a route is resolved as soon as it is asked for.

use crate::convert::address;
use crate::delivery::complete;
use crate::device::Device;
use crate::id::{Id, Pending, id};
use crate::port;
use crate::refusal::ANSWER;
use libc::{c_int, sockaddr};
use nonic_abi::errno::{Errno, of_io, refused};
use nonic_abi::rdma_cma::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// The address of ours that talks to `remote`, as the routing table has it.
pub(crate) fn source_for(local: Option<SocketAddr>, remote: SocketAddr) -> Result<IpAddr, Errno> {
    let unspecified: IpAddr = match remote {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    if let Some(local) = local.filter(|local| !local.ip().is_unspecified()) {
        // The program has chosen.
        return Ok(local.ip());
    }
    let found = UdpSocket::bind((unspecified, 0)).and_then(|socket| {
        // Nothing is sent: connecting makes the kernel choose a route.
        socket.connect(SocketAddr::new(remote.ip(), remote.port().max(1)))?;
        socket.local_addr()
    });
    found
        .map(|address| address.ip())
        .map_err(|error| of_io(&format!("looking for a route to {}", remote.ip()), &error))
}

/// Claims the port of `local`, or any if it names none; where it is then.
fn claim_port(id: &Id, local: SocketAddr, devices: &[&'static Device]) -> Result<SocketAddr, Errno> {
    let (own_family_only, reuses_port) = {
        let state = id.state();
        (state.own_family_only, state.reuses_port)
    };
    let fits = |address: &IpAddr| match local {
        SocketAddr::V4(_) => address.is_ipv4(),
        SocketAddr::V6(_) => address.is_ipv6() || !own_family_only,
    };
    let addresses: Vec<IpAddr> = match local.ip().is_unspecified() {
        true => devices
            .iter()
            .flat_map(|device| device.addresses())
            .filter(fits)
            .collect(),
        false => vec![local.ip()],
    };
    // SAFETY: the field is ours to read.
    let port_space = unsafe { (*id.as_c()).ps };
    let for_tcp = devices.iter().any(|device| device.is_iwarp);
    let (port, claims) = match port::claim(port_space, &addresses, local.port(), for_tcp) {
        // Another process has it, which this program allows (`RDMA_OPTION_ID_REUSEADDR`); only one of them can listen.
        Err(errno) if errno.is(libc::EADDRINUSE) && reuses_port => (local.port(), Vec::new()),
        result => result?,
    };
    let mut state = id.state();
    state.any_port = local.port() == 0;
    state.claims = claims;
    drop(state);
    let mut local = local;
    local.set_port(port);
    Ok(local)
}

/// Binds to an address: to a device if it is a particular one.
///
/// Loopback addresses belong to no particular one, as in the kernel: the port is claimed, and requests that come over
/// loopback are heard of, but the program sees no device. Programs ask for one this way to learn of all devices (libfabric,
/// Open MPI). Where nothing but loopback is listed there is only one device to mean, and the program sees it.
pub(crate) fn bind(id: &Id, local: SocketAddr) -> Result<(), Errno> {
    if id.state().local.is_some() {
        return Err(refused(
            libc::EINVAL,
            "the identifier is bound already",
            "bind an identifier once; make another for another address",
        ));
    }
    if local.ip().is_unspecified() {
        let devices = Device::all()?;
        id.set_local(claim_port(id, local, &devices)?);
        id.state().everywhere = devices;
        return Ok(());
    }
    let device = device_at(local)?;
    if local.ip().is_loopback() && device.has_company()? {
        id.set_local(claim_port(id, local, &[device])?);
        id.state().everywhere = vec![device];
        return Ok(());
    }
    bind_to_device(id, local).map(drop)
}

/// Binds to the device of a particular address, also if that is loopback.
pub(crate) fn bind_to_device(id: &Id, local: SocketAddr) -> Result<&'static Device, Errno> {
    let device = device_at(local)?;
    id.bind(device, claim_port(id, local, &[device])?);
    Ok(device)
}

fn device_at(local: SocketAddr) -> Result<&'static Device, Errno> {
    Device::with_address(local.ip()).map_err(|_| {
        let what = format!("no device has the address {}", local.ip());
        refused(
            libc::EADDRNOTAVAIL,
            what,
            "use an address that `nonic devices` lists, or 0.0.0.0 for all",
        )
    })
}

/// The port was ours to choose, and turned out to be taken: another one.
pub(crate) fn choose_another_port(id: &Id) -> Result<(), Errno> {
    let (local, everywhere) = {
        let state = id.state();
        (
            state.local.ok_or_else(|| {
                refused(
                    libc::EINVAL,
                    "the identifier has no address",
                    "bind it first (rdma_bind_addr), or resolve an address (rdma_resolve_addr)",
                )
            })?,
            state.everywhere.clone(),
        )
    };
    let any = SocketAddr::new(local.ip(), 0);
    id.set_local(claim_port(id, any, &everywhere)?);
    Ok(())
}

/// Finds our end of the way to `remote`.
pub(crate) fn resolve(id: &Id, local: Option<SocketAddr>, remote: SocketAddr) -> Result<(), Errno> {
    let (bound, device) = {
        let state = id.state();
        (state.local, state.device)
    };
    let local = bound.or(local);
    if device.is_none() {
        let source = source_for(local, remote)?;
        let device = Device::with_address(source)?;
        let port = match local.map_or(0, |local| local.port()) {
            0 => port::for_caller(source, device.is_iwarp),
            port => port,
        };
        id.bind(device, SocketAddr::new(source, port));
    }
    if let (SocketAddr::V6(group), true) = (remote, remote.ip().is_multicast()) {
        reaches_group(id, group)?;
    }
    id.set_remote(remote);
    Ok(())
}

/// Not every interface has a route for groups of IPv6 (`lo` has none), and a datagram that has none is lost silently.
fn reaches_group(id: &Id, group: SocketAddrV6) -> Result<(), Errno> {
    let interface = id.device()?.interface_index();
    let Some(IpAddr::V6(local)) = id.state().local.map(|local| local.ip()) else {
        return Err(refused(
            libc::EINVAL,
            "the identifier is not bound to an IPv6 address",
            "bind it to an address of the group's IP version",
        ));
    };
    let socket = UdpSocket::bind(SocketAddrV6::new(local, 0, 0, interface));
    let reached = socket.and_then(|socket| {
        let value = (&raw const interface).cast();
        let (level, option) = (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF);
        let len = size_of_val(&interface) as libc::socklen_t;
        // SAFETY: the descriptor is open, and the value is our variable.
        if unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, len) } < 0 {
            return Err(std::io::Error::last_os_error());
        }
        // Nothing is sent: connecting makes the kernel look for a route.
        socket.connect(SocketAddrV6::new(*group.ip(), group.port().max(1), 0, interface))
    });
    reached.map_err(|error| {
        of_io(
            &format!("looking for a route to the group {}", group.ip()),
            &error,
        )
    })
}

/// # Safety
///
/// The pointers are what the program passed.
pub(crate) unsafe fn resolve_address(
    id: &Arc<Id>,
    source: *const sockaddr,
    destination: *const sockaddr,
) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let (local, remote) = unsafe {
        let local = match source.is_null() {
            true => None,
            false => Some(address(source)?),
        };
        (local, address(destination)?)
    };
    let (event, status) = match resolve(id, local, remote) {
        Ok(()) => (RDMA_CM_EVENT_ADDR_RESOLVED, 0),
        // The event has no more room than for a number.
        Err(errno) => (
            RDMA_CM_EVENT_ADDR_ERROR,
            -ANSWER.tell("rdma_resolve_addr", &errno),
        ),
    };
    id.push(Pending::local(id, event, status));
    complete(id)
}

pub(crate) fn resolve_route(id: &Arc<Id>) -> Result<(), Errno> {
    id.device()?;
    id.addresses()?;
    id.fill_path();
    id.push(Pending::local(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0));
    complete(id)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_bind_addr(pointer: *mut rdma_cm_id, local: *mut sockaddr) -> c_int {
    // SAFETY: the program passes its identifier and an address.
    let arguments = unsafe { id(pointer).and_then(|id| Ok((id, address(local)?))) };
    ANSWER.minus_one(
        "rdma_bind_addr",
        arguments.and_then(|(id, local)| bind(&id, local)),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_resolve_addr(
    pointer: *mut rdma_cm_id,
    source: *mut sockaddr,
    destination: *mut sockaddr,
    _timeout_ms: c_int,
) -> c_int {
    // SAFETY: the program passes its identifier and addresses.
    ANSWER.minus_one("rdma_resolve_addr", unsafe {
        id(pointer).and_then(|id| resolve_address(&id, source, destination))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_resolve_route(pointer: *mut rdma_cm_id, _timeout_ms: c_int) -> c_int {
    // SAFETY: the program passes its identifier.
    ANSWER.minus_one(
        "rdma_resolve_route",
        unsafe { id(pointer) }.and_then(|id| resolve_route(&id)),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_src_port(pointer: *mut rdma_cm_id) -> u16 {
    // SAFETY: the program passes its identifier.
    let id = unsafe { id(pointer) };
    id.map_or(0, |id| id.state().local.map_or(0, |local| local.port()))
        .to_be()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_dst_port(pointer: *mut rdma_cm_id) -> u16 {
    // SAFETY: the program passes its identifier.
    let id = unsafe { id(pointer) };
    id.map_or(0, |id| id.state().remote.map_or(0, |remote| remote.port()))
        .to_be()
}
