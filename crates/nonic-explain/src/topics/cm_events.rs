//! Topics: the events of the connection manager.

use super::{Kind, Topic};

/// In the order of their numbers.
pub(super) static ALL: [Topic; 16] = [
    Topic {
        kind: Kind::CmEvent,
        name: "RDMA_CM_EVENT_ADDR_RESOLVED",
        number: Some(0),
        meaning: "the address was found, and the device that leads there",
        causes: &[],
        steps: &["go on with rdma_resolve_route"],
    },
    Topic {
        kind: Kind::CmEvent,
        name: "RDMA_CM_EVENT_ADDR_ERROR",
        number: Some(1),
        meaning: "no device leads to the address, or the name has none",
        causes: &[
            "the address is of a network that no device of this host is in",
            "the interface is down",
            "the source address that was asked for is not one of a device",
        ],
        steps: &[
            "list the devices and their addresses: `nonic devices`",
            "try `ip route get ADDRESS`",
        ],
    },
    Topic {
        kind: Kind::CmEvent,
        name: "RDMA_CM_EVENT_ROUTE_RESOLVED",
        number: Some(2),
        meaning: "the way to the peer is known",
        causes: &[],
        steps: &["go on with rdma_connect"],
    },
    Topic {
        kind: Kind::CmEvent,
        name: "RDMA_CM_EVENT_ROUTE_ERROR",
        number: Some(3),
        meaning: "no way to the peer was found; nonic never says this, since IP has found it already",
        causes: &[],
        steps: &["look at the routing table and at the subnet manager of InfiniBand"],
    },
    Topic {
        kind: Kind::CmEvent,
        name: "RDMA_CM_EVENT_CONNECT_REQUEST",
        number: Some(4),
        meaning: "a peer wants to connect to this listener",
        causes: &[],
        steps: &["answer it with rdma_accept or rdma_reject: the identifier of the event is a new one"],
    },
    Topic {
        kind: Kind::CmEvent,
        name: "RDMA_CM_EVENT_CONNECT_RESPONSE",
        number: Some(5),
        meaning: "the peer accepted, and the program moves the queue pair itself, since the identifier has none",
        causes: &[],
        steps: &["bring the queue pair to RTS and call rdma_establish or rdma_accept"],
    },
    Topic {
        kind: Kind::CmEvent,
        name: "RDMA_CM_EVENT_CONNECT_ERROR",
        number: Some(6),
        meaning: "the connection could not be set up for a reason of this side",
        causes: &["the queue pair could not be moved: it is gone, or attributes do not fit the device"],
        steps: &[
            "look at the status of the event, an errno",
            "set NONIC_LOG=warn: it says which attribute",
        ],
    },
    Topic {
        kind: Kind::CmEvent,
        name: "RDMA_CM_EVENT_UNREACHABLE",
        number: Some(7),
        meaning: "the peer did not answer the request to connect",
        causes: &[
            "no RDMA program runs there, or its device has another address",
            "a firewall drops UDP port 4791 (iWARP: the TCP port), in either direction",
            "another program has UDP port 4791 on the peer's host, such as a kernel's rxe: what comes there is lost",
            "the peer's program neither accepts nor rejects",
            "of datagram services (RDMA_PS_UDP): nobody listens on the port, or it refused; the status says which",
        ],
        steps: &[
            "try `nonic ping` between the two addresses, and `nonic doctor` on both hosts",
            "open UDP port 4791 in both directions",
        ],
    },
    Topic {
        kind: Kind::CmEvent,
        name: "RDMA_CM_EVENT_REJECTED",
        number: Some(8),
        meaning: "the peer, or its connection manager, refused the connection",
        causes: &[
            "nobody listens on that port",
            "the program there called rdma_reject",
        ],
        steps: &[
            "look up the status of the event, a reason: `nonic explain IB_CM_REJ`",
            "start the listener before connecting",
        ],
    },
    Topic {
        kind: Kind::CmEvent,
        name: "RDMA_CM_EVENT_ESTABLISHED",
        number: Some(9),
        meaning: "the connection is there: both sides may send",
        causes: &[],
        steps: &["post work requests"],
    },
    Topic {
        kind: Kind::CmEvent,
        name: "RDMA_CM_EVENT_DISCONNECTED",
        number: Some(10),
        meaning: "the connection is over: requests that are still posted are flushed",
        causes: &[
            "one of the two called rdma_disconnect, or its process ended",
            "a queue pair failed, and the peer's program ended the connection",
        ],
        steps: &[
            "look at the first completion that failed, if there is one",
            "call rdma_disconnect as well, and destroy the queue pair when its completions have been taken",
        ],
    },
    Topic {
        kind: Kind::CmEvent,
        name: "RDMA_CM_EVENT_DEVICE_REMOVAL",
        number: Some(11),
        meaning: "the device is gone; nonic never says this",
        causes: &[],
        steps: &["destroy what was made on the device"],
    },
    Topic {
        kind: Kind::CmEvent,
        name: "RDMA_CM_EVENT_MULTICAST_JOIN",
        number: Some(12),
        meaning: "this side is a member of the multicast group, or could not become one: the status says so",
        causes: &[],
        steps: &[
            "if the status is 0, attach the queue pair with what the event names; rdma_join_multicast does that for identifiers with a queue pair",
        ],
    },
    Topic {
        kind: Kind::CmEvent,
        name: "RDMA_CM_EVENT_MULTICAST_ERROR",
        number: Some(13),
        meaning: "this side is no longer a member of the multicast group, or did not become one; nonic tells by the status of RDMA_CM_EVENT_MULTICAST_JOIN instead",
        causes: &["the interface is down or has no multicast"],
        steps: &["bring the interface up and join again"],
    },
    Topic {
        kind: Kind::CmEvent,
        name: "RDMA_CM_EVENT_ADDR_CHANGE",
        number: Some(14),
        meaning: "the address of the connection moved to another device; nonic never says this",
        causes: &[],
        steps: &["connect again"],
    },
    Topic {
        kind: Kind::CmEvent,
        name: "RDMA_CM_EVENT_TIMEWAIT_EXIT",
        number: Some(15),
        meaning: "the number of a queue pair whose connection is over may be used again: no packet of it is under way any more",
        causes: &[],
        steps: &["nothing"],
    },
];
