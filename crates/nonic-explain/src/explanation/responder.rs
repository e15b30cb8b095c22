//! Explains why this side did not execute a request of its peer: this side knows exactly.

use super::{Explanation, Words};
use nonic_core::record::{KeyExtent, LocalFault, RefusalReason, RefusedRequest, RequestKind};
use nonic_core::{Access, KeyError};

/// A request was refused, and the peer was told as much as a NAK or a Terminate says.
pub(super) fn refused(refused: &RefusedRequest) -> Explanation {
    let kind = refused.kind;
    let request = match refused.rkey {
        0 => format!("the peer's {kind}"),
        rkey => format!(
            "the peer's {kind} of {} bytes at {:#x} with rkey {rkey:#x}",
            refused.length, refused.va
        ),
    };
    let (why, steps) = match refused.reason {
        RefusalReason::Key(error) => key(refused, error),
        RefusalReason::Operation => operation(refused),
        reason => general(reason),
    };
    told(format!("This side refused {request}: {why}."), steps)
}

/// A request was dropped without a word.
pub(super) fn dropped(kind: RequestKind, reason: RefusalReason) -> Explanation {
    let (why, steps) = match reason {
        RefusalReason::Key(error) => (format!("{error}"), key_steps(error, kind)),
        RefusalReason::Operation => (
            format!("the queue pair does not permit its peer {}", right_for(kind).1),
            vec!["give the queue pair the right in `qp_access_flags` when it goes to INIT".into()],
        ),
        reason => general(reason),
    };
    told(format!("This side dropped the peer's {kind}: {why}."), steps)
}

/// A receive names memory that this side's NIC may not write.
pub(super) fn receive_key(fault: Option<&LocalFault>) -> Explanation {
    let why = match fault {
        Some(fault) => fault.to_string(),
        None => "a key of its scatter list does not permit it, or the memory under it is gone".into(),
    };
    told(
        format!("A message came, but its receive could not take it: {why}."),
        vec![
            "register the memory of receives with LOCAL_WRITE, in the protection domain of the queue pair, and keep it registered until the \
             receive has completed"
                .into(),
        ],
    )
}

fn told(happened: String, steps: Vec<Words>) -> Explanation {
    Explanation {
        happened,
        causes: Vec::new(),
        steps,
        events: Vec::new(),
    }
}

/// The right that a request needs, as a flag and in words.
fn right_for(kind: RequestKind) -> (Access, &'static str) {
    match kind {
        RequestKind::Read => (Access::REMOTE_READ, "remote read (REMOTE_READ)"),
        RequestKind::Atomic => (Access::REMOTE_ATOMIC, "remote atomics (REMOTE_ATOMIC)"),
        RequestKind::Flush => (
            Access::FLUSH_GLOBAL.union(Access::FLUSH_PERSISTENT),
            "flushes (FLUSH_GLOBAL, FLUSH_PERSISTENT)",
        ),
        _ => (Access::REMOTE_WRITE, "remote write (REMOTE_WRITE)"),
    }
}

fn covers(key: &KeyExtent) -> String {
    let end = key.iova.saturating_add(key.length);
    format!("{} bytes, from {:#x} up to {end:#x}", key.length, key.iova)
}

fn key(refused: &RefusedRequest, error: KeyError) -> (String, Vec<Words>) {
    let why = match (error, &refused.key) {
        (KeyError::Unknown, _) => "there is no such key here".into(),
        (KeyError::Revoked, _) => "the key was valid and has been revoked".into(),
        (KeyError::Domain, Some(key)) if key.pd != refused.domain => format!(
            "the key exists but belongs to another protection domain ({}) than the queue pair ({})",
            key.pd, refused.domain
        ),
        (KeyError::Domain, _) => "the key exists but is a memory window bound to another queue pair".into(),
        (KeyError::Rights, Some(key)) => format!(
            "the key exists but does not allow {}; it allows {}",
            right_for(refused.kind).1,
            rights(key.access)
        ),
        (KeyError::Bounds, Some(key)) => format!(
            "the range is out of bounds: it ends at {:#x}, the key covers {}",
            refused.va.saturating_add(refused.length),
            covers(key)
        ),
        (error, _) => error.to_string(),
    };
    (why, key_steps(error, refused.kind))
}

