//! Ports: whoever binds one has it, on this host, until the identifier is destroyed or the process ends.
//!
//! The connection manager itself knows only who listens. A port is taken from binding on, so it is claimed by a name in
//! the kernel's abstract socket namespace, as everything is that processes share: one name for each address. Nothing
//! is ever sent there. Ports that the active side gets without asking are not claimed: nobody calls them.
//!
//! Over iWARP a port is TCP's as well, and other programs may have it. One that is ours to choose is therefore one that TCP has free
//! now: a program may tell its peer of it before it listens.

use crate::convert::random;
use libc::c_int;
use nonic_abi::errno::{self, Errno};
use std::io;
use std::net::{IpAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// A port of one address.
pub(crate) struct Claim {
    /// Has the name for as long as it is open.
    _socket: UnixDatagram,
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
        return Ok((port, claim_one(port_space, addresses, port)?));
    }
    for _ in 0..ATTEMPTS {
        let port = any_port();
        if for_tcp && addresses.iter().any(|address| is_taken_in_tcp(*address, port)) {
            continue;
        }
        match claim_one(port_space, addresses, port) {
            Err(libc::EADDRINUSE) => {}
            result => return result.map(|claims| (port, claims)),
        }
    }
    Err(libc::EADDRINUSE)
}

/// A port for those who do not care which.
pub(crate) fn any_port() -> u16 {
    const FIRST: u32 = 32768;
    const COUNT: u32 = 28232;
    (FIRST + random() % COUNT) as u16
}

/// Whether somebody has this port of TCP. What else may be wrong with it is found out by whoever listens.
fn is_taken_in_tcp(address: IpAddr, port: u16) -> bool {
    let listener = TcpListener::bind((address, port));
    listener.is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
}

fn claim_one(port_space: c_int, addresses: &[IpAddr], port: u16) -> Result<Vec<Claim>, Errno> {
    let claim = |address: &IpAddr| {
        let name = format!("nonic/2/{address}/port/{port_space:x}/{port}");
        let bound = SocketAddr::from_abstract_name(name).and_then(|name| UnixDatagram::bind_addr(&name));
        bound
            .map(|socket| Claim { _socket: socket })
            .map_err(|error| errno::of_io(&error))
    };
    addresses.iter().map(claim).collect()
}
