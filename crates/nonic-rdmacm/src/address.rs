//! Addresses: binding to one, and finding the way to another.
//!
//! The kernel's routing decides which of our addresses talks to a peer; the address decides the device. There is no
//! path to look up on Ethernet, so a route is resolved as soon as it is asked for.

use crate::channel::Pending;
use crate::device::Device;
use crate::id::{Id, complete, id};
use crate::port;
use libc::{c_int, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};
use nonic_abi::errno::{self, Errno};
use nonic_abi::rdma_cma::*;
use nonic_abi::verbs::ibv_gid;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// An address as C has it.
pub(crate) fn storage(address: SocketAddr) -> sockaddr_storage {
    // SAFETY: all zeros is an address, of no family.
    let mut storage: sockaddr_storage = unsafe { std::mem::zeroed() };
    let place = &raw mut storage;
    match address {
        SocketAddr::V4(v4) => {
            let c = sockaddr_in {
                sin_family: libc::AF_INET as u16,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(v4.ip().octets()),
                },
                sin_zero: [0; 8],
            };
            // SAFETY: the storage is large enough and aligned for every address.
            unsafe { place.cast::<sockaddr_in>().write(c) };
        }
        SocketAddr::V6(v6) => {
            let c = sockaddr_in6 {
                sin6_family: libc::AF_INET6 as u16,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe { place.cast::<sockaddr_in6>().write(c) };
        }
    }
    storage
}

/// The program's address; `EAFNOSUPPORT` unless it is one of the Internet's.
///
/// # Safety
///
/// The pointer is NULL or to an address as long as its family says.
pub(crate) unsafe fn address(pointer: *const sockaddr) -> Result<SocketAddr, Errno> {
    if pointer.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    unsafe {
        match c_int::from((*pointer).sa_family) {
            libc::AF_INET => {
                let c = pointer.cast::<sockaddr_in>().read_unaligned();
                let ip = Ipv4Addr::from(c.sin_addr.s_addr.to_ne_bytes());
                Ok(SocketAddrV4::new(ip, u16::from_be(c.sin_port)).into())
            }
            libc::AF_INET6 => {
                let c = pointer.cast::<sockaddr_in6>().read_unaligned();
                let ip = Ipv6Addr::from(c.sin6_addr.s6_addr);
                let v6 = SocketAddrV6::new(ip, u16::from_be(c.sin6_port), c.sin6_flowinfo, c.sin6_scope_id);
                Ok(v6.into())
            }
            _ => Err(libc::EAFNOSUPPORT),
        }
    }
}

/// An address as IPv4 has it, if it can have it.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(v4) => SocketAddr::new(v4.into(), address.port()),
        // With its scope, if it has one.
        IpAddr::V6(_) => address,
    }
}

/// An address as a socket for IPv6 has it.
pub(crate) fn mapped(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(v4) => SocketAddr::new(v4.to_ipv6_mapped().into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

/// An address as a GID.
pub(crate) fn gid_of(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// A GID as an address.
pub(crate) fn ip_of_gid(gid: &[u8; 16]) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from(*gid)).to_canonical()
}

/// A number nobody can guess.
pub(crate) fn random() -> u32 {
    let mut bytes = [0_u8; 4];
    // SAFETY: four bytes of our own. So few cannot fail once the system is up; zero would do as well.
    unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    u32::from_ne_bytes(bytes)
}

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
        .map_err(|error| errno::of_io(&error))
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
    let (port, claims) = match port::claim(port_space, &addresses, local.port()) {
        // Somebody has it, and this program does not mind: listening will tell.
        Err(libc::EADDRINUSE) if reuses_port => (local.port(), Vec::new()),
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
pub(crate) fn bind(id: &Id, local: SocketAddr) -> Result<(), Errno> {
    if id.state().local.is_some() {
        return Err(libc::EINVAL);
    }
    if local.ip().is_unspecified() {
        let devices = Device::all()?;
        id.set_local(claim_port(id, local, &devices)?);
        id.state().everywhere = devices;
        return Ok(());
    }
    let device = Device::with_address(local.ip()).map_err(|_| libc::EADDRNOTAVAIL)?;
    id.bind(device, claim_port(id, local, &[device])?);
    Ok(())
}

/// The port was ours to choose, and turned out to be taken: another one.
pub(crate) fn choose_another_port(id: &Id) -> Result<(), Errno> {
    let (local, everywhere) = {
        let state = id.state();
        (state.local.ok_or(libc::EINVAL)?, state.everywhere.clone())
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
            0 => port::any_port(),
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

/// Not every interface has a route for groups of IPv6 (`lo` has none), and whoever sends datagrams hears of nothing.
fn reaches_group(id: &Id, group: SocketAddrV6) -> Result<(), Errno> {
    let interface = id.device()?.interface_index();
    let Some(IpAddr::V6(local)) = id.state().local.map(|local| local.ip()) else {
        return Err(libc::EINVAL);
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
    reached.map_err(|error| errno::of_io(&error))
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
        Err(errno) => (RDMA_CM_EVENT_ADDR_ERROR, -errno),
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

impl Id {
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
            hop_limit: crate::attributes::HOP_LIMIT,
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
            packet_life_time: state.ack_timeout.unwrap_or(crate::attributes::ACK_TIMEOUT) - 1,
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
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_bind_addr(pointer: *mut rdma_cm_id, local: *mut sockaddr) -> c_int {
    // SAFETY: the program passes its identifier and an address.
    let arguments = unsafe { id(pointer).and_then(|id| Ok((id, address(local)?))) };
    errno::minus_one(arguments.and_then(|(id, local)| bind(&id, local)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_resolve_addr(
    pointer: *mut rdma_cm_id,
    source: *mut sockaddr,
    destination: *mut sockaddr,
    _timeout_ms: c_int,
) -> c_int {
    // SAFETY: the program passes its identifier and addresses.
    errno::minus_one(unsafe { id(pointer).and_then(|id| resolve_address(&id, source, destination)) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_resolve_route(pointer: *mut rdma_cm_id, _timeout_ms: c_int) -> c_int {
    // SAFETY: the program passes its identifier.
    errno::minus_one(unsafe { id(pointer) }.and_then(|id| resolve_route(&id)))
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
