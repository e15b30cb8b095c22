//! The two rtnetlink dumps (links, addresses) behind [`devices`](super::devices), and the question whether an address is
//! local.
//!
//! Only what the GID table needs is decoded; unknown attributes are skipped and malformed ones end the
//! walk of their message, so a newer kernel can add what it likes.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send};

use super::{GidEntry, LinkState, LocalAddress, NetDevice, Wire, gid_table_order};

/// Room for one read of a dump; the kernel never fills more than 32 KiB at a time.
const READ_BYTES: usize = 64 * 1024;
/// How often a dump that raced with a change is asked for again.
const ATTEMPTS: usize = 8;

/// The routing protocol of netlink is number 0, which is how "none" is passed.
const NETLINK_ROUTE: Option<Protocol> = None;
const MESSAGE_HEADER_BYTES: usize = 16;
const LINK_HEADER_BYTES: usize = 16;
const ADDRESS_HEADER_BYTES: usize = 8;
const ROUTE_HEADER_BYTES: usize = 12;
/// Where a route's type is in its header.
const ROUTE_TYPE: usize = 7;

/// Takes the snapshot: all links, then all addresses, joined by interface index.
pub(super) fn dump() -> io::Result<Vec<NetDevice>> {
    let links = request(libc::RTM_GETLINK, libc::RTM_NEWLINK)?;
    let mut devices: Vec<NetDevice> = links.iter().filter_map(|body| parse_link(body)).collect();
    devices.sort_by_key(|device| device.index);
    let answers = request(libc::RTM_GETADDR, libc::RTM_NEWADDR)?;
    let addresses: Vec<(u32, LocalAddress)> = answers.iter().filter_map(|body| parse_address(body)).collect();
    for device in &mut devices {
        let own = addresses.iter().filter(|(index, _)| *index == device.index);
        let own = own.map(|(_, address)| *address).collect();
        device.gids = gid_table_order(own).into_iter().map(GidEntry::from).collect();
    }
    Ok(devices)
}

/// Whether packets to an address stay on this host, by the kernel's own routing.
pub(super) fn is_local(address: LocalAddress) -> io::Result<bool> {
    let socket = open()?;
    send(&socket, &route_request(address), SendFlags::empty())?;
    let mut answers = Vec::new();
    let mut buffer = vec![0_u8; READ_BYTES];
    let (length, _) = recv(&socket, &mut buffer[..], RecvFlags::empty())?;
    read_messages(&buffer[..length], libc::RTM_NEWROUTE, &mut answers)?;
    let kind = answers.first().and_then(|body| body.get(ROUTE_TYPE));
    Ok(kind.is_some_and(|kind| *kind == libc::RTN_LOCAL))
}

/// Asks which way packets to an address go.
fn route_request(address: LocalAddress) -> Vec<u8> {
    let (family, octets) = match address.ip {
        IpAddr::V4(ip) => (libc::AF_INET, ip.octets().to_vec()),
        IpAddr::V6(ip) => (libc::AF_INET6, ip.octets().to_vec()),
    };
    let mut body = vec![0; ROUTE_HEADER_BYTES];
    body[0] = family as u8;
    body[1] = 8 * octets.len() as u8;
    put_attribute(&mut body, libc::RTA_DST, &octets);
    if address.scope_id != 0 {
        put_attribute(&mut body, libc::RTA_OIF, &address.scope_id.to_ne_bytes());
    }
    let mut message = header(libc::RTM_GETROUTE, libc::NLM_F_REQUEST, body.len());
    message.extend(body);
    message
}

fn put_attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    body.extend((4 + value.len() as u16).to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
}

fn header(kind: u16, flags: libc::c_int, body_bytes: usize) -> Vec<u8> {
    let mut message = vec![0; MESSAGE_HEADER_BYTES];
    message[0..4].copy_from_slice(&((MESSAGE_HEADER_BYTES + body_bytes) as u32).to_ne_bytes());
    message[4..6].copy_from_slice(&kind.to_ne_bytes());
    message[6..8].copy_from_slice(&(flags as u16).to_ne_bytes());
    message
}

fn open() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, NETLINK_ROUTE)?;
    Ok(socket)
}

