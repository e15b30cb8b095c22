//! The choice of the device and of its address: those that own the route to the peer.
//!
//! The kernel knows from which local address it would send to the peer; that address belongs to an interface, and
//! that interface is the device. So the usual command line names no device at all.

use anyhow::{Context, Result, bail, ensure};
use nonic::{Device, GidEntry, NetDevice, PathMtu, PortState};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::{Mutex, PoisonError};

use crate::exchange::DEFAULT_PORT;

/// How the user narrows the choice.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct DeviceChoice {
    /// Use this device (default: the one whose address the peer is reached from)
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    /// Use this address of the device (default: the one that the peer is reached from)
    #[arg(long, value_name = "INDEX", requires = "device")]
    gid_index: Option<u8>,
}

impl DeviceChoice {
    /// An address of the device that was named, or of loopback.
    pub(crate) fn address_here(&self) -> Result<IpAddr> {
        let Some(name) = &self.device else {
            return Ok(Ipv4Addr::LOCALHOST.into());
        };
        let devices = Device::interfaces()?;
        let device = devices
            .iter()
            .find(|device| device.device_name() == *name || device.name == *name);
        // If it is not there, opening it complains.
        let gid = device.and_then(|device| {
            let table = nonic::verbs_gid_table(device.loopback, &device.gids);
            let position = *table.get(usize::from(self.gid_index.unwrap_or(0)))?;
            device.gids.get(position)
        });
        Ok(gid.map_or(Ipv4Addr::LOCALHOST.into(), |gid| gid.address.ip))
    }

    /// The same choice for another process.
    pub(crate) fn as_arguments(&self) -> Vec<String> {
        let device = self.device.iter().map(|name| format!("--device={name}"));
        let gid = self.gid_index.iter().map(|index| format!("--gid-index={index}"));
        device.chain(gid).collect()
    }
}

/// An open device and one of its addresses.
#[derive(Clone, Debug)]
pub(crate) struct LocalGid {
    pub(crate) device: Device,
    pub(crate) gid_index: u8,
}

impl LocalGid {
    /// That of one address of an open device.
    pub(crate) fn at(device: &Device, ip: IpAddr) -> Result<Self> {
        let index = device.gids().iter().position(|gid| gid.address.ip == ip);
        let gid_index = index.and_then(|index| u8::try_from(index).ok());
        Ok(LocalGid {
            device: device.clone(),
            gid_index: gid_index.with_context(|| format!("the device has no address {ip}"))?,
        })
    }

    pub(crate) fn ip(&self) -> IpAddr {
        self.device.gids()[usize::from(self.gid_index)].address.ip
    }

    pub(crate) fn mtu(&self) -> PathMtu {
        self.device.port_mtu()
    }

    pub(crate) fn device_name(&self) -> String {
        self.device.netdev().device_name()
    }

    /// Whether this process has a socket at UDP port 4791 of the address; `None` if it needs none, because the device speaks
    /// iWARP.
    pub(crate) fn port_state(&self) -> Option<PortState> {
        let states = self.device.port_states();
        states.get(usize::from(self.gid_index)).copied()
    }
}

/// All network interfaces of this host.
pub(crate) fn interfaces() -> Result<Vec<NetDevice>> {
    match Device::interfaces() {
        // What is wrong with a setting is said by itself.
        Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => Err(error.into()),
        found => found.context("cannot ask the kernel for its network interfaces"),
    }
}

/// The devices this process has open. Each is opened once and stays open.
#[derive(Debug, Default)]
pub(crate) struct OpenDevices {
    open: Mutex<HashMap<String, Device>>,
}

impl OpenDevices {
    /// The device and the GID for a connection with this local address.
    pub(crate) fn find(&self, choice: &DeviceChoice, local: SocketAddr) -> Result<LocalGid> {
        let devices = interfaces()?;
        let name = match &choice.device {
            Some(name) => name.clone(),
            None => device_of(&devices, local)?.device_name(),
        };
        let device = self.open(&name)?;
        let gids = device.gids();
        let gid_index = match choice.gid_index {
            Some(index) => match device.verbs_gid_table().get(usize::from(index)) {
                Some(position) => u8::try_from(*position)?,
                None => bail!("{name} has no GID {index}; see `nonic devices`"),
            },
            None => gid_of(gids, local)
                .with_context(|| format!("{name} has no address of the same kind as {}", local.ip()))?,
        };
        Ok(LocalGid { device, gid_index })
    }

    /// Every device that can be opened, or the one that was named.
    pub(crate) fn open_all(&self, choice: &DeviceChoice) -> Result<Vec<Device>> {
        if let Some(name) = &choice.device {
            return Ok(vec![self.open(name)?]);
        }
        let devices = Device::interfaces().context("cannot ask the kernel for its network interfaces")?;
        let opened = devices.iter().map(|device| self.open(&device.device_name()));
        let (opened, refused): (Vec<_>, Vec<_>) = opened.partition(Result::is_ok);
        match refused.into_iter().next() {
            // Interfaces without addresses are no reason not to serve on the others.
            Some(error) if opened.is_empty() => Err(error.expect_err("it was refused")),
            _ => Ok(opened.into_iter().flatten().collect()),
        }
    }

