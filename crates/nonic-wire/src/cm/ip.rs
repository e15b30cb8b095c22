//! Connections by IP address: how ports become service identifiers, and the header in front of the private
//! data that names both ends.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use thiserror::Error;

/// What a request asks for.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct ServiceId(pub u64);

impl ServiceId {
    /// The service at a port.
    pub const fn from_port(space: PortSpace, port: u16) -> Self {
        Self((space as u64) << 16 | port as u64)
    }

    /// The port this service is at, if it is at one.
    pub const fn port(self) -> Option<(PortSpace, u16)> {
        let space = match self.0 >> 16 {
            0x0002 => PortSpace::Ipoib,
            0x0106 => PortSpace::Tcp,
            0x0111 => PortSpace::Udp,
            0x013f => PortSpace::Ib,
            _ => return None,
        };
        Some((space, self.0 as u16))
    }
}

impl fmt::Debug for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServiceId({:#018x})", self.0)
    }
}

/// Ports that are told apart even if their numbers are equal. Values are those of `rdma_port_space`.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u16)]
pub enum PortSpace {
    /// Datagrams of IP over InfiniBand.
    Ipoib = 0x0002,
    /// Connections.
    Tcp = 0x0106,
    /// Datagrams.
    Udp = 0x0111,
    /// Anything, by service identifier.
    Ib = 0x013f,
}

/// Stands in front of the private data of a request for a service at an IP address.
///
/// Versions other than 0 are refused on receipt: their layout is not known.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct IpHeader {
    /// The sender's port.
    pub source_port: u16,
    /// The sender's address.
    pub source: IpAddr,
    /// The address the sender connects to, of the same family.
    pub destination: IpAddr,
}

/// Why bytes are no [`IpHeader`].
#[derive(Copy, Clone, PartialEq, Eq, Debug, Error)]
pub enum IpHeaderError {
    /// Not enough of them.
    #[error("{0} bytes are too few for an IP header of the connection manager")]
    Truncated(usize),
    /// Another version of the header.
    #[error("version {0:#04x} of the connection manager's IP header is not known")]
    Version(u8),
    /// Neither IPv4 nor IPv6.
    #[error("there is no IP version {0}")]
    IpVersion(u8),
}

impl IpHeader {
    /// Bytes on the wire.
    pub const LEN: usize = 36;

    /// Reads a header from the beginning of some private data.
    pub fn parse(bytes: &[u8]) -> Result<Self, IpHeaderError> {
        let header = bytes
            .first_chunk::<{ Self::LEN }>()
            .ok_or(IpHeaderError::Truncated(bytes.len()))?;
        if header[0] != 0 {
            return Err(IpHeaderError::Version(header[0]));
        }
        let (source, destination) = header[4..].split_at(16);
        let (source, destination) = match header[1] >> 4 {
            4 => (v4(source), v4(destination)),
            6 => (v6(source), v6(destination)),
            other => return Err(IpHeaderError::IpVersion(other)),
        };
        Ok(Self {
            source_port: u16::from_be_bytes([header[2], header[3]]),
            source,
            destination,
        })
    }

    /// Writes the header. If the addresses are of different families, both are written as IPv6.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[2..4].copy_from_slice(&self.source_port.to_be_bytes());
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                bytes[1] = 4 << 4;
                bytes[16..20].copy_from_slice(&source.octets());
                bytes[32..36].copy_from_slice(&destination.octets());
            }
            (source, destination) => {
                bytes[1] = 6 << 4;
                bytes[4..20].copy_from_slice(&gid_of(source).octets());
                bytes[20..36].copy_from_slice(&gid_of(destination).octets());
            }
        }
        bytes
    }
}

fn v4(bytes: &[u8]) -> IpAddr {
    let last: &[u8; 4] = bytes.last_chunk().expect("sixteen bytes");
    IpAddr::V4(Ipv4Addr::from(*last))
}

fn v6(bytes: &[u8]) -> IpAddr {
    let all: &[u8; 16] = bytes.first_chunk().expect("sixteen bytes");
    IpAddr::V6(Ipv6Addr::from(*all))
}

/// The GID of an address: the address itself, IPv4 mapped into IPv6.
pub fn gid_of(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

/// The address of a GID.
pub fn ip_of_gid(gid: Ipv6Addr) -> IpAddr {
    gid.to_canonical()
}
