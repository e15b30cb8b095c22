//! Conversions: addresses of C, of Rust and of RDMA into one another, and the route that two of them make.

use libc::{c_int, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};
use nonic_abi::errno::{Errno, refused};
use nonic_abi::verbs::{ibv_ah_attr, ibv_gid, ibv_global_route};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// The hop limit of our packets.
pub(crate) const HOP_LIMIT: u8 = 64;

/// The acknowledgement timeout of a connection whose program sets none: 4.096 µs · 2¹⁶, which is 268 ms.
pub(crate) const ACK_TIMEOUT: u8 = 16;

/// An address as a `sockaddr_storage`.
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

/// How long an address is, as the kernel wants to be told.
pub(crate) fn len_of(address: SocketAddr) -> socklen_t {
    let len = match address {
        SocketAddr::V4(_) => size_of::<libc::sockaddr_in>(),
        SocketAddr::V6(_) => size_of::<libc::sockaddr_in6>(),
    };
    len as socklen_t
}

/// The program's address; `EAFNOSUPPORT` unless it is one of the Internet's.
///
/// # Safety
///
/// The pointer is NULL or to an address as long as its family says.
pub(crate) unsafe fn address(pointer: *const sockaddr) -> Result<SocketAddr, Errno> {
    if pointer.is_null() {
        return Err(refused(libc::EINVAL, "the address is NULL", "pass an address"));
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
            _ => Err(refused(
                libc::EAFNOSUPPORT,
                "the address is not of AF_INET or AF_INET6",
                "use an IP address; AF_IB is InfiniBand's",
            )),
        }
    }
}

/// An address without its mapping into IPv6, if it is mapped.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(v4) => SocketAddr::new(v4.into(), address.port()),
        // With its scope, if it has one.
        IpAddr::V6(_) => address,
    }
}

/// An address as a socket for IPv6 has it: one of IPv4 is mapped.
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

/// A number that no peer can guess, for ports and starting PSNs.
pub(crate) fn random() -> u32 {
    let mut bytes = [0_u8; 4];
    // SAFETY: four bytes of our own. So few cannot fail once the system is up; zero would do as well.
    unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    u32::from_ne_bytes(bytes)
}

/// The attributes of an address handle: the way from one of our addresses to another address.
pub(crate) fn ah_attributes(gid: [u8; 16], gid_index: u8, traffic_class: u8) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: gid },
            flow_label: 0,
            sgid_index: gid_index,
            hop_limit: HOP_LIMIT,
            traffic_class,
        },
        dlid: 0,
        sl: 0,
        src_path_bits: 0,
        static_rate: 0,
        is_global: 1,
        port_num: 1,
    }
}
