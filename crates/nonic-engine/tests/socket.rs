//! What the engine relies on in its UDP socket, tried against the running kernel on loopback.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use nonic_engine::netdev;
use nonic_engine::socket::{RecvBatch, WireSocket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

fn bound(ip: IpAddr) -> WireSocket {
    WireSocket::bind(SocketAddr::new(ip, 0)).expect("a free port")
}

/// Waits until there is something to receive; loopback delivers within the send, so this is a formality.
fn receive(socket: &WireSocket, batch: &mut RecvBatch) -> usize {
    let patience = Timespec {
        tv_sec: 5,
        tv_nsec: 0,
    };
    poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&patience)).expect("poll works");
    socket.recv(batch).expect("a datagram within five seconds")
}

fn nothing_to_receive(socket: &WireSocket) {
    let error = socket.recv(&mut RecvBatch::new(1)).expect_err("nothing was sent");
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
}

fn batch_arrives_whole(ip: IpAddr, entries: usize) {
    const SEGMENT: usize = 4112;
    let (sender, receiver) = (bound(ip), bound(ip));
    assert!(sender.max_gso_segments() >= 15);
    let contents: Vec<u8> = (0..15 * SEGMENT - 100)
        .map(|index| (index / SEGMENT) as u8)
        .collect();
    sender
        .send(receiver.local_addr(), &contents, Some(SEGMENT))
        .expect("loopback takes it");

    let mut batch = RecvBatch::new(entries);
    assert_eq!(receive(&receiver, &mut batch), 1);
    let datagrams = batch.iter().next().expect("one entry");
    assert_eq!(datagrams.src, sender.local_addr());
    assert_eq!(datagrams.dst_ip, ip);
    assert_eq!(datagrams.stride, SEGMENT);
    assert_eq!(datagrams.bytes, contents);
    assert_eq!(datagrams.segments().count(), 15);
    nothing_to_receive(&receiver);
}

/// The single receive and the batched one read the notes of the kernel on their own, so both are tried.
#[test]
fn ecn_bits_are_seen() {
    for ip in [V4, V6] {
        for entries in [1, 4] {
            let (sender, receiver) = (bound(ip), bound(ip));
            match ip {
                IpAddr::V4(_) => sockopt::set_ip_tos(&sender, 0b1010_1011),
                IpAddr::V6(_) => sockopt::set_ipv6_tclass(&sender, 0b1010_1011),
            }
            .expect("the mark can be set");
            sender
                .send(receiver.local_addr(), b"marked", None)
                .expect("loopback takes it");
            let mut batch = RecvBatch::new(entries);
            receive(&receiver, &mut batch);
            assert_eq!(
                batch.iter().next().expect("one entry").ecn,
                0b11,
                "{ip} {entries}"
            );
        }
    }
}

/// Routers mark instead of dropping only what says that its sender understands marks.
#[test]
fn what_is_sent_alone_and_in_batches_may_be_marked() {
    for ip in [V4, V6] {
        for segments in [None, Some(3)] {
            let (sender, receiver) = (bound(ip), bound(ip));
            sender
                .send(receiver.local_addr(), b"markable", segments)
                .expect("loopback takes it");
            let mut batch = RecvBatch::new(1);
            receive(&receiver, &mut batch);
            assert_eq!(
                batch.iter().next().expect("one entry").ecn,
                0b10,
                "{ip} {segments:?}"
            );
        }
    }
}

