//! Tables of the texts that programs print for a number: those of `ibv_wc_status_str`, `ibv_event_type_str`,
//! `ibv_port_state_str` and `ibv_node_type_str`, as rdma-core has them. The C libraries answer from these tables, and
//! users ask `nonic explain` with those answers.
//!
//! `rdma_event_str` answers with the names themselves; the texts of errnos are beside their meanings.

use super::{Kind, Topic, errno_numbers};
use std::ffi::CStr;

/// By `ibv_wc_status`.
pub static STATUSES: [&CStr; 24] = [
    c"success",
    c"local length error",
    c"local QP operation error",
    c"local EE context operation error",
    c"local protection error",
    c"Work Request Flushed Error",
    c"memory management operation error",
    c"bad response error",
    c"local access error",
    c"remote invalid request error",
    c"remote access error",
    c"remote operation error",
    c"transport retry counter exceeded",
    c"RNR retry counter exceeded",
    c"local RDD violation error",
    c"remote invalid RD request",
    c"aborted error",
    c"invalid EE context number",
    c"invalid EE context state",
    c"fatal error",
    c"response timeout error",
    c"general error",
    c"TM error",
    c"TM software rendezvous",
];

/// By `ibv_event_type`.
pub static EVENTS: [&CStr; 20] = [
    c"CQ error",
    c"local work queue catastrophic error",
    c"invalid request local work queue error",
    c"local access violation work queue error",
    c"communication established",
    c"send queue drained",
    c"path migrated",
    c"path migration request error",
    c"local catastrophic error",
    c"port active",
    c"port error",
    c"LID change",
    c"P_Key change",
    c"SM change",
    c"SRQ catastrophic error",
    c"SRQ limit reached",
    c"last WQE reached",
    c"client reregistration",
    c"GID table change",
    c"WQ fatal",
];

/// By `ibv_port_state`.
pub static PORT_STATES: [&CStr; 6] = [
    c"no state change (NOP)",
    c"down",
    c"init",
    c"armed",
    c"active",
    c"active defer",
];

/// By `ibv_node_type`; the first is that of all numbers that are none.
pub static NODE_TYPES: [&CStr; 8] = [
    c"unknown",
    c"InfiniBand channel adapter",
    c"InfiniBand switch",
    c"InfiniBand router",
    c"iWARP NIC",
    c"usNIC",
    c"usNIC UDP",
    c"unspecified",
];

/// What a program prints of a topic; nothing of what has a name only.
#[must_use]
pub fn of(topic: &Topic) -> Option<&'static str> {
    let in_order = |texts: &[&'static CStr]| {
        let place = usize::try_from(topic.number?).ok()?;
        texts.get(place)?.to_str().ok()
    };
    match topic.kind {
        Kind::Status => in_order(&STATUSES),
        Kind::Event => in_order(&EVENTS),
        Kind::PortState => in_order(&PORT_STATES),
        Kind::NodeType => in_order(&NODE_TYPES),
        Kind::CmEvent => Some(topic.name),
        Kind::Errno => errno_numbers::text(topic),
        Kind::Rejection => None,
    }
}
