//! Network interfaces seen as RDMA devices: names, GID tables and path MTU.
//!
//! Every interface of the network namespace, loopback included, is a device `roce_<interface>`, and another one called
//! `iwarp_<interface>`; every usable address on it is a GID. The kernel is asked over rtnetlink, because `/sys/class/net`
//! shows the interfaces of the network namespace that mounted it, which in a container may be the host's.
//!
//! This module takes snapshots and refuses to watch for changes: ask again when it matters.
//!
//! Read first: [`devices`], [`NetDevice`], [`GidEntry`].

mod netlink;

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Bytes around the payload of the longest RoCEv2 packet that carries one.
///
/// IPv6 40, UDP 8, BTH 12, XRCETH 4, RETH 16, immediate 4, ICRC 4. Atomics have a longer extended header
/// but no payload, and a full path MTU is a multiple of four, so there is no pad to count. The Ethernet
/// header is not part of an interface's MTU.
pub const MAX_HEADER_BYTES: u32 = 40 + 8 + 12 + 4 + 16 + 4 + 4;

/// The path MTUs that a queue pair can be given, smallest first.
const PATH_MTUS: [u16; 5] = [256, 512, 1024, 2048, 4096];

/// All interfaces of this network namespace, by interface index.
pub fn devices() -> io::Result<Vec<NetDevice>> {
    netlink::dump()
}

/// Whether an address is this host's own: whether packets to it stay here. False if the kernel does not say.
pub(crate) fn is_local(address: LocalAddress) -> bool {
    netlink::is_local(address).unwrap_or(false)
}

/// The largest path MTU whose packets fit an interface of this MTU: 1500 gives 1024, 9000 and loopback
/// give 4096.
///
/// An interface too small for even the smallest path MTU gets the smallest all the same: there is no
/// other legal value, and the kernel refuses the datagrams that do not fit.
pub fn path_mtu_for(netdev_mtu: u32) -> u16 {
    let room = netdev_mtu.saturating_sub(MAX_HEADER_BYTES);
    let fitting = PATH_MTUS.iter().rev().find(|mtu| u32::from(**mtu) <= room);
    fitting.copied().unwrap_or(PATH_MTUS[0])
}

/// One network interface, as of the moment it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetDevice {
    /// The interface's name, such as `eth0`.
    pub name: String,
    /// The interface's index: unique in the network namespace while the interface lives.
    pub index: u32,
    /// The interface's MTU in bytes, IP header included.
    pub mtu: u32,
    /// Whether the administrator has switched the interface on.
    pub up: bool,
    /// Whether the interface can carry packets right now (switched on *and* a carrier).
    pub link: LinkState,
    /// Whether this is a loopback interface.
    pub loopback: bool,
    /// The Ethernet address, all zeros on loopback; `None` where the link layer has another format.
    pub mac: Option<[u8; 6]>,
    /// The GID table; an entry's place in it is its GID index. See [`gid_table_order`] for the order.
    pub gids: Vec<GidEntry>,
    /// What a device of it speaks.
    pub wire: Wire,
}

/// What a device speaks to its peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Wire {
    /// RoCEv2: packets over UDP.
    #[default]
    Roce,
    /// iWARP: RDMAP, DDP and MPA over TCP.
    Iwarp,
}

impl Wire {
    /// Both, the usual one first.
    pub const ALL: [Wire; 2] = [Wire::Roce, Wire::Iwarp];

    /// What the names of such devices begin with.
    pub fn prefix(self) -> &'static str {
        match self {
            Wire::Roce => "roce_",
            Wire::Iwarp => "iwarp_",
        }
    }
}

impl NetDevice {
    /// The name that verbs programs use for this interface.
    pub fn device_name(&self) -> String {
        format!("{}{}", self.wire.prefix(), self.name)
    }

    /// Its number among the devices: that of the interface, unless it is the second device of one.
    pub fn number(&self) -> u32 {
        self.index | (self.wire as u32) << 23
    }

    /// The one GID that an iWARP device has: the Ethernet address. Its addresses are not in the table.
    pub fn rnic_gid(&self) -> Gid {
        let mut gid = [0; 16];
        gid[..6].copy_from_slice(&self.mac.unwrap_or_default());
        Gid(gid)
    }

    /// The same interface as a device that speaks something else.
    #[must_use]
    pub fn with_wire(mut self, wire: Wire) -> Self {
        self.wire = wire;
        self
    }