/// Runs one dump and returns the bodies of its `answer` messages, asking again when the kernel says that
/// the tables changed underneath.
fn request(question: u16, answer: u16) -> io::Result<Vec<Vec<u8>>> {
    let socket = open()?;
    let mut answers = Vec::new();
    for _ in 0..ATTEMPTS {
        answers.clear();
        send(&socket, &dump_request(question), SendFlags::empty())?;
        if read_dump(&socket, answer, &mut answers)? == Dump::Consistent {
            break;
        }
    }
    // After so many changes in a row the last answer is as good as any: it was stale on arrival anyway.
    Ok(answers)
}

/// A dump request: the message header, then an all-zero `rtgenmsg`/`ifinfomsg` (every family).
fn dump_request(kind: u16) -> Vec<u8> {
    let mut message = header(kind, libc::NLM_F_REQUEST | libc::NLM_F_DUMP, LINK_HEADER_BYTES);
    message.extend([0; LINK_HEADER_BYTES]);
    message
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Dump {
    Consistent,
    Interrupted,
}

fn read_dump(socket: &OwnedFd, answer: u16, answers: &mut Vec<Vec<u8>>) -> io::Result<Dump> {
    let mut outcome = Dump::Consistent;
    let mut buffer = vec![0_u8; READ_BYTES];
    loop {
        let (length, _) = recv(socket, &mut buffer[..], RecvFlags::empty())?;
        let read = read_messages(&buffer[..length], answer, answers)?;
        if read.interrupted {
            outcome = Dump::Interrupted;
        }
        if read.done {
            return Ok(outcome);
        }
    }
}

/// What one read brought besides answers.
#[derive(Default)]
struct Read {
    interrupted: bool,
    done: bool,
}

fn read_messages(bytes: &[u8], answer: u16, answers: &mut Vec<Vec<u8>>) -> io::Result<Read> {
    let mut read = Read::default();
    let mut rest = bytes;
    while let Some((message, after)) = split_message(rest) {
        rest = after;
        read.interrupted |= i32::from(message.flags) & libc::NLM_F_DUMP_INTR != 0;
        match i32::from(message.kind) {
            libc::NLMSG_DONE => {
                read.done = true;
                break;
            }
            libc::NLMSG_ERROR => return Err(error_of(message.body)),
            _ if message.kind == answer => answers.push(message.body.to_vec()),
            _ => {}
        }
    }
    Ok(read)
}

struct Message<'a> {
    kind: u16,
    flags: u16,
    body: &'a [u8],
}

fn split_message(bytes: &[u8]) -> Option<(Message<'_>, &[u8])> {
    let length = u32_at(bytes, 0)? as usize;
    let body = bytes.get(MESSAGE_HEADER_BYTES..length)?;
    let after = bytes.get(align(length)..).unwrap_or_default();
    Some((
        Message {
            kind: u16_at(bytes, 4)?,
            flags: u16_at(bytes, 6)?,
            body,
        },
        after,
    ))
}

/// The errno in an error message; the kernel writes it negated.
fn error_of(body: &[u8]) -> io::Error {
    let code = u32_at(body, 0).map_or(libc::EPROTO, |code| (code as i32).wrapping_neg());
    io::Error::from_raw_os_error(code)
}

/// Reads an `ifinfomsg` and the attributes behind it.
fn parse_link(body: &[u8]) -> Option<NetDevice> {
    let index = u32_at(body, 4)?;
    let flags = u32_at(body, 8)? as i32;
    let mut name = None;
    let mut mtu = 0;
    let mut mac = None;
    for (kind, value) in Attributes(body.get(LINK_HEADER_BYTES..)?) {
        match kind {
            libc::IFLA_IFNAME => {
                let text = value.split(|byte| *byte == 0).next().unwrap_or_default();
                name = Some(String::from_utf8_lossy(text).into_owned());
            }
            libc::IFLA_MTU => mtu = u32_at(value, 0).unwrap_or(0),
            libc::IFLA_ADDRESS => mac = value.try_into().ok(),
            _ => {}
        }
    }
    let up = flags & libc::IFF_UP != 0;
    // RUNNING is the kernel's own verdict over carrier and operational state; loopback, whose state is
    // "unknown", has it.
    let running = flags & libc::IFF_RUNNING != 0;
    Some(NetDevice {
        name: name?,
        index,
        mtu,
        up,
        link: if up && running {
            LinkState::Up
        } else {
            LinkState::Down
        },
        loopback: flags & libc::IFF_LOOPBACK != 0,
        mac,
        gids: Vec::new(),
        wire: Wire::default(),
    })
}