#[test]
fn a_wildcard_socket_knows_where_each_datagram_was_sent() {
    for entries in [1, 4] {
        let receiver = bound(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let destination = SocketAddr::from(([127, 71, 30, 1], receiver.local_addr().port()));
        bound(V4)
            .send(destination, b"packet", None)
            .expect("loopback takes it");
        let mut batch = RecvBatch::new(entries);
        receive(&receiver, &mut batch);
        assert_eq!(batch.iter().next().expect("one entry").dst_ip, destination.ip());
    }
}

#[test]
fn a_batch_of_segments_arrives_in_one_receive() {
    batch_arrives_whole(V4, 1);
    batch_arrives_whole(V4, 8);
}

#[test]
fn a_batch_of_segments_arrives_in_one_receive_on_ipv6() {
    batch_arrives_whole(V6, 1);
    batch_arrives_whole(V6, 8);
}

#[test]
fn one_datagram_is_its_own_stride() {
    for ip in [V4, V6] {
        let (sender, receiver) = (bound(ip), bound(ip));
        sender
            .send(receiver.local_addr(), b"alone", None)
            .expect("loopback takes it");
        let mut batch = RecvBatch::new(1);
        assert_eq!(receive(&receiver, &mut batch), 1);
        let datagrams = batch.iter().next().expect("one entry");
        assert_eq!((datagrams.bytes, datagrams.stride), (&b"alone"[..], 5));
        assert_eq!((datagrams.src, datagrams.dst_ip), (sender.local_addr(), ip));
    }
}

#[test]
fn several_senders_fill_several_entries_in_order() {
    let receiver = bound(V4);
    let senders: Vec<WireSocket> = (0..5).map(|_| bound(V4)).collect();
    for (index, sender) in senders.iter().enumerate() {
        sender
            .send(receiver.local_addr(), &[index as u8; 9], None)
            .expect("loopback takes it");
    }
    let mut batch = RecvBatch::new(4);
    assert_eq!(receive(&receiver, &mut batch), 4);
    for (index, datagrams) in batch.iter().enumerate() {
        assert_eq!(datagrams.src, senders[index].local_addr());
        assert_eq!(datagrams.bytes, [index as u8; 9]);
    }
    assert_eq!(receive(&receiver, &mut batch), 1);
    assert_eq!(batch.iter().count(), 1);
}

#[test]
fn a_failed_receive_leaves_the_batch_empty() {
    let (sender, receiver) = (bound(V4), bound(V4));
    sender
        .send(receiver.local_addr(), b"old", None)
        .expect("loopback takes it");
    let mut batch = RecvBatch::new(1);
    receive(&receiver, &mut batch);
    receiver.recv(&mut batch).expect_err("nothing more");
    assert_eq!(batch.iter().count(), 0);
}

#[test]
fn an_empty_datagram_is_no_packet() {
    let (sender, receiver) = (bound(V4), bound(V4));
    sender
        .send(receiver.local_addr(), b"", None)
        .expect("loopback takes it");
    let mut batch = RecvBatch::new(1);
    assert_eq!(receive(&receiver, &mut batch), 1);
    assert_eq!(batch.iter().flat_map(|datagrams| datagrams.segments()).count(), 0);
}

#[test]
fn the_largest_datagram_fits() {
    let (sender, receiver) = (bound(V4), bound(V4));
    // All that IPv4 and UDP leave room for.
    let contents = vec![7; 65_535 - 20 - 8];
    sender
        .send(receiver.local_addr(), &contents, None)
        .expect("loopback takes it");
    let mut batch = RecvBatch::new(1);
    receive(&receiver, &mut batch);
    assert_eq!(batch.iter().next().expect("one entry").bytes, contents);
}

#[test]
fn fragmentation_is_off_and_the_socket_unconnected() {
    let socket = bound(V4);
    assert_eq!(
        sockopt::ip_mtu_discover(&socket).expect("an option"),
        sockopt::Ipv4PathMtuDiscovery::PROBE
    );
    let peer = rustix::net::getpeername(&socket).map(|_| "connected");
    assert_eq!(peer, Err(rustix::io::Errno::NOTCONN));
    let socket = bound(V6);
    assert_eq!(
        sockopt::ipv6_mtu_discover(&socket).expect("an option"),
        sockopt::Ipv6PathMtuDiscovery::PROBE
    );
    assert!(sockopt::ipv6_v6only(&socket).expect("an option"));
}

#[test]
fn a_datagram_too_long_is_an_error() {
    let (sender, receiver) = (bound(V4), bound(V4));
    let error = sender
        .send(receiver.local_addr(), &vec![0; 70_000], None)
        .expect_err("too long");
    assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
    nothing_to_receive(&receiver);
}

#[test]
fn a_batch_with_too_many_segments_is_refused_and_batching_stays_on() {
    let (sender, receiver) = (bound(V4), bound(V4));
    let most = sender.max_gso_segments();
    for (bytes, segment_size) in [(most + 1, 1), (10, 0), (10, 1 << 16)] {
        let refused = sender.send(receiver.local_addr(), &vec![0; bytes], Some(segment_size));
        assert_eq!(
            refused.expect_err("not a batch").kind(),
            io::ErrorKind::InvalidInput
        );
    }
    assert_eq!(sender.max_gso_segments(), most);
    sender
        .send(receiver.local_addr(), &vec![0; most], Some(1))
        .expect("the most that fits");
    let mut batch = RecvBatch::new(1);
    receive(&receiver, &mut batch);
    assert_eq!(batch.iter().next().expect("one entry").segments().count(), most);
}

#[test]
fn an_address_and_port_have_one_owner() {
    let owner = bound(V4);
    let error = WireSocket::bind(owner.local_addr()).expect_err("it is taken");
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    let address = owner.local_addr();
    drop(owner);
    WireSocket::bind(address).expect("it is free again");
}

#[test]
fn buffers_are_large() {
    let limit = |name: &str| -> usize {
        let text = std::fs::read_to_string(format!("/proc/sys/net/core/{name}")).expect("/proc is mounted");
        text.trim().parse().expect("a number")
    };
    let (send_bytes, receive_bytes) = bound(V4).buffer_bytes().expect("two options");
    // The kernel doubles what it grants, for its own overhead.
    assert!(send_bytes >= 2 * limit("wmem_max").min(4 << 20), "{send_bytes}");
    assert!(
        receive_bytes >= 2 * limit("rmem_max").min(4 << 20),
        "{receive_bytes}"
    );
}

fn loopback_index() -> u32 {
    let devices = netdev::devices().expect("rtnetlink answers");
    devices
        .iter()
        .find(|device| device.loopback)
        .expect("a loopback interface")
        .index
}

fn multicast_reaches_every_member(index: u32, local: SocketAddr, group: IpAddr) {
    let first = WireSocket::bind_multicast(group, 0, index).expect("a group");
    let port = first.local_addr().port();
    let second = WireSocket::bind_multicast(group, port, index).expect("the same group again");
    let sender = WireSocket::bind(local).expect("a free port");
    sender
        .set_multicast_interface(index)
        .expect("an interface can be chosen");
    sender
        .send(first.local_addr(), b"everyone", None)
        .expect("the interface takes it");
    for member in [first, second] {
        let mut batch = RecvBatch::new(1);
        assert_eq!(receive(&member, &mut batch), 1);
        let datagrams = batch.iter().next().expect("one entry");
        assert_eq!(datagrams.bytes, b"everyone");
        assert_eq!(datagrams.src, sender.local_addr());
        assert_eq!(datagrams.dst_ip, group);
    }
}

#[test]
fn multicast_reaches_every_member_of_the_group() {
    let group = "239.255.71.91".parse().expect("a literal address");
    multicast_reaches_every_member(loopback_index(), SocketAddr::new(V4, 0), group);
}

/// Linux gives loopback no IPv6 multicast route, so this needs another interface; the group is of
/// interface-local scope, which the kernel never lets out of the host.
#[test]
fn multicast_reaches_every_member_of_the_group_on_ipv6() {
    let devices = netdev::devices().expect("rtnetlink answers");
    let usable = devices
        .iter()
        .filter(|device| !device.loopback && device.link == netdev::LinkState::Up);
    let mut addresses =
        usable.flat_map(|device| device.gids.iter().map(move |entry| (device, entry.address)));
    let Some((device, address)) = addresses.find(|(_, address)| address.scope_id != 0) else {
        eprintln!("skipped: no interface here has an IPv6 link-local address");
        return;
    };
    let group = "ff11::47:91".parse().expect("a literal address");
    multicast_reaches_every_member(device.index, address.with_port(0), group);
}

#[test]
fn a_multicast_socket_ignores_unicast_and_refuses_other_addresses() {
    let index = loopback_index();
    let member =
        WireSocket::bind_multicast("239.255.71.92".parse().expect("literal"), 0, index).expect("a group");
    let sender = bound(V4);
    let unicast = SocketAddr::new(V4, member.local_addr().port());
    sender
        .send(unicast, b"to nobody", None)
        .expect("loopback takes it");
    nothing_to_receive(&member);
    let error = WireSocket::bind_multicast(V4, 0, index).expect_err("not a group");
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}
