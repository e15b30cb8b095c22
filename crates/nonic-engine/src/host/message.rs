//! The messages that processes write into each other's inboxes.
//!
//! A message is a version byte, a kind byte and fixed fields, big-endian; a handover ends in its packets. Decoding refuses
//! everything it does not know exactly, since any process may write to an inbox.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::link::datagrams::Datagrams;
use crate::netdev::LocalAddress;

const VERSION: u8 = 5;
const HANDOVER: u8 = 1;
const WHERE_ARE_YOU: u8 = 2;
const I_AM: u8 = 3;
const OFFER_LANE: u8 = 4;
const LANE_TAKEN: u8 = 5;
const LANE_REFUSED: u8 = 6;
const MAP_MEMORY: u8 = 7;
const MEMORY_GIVEN: u8 = 8;
const MEMORY_REFUSED: u8 = 9;

/// The longest fixed part, that of a handover.
pub(super) const MAX_HEADER_BYTES: usize = 2 + 22 + 16 + 1 + 2;
/// The most packet bytes in a handover: what one receive can bring.
pub(super) const MAX_PAYLOAD_BYTES: usize = 64 * 1024;

/// One message between two processes on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message<'a> {
    /// These packets came to my socket at UDP port 4791 of the address they name, and they are for a queue pair of
    /// yours.
    Handover(Datagrams<'a>),
    /// On which port do you listen? The answer comes on the line that the question came on, so no other process can give it
    /// or have it sent elsewhere.
    WhereAreYou,
    /// I listen here.
    IAm {
        /// The owner's own UDP port, on the address of the name that was asked.
        udp_port: u16,
    },
    /// Records from this address to your block will come through memory, if you like
    /// (a lane). With it come the descriptors of the memory, and of a bell that wakes me.
    OfferLane {
        /// Where packets would come from otherwise.
        from: SocketAddr,
    },
    /// I read that memory from now on. With it come the descriptors of a bell that wakes me (a datagram socket), and of
    /// what I publish, if I do.
    LaneTaken,
    /// I would rather not.
    LaneRefused,
    /// You have published a key whose memory can be mapped. I have a lane to you and would like to.
    MapMemory {
        /// The key.
        key: u32,
        /// The number of the memory that was published with it.
        number: u64,
    },
    /// With it comes the descriptor of the memory.
    MemoryGiven {
        /// Its number.
        number: u64,
    },
    /// There is no such key, or no such memory, or you have no lane to me.
    MemoryRefused {
        /// Its number.
        number: u64,
    },
}

impl<'a> Message<'a> {
    /// Reads a message; `None` for anything that is not one.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        if reader.u8()? != VERSION {
            return None;
        }
        let message = match reader.u8()? {
            HANDOVER => return decode_handover(reader),
            WHERE_ARE_YOU => Message::WhereAreYou,
            I_AM => Message::IAm {
                udp_port: reader.u16()?,
            },
            OFFER_LANE => Message::OfferLane {
                from: reader.socket_address()?,
            },
            LANE_TAKEN => Message::LaneTaken,
            LANE_REFUSED => Message::LaneRefused,
            MAP_MEMORY => Message::MapMemory {
                key: reader.take().map(u32::from_be_bytes)?,
                number: reader.u64()?,
            },
            MEMORY_GIVEN => Message::MemoryGiven {
                number: reader.u64()?,
            },
            MEMORY_REFUSED => Message::MemoryRefused {
                number: reader.u64()?,
            },
            _ => return None,
        };
        reader.0.is_empty().then_some(message)
    }

    /// The message as two pieces to be sent one after the other, so that packets need not be copied.
    pub(super) fn encode(&self) -> (Header, &'a [u8]) {
        let mut header = Header {
            bytes: [0; MAX_HEADER_BYTES],
            length: 0,
        };
        header.put(&[VERSION]);
        match self {
            Message::Handover(datagrams) => {
                header.put(&[HANDOVER]);
                header.put_socket_address(datagrams.src);
                header.put_ip(datagrams.dst_ip);
                header.put(&[datagrams.ecn]);
                // A stride beyond 16 bits cannot come from UDP; saturated, it still exceeds the length.
                let stride = u16::try_from(datagrams.stride).unwrap_or(u16::MAX);
                header.put(&stride.to_be_bytes());
                (header, datagrams.bytes)
            }
            Message::WhereAreYou => {
                header.put(&[WHERE_ARE_YOU]);
                (header, &[])
            }
            Message::IAm { udp_port } => {
                header.put(&[I_AM]);
                header.put(&udp_port.to_be_bytes());
                (header, &[])
            }
            Message::OfferLane { from } => {
                header.put(&[OFFER_LANE]);
                header.put_socket_address(*from);
                (header, &[])
            }
            Message::LaneTaken => {
                header.put(&[LANE_TAKEN]);
                (header, &[])
            }
            Message::LaneRefused => {
                header.put(&[LANE_REFUSED]);
                (header, &[])
            }
            Message::MapMemory { key, number } => {
                header.put(&[MAP_MEMORY]);
                header.put(&key.to_be_bytes());
                header.put(&number.to_be_bytes());
                (header, &[])
            }
            Message::MemoryGiven { number } => {
                header.put(&[MEMORY_GIVEN]);
                header.put(&number.to_be_bytes());
                (header, &[])
            }
            Message::MemoryRefused { number } => {
                header.put(&[MEMORY_REFUSED]);
                header.put(&number.to_be_bytes());
                (header, &[])
            }
        }
    }
}