/// Reads an `ifaddrmsg` and its attributes: the interface index and the address, unless another host has it.
///
/// A tentative address counts. An interface that just came up has one for a second or two, while the kernel asks whether
/// another host has the same. A GID table without it would have the other addresses at other indices than a second later,
/// and programs that name their GID by its index (UCX, MPI) would not reach each other. Linux too lists a NIC's link-local
/// GID from the beginning.
fn parse_address(body: &[u8]) -> Option<(u32, LocalAddress)> {
    let index = u32_at(body, 4)?;
    let mut flags = u32::from(*body.get(2)?);
    let (mut local, mut address) = (None, None);
    for (kind, value) in Attributes(body.get(ADDRESS_HEADER_BYTES..)?) {
        match kind {
            libc::IFA_LOCAL => local = ip_of(value),
            libc::IFA_ADDRESS => address = ip_of(value),
            libc::IFA_FLAGS => flags = u32_at(value, 0).unwrap_or(flags),
            _ => {}
        }
    }
    if flags & libc::IFA_F_DADFAILED != 0 {
        return None;
    }
    // On point-to-point links IFA_ADDRESS is the other end and IFA_LOCAL is ours.
    let ip = local.or(address)?;
    let scoped = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    Some((
        index,
        LocalAddress {
            ip,
            scope_id: if scoped { index } else { 0 },
        },
    ))
}

fn ip_of(value: &[u8]) -> Option<IpAddr> {
    match value.len() {
        4 => <[u8; 4]>::try_from(value)
            .ok()
            .map(|octets| Ipv4Addr::from(octets).into()),
        16 => <[u8; 16]>::try_from(value)
            .ok()
            .map(|octets| Ipv6Addr::from(octets).into()),
        _ => None,
    }
}

/// Walks the type-length-value attributes of a message.
struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::from(u16_at(self.0, 0)?);
        let kind = u16_at(self.0, 2)?;
        let value = self.0.get(4..length)?;
        self.0 = self.0.get(align(length)..).unwrap_or_default();
        Some((kind, value))
    }
}

/// Messages and attributes start at multiples of four.
fn align(length: usize) -> usize {
    length.next_multiple_of(4)
}

fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    let field = bytes.get(offset..offset + 2)?;
    Some(u16::from_ne_bytes(field.try_into().ok()?))
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let field = bytes.get(offset..offset + 4)?;
    Some(u32::from_ne_bytes(field.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&(value.len() as u16 + 4).to_ne_bytes());
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(value);
        bytes.resize(align(bytes.len()), 0);
        bytes
    }

    fn address_message(flags: u8, attributes: &[Vec<u8>]) -> Vec<u8> {
        let mut body = vec![libc::AF_INET as u8, 24, flags, 0];
        body.extend_from_slice(&7_u32.to_ne_bytes());
        body.extend(attributes.concat());
        body
    }

    #[test]
    fn our_end_of_a_point_to_point_link_is_the_local_attribute() {
        let body = address_message(
            0,
            &[
                attribute(libc::IFA_ADDRESS, &[192, 0, 2, 2]),
                attribute(libc::IFA_LOCAL, &[192, 0, 2, 1]),
            ],
        );
        let expected = LocalAddress::from(IpAddr::from([192, 0, 2, 1]));
        assert_eq!(parse_address(&body), Some((7, expected)));
    }

    #[test]
    fn tentative_addresses_count_and_duplicate_ones_are_left_out() {
        let listed = |flags: u32| {
            let address = attribute(libc::IFA_ADDRESS, &[192, 0, 2, 1]);
            parse_address(&address_message(flags as u8, &[address])).is_some()
        };
        assert!(listed(0));
        assert!(listed(libc::IFA_F_TENTATIVE));
        assert!(!listed(libc::IFA_F_TENTATIVE | libc::IFA_F_DADFAILED));
    }

    #[test]
    fn a_truncated_message_is_skipped_not_a_panic() {
        let mut body = address_message(0, &[attribute(libc::IFA_ADDRESS, &[192, 0, 2, 1])]);
        while body.pop().is_some() {
            assert_eq!(parse_address(&body), None);
            assert!(parse_link(&body).is_none());
            assert!(split_message(&body).is_none());
        }
    }

    #[test]
    fn an_attribute_shorter_than_its_header_ends_the_walk() {
        let bytes = [2, 0, 1, 0, 9, 9, 9, 9];
        assert_eq!(Attributes(&bytes).count(), 0);
    }
}
