//! The device list: which devices programs are shown, and in which order. This is the one place where that is decided.
//!
//! Programs take the first device of the list, or the one whose MTU promises most, or pair each of theirs with each of a
//! peer's. A loopback device reaches no other host, so with one in the list they choose a way that leads nowhere and hang.
//! It is shown where there is nothing else, or where the user wants it ([`Loopback`]). A program that names a device or one
//! of its addresses gets it, shown or not.

use super::Device;
use crate::config::{Config, Loopback, Wires};
use crate::netdev::{LinkState, NetDevice, Wire};
use std::io;
use std::net::IpAddr;

impl Device {
    /// The devices that programs are shown, as the environment says: one per network interface with an address.
    ///
    /// An environment that asks for something unknown is refused with [`io::ErrorKind::InvalidInput`].
    pub fn list() -> io::Result<Vec<NetDevice>> {
        let config =
            Config::from_environment().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        Self::list_with(&config)
    }

    /// The devices that programs are shown, whatever the environment says.
    pub fn list_with(config: &Config) -> io::Result<Vec<NetDevice>> {
        let shown = shown(&crate::netdev::devices()?, config.loopback);
        Ok(as_devices(&shown, config.wires))
    }

    /// All network interfaces of this host, also those that no program is shown as a device; each as the device that a
    /// program gets which names it.
    pub fn interfaces() -> io::Result<Vec<NetDevice>> {
        let config =
            Config::from_environment().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let devices = crate::netdev::devices()?.into_iter();
        Ok(devices
            .map(|netdev| netdev.with_wire(config.wires.usual()))
            .collect())
    }
}

/// The devices that interfaces are shown as. All that speak one thing come before those that speak the next.
fn as_devices(interfaces: &[NetDevice], wires: Wires) -> Vec<NetDevice> {
    let speaking = |wire| {
        interfaces
            .iter()
            .map(move |netdev| netdev.clone().with_wire(wire))
    };
    wires.shown().iter().copied().flat_map(speaking).collect()
}

/// The device of this name, which may be that of an interface.
pub(crate) fn named(interfaces: &[NetDevice], name: &str, wires: Wires) -> Option<NetDevice> {
    let all = interfaces.iter();
    let by_interface = all.clone().find(|netdev| netdev.name == name);
    let mut by_device = Wire::ALL.into_iter().flat_map(|wire| {
        let interface = name.strip_prefix(wire.prefix());
        all.clone()
            .filter(move |netdev| interface == Some(netdev.name.as_str()))
            .map(move |netdev| netdev.clone().with_wire(wire))
    });
    by_device
        .next()
        .or_else(|| by_interface.map(|netdev| netdev.clone().with_wire(wires.usual())))
}

/// Those of all interfaces that programs are shown, in the order of the list: loopback is last.
pub(crate) fn shown(interfaces: &[NetDevice], loopback: Loopback) -> Vec<NetDevice> {
    // Without an address there is nothing a program could do with a device, not even open it.
    let usable = interfaces.iter().filter(|netdev| !netdev.gids.is_empty());
    let (own, others): (Vec<&NetDevice>, Vec<&NetDevice>) = usable.partition(|netdev| netdev.loopback);
    let (with_others, with_own) = match loopback {
        Loopback::Auto => (true, !others.iter().any(|netdev| reaches_hosts(netdev))),
        Loopback::On => (true, true),
        Loopback::Only => (false, true),
        Loopback::Off => (true, false),
    };
    let others = others.into_iter().filter(|_| with_others);
    let own = own.into_iter().filter(|_| with_own);
    others
        .chain(own)
        .map(|netdev| as_shown(netdev, interfaces, loopback))
        .collect()
}

/// An interface as programs that open it see it.
///
/// Programs that connect each device with each other one give both queue pairs the MTU of their own device, so a loopback
/// device that is listed among others must not promise more than they carry.
pub(crate) fn as_shown(netdev: &NetDevice, interfaces: &[NetDevice], loopback: Loopback) -> NetDevice {
    let mut netdev = netdev.clone();
    if netdev.loopback && loopback == Loopback::On {
        let others = interfaces.iter().filter(|other| !other.gids.is_empty());
        netdev.mtu = others.map(|other| other.mtu).fold(netdev.mtu, u32::min);
    }
    netdev
}

