//! Ports: the identifier that binds one has it, on this host, until it is destroyed or the process ends.
//!
//! The connection manager itself knows only listeners. A port is taken from binding on, so it is claimed by a name in
//! the kernel's abstract socket namespace, like everything that processes share: one name for each address. Nothing is
//! ever sent there. Ports that the active side gets without asking are not claimed: no peer connects to them.
//!
//! Over iWARP a port is TCP's as well, and other programs may have it. A port of our choice is therefore one that TCP
//! has free, and is held there: a program may tell its peer of it before it listens.

use crate::convert::{len_of, random, storage};
use crate::descriptor::{Audience, Descriptor};
use libc::c_int;
use nonic_abi::errno::{self, Errno, of_io, refused};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as NameOfSocket, UnixDatagram};

/// A port of one address.
pub(crate) struct Claim {
    /// Has the name for as long as it is open.
    _name: UnixDatagram,
    /// Has the port of TCP. It does not listen, so that another socket of this process may.
    _tcp: Option<Descriptor>,
}

/// Claims a port at all these addresses; for port zero any that is free, with TCP too if it is `for_tcp`.
pub(crate) fn claim(
    port_space: c_int,
    addresses: &[IpAddr],
    port: u16,
    for_tcp: bool,
) -> Result<(u16, Vec<Claim>), Errno> {
    /// More than enough while most ports are free.
    const ATTEMPTS: usize = 64;
    if port != 0 {
        return Ok((port, claim_one(port_space, addresses, port, false)?));
    }
    for _ in 0..ATTEMPTS {
        let port = any_port();
        match claim_one(port_space, addresses, port, for_tcp) {
            Err(errno) if errno.is(libc::EADDRINUSE) => {}
            result => return result.map(|claims| (port, claims)),
        }
    }
    Err(refused(
        libc::EADDRINUSE,
        "no free port was found",
        "bind to a port of your own",
    ))
}

/// A port for an active side that asked for none. Over TCP it is one that is free there, so that the connection comes
/// from the port that the program is told.
pub(crate) fn for_caller(address: IpAddr, in_tcp: bool) -> u16 {
    const ATTEMPTS: usize = 64;
    let is_free = |port: &u16| !in_tcp || hold_in_tcp((address, *port).into()).is_ok();
    let mut ports = std::iter::repeat_with(any_port).take(ATTEMPTS);
    ports.find(is_free).unwrap_or_else(any_port)
}

fn any_port() -> u16 {
    const FIRST: u32 = 32768;
    const COUNT: u32 = 28232;
    (FIRST + random() % COUNT) as u16
}

/// Takes a port of TCP without listening there. Then no other socket gets it, except sockets that may share it, as that
/// of our listener may. If anything else is wrong with the address, the call that listens finds out.
fn hold_in_tcp(address: SocketAddr) -> Result<Option<Descriptor>, Errno> {
    let domain = if address.is_ipv6() {
        libc::AF_INET6
    } else {
        libc::AF_INET
    };
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: socket takes any numbers.
    let socket = Descriptor::keep(unsafe { libc::socket(domain, kind, 0) }, Audience::Library)?;
    let (on, storage) = (1_i32, storage(address));
    let set = |level, option| {
        let len = size_of_val(&on) as libc::socklen_t;
        // SAFETY: the value is an int, of the length that is said.
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const on).cast(), len) }
    };
    set(libc::SOL_SOCKET, libc::SO_REUSEADDR);
    if address.is_ipv6() {
        set(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY);
    }
    // SAFETY: an address of the length of its family.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const storage).cast(), len_of(address)) };
    match bound {
        0 => Ok(Some(socket)),
        _ if errno::last() == libc::EADDRINUSE => Err(refused(
            libc::EADDRINUSE,
            format!("{address} is taken in TCP"),
            "choose another port, or end the program that has it (`ss -tlnp`)",
        )),
        _ => Ok(None),
    }
}

fn claim_one(port_space: c_int, addresses: &[IpAddr], port: u16, for_tcp: bool) -> Result<Vec<Claim>, Errno> {
    let claim = |address: &IpAddr| {
        let name = format!("nonic/2/{address}/port/{port_space:x}/{port}");
        let name = NameOfSocket::from_abstract_name(name).and_then(|name| UnixDatagram::bind_addr(&name));
        Ok(Claim {
            _name: name.map_err(|error| of_io(&format!("claiming port {port} of {address}"), &error))?,
            _tcp: match for_tcp {
                true => hold_in_tcp((*address, port).into())?,
                false => None,
            },
        })
    };
    addresses.iter().map(claim).collect()
}
