//! Hosts, each a network namespace with an interface, and the wire between them.

use super::tun::{INTERFACE, Tun};
use super::wire::{Port, Side, Wire};
use anyhow::{Context, Result, ensure};
use nonic_netem::LinkSettings;
use std::net::Ipv4Addr;
use std::path::Path;
use testbed::namespace::Namespace;
use testbed::run_as::RunAs;

/// Hosts on either side of a wire.
#[derive(Debug)]
pub(crate) struct Network {
    // Before the hosts: it ends first.
    pub(crate) wire: Wire,
    pub(crate) left: Vec<Host>,
    pub(crate) right: Vec<Host>,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) namespace: Namespace,
    pub(crate) address: Ipv4Addr,
}

/// How many hosts, and what is between them.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) left: u8,
    pub(crate) right: u8,
    pub(crate) mtu: u32,
    /// From left to right, and from right to left.
    pub(crate) settings: [LinkSettings; 2],
    pub(crate) seed: u64,
    /// Let the kernel leave packets in one piece.
    pub(crate) offload: bool,
}

impl Network {
    pub(crate) fn new(plan: &Plan) -> Result<Self> {
        ensure!(plan.left > 0 && plan.right > 0, "each side has a host at least");
        let mut ports = Vec::new();
        let mut hosts = |side: Side, count: u8| -> Result<Vec<Host>> {
            (1..=count)
                .map(|number| {
                    let address = Ipv4Addr::new(10, 78, side as u8, number);
                    let host = Host::new(address)?;
                    let tun = Tun::new(&host.namespace.path(), plan.offload)?;
                    host.switch_on(plan.mtu)?;
                    ports.push(Port { tun, side, address });
                    Ok(host)
                })
                .collect()
        };
        let left = hosts(Side::Left, plan.left)?;
        let right = hosts(Side::Right, plan.right)?;
        let wire = Wire::start(ports, plan.settings.clone(), plan.seed)?;
        Ok(Self { wire, left, right })
    }
}

impl Host {
    fn new(address: Ipv4Addr) -> Result<Self> {
        Ok(Self {
            namespace: Namespace::new()?,
            address,
        })
    }

    fn switch_on(&self, mtu: u32) -> Result<()> {
        let ip = |arguments: &[&str]| self.namespace.ip(arguments);
        let mtu = mtu.to_string();
        // The queue is long: the wire reports what it drops, this does not.
        ip(&[
            "link",
            "set",
            INTERFACE,
            "mtu",
            &mtu,
            "txqueuelen",
            "5000",
            "addrgenmode",
            "none",
            "up",
        ])?;
        let address = format!("{}/16", self.address);
        ip(&["addr", "add", &address, "dev", INTERFACE])?;
        Ok(())
    }

    /// Sets a number of the kernel's that each namespace has of its own.
    pub(crate) fn sysctl(&self, name: &str, value: &str) -> Result<()> {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        let script = format!("echo {value} > {path}");
        let mut command = self.run_as(&[]).command(Path::new("sh"));
        let status = command
            .args(["-c", &script])
            .status()
            .context("cannot start sh")?;
        ensure!(status.success(), "cannot set {name}");
        Ok(())
    }

    /// As our own user, here.
    pub(crate) fn run_as<'a>(&'a self, environment: &'a [(&'static str, String)]) -> RunAs<'a> {
        RunAs {
            namespace: Some(&self.namespace),
            as_nobody: false,
            confinement: None,
            environment,
        }
    }
}
