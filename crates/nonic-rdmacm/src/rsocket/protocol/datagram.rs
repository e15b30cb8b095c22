//! Datagrams: how a sender finds the queue pair behind an address, and what stands before each message.
//!
//! A datagram rsocket has an ordinary UDP socket, which gives it its address. What is sent to a peer whose queue pair
//! is not known goes there by UDP, behind a [`Lookup`] that names the sender's queue pair; the peer answers with a
//! `Lookup` of its own. From then on messages go from queue pair to queue pair, behind a [`DatagramSource`] that says which
//! address they are from.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

const TAG: u32 = 0x5555_5555;
const QPN_MASK: u32 = 0xff_ffff;

/// What a UDP message is for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It carries a message of the program's.
    Data,
    /// It only tells the queue pair.
    Control,
}

/// What stands before each UDP message.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lookup {
    pub(crate) purpose: Purpose,
    /// The sender's queue pair.
    pub(crate) qpn: u32,
    /// The sender's address. Receivers go by where the message came from.
    pub(crate) address: IpAddr,
}

impl Lookup {
    const PURPOSE_DATA: u8 = 0;
    const PURPOSE_CONTROL: u8 = 7;
    const LEN_V4: usize = 16;
    const LEN_V6: usize = 28;

    pub(crate) fn emit(&self) -> Vec<u8> {
        let (version, len) = match self.address {
            IpAddr::V4(_) => (4, Self::LEN_V4),
            IpAddr::V6(_) => (6, Self::LEN_V6),
        };
        let purpose = match self.purpose {
            Purpose::Data => Self::PURPOSE_DATA,
            Purpose::Control => Self::PURPOSE_CONTROL,
        };
        let mut bytes = Vec::with_capacity(len);
        bytes.extend(TAG.to_be_bytes());
        bytes.extend([version, purpose, len as u8, 0]);
        bytes.extend((self.qpn & QPN_MASK).to_be_bytes());
        match self.address {
            IpAddr::V4(v4) => bytes.extend(v4.octets()),
            IpAddr::V6(v6) => bytes.extend(v6.octets()),
        }
        bytes
    }

    /// The header, and how long it is.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        if bytes.get(..4)? != TAG.to_be_bytes() {
            return None;
        }
        let len = usize::from(*bytes.get(6)?);
        let address = match (bytes.get(4)?, len) {
            (4, Self::LEN_V4) => {
                let octets: [u8; 4] = bytes.get(12..Self::LEN_V4)?.try_into().ok()?;
                IpAddr::from(octets)
            }
            (6, Self::LEN_V6) => {
                let octets: [u8; 16] = bytes.get(12..Self::LEN_V6)?.try_into().ok()?;
                IpAddr::from(octets)
            }
            _ => return None,
        };
        let purpose = match *bytes.get(5)? {
            Self::PURPOSE_DATA => Purpose::Data,
            Self::PURPOSE_CONTROL => Purpose::Control,
            _ => return None,
        };
        let qpn = u32::from_be_bytes(bytes.get(8..12)?.try_into().ok()?) & QPN_MASK;
        let lookup = Lookup {
            purpose,
            qpn,
            address,
        };
        Some((lookup, len))
    }
}

/// What stands before each message between queue pairs: the address it is from.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct DatagramSource(pub(crate) SocketAddr);

impl DatagramSource {
    const LEN_V4: usize = 8;
    const LEN_V6: usize = 24;

    pub(crate) fn len(&self) -> usize {
        match self.0 {
            SocketAddr::V4(_) => Self::LEN_V4,
            SocketAddr::V6(_) => Self::LEN_V6,
        }
    }

    pub(crate) fn emit(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len());
        let version = if self.0.is_ipv4() { 4 } else { 6 };
        bytes.extend([version, self.len() as u8]);
        bytes.extend(self.0.port().to_be_bytes());
        match self.0 {
            SocketAddr::V4(v4) => bytes.extend(v4.ip().octets()),
            SocketAddr::V6(v6) => {
                // As it is in a `sockaddr_in6`, which has it in network byte order.
                bytes.extend(v6.flowinfo().to_ne_bytes());
                bytes.extend(v6.ip().octets());
            }
        }
        bytes
    }

    /// The header, and how long it is.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
        let len = usize::from(*bytes.get(1)?);
        let address = match (bytes.first()?, len) {
            (4, Self::LEN_V4) => {
                let octets: [u8; 4] = bytes.get(4..Self::LEN_V4)?.try_into().ok()?;
                SocketAddr::from((Ipv4Addr::from(octets), port))
            }
            (6, Self::LEN_V6) => {
                let flow: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
                let octets: [u8; 16] = bytes.get(8..Self::LEN_V6)?.try_into().ok()?;
                let flow = u32::from_ne_bytes(flow);
                SocketAddrV6::new(Ipv6Addr::from(octets), port, flow, 0).into()
            }
            _ => return None,
        };
        Some((DatagramSource(address), len))
    }
}
