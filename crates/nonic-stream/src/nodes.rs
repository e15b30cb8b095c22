//! The nodes of this process: one for each device that a stream was made on by address, so that streams share its memory and what
//! was measured. They stay open until the process ends.

use nonic::Device;
use nonic_message::{Error, Node, Options};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::io_error;

static NODES: Mutex<Vec<Node>> = Mutex::new(Vec::new());

/// The node of the device from which the kernel would send to `peer`.
pub(crate) fn toward(peer: SocketAddr) -> io::Result<Node> {
    of_address(Device::address_toward(peer.ip())?)
}

/// The node of the device that has this address.
pub(crate) fn of_address(address: IpAddr) -> io::Result<Node> {
    let mut nodes = lock();
    let has_it = |node: &&Node| node.device().gids().iter().any(|gid| gid.address.ip == address);
    if let Some(node) = nodes.iter().find(has_it) {
        return Ok(node.clone());
    }
    let device = Device::for_addr(address).map_err(|error| io_error(Error::Open(error)))?;
    let node = Node::new(&device, Options::default());
    nodes.push(node.clone());
    Ok(node)
}

/// A node for every interface that is up and has an address of this family, loopback among them.
pub(crate) fn of_all(family: IpAddr) -> io::Result<Vec<Node>> {
    let mut chosen: Vec<IpAddr> = Vec::new();
    for interface in Device::interfaces()?.iter().filter(|interface| interface.up) {
        let mut addresses = interface.gids.iter().map(|gid| gid.address.ip);
        // An interface is there twice if its devices speak RoCE and iWARP.
        if let Some(address) = addresses.find(|ip| ip.is_ipv4() == family.is_ipv4()) {
            if !chosen.contains(&address) {
                chosen.push(address);
            }
        }
    }
    chosen.into_iter().map(of_address).collect()
}

/// Has the runtime that this is called on drive the node's device, if there is one and no other does.
pub(crate) fn drive_on_runtime(node: &Node) {
    let device = node.device();
    if device.is_driven_on_runtime() {
        return;
    }
    // Without, the background thread does, and wakes the runtime: slower, not wrong.
    let Ok(runtime) = tokio::runtime::Handle::try_current() else {
        return;
    };
    if let Ok(drive) = device.drive_on_runtime() {
        runtime.spawn(drive);
    }
}

fn lock() -> MutexGuard<'static, Vec<Node>> {
    NODES.lock().unwrap_or_else(PoisonError::into_inner)
}