    /// The device's 64-bit name: the Ethernet address as an EUI-64, with the interface's index mixed into its middle.
    ///
    /// VLANs, bridges and the like share an address with the interface below them, and programs take two devices of the
    /// same name for one.
    pub fn guid(&self) -> u64 {
        let [a, b, c, d, e, f] = self.mac.unwrap_or_default();
        // Nor may the two devices of one interface be taken for one.
        let folded = (self.index ^ self.index >> 16) as u16 ^ (self.wire as u16) << 8;
        let [high, low] = (0xfffe ^ folded).to_be_bytes();
        u64::from_be_bytes([a ^ 2, b, c, high, low, d, e, f])
    }

    /// The active path MTU of the device's port.
    pub fn path_mtu(&self) -> u16 {
        path_mtu_for(self.mtu)
    }
}

/// Whether an interface can carry packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkState {
    /// Packets flow.
    Up,
    /// No carrier, or switched off.
    Down,
}

/// One entry of a GID table: an address of the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GidEntry {
    /// The address as verbs programs see it.
    pub gid: Gid,
    /// The address as sockets see it.
    pub address: LocalAddress,
}

impl From<LocalAddress> for GidEntry {
    fn from(address: LocalAddress) -> Self {
        GidEntry {
            gid: Gid::from(address.ip),
            address,
        }
    }
}

/// A global identifier: an IPv6 address, or an IPv4 address written as `::ffff:a.b.c.d`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The IP address this GID stands for; the mapped form comes back as IPv4.
    pub fn ip(self) -> IpAddr {
        Ipv6Addr::from(self.0).to_canonical()
    }
}

impl From<IpAddr> for Gid {
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(ip) => Gid(ip.to_ipv6_mapped().octets()),
            IpAddr::V6(ip) => Gid(ip.octets()),
        }
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Ipv6Addr::from(self.0), formatter)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Gid({self})")
    }
}

/// An address of this host that sockets can be bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LocalAddress {
    /// The address.
    pub ip: IpAddr,
    /// The interface index where the address alone is ambiguous (IPv6 link-local), otherwise zero.
    pub scope_id: u32,
}

impl LocalAddress {
    /// This address with a port, ready for a socket.
    pub fn with_port(self, port: u16) -> SocketAddr {
        match self.ip {
            IpAddr::V4(ip) => SocketAddr::V4(SocketAddrV4::new(ip, port)),
            IpAddr::V6(ip) => SocketAddr::V6(SocketAddrV6::new(ip, port, 0, self.scope_id)),
        }
    }
}

impl From<IpAddr> for LocalAddress {
    fn from(ip: IpAddr) -> Self {
        LocalAddress { ip, scope_id: 0 }
    }
}

impl From<SocketAddr> for LocalAddress {
    fn from(address: SocketAddr) -> Self {
        let scope_id = match address {
            SocketAddr::V4(_) => 0,
            SocketAddr::V6(address) => address.scope_id(),
        };
        LocalAddress {
            ip: address.ip(),
            scope_id,
        }
    }
}

impl fmt::Display for LocalAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scope_id {
            0 => write!(formatter, "{}", self.ip),
            scope_id => write!(formatter, "{}%{scope_id}", self.ip),
        }
    }
}

/// Puts the addresses of one interface into GID-table order: IPv6 link-local, IPv4, other IPv6.
///
/// Programs and their users remember GID indices, so the order must not depend on luck. Link-local comes
/// first because it does so on Linux RoCE devices; within a group the kernel's order stays, which is the
/// order in which the addresses were added.
pub fn gid_table_order(mut addresses: Vec<LocalAddress>) -> Vec<LocalAddress> {
    addresses.sort_by_key(|address| match address.ip {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => 0,
        IpAddr::V4(_) => 1,
        IpAddr::V6(_) => 2,
    });
    addresses
}

