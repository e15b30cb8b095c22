//! Topics: the states of a port and the types of a device.

use super::{Kind, Topic};

const fn topic(
    kind: Kind,
    number: u32,
    name: &'static str,
    meaning: &'static str,
    steps: &'static [&'static str],
) -> Topic {
    Topic {
        kind,
        name,
        number: Some(number),
        meaning,
        causes: &[],
        steps,
    }
}

const NOTHING: &[&str] = &["nothing"];
const INFINIBAND: &[&str] =
    &["start the subnet manager of InfiniBand; a device of nonic's is active or down"];
const OTHER_DEVICE: &[&str] = &["look at the device, it is not nonic's (`nonic devices`)"];

/// In the order of their numbers.
pub(super) static PORTS: [Topic; 6] = [
    topic(
        Kind::PortState,
        0,
        "IBV_PORT_NOP",
        "the state of the port does not change",
        NOTHING,
    ),
    topic(
        Kind::PortState,
        1,
        "IBV_PORT_DOWN",
        "the interface of the device is down or has no carrier",
        &["ip link set INTERFACE up, and look at its cable or its peer"],
    ),
    topic(
        Kind::PortState,
        2,
        "IBV_PORT_INIT",
        "the port has a link and no subnet manager has set it up",
        INFINIBAND,
    ),
    topic(
        Kind::PortState,
        3,
        "IBV_PORT_ARMED",
        "the subnet manager is about to make the port active",
        INFINIBAND,
    ),
    topic(
        Kind::PortState,
        4,
        "IBV_PORT_ACTIVE",
        "the port carries data",
        NOTHING,
    ),
    topic(
        Kind::PortState,
        5,
        "IBV_PORT_ACTIVE_DEFER",
        "the link of an active port is gone for a moment",
        INFINIBAND,
    ),
];

/// In the order of their numbers, but for the first, which is −1 in C.
pub(super) static NODES: [Topic; 8] = [
    topic(
        Kind::NodeType,
        0,
        "IBV_NODE_UNKNOWN",
        "not known; libibverbs and librdmacm say so of every number that they have no words for",
        OTHER_DEVICE,
    ),
    topic(
        Kind::NodeType,
        1,
        "IBV_NODE_CA",
        "the device is a channel adapter, which speaks InfiniBand or RoCE: nonic's roce_ devices say this",
        NOTHING,
    ),
    topic(
        Kind::NodeType,
        2,
        "IBV_NODE_SWITCH",
        "the device is a switch of InfiniBand",
        OTHER_DEVICE,
    ),
    topic(
        Kind::NodeType,
        3,
        "IBV_NODE_ROUTER",
        "the device is a router of InfiniBand",
        OTHER_DEVICE,
    ),
    topic(
        Kind::NodeType,
        4,
        "IBV_NODE_RNIC",
        "the device speaks iWARP: nonic's iwarp_ devices say this",
        NOTHING,
    ),
    topic(
        Kind::NodeType,
        5,
        "IBV_NODE_USNIC",
        "the device is a usNIC of Cisco's",
        OTHER_DEVICE,
    ),
    topic(
        Kind::NodeType,
        6,
        "IBV_NODE_USNIC_UDP",
        "the device is a usNIC of Cisco's that speaks UDP",
        OTHER_DEVICE,
    ),
    topic(
        Kind::NodeType,
        7,
        "IBV_NODE_UNSPECIFIED",
        "the device speaks a protocol of its own, such as EFA",
        OTHER_DEVICE,
    ),
];