/// Whether a device can be expected to reach other hosts. A link-local address proves nothing: interfaces give themselves
/// one as soon as they are switched on.
fn reaches_hosts(netdev: &NetDevice) -> bool {
    let routed = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => !ip.is_link_local(),
        IpAddr::V6(ip) => !ip.is_unicast_link_local(),
    };
    netdev.up && netdev.link == LinkState::Up && netdev.gids.iter().any(|entry| routed(entry.address.ip))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netdev::{GidEntry, LocalAddress};

    fn interface(name: &str, mtu: u32, addresses: &[&str]) -> NetDevice {
        let entry = |text: &&str| {
            let ip: IpAddr = text.parse().expect("a literal address");
            GidEntry::from(LocalAddress::from(ip))
        };
        NetDevice {
            name: name.to_owned(),
            index: 1,
            mtu,
            up: true,
            link: LinkState::Up,
            loopback: name == "lo",
            mac: None,
            gids: addresses.iter().map(entry).collect(),
            wire: Wire::Roce,
        }
    }

    fn lo() -> NetDevice {
        interface("lo", 65536, &["127.0.0.1", "::1"])
    }

    fn eth() -> NetDevice {
        interface("eth", 1500, &["fe80::1", "192.0.2.1"])
    }

    fn names(interfaces: &[NetDevice], loopback: Loopback) -> Vec<String> {
        let shown = shown(interfaces, loopback);
        shown.into_iter().map(|netdev| netdev.name).collect()
    }

    #[test]
    fn loopback_is_shown_where_nothing_else_reaches_other_hosts() {
        let without_carrier = NetDevice {
            link: LinkState::Down,
            ..eth()
        };
        let link_local = interface("usb", 1500, &["fe80::2", "169.254.1.1"]);
        assert_eq!(names(&[lo()], Loopback::Auto), ["lo"]);
        assert_eq!(
            names(&[lo(), interface("new", 1500, &[])], Loopback::Auto),
            ["lo"]
        );
        assert_eq!(names(&[lo(), without_carrier], Loopback::Auto), ["eth", "lo"]);
        assert_eq!(names(&[lo(), link_local], Loopback::Auto), ["usb", "lo"]);
        assert_eq!(names(&[lo(), eth()], Loopback::Auto), ["eth"]);
    }

    #[test]
    fn the_user_has_the_last_word() {
        let both = [lo(), eth()];
        assert_eq!(names(&both, Loopback::On), ["eth", "lo"]);
        assert_eq!(names(&both, Loopback::Only), ["lo"]);
        assert_eq!(names(&both, Loopback::Off), ["eth"]);
        assert!(names(&[lo()], Loopback::Off).is_empty());
    }

    #[test]
    fn an_interface_is_a_device_for_each_wire_and_its_name_the_usual_one() {
        let devices = as_devices(&[eth(), lo()], Wires::Both);
        let names: Vec<String> = devices.iter().map(NetDevice::device_name).collect();
        assert_eq!(names, ["roce_eth", "roce_lo", "iwarp_eth", "iwarp_lo"]);
        let named = |name, wires| named(&[lo(), eth()], name, wires).map(|netdev| netdev.device_name());
        assert_eq!(named("eth", Wires::Both).as_deref(), Some("roce_eth"));
        assert_eq!(named("eth", Wires::Iwarp).as_deref(), Some("iwarp_eth"));
        assert_eq!(named("roce_eth", Wires::Iwarp).as_deref(), Some("roce_eth"));
        assert_eq!(named("iwarp_lo", Wires::Roce).as_deref(), Some("iwarp_lo"));
        assert_eq!(named("iwarp_x", Wires::Roce), None);
    }

    #[test]
    fn among_others_loopback_promises_no_more_than_they_carry() {
        let path_mtus = |loopback| {
            let shown = shown(&[lo(), eth(), interface("new", 576, &[])], loopback);
            shown.iter().map(NetDevice::path_mtu).collect::<Vec<_>>()
        };
        assert_eq!(path_mtus(Loopback::On), [1024, 1024]);
        assert_eq!(path_mtus(Loopback::Only), [4096]);
    }
}