fn decode_handover(mut reader: Reader<'_>) -> Option<Message<'_>> {
    let src = reader.socket_address()?;
    let dst_ip = reader.ip()?;
    let ecn = reader.u8()?;
    let stride = usize::from(reader.u16()?);
    let bytes = reader.0;
    let families_agree = src.is_ipv4() == dst_ip.is_ipv4();
    if !families_agree || ecn > 3 || stride == 0 || bytes.is_empty() || bytes.len() > MAX_PAYLOAD_BYTES {
        return None;
    }
    Some(Message::Handover(Datagrams {
        src,
        dst_ip,
        ecn,
        stride,
        bytes,
        sealed: true,
    }))
}

/// The encoded fixed part of a message.
pub(super) struct Header {
    bytes: [u8; MAX_HEADER_BYTES],
    length: usize,
}

impl Header {
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Every message's fields are of fixed size and together fit by the definition of the array's length.
    fn put(&mut self, field: &[u8]) {
        self.bytes[self.length..self.length + field.len()].copy_from_slice(field);
        self.length += field.len();
    }

    /// IPv4 travels in its mapped form: our sockets take no mapped addresses, so none can be confused.
    fn put_ip(&mut self, ip: IpAddr) {
        let ip = match ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        self.put(&ip.octets());
    }

    fn put_socket_address(&mut self, address: SocketAddr) {
        let LocalAddress { ip, scope_id } = address.into();
        self.put_ip(ip);
        self.put(&scope_id.to_be_bytes());
        self.put(&address.port().to_be_bytes());
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_be_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }

    fn ip(&mut self) -> Option<IpAddr> {
        self.take::<16>()
            .map(|octets| Ipv6Addr::from(octets).to_canonical())
    }

    fn socket_address(&mut self) -> Option<SocketAddr> {
        let ip = self.ip()?;
        let scope_id = self.take().map(u32::from_be_bytes)?;
        let port = self.u16()?;
        // An IPv4 address has no scope, so one that has is not ours.
        (ip.is_ipv6() || scope_id == 0).then(|| LocalAddress { ip, scope_id }.with_port(port))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(message: &Message<'_>) -> Vec<u8> {
        let (header, payload) = message.encode();
        [header.as_bytes(), payload].concat()
    }

    fn address() -> impl Strategy<Value = LocalAddress> {
        prop_oneof![
            any::<[u8; 4]>().prop_map(|octets| LocalAddress::from(IpAddr::from(octets))),
            (any::<[u8; 16]>(), any::<u32>())
                .prop_filter("mapped addresses are IPv4", |(octets, _)| {
                    Ipv6Addr::from(*octets).to_ipv4_mapped().is_none()
                })
                .prop_map(|(octets, scope_id)| LocalAddress {
                    ip: IpAddr::from(octets),
                    scope_id
                }),
        ]
    }

    proptest! {
        #[test]
        fn anything_at_all_can_be_decoded_without_panic(
            version in 1_u8..6, kind in 0_u8..11, rest in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let bytes = [&[version, kind][..], &rest].concat();
            if let Some(message) = Message::decode(&bytes) {
                prop_assert_eq!(encoded(&message), bytes);
            }
        }

        #[test]
        fn questions_and_answers_survive(udp_port: u16, from in address(), key: u32, number: u64) {
            let from = from.with_port(udp_port);
            let messages = [
                Message::WhereAreYou,
                Message::IAm { udp_port },
                Message::OfferLane { from },
                Message::LaneTaken,
                Message::LaneRefused,
                Message::MapMemory { key, number },
                Message::MemoryGiven { number },
                Message::MemoryRefused { number },
            ];
            for message in messages {
                let bytes = encoded(&message);
                prop_assert_eq!(Message::decode(&bytes), Some(message));
                prop_assert_eq!(Message::decode(&bytes[..bytes.len() - 1]), None);
                let longer = [&bytes[..], &[0]].concat();
                prop_assert_eq!(Message::decode(&longer), None);
            }
        }

        #[test]
        fn handovers_survive(
            src in address(), port: u16, dst in address(), ecn in 0_u8..4, stride in 1_usize..65_536,
            bytes in prop::collection::vec(any::<u8>(), 1..300),
        ) {
            prop_assume!(src.ip.is_ipv4() == dst.ip.is_ipv4());
            let datagrams = Datagrams { src: src.with_port(port), dst_ip: dst.ip, ecn, stride, bytes: &bytes, sealed: true };
            let message = Message::Handover(datagrams);
            let bytes = encoded(&message);
            prop_assert_eq!(Message::decode(&bytes), Some(message));
        }
    }

    #[test]
    fn a_handover_without_packets_or_stride_is_refused() {
        let good = Datagrams {
            src: SocketAddr::from(([192, 0, 2, 1], 4791)),
            dst_ip: IpAddr::from([192, 0, 2, 2]),
            ecn: 0,
            stride: 1,
            bytes: b"x",
            sealed: true,
        };
        assert!(Message::decode(&encoded(&Message::Handover(good))).is_some());
        for bad in [
            Datagrams { stride: 0, ..good },
            Datagrams { bytes: b"", ..good },
            Datagrams { ecn: 4, ..good },
            Datagrams {
                dst_ip: IpAddr::from([1_u16; 8]),
                ..good
            },
            Datagrams {
                bytes: &[0; MAX_PAYLOAD_BYTES + 1],
                ..good
            },
        ] {
            assert_eq!(
                Message::decode(&encoded(&Message::Handover(bad))),
                None,
                "{bad:?}"
            );
        }
    }
}