    fn open(&self, name: &str) -> Result<Device> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = open.get(name) {
            return Ok(device.clone());
        }
        let device = Device::open(name)?;
        open.insert(name.to_owned(), device.clone());
        Ok(device)
    }
}

/// The addresses of a server given as `HOST`, `HOST:PORT`, `[IPV6]:PORT` or `IPV6%INTERFACE`.
pub(crate) fn addresses(server: &str) -> Result<Vec<SocketAddr>> {
    let (host, port) = split_port(server)?;
    let found = (host, port)
        .to_socket_addrs()
        .with_context(|| format!("`{host}` has no address; is it spelled right?"))?;
    let found: Vec<SocketAddr> = found.collect();
    ensure!(!found.is_empty(), "`{host}` has no address");
    Ok(found)
}

/// The local address that the kernel would send from to a peer.
pub(crate) fn local_towards(peer: SocketAddr) -> Result<SocketAddr> {
    let any = match peer {
        SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Connecting a datagram socket sends nothing; it only chooses a source address.
    let probe = UdpSocket::bind((any, 0))?;
    let connected = probe.connect(peer);
    connected.with_context(|| format!("{} cannot be reached from this host", peer.ip()))?;
    Ok(probe.local_addr()?)
}

/// Splits off the port, if there is one. More than one colon is an IPv6 address without.
pub(crate) fn split_port(server: &str) -> Result<(&str, u16)> {
    let port = |text: &str| {
        text.parse()
            .with_context(|| format!("`{text}` is no port number in `{server}`"))
    };
    if let Some((host, rest)) = server.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return match rest.strip_prefix(':') {
            Some(text) => Ok((host, port(text)?)),
            None if rest.is_empty() => Ok((host, DEFAULT_PORT)),
            None => bail!("`{server}` is no address; write [IPV6]:PORT"),
        };
    }
    match server.split_once(':') {
        Some((host, text)) if !text.contains(':') => Ok((host, port(text)?)),
        _ => Ok((server, DEFAULT_PORT)),
    }
}

fn device_of(devices: &[NetDevice], local: SocketAddr) -> Result<&NetDevice> {
    let scope_id = match local {
        SocketAddr::V6(address) => address.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    let ip = local.ip().to_canonical();
    let owns = |device: &&NetDevice| device.gids.iter().any(|gid| gid.address.ip == ip);
    let in_scope = |device: &&NetDevice| scope_id == 0 || device.index == scope_id;
    // All of 127.0.0.0/8 is local, though only 127.0.0.1 is an address of the interface.
    let loopback = |device: &&NetDevice| ip.is_loopback() && device.loopback;
    devices
        .iter()
        .find(|device| owns(device) && in_scope(device))
        .or_else(|| devices.iter().find(loopback))
        .with_context(|| format!("no device has the address {ip}; see `nonic devices`, choose with --device"))
}

/// The GID of a connection's local address; failing that the first of the same kind.
fn gid_of(gids: &[GidEntry], local: SocketAddr) -> Option<u8> {
    let ip = local.ip().to_canonical();
    let same = |entry: &GidEntry| entry.address.ip == ip;
    let alike = |entry: &GidEntry| kind(entry.address.ip) == kind(ip);
    let index = gids
        .iter()
        .position(same)
        .or_else(|| gids.iter().position(alike))?;
    u8::try_from(index).ok()
}

/// Addresses of different kinds do not reach each other.
fn kind(ip: IpAddr) -> u8 {
    match ip {
        IpAddr::V4(_) => 4,
        IpAddr::V6(ip) if ip.is_unicast_link_local() => 1,
        IpAddr::V6(_) => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_written_in_many_ways() {
        let expected = [
            ("host", ("host", DEFAULT_PORT)),
            ("host:1", ("host", 1)),
            ("10.0.0.1:65535", ("10.0.0.1", 65535)),
            ("fe80::1%eth0", ("fe80::1%eth0", DEFAULT_PORT)),
            ("[fe80::1%eth0]:7", ("fe80::1%eth0", 7)),
            ("[::1]", ("::1", DEFAULT_PORT)),
        ];
        for (text, split) in expected {
            assert_eq!(split_port(text).expect(text), split);
        }
        for bad in ["host:", "host:x", "host:65536", "[::1]x", "[::1]:"] {
            assert!(split_port(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn loopback_is_found_by_any_of_its_addresses() {
        let devices = Device::interfaces().expect("rtnetlink answers");
        for text in ["127.0.0.1:1", "127.8.9.10:1", "[::ffff:127.0.0.1]:1"] {
            let device = device_of(&devices, text.parse().expect("a literal")).expect(text);
            assert!(device.loopback);
        }
    }
}