fn key_steps(error: KeyError, kind: RequestKind) -> Vec<Words> {
    match error {
        KeyError::Unknown => vec![
            "send the peer the rkey that registration returned, as 32 bits in the byte order that both expect".into(),
            "check that the peer uses the key of this connection, not of an earlier run".into(),
        ],
        KeyError::Revoked => vec![
            "keep the memory registered until the peer has said that it is done with it".into(),
            "send the peer the new rkey after registering again".into(),
        ],
        KeyError::Domain => {
            vec!["register the memory in the protection domain that the queue pair was created in".into()]
        }
        KeyError::Rights => vec![format!("register the memory with {} as well", right_for(kind).1).into()],
        KeyError::Bounds => vec![
            "check the address and the length that the peer was told: addresses are those of registration (iova), not offsets".into(),
        ],
        KeyError::NotInvalidatable => {
            vec!["only memory windows of type 2 can be invalidated; send without invalidation otherwise".into()]
        }
        _ => Vec::new(),
    }
}

fn operation(refused: &RefusedRequest) -> (String, Vec<Words>) {
    let (_, right) = right_for(refused.kind);
    (
        format!(
            "the queue pair does not permit its peer {right}; it permits {}",
            rights(refused.permitted)
        ),
        vec![
            format!("give the queue pair {right} in `qp_access_flags` when it goes to INIT: the rights of a key alone are not enough").into(),
        ],
    )
}

/// Rights as words.
fn rights(access: Access) -> String {
    let names: Vec<&str> = access.iter_names().map(|(name, _)| name).collect();
    match names.is_empty() {
        true => "nothing".into(),
        false => names.join(", "),
    }
}

/// Reasons that are not about keys and rights.
fn general(reason: RefusalReason) -> (String, Vec<Words>) {
    let (why, steps): (String, &[&str]) = match reason {
        RefusalReason::Length => (
            "its length is above 2 GiB or not the one it announced".into(),
            &["split longer messages"],
        ),
        RefusalReason::Alignment => (
            "the address of an atomic or ATOMIC_WRITE must be a multiple of 8 (unaligned)".into(),
            &["align the word to 8 bytes on the side that owns the memory"],
        ),
        RefusalReason::MemoryGone => (
            "the memory under the key is gone: it was unmapped while it was registered".into(),
            &["deregister memory before it is unmapped or freed"],
        ),
        RefusalReason::PacketLength { payload, mtu } => (
            format!(
                "a packet had {payload} bytes of payload, which does not fit this side's path MTU of {mtu}: the path MTUs of the two sides differ"
            ),
            &[
                "set the same `path_mtu` on both sides, the smaller of the two active MTUs; the connection manager does that",
            ],
        ),
        RefusalReason::Sequence => (
            "the packets of a message came mixed with others, or without its beginning".into(),
            &[
                "check that no two queue pairs send to this one, and that it was not reset while its peer was sending",
            ],
        ),
        RefusalReason::TooManyFetches(limit) => (
            format!(
                "it has more READs and atomics under way than this side's `max_dest_rd_atomic` of {limit}"
            ),
            &["set the peer's `max_rd_atomic` no higher than this side's `max_dest_rd_atomic`"],
        ),
        RefusalReason::NoSharedReceiveQueue => (
            "it names a shared receive queue that this XRC domain does not have".into(),
            &["send the peer the number of the SRQ (`ibv_get_srq_num`) and keep the SRQ while it is used"],
        ),
        RefusalReason::ReceiveTooShort { message, receive } => (
            format!(
                "the message is too long for the receive it was for: {message} bytes or more came, {receive} fit"
            ),
            &["post receives of the longest message that the peer may send (datagrams need 40 bytes more)"],
        ),
        RefusalReason::ReceiveKey => (
            "a key of the receive does not permit to write there".into(),
            &["register the memory of receives with LOCAL_WRITE"],
        ),
        RefusalReason::NoReceive => (
            "no receive was posted".into(),
            &["post receives before the peer sends, and post them again as they complete"],
        ),
        RefusalReason::Qkey => (
            "its Q_Key is not that of this queue pair".into(),
            &["send to datagram queue pairs with the Q_Key that they were given when they went to INIT"],
        ),
        _ => (
            "it is malformed or not offered".into(),
            &["capture the packets with NONIC_PCAP and look at them with Wireshark"],
        ),
    };
    (why, steps.iter().map(|step| Words::Borrowed(*step)).collect())
}
