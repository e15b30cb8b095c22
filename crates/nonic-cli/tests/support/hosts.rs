//! Hosts for a test: namespaces of the test bed, without which the test fails.

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
