//! The four topologies in which a pair of programs runs: one host or two, and which of the Internet's protocols between them.

use crate::case::Place;
use crate::namespace::VethPair;
use crate::run_as::RunAs;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

/// What the devices speak.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Wire {
    /// RoCE v2, by UDP.
    Roce,
    /// iWARP, by TCP.
    Iwarp,
}

/// Where both sides are.
#[derive(Copy, Clone, Debug)]
pub struct Topology<'a> {
    /// As the documentation calls it.
    pub name: &'static str,
    /// The device of both sides.
    pub device: &'static str,
    /// Where the client finds the server.
    pub address: &'static str,
    /// Where the client itself is.
    pub client_address: &'static str,
    /// The addresses of server and client on an interface that has multicast, also if they are on one host.
    pub ethernet: [&'static str; 2],
    /// A multicast group of the protocol that is between them.
    pub group: IpAddr,
    /// The GID of both sides, by its place in the device's table.
    pub gid_index: u32,
    /// Where servers run.
    pub server: RunAs<'a>,
    /// Where clients run.
    pub client: RunAs<'a>,
}

impl Topology<'_> {
    /// Whether ports of the connection manager are TCP's.
    pub fn is_iwarp(&self) -> bool {
        self.device.starts_with("iwarp_")
    }
}

/// What loopback needs where there is an Ethernet interface as well: programs would not be shown `roce_lo`.
static ON_LOOPBACK: LazyLock<[(&str, String); 1]> = LazyLock::new(|| [("NONIC_LOOPBACK", "only".to_owned())]);

/// The same for iWARP, and what any program needs that is to use it.
static IWARP_ON_LOOPBACK: LazyLock<[(&str, String); 2]> = LazyLock::new(|| {
    [
        ("NONIC_LOOPBACK", "only".to_owned()),
        ("NONIC_WIRE", "iwarp".to_owned()),
    ]
});
static ON_IWARP: LazyLock<[(&str, String); 1]> = LazyLock::new(|| [("NONIC_WIRE", "iwarp".to_owned())]);

/// How many there are.
pub const TOPOLOGIES: usize = 4;

/// Loopback and two hosts with IPv4, then both with IPv6.
pub fn all(veth_pair: &VethPair) -> [Topology<'_>; TOPOLOGIES] {
    let run_as = |namespace| RunAs {
        namespace: Some(namespace),
        as_nobody: true,
        confinement: None,
        environment: &[],
    };
    let on_loopback = || RunAs {
        environment: &*ON_LOOPBACK,
        ..run_as(&veth_pair.right)
    };
    let loopback = Topology {
        name: "loopback",
        device: "roce_lo",
        address: "127.0.0.1",
        client_address: "127.0.0.1",
        ethernet: ["10.77.0.2", "10.77.0.2"],
        group: IpAddr::from([239, 1, 2, 3]),
        gid_index: 0,
        server: on_loopback(),
        client: on_loopback(),
    };
    let hosts = Topology {
        name: "two hosts",
        device: "roce_veth",
        address: "10.77.0.2",
        client_address: "10.77.0.1",
        ethernet: ["10.77.0.2", "10.77.0.1"],
        // The first is link-local.
        gid_index: 1,
        server: run_as(&veth_pair.right),
        client: run_as(&veth_pair.left),
        ..loopback
    };
    let group = IpAddr::from([0xff05, 0, 0, 0, 0, 0, 1, 0x1234]);
    let loopback_v6 = Topology {
        name: "loopback, IPv6",
        address: "::1",
        client_address: "::1",
        ethernet: ["fd77::2", "fd77::2"],
        group,
        ..loopback
    };
    let hosts_v6 = Topology {
        name: "two hosts, IPv6",
        address: "fd77::2",
        client_address: "fd77::1",
        ethernet: ["fd77::2", "fd77::1"],
        group,
        ..hosts
    };
    [loopback, hosts, loopback_v6, hosts_v6]
}

/// The same with the devices of a wire.
pub fn on_wire(veth_pair: &VethPair, wire: Wire) -> [Topology<'_>; TOPOLOGIES] {
    match wire {
        Wire::Roce => all(veth_pair),
        Wire::Iwarp => all(veth_pair).map(on_iwarp),
    }
}

/// The topology of a place, with the devices of a wire. "One host" is loopback.
pub fn at(veth_pair: &VethPair, wire: Wire, place: Place) -> Topology<'_> {
    let [loopback, hosts, loopback_v6, hosts_v6] = on_wire(veth_pair, wire);
    match place {
        Place::OneHost => loopback,
        Place::TwoHosts => hosts,
        Place::OneHostIpv6 => loopback_v6,
        Place::TwoHostsIpv6 => hosts_v6,
    }
}

/// The same place with iWARP's devices.
pub fn on_iwarp(topology: Topology<'_>) -> Topology<'_> {
    let (device, environment): (_, &[(&str, String)]) = match topology.device {
        "roce_lo" => ("iwarp_lo", &*IWARP_ON_LOOPBACK),
        _ => ("iwarp_veth", &*ON_IWARP),
    };
    Topology {
        device,
        server: RunAs {
            environment,
            ..topology.server
        },
        client: RunAs {
            environment,
            ..topology.client
        },
        ..topology
    }
}

/// Both ends on the loopback of this very namespace, as our own user.
pub fn here() -> Topology<'static> {
    let here = RunAs {
        environment: &*ON_LOOPBACK,
        ..RunAs::default()
    };
    Topology {
        name: "loopback",
        device: "roce_lo",
        address: "127.0.0.1",
        client_address: "127.0.0.1",
        ethernet: ["127.0.0.1"; 2],
        group: IpAddr::from([239, 1, 2, 3]),
        gid_index: 0,
        server: here,
        client: here,
    }
}

/// `nonic run -- program` as a user, in a namespace.
pub fn on_nonic(run_as: &RunAs<'_>, nonic: &Path, program: &str) -> Command {
    let mut command = run_as.command(nonic);
    command.args(["run", "--", program]);
    command
}