/// The GID table that verbs programs see: for each index, which of the interface's addresses stands there.
///
/// Linux RoCE devices have a link-local address at index 0, hence their first IPv4 address at 1, and programs have one of
/// these numbers built in or as their default. An interface with IPv6 switched off, as containers have, has no link-local
/// address: there its first address stands at both, so that either number leads to other hosts. Not so on loopback, which
/// never has a link-local address.
pub fn verbs_gid_table(loopback: bool, gids: &[GidEntry]) -> Vec<usize> {
    let link_local =
        |entry: &GidEntry| matches!(entry.address.ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    let doubled = !loopback && gids.first().is_some_and(|first| !link_local(first));
    let first = doubled.then_some(0);
    first.into_iter().chain(0..gids.len()).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_addresses_of_this_host_are_local() {
        let is_local = |text: &str| {
            let ip: std::net::IpAddr = text.parse().expect("an address");
            super::is_local(super::LocalAddress::from(ip))
        };
        assert!(is_local("127.0.0.1") && is_local("127.71.0.9") && is_local("::1"));
        assert!(!is_local("203.0.113.1") && !is_local("2001:db8::1"));
    }

    use super::*;

    #[test]
    fn path_mtu_is_the_largest_that_fits() {
        let expected = [
            (1500, 1024),
            (1400, 1024),
            (1111, 512),
            (1112, 1024),
            (2200, 2048),
            (4183, 2048),
            (4184, 4096),
            (4200, 4096),
            (9000, 4096),
            (65536, 4096),
        ];
        for (netdev_mtu, path_mtu) in expected {
            assert_eq!(path_mtu_for(netdev_mtu), path_mtu, "interface MTU {netdev_mtu}");
        }
    }

    #[test]
    fn an_interface_too_small_for_any_packet_still_has_a_legal_path_mtu() {
        assert_eq!(path_mtu_for(0), 256);
        assert_eq!(path_mtu_for(68), 256);
    }

    #[test]
    fn guids_differ_where_ethernet_addresses_do_not() {
        let mut netdev = devices().expect("rtnetlink answers").remove(0);
        netdev.mac = Some([0x02, 0xfc, 0, 0, 0, 1]);
        netdev.index = 4;
        assert_eq!(netdev.guid(), 0x00fc_00ff_fa00_0001);
        netdev.index = 5;
        assert_eq!(netdev.guid(), 0x00fc_00ff_fb00_0001);
        netdev.mac = None;
        netdev.index = 1;
        assert_eq!(netdev.guid(), 0x0200_00ff_ff00_0000);
    }

    #[test]
    fn gids_map_ipv4_and_back() {
        let gid = Gid::from(IpAddr::from([192, 0, 2, 1]));
        assert_eq!(gid.0, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1]);
        assert_eq!(gid.to_string(), "::ffff:192.0.2.1");
        assert_eq!(gid.ip(), IpAddr::from([192, 0, 2, 1]));
        let plain: IpAddr = "2001:db8::1".parse().expect("a literal address");
        assert_eq!(Gid::from(plain).ip(), plain);
    }

    #[test]
    fn gid_table_order_groups_by_kind_and_keeps_the_order_within() {
        let address = |text: &str| LocalAddress::from(text.parse::<IpAddr>().expect("a literal address"));
        let kernel = ["2001:db8::2", "192.0.2.9", "fe80::1", "192.0.2.1", "2001:db8::1"].map(address);
        let table = ["fe80::1", "192.0.2.9", "192.0.2.1", "2001:db8::2", "2001:db8::1"].map(address);
        assert_eq!(gid_table_order(kernel.to_vec()), table);
    }

    #[test]
    fn the_first_ipv4_address_is_at_index_1_with_and_without_ipv6() {
        let table = |loopback, addresses: &[&str]| {
            let address =
                |text: &&str| LocalAddress::from(text.parse::<IpAddr>().expect("a literal address"));
            let gids: Vec<GidEntry> = addresses.iter().map(address).map(GidEntry::from).collect();
            verbs_gid_table(loopback, &gids)
        };
        assert_eq!(table(false, &["fe80::1", "192.0.2.1", "2001:db8::1"]), [0, 1, 2]);
        assert_eq!(table(false, &["192.0.2.1", "192.0.2.2"]), [0, 0, 1]);
        assert_eq!(table(true, &["127.0.0.1", "::1"]), [0, 1]);
        assert!(table(false, &[]).is_empty());
    }

    #[test]
    fn loopback_is_a_device_with_its_address_as_a_gid() {
        let devices = devices().expect("rtnetlink answers");
        let loopback = devices
            .iter()
            .find(|device| device.loopback)
            .expect("a loopback interface");
        assert_eq!(loopback.device_name(), format!("roce_{}", loopback.name));
        assert!(loopback.up);
        assert_eq!(loopback.link, LinkState::Up);
        assert_eq!(loopback.path_mtu(), path_mtu_for(loopback.mtu));
        let ips: Vec<IpAddr> = loopback.gids.iter().map(|entry| entry.address.ip).collect();
        assert!(ips.contains(&IpAddr::from([127, 0, 0, 1])), "{ips:?}");
    }

    #[test]
    fn link_local_addresses_carry_their_interface() {
        for device in devices().expect("rtnetlink answers") {
            for entry in &device.gids {
                let link_local = matches!(entry.address.ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
                assert_eq!(entry.address.scope_id, if link_local { device.index } else { 0 });
                assert_eq!(entry.gid.ip(), entry.address.ip);
            }
        }
    }
}
