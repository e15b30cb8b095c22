//! Topics: the reasons for which connections are refused.

use super::{Kind, Topic};

/// In the order of their numbers.
pub(super) static ALL: [Topic; 12] = [
    Topic {
        kind: Kind::Rejection,
        name: "IB_CM_REJ_NO_QP",
        number: Some(1),
        meaning: "the peer has no queue pair left for the connection",
        causes: &["the peer is at a limit of its device"],
        steps: &["end connections that are not used"],
    },
    Topic {
        kind: Kind::Rejection,
        name: "IB_CM_REJ_NO_RESOURCES",
        number: Some(3),
        meaning: "the peer has no resources left for the connection",
        causes: &["too many requests to connect are waiting at the listener"],
        steps: &[
            "accept faster, or listen with a longer backlog",
            "connect again later",
        ],
    },
    Topic {
        kind: Kind::Rejection,
        name: "IB_CM_REJ_TIMEOUT",
        number: Some(4),
        meaning: "the peer, or this side, did not hear the next message of the handshake in time",
        causes: &[
            "the peer's program does not accept",
            "packets of queue pair 1 are lost, or a firewall drops UDP port 4791 in one direction",
        ],
        steps: &[
            "see what the peer's program does",
            "open UDP port 4791 in both directions",
        ],
    },
    Topic {
        kind: Kind::Rejection,
        name: "IB_CM_REJ_UNSUPPORTED",
        number: Some(5),
        meaning: "the request asks for something that the peer does not offer",
        causes: &["another version of the protocol, or another transport"],
        steps: &["compare the versions of both sides"],
    },
    Topic {
        kind: Kind::Rejection,
        name: "IB_CM_REJ_INVALID_COMM_ID",
        number: Some(6),
        meaning: "the peer does not know the connection",
        causes: &["the peer's process was restarted"],
        steps: &["connect again"],
    },
    Topic {
        kind: Kind::Rejection,
        name: "IB_CM_REJ_INVALID_SERVICE_ID",
        number: Some(8),
        meaning: "nobody listens there",
        causes: &[
            "the peer's program does not run, or listens on another port or address",
            "it listens in another port space: RDMA_PS_TCP and RDMA_PS_UDP are different",
        ],
        steps: &[
            "start the listener, then `nonic show` on its host lists who listens where",
            "check address and port",
        ],
    },
    Topic {
        kind: Kind::Rejection,
        name: "IB_CM_REJ_INVALID_TRANSPORT_TYPE",
        number: Some(9),
        meaning: "the peer does not offer the transport",
        causes: &["one side asks for XRC or UC, the other for RC"],
        steps: &["use the same kind of queue pair on both sides"],
    },
    Topic {
        kind: Kind::Rejection,
        name: "IB_CM_REJ_STALE_CONN",
        number: Some(10),
        meaning: "the peer still knows an older connection with the same numbers",
        causes: &["this side's process was restarted while the peer's went on"],
        steps: &["connect again: the older connection ends by this"],
    },
    Topic {
        kind: Kind::Rejection,
        name: "IB_CM_REJ_INVALID_GID",
        number: Some(12),
        meaning: "the address of the path is not one of the peer's",
        causes: &["the GID index or the address is wrong"],
        steps: &["compare the GIDs of both sides (`nonic devices`)"],
    },
    Topic {
        kind: Kind::Rejection,
        name: "IB_CM_REJ_INVALID_MTU",
        number: Some(26),
        meaning: "the path MTU is not possible for the peer",
        causes: &["one side's interface has a smaller MTU"],
        steps: &["ask for the smaller of the two active MTUs"],
    },
    Topic {
        kind: Kind::Rejection,
        name: "IB_CM_REJ_INSUFFICIENT_RESP_RESOURCES",
        number: Some(27),
        meaning: "the peer answers fewer READs and atomics at a time than were asked for",
        causes: &["initiator_depth is above the peer's responder_resources"],
        steps: &["ask for fewer"],
    },
    Topic {
        kind: Kind::Rejection,
        name: "IB_CM_REJ_CONSUMER_DEFINED",
        number: Some(28),
        meaning: "the peer's program refused",
        causes: &["it said no, perhaps with a reason in the private data"],
        steps: &[
            "look at the private data and at the peer's program",
            "two versions of a protocol often meet here: compare them",
        ],
    },
];
