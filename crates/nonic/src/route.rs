//! Source address selection: which address the kernel would send from.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// The address of this host from which packets to `peer` would come.
pub(crate) fn source_of(mut peer: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match peer {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Connecting a datagram socket sends nothing; it only chooses a source address. It needs a port, any one.
    peer.set_port(peer.port().max(1));
    let probe = UdpSocket::bind((any, 0))?;
    probe.connect(peer)?;
    Ok(probe.local_addr()?.ip())
}
