//! Hosts for a test: namespaces of the test bed, without which the test fails.

use super::Place;
pub(crate) use testbed::namespace::unavailable;
use testbed::namespace::{Namespace, VethPair};

/// A host of its own, with its loopback alone.
pub(crate) fn new_namespace() -> Namespace {
    Namespace::new().expect("root can make a namespace")
}

/// Two hosts and a cable between them.
pub(crate) fn veth_pair(mtu: u32) -> VethPair {
    VethPair::with_mtu(mtu).expect("root can join namespaces")
}

/// A namespace where there can be one: on an address shared with strangers what they do and leave behind would be counted as ours.
pub(crate) fn place_of_its_own() -> (Option<Namespace>, Place) {
    let namespace = unavailable().is_none().then(new_namespace);
    let here = match &namespace {
        Some(namespace) => Place::here().in_namespace(namespace),
        None => Place::here(),
    };
    (namespace, here)
}
